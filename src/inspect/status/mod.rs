//! `status`: every object of every kind on one screen, and those that need attention.
use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::leader::Leadership;

pub(super) mod conditions;
mod gather;
mod kinds;
mod text;

#[cfg(test)]
mod tests;

pub use gather::gather;
pub use text::text;

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
    /// The operator itself.
    pub operator: OperatorStatus,
    /// The kinds with their objects.
    pub kinds: Vec<KindStatus>,
    /// Everything that needs attention.
    pub attention: Vec<Attention>,
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
    Report { healthy: attention.is_empty(), operator, kinds, attention }
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
                let (ready, reason, problems) = conditions::summary(object);
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

/// Returns the command that shows more about an object.
fn next(command: &str, object: &Object) -> String {
    let name = &object.name;
    match &object.namespace {
        Some(namespace) => format!("explain {command} {name} -n {namespace}"),
        None => format!("explain {command} {name}"),
    }
}
