//! `status`: every object of every kind on one screen, and those that need attention.
use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::leader::Leadership;
use crate::{
    api::traffic_watch::NodeState,
    text::{Tone, figures::span, printable, rows},
};

pub(super) mod conditions;
mod gather;
mod nodes;

#[cfg(test)]
mod tests;

use conditions::{Weight, sentence, weigh};
pub use gather::{gather, gather_nodes, gather_operator};
pub use nodes::{Judgment, NodeReport, all as nodes_text};

/// The facts that the report uses.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The current time.
    pub now: Timestamp,
    /// `namespace/name` of the operator's Lease.
    pub lease: String,
    /// The content of the Lease; none if no replica leads.
    pub leadership: Result<Option<Leadership>, Unread>,
    /// Image of the leader's pod, if the caller may read that pod.
    pub image: Option<String>,
    /// The kinds, in the order of `KINDS`.
    pub kinds: Vec<KindFacts>,
}

/// The objects of one kind.
#[derive(Clone, Debug)]
pub struct KindFacts {
    /// Name of the kind: `TrafficWatch`.
    pub kind: String,
    /// The command after `explain` that explains one object.
    pub command: &'static str,
    /// Names of the figures, in the order of the table.
    pub columns: &'static [&'static str],
    /// The objects, by namespace and name.
    pub objects: Result<Vec<Object>, Unread>,
}

/// The reason why a part could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason", content = "message")]
pub enum Unread {
    /// The API server does not know the kind.
    NotInstalled,
    /// The caller may not read it.
    Forbidden(String),
    /// The request failed.
    Failed(String),
}

/// One object.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Its namespace; none for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// Generation of the spec that its status was computed from.
    pub observed: Option<i64>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its figures, one for each column; empty without a status.
    pub figures: Vec<Value>,
    /// Findings in the status that no condition reports.
    pub notes: Vec<String>,
    /// What it says of nodes, with their names.
    pub nodes: Vec<(String, Judgment)>,
    /// The reason why this version cannot read it.
    pub unreadable: Option<String>,
}

impl Object {
    /// `namespace/name`, or the name of a cluster-scoped object.
    fn full_name(&self) -> String {
        let name = &self.name;
        self.namespace.as_ref().map_or_else(|| name.clone(), |ns| format!("{ns}/{name}"))
    }
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// True if nothing needs attention.
    pub healthy: bool,
    /// The current time.
    #[serde(skip)]
    pub now: Timestamp,
    /// The operator itself.
    pub operator: OperatorStatus,
    /// The nodes that are not fit, the worst first.
    pub nodes: Vec<NodeReport>,
    /// The kinds with their objects.
    pub kinds: Vec<KindStatus>,
    /// Everything that needs attention.
    pub attention: Vec<Attention>,
}

impl Report {
    /// Reports whether both say the same, but for the time that has gone by.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let timeless = |report: &Self| {
            let operator =
                OperatorStatus { seconds: None, renewed: None, ..report.operator.clone() };
            Self { now: other.now, operator, ..report.clone() }
        };
        timeless(self) == timeless(other)
    }
}

/// The operator itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorStatus {
    /// The replica that leads.
    pub leader: Option<String>,
    /// Time since which it leads.
    pub since: Option<Timestamp>,
    /// Seconds since then.
    pub seconds: Option<i64>,
    /// Time of its last renewal of the Lease.
    pub renewed: Option<Timestamp>,
    /// Image of its pod.
    pub image: Option<String>,
    /// The reason why no replica decides, or why that is unknown.
    pub problem: Option<String>,
}

/// One kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindStatus {
    /// Name of the kind.
    pub kind: String,
    /// Names of the figures, in the order of the table.
    #[serde(skip)]
    pub columns: &'static [&'static str],
    /// The reason why the objects are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<Unread>,
    /// The objects.
    pub objects: Vec<ObjectStatus>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// `namespace/name`, or the name of a cluster-scoped object.
    pub name: String,
    /// Status of the condition Ready; none if it has no such condition.
    pub ready: Option<String>,
    /// The one reason that summarizes the conditions.
    pub reason: String,
    /// True if it needs attention.
    pub attention: bool,
    /// The figures that matter, by name.
    pub figures: BTreeMap<&'static str, Value>,
}

/// A finding that needs attention, and the command that shows more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attention {
    /// The operator, a kind, or a kind and `namespace/name`.
    pub what: String,
    /// The findings.
    pub problems: Vec<String>,
    /// The next step.
    pub next: String,
}

/// Judges everything.
#[must_use]
pub fn report(facts: &Facts) -> Report {
    let (operator, of_operator) = operator(facts);
    let mut attention: Vec<_> = of_operator.into_iter().collect();
    let mut kinds = Vec::new();
    for kind in &facts.kinds {
        let (status, of_kind) = self::kind(kind);
        attention.extend(of_kind);
        kinds.push(status);
    }
    // No kind could be listed, so the report must not be healthy.
    if kinds.iter().all(|kind| kind.unlisted.is_some()) {
        attention.push(Attention {
            what: "all kinds".into(),
            problems: vec!["no kind could be listed".into()],
            next: "doctor".into(),
        });
    }
    let objects = facts.kinds.iter().filter_map(|kind| kind.objects.as_ref().ok()).flatten();
    let mut nodes = nodes::by_node(objects.flat_map(|object| object.nodes.iter().cloned()));
    nodes.retain(|node| node.state != NodeState::Fit);
    for node in &mut nodes {
        node.judged.retain(|one| one.state != NodeState::Fit);
    }
    Report { healthy: attention.is_empty(), now: facts.now, operator, nodes, kinds, attention }
}

fn operator(facts: &Facts) -> (OperatorStatus, Option<Attention>) {
    let lease = &facts.lease;
    let mut status = OperatorStatus { image: facts.image.clone(), ..OperatorStatus::default() };
    let problem = match &facts.leadership {
        Ok(Some(leader)) => {
            status.leader = Some(leader.holder.clone());
            status.since = leader.since;
            status.seconds = leader
                .since
                .map(|since| facts.now.as_second().saturating_sub(since.as_second()).max(0));
            status.renewed = leader.renewed;
            leader.expired(facts.now).then(|| {
                let holder = &leader.holder;
                format!("no pod leads: {holder} has not renewed the Lease {lease} in time")
            })
        }
        Ok(None) => Some(format!("no pod leads: the Lease {lease} has no holder")),
        Err(Unread::Failed(why)) => Some(why.clone()),
        // Users who may only read objects need no access to the operator's namespace.
        Err(Unread::Forbidden(why)) => {
            status.problem = Some(why.clone());
            return (status, None);
        }
        Err(Unread::NotInstalled) => Some("the API server serves no Leases".into()),
    };
    status.problem.clone_from(&problem);
    let attention = problem.map(|problem| Attention {
        what: "the operator".into(),
        problems: vec![problem],
        next: "doctor; if the operator runs elsewhere: --operator-namespace, --lease-name".into(),
    });
    (status, attention)
}

fn kind(facts: &KindFacts) -> (KindStatus, Vec<Attention>) {
    let KindFacts { kind, command, columns, objects } = facts;
    let mut status = KindStatus { kind: kind.clone(), columns, unlisted: None, objects: vec![] };
    let mut attention = Vec::new();
    match objects {
        Ok(objects) => {
            for object in objects {
                let (ready, reason, problems) = summary(object);
                status.objects.push(ObjectStatus {
                    name: object.full_name(),
                    ready,
                    reason,
                    attention: !problems.is_empty(),
                    figures: columns.iter().copied().zip(object.figures.iter().cloned()).collect(),
                });
                if !problems.is_empty() {
                    let what = format!("{kind} {}", object.full_name());
                    attention.push(Attention { what, problems, next: next(command, object) });
                }
            }
        }
        Err(why) => {
            if let Unread::Failed(why) = why {
                let (what, problems) = (kind.clone(), vec![why.clone()]);
                attention.push(Attention { what, problems, next: "doctor".into() });
            }
            status.unlisted = Some(why.clone());
        }
    }
    (status, attention)
}

/// Returns the status of Ready, the reason that summarizes all conditions, and the conditions that
/// need attention.
fn summary(object: &Object) -> (Option<String>, String, Vec<String>) {
    if let Some(why) = &object.unreadable {
        let problem = format!("this version cannot read it: {why}");
        return (None, "Unreadable".into(), vec![problem]);
    }
    let Object { conditions, generation, observed, notes, .. } = object;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let Some(ready) = ready else {
        let problem = "the operator has not reported about it yet".to_owned();
        return (None, "-".into(), vec![problem]);
    };
    let status = Some(ready.status.clone());
    // The other conditions are older.
    if ready.reason == "Paused" {
        return (status, ready.reason.clone(), vec![]);
    }
    let of = |weight: Weight| conditions.iter().filter(move |condition| weigh(condition) == weight);
    let worst = of(Weight::Attention).chain(of(Weight::UnderWay)).next().unwrap_or(ready);
    let reason = if weigh(ready) == Weight::Attention { ready } else { worst }.reason.clone();
    let mut problems: Vec<_> = of(Weight::Attention).map(sentence).collect();
    problems.extend(notes.iter().cloned());
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        problems.push(format!(
            "its status is that of generation {observed}; the spec has generation {generation}"
        ));
    }
    (status, reason, problems)
}

/// Returns the command that shows more about an object.
fn next(command: &str, object: &Object) -> String {
    let name = &object.name;
    match &object.namespace {
        Some(namespace) => format!("explain {command} {name} -n {namespace}"),
        None => format!("explain {command} {name}"),
    }
}

/// Returns the report as text, with a line break at its end.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = operator_line(&report.operator);
    if !report.nodes.is_empty() {
        text.push('\n');
        text.push_str(&nodes::text(&report.nodes, report.now));
    }
    for kind in &report.kinds {
        text.push('\n');
        text.push_str(&table_of(kind));
    }
    text.push('\n');
    if report.attention.is_empty() {
        text.push_str("Nothing needs attention\n");
        return text;
    }
    text.push_str("Needs attention\n");
    for attention in &report.attention {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", printable(&attention.what));
        for problem in &attention.problems {
            let _ = writeln!(text, "    {}", printable(problem));
        }
        let _ = writeln!(text, "    try: {}", printable(&attention.next));
    }
    text
}

fn operator_line(operator: &OperatorStatus) -> String {
    let mut text = "Operator: ".to_owned();
    if let Some(leader) = &operator.leader {
        let _ = write!(text, "{leader} leads");
        if let (Some(since), Some(seconds)) = (operator.since, operator.seconds) {
            let _ = write!(text, " for {} (since {since:.0})", span(seconds));
        }
        if let Some(image) = &operator.image {
            let _ = write!(text, ", image {image}");
        }
    }
    if let Some(problem) = &operator.problem {
        let separator = if operator.leader.is_some() { "; " } else { "" };
        let _ = write!(text, "{separator}{problem}");
    }
    format!("{}\n", printable(&text))
}

fn table_of(kind: &KindStatus) -> String {
    let name = &kind.kind;
    match &kind.unlisted {
        Some(Unread::NotInstalled) => return format!("{name}: the kind is not installed\n"),
        Some(Unread::Forbidden(why) | Unread::Failed(why)) => {
            return format!("{name}: not shown: {}\n", printable(why));
        }
        None if kind.objects.is_empty() => return format!("{name}: none\n"),
        None => {}
    }
    let head: Vec<_> = ["name", "ready", "reason"]
        .iter()
        .chain(kind.columns)
        .map(|column| column.to_uppercase())
        .collect();
    let objects: Vec<_> = kind.objects.iter().map(|object| row(object, kind.columns)).collect();
    format!("{name}: {}\n{}", objects.len(), rows(&head, &objects))
}

fn row(object: &ObjectStatus, columns: &[&'static str]) -> Vec<String> {
    let ready = tone(object).paint(object.ready.as_deref().unwrap_or("-"));
    let mut row = vec![object.name.clone(), ready, object.reason.clone()];
    row.extend(columns.iter().map(|column| figure(object.figures.get(column))));
    row
}

fn tone(object: &ObjectStatus) -> Tone {
    match (object.ready.as_deref() == Some("True"), object.attention) {
        (true, false) => Tone::Good,
        (true, true) | (false, false) => Tone::Notable,
        (false, true) => Tone::Bad,
    }
}

fn figure(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}
