//! `explain node`: the reasons for the state of a node, and what else is on it.
use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1, apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp,
};
use kube::{Client, ResourceExt, api::ListParams};
use serde::Serialize;

use super::{
    cluster::{self, Listed, describe, name_of},
    leader::{self, Place},
};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState, NodeStatus},
    },
    controller::Error,
    infra::{Api, watch::Metadata},
    prometheus::Exporters,
    selector::Selector,
    traffic_watch::{
        BANDWIDTH, Settings,
        overview::{MeasureView, NodeView, Overview, ReservationView, WatchView},
    },
};

mod others;
mod text;
mod watch;

pub use others::Others;
pub use text::text;
pub use watch::{explain_watch, gather_watch, watch_text};

/// The facts that an explanation uses.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The node to explain.
    pub node: Node,
    /// All readable `TrafficWatch`es, or the requested one.
    pub watches: Vec<TrafficWatch>,
    /// The names of those that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
    /// The leader's answer, or the reason why there is none.
    pub live: Result<Overview, String>,
    /// What the objects of other kinds do on the node, unless one `TrafficWatch` was requested.
    pub others: Option<Others>,
    /// The current time.
    pub now: Timestamp,
}

/// The node as the API server has it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Name of the Node object.
    pub name: String,
    /// Labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// Its taints, as `key=value:effect`.
    pub taints: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Name of the explained node.
    pub node: String,
    /// Taints of the node, as text.
    pub taints: Vec<String>,
    /// The source of the values.
    pub source: Source,
    /// The `TrafficWatch`es that judge it.
    pub judged_by: Vec<NodeJudgment>,
    /// Those that do not, and why.
    pub not_judged_by: Vec<Absence>,
    /// What the objects of other kinds do on the node, unless one `TrafficWatch` was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
}

/// The source of the values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum Source {
    /// The leader itself, just now.
    Leader {
        /// Its name in the Lease.
        identity: String,
        /// Version of the answering replica.
        version: String,
    },
    /// The status of the objects.
    Status {
        /// The reason why the leader was not asked.
        because: String,
    },
}

impl Source {
    /// The replica that answered, by its name and version, or the reason why none did.
    pub(super) fn of(answer: Result<(&String, &String), &String>) -> Self {
        match answer {
            Ok((identity, version)) => {
                Self::Leader { identity: identity.clone(), version: version.clone() }
            }
            Err(because) => Self::Status { because: because.clone() },
        }
    }
}

/// The judgment of the node by one `TrafficWatch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeJudgment {
    /// `namespace/name`.
    pub watch: String,
    /// State of the node for this `TrafficWatch`.
    pub state: NodeState,
    /// The reason for this state.
    pub reason: Option<String>,
    /// The time at which this began.
    pub since: Option<Timestamp>,
    /// Seconds since then.
    pub seconds: Option<i64>,
    /// The age of the judged sample.
    pub sample_age_seconds: Option<f64>,
    /// The time of the shown values, if they are not current.
    pub taken: Option<Timestamp>,
    /// Each measure.
    pub measures: Vec<Measured>,
    /// The node label.
    pub label: Label,
    /// The breaker.
    pub limit: Limit,
    /// Offer of the node to pods; absent if nothing, or if only the leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationView>,
    /// The problems with a judgment: `Paused`, a failed measurement, …
    pub problems: Vec<String>,
}

/// One measure of the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The measure and its threshold.
    #[serde(flatten)]
    pub measure: MeasureView,
    /// The last measured value.
    pub value: Option<f64>,
    /// The busiest link.
    pub device: Option<String>,
    /// True if unfit, after hysteresis.
    pub unfit: Option<bool>,
    /// Judgments in a row against that; absent if only the leader knows.
    pub streak: Option<u32>,
    /// Number of judgments that change it.
    pub needed: Option<u32>,
    /// The reason why there is no evidence now.
    pub reason: Option<String>,
}

/// The node label, as it is and as it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// Full key of the label.
    pub key: String,
    /// Its value on the node now.
    pub value: Option<String>,
    /// The value that was decided; none if nothing was.
    pub wanted: Option<String>,
    /// True if the two agree.
    pub agrees: bool,
}

/// The breaker: the number of nodes that may be unfit, and the unfit nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The number of nodes that can take the pods in question; all judged ones if only the leader
    /// knows.
    pub nodes: u32,
    /// The number of them that may be unfit; absent if only the leader knows.
    pub limit: Option<u32>,
    /// The nodes that are marked unfit.
    pub marked: Vec<Peer>,
    /// The nodes above a threshold that are not marked.
    pub waiting: Vec<Peer>,
    /// True if there are more than are listed.
    pub truncated: bool,
}

/// A node that is above a threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its value of the first measure.
    pub value: Option<f64>,
}

/// A `TrafficWatch` that does not judge the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Absence {
    /// `namespace/name`.
    pub watch: String,
    /// The reason why not.
    pub because: String,
}

/// Minimum similarity of a name to be suggested: a letter or two of a node name apart.
const ALIKE: f64 = 0.85;

/// Maximum number of suggested names.
const SUGGESTED: usize = 3;

/// Reads everything about one node, judged by all `TrafficWatch`es or by one.
///
/// # Errors
/// When the node or the `TrafficWatch` does not exist, or the API server refuses.
pub async fn gather(
    client: &Client,
    place: &Place,
    node: &str,
    only: Option<(&str, &str)>,
) -> anyhow::Result<Facts> {
    let node = read_node(client, node).await?;
    let watches = match only {
        Some((namespace, name)) => {
            let watch = cluster::find::<TrafficWatch>(client, Some(namespace), name).await;
            let watch = watch.map_err(|error| refused("get TrafficWatch", error))?;
            let watch = watch.ok_or_else(|| {
                anyhow::anyhow!("--watch {namespace}/{name}: there is no such TrafficWatch")
            })?;
            Listed { read: vec![watch], unreadable: vec![] }
        }
        None => {
            cluster::list(client).await.map_err(|error| refused("list TrafficWatches", error))?
        }
    };
    let live = leader::view(client, place, &node.name).await;
    let others = match only {
        Some(_) => None,
        None => Some(others::gather(client, place, &node.name).await),
    };
    Ok(Facts {
        node,
        watches: watches.read,
        unreadable: watches.unreadable,
        live,
        others,
        now: Timestamp::now(),
    })
}

async fn read_node(client: &Client, name: &str) -> anyhow::Result<Node> {
    let nodes = Api::<v1::Node>::all(client.clone());
    let Some(node) = nodes.get_opt(name).await.map_err(|error| refused("get Node", error))? else {
        // Without the permission to list, there is nothing to suggest.
        let all = Api::<Metadata<v1::Node>>::all(client.clone()).list(&ListParams::default()).await;
        let names: Vec<_> = all.iter().flatten().map(ResourceExt::name_any).collect();
        anyhow::bail!(no_such_node(name, &names));
    };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    Ok(Node {
        name: node.name_any(),
        taints: taints.iter().map(taint).collect(),
        labels: node.metadata.labels.unwrap_or_default(),
    })
}

fn taint(taint: &v1::Taint) -> String {
    let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

fn refused(action: &'static str, error: kube::Error) -> anyhow::Error {
    anyhow::anyhow!(describe(action, error))
}

fn no_such_node(name: &str, names: &[String]) -> String {
    let mut alike: Vec<_> =
        names.iter().map(|other| (strsim::jaro_winkler(name, other), other)).collect();
    alike.retain(|(likeness, _)| *likeness >= ALIKE);
    alike.sort_by(|(a, x), (b, y)| b.total_cmp(a).then(x.cmp(y)));
    let alike: Vec<_> = alike.iter().take(SUGGESTED).map(|(_, name)| name.as_str()).collect();
    let hint = if alike.is_empty() {
        format!("the cluster has {} nodes: kubectl get nodes", names.len())
    } else {
        format!("did you mean {}?", alike.join(" or "))
    };
    format!("there is no node {name:?}; {hint}")
}

/// Explains one node.
#[must_use]
pub fn explain(facts: &Facts) -> Explanation {
    let mut judged_by = Vec::new();
    let mut not_judged_by = Vec::new();
    for watch in &facts.watches {
        let name = name_of(watch);
        match verdict(facts, watch) {
            Ok(verdict) => judged_by.push(verdict),
            Err(because) => not_judged_by.push(Absence { watch: name, because }),
        }
    }
    let unreadable = facts.unreadable.iter().map(|(watch, error)| Absence {
        watch: watch.clone(),
        because: format!("its spec cannot be read: {error}"),
    });
    not_judged_by.extend(unreadable);
    // Judgments that need attention come first.
    judged_by.sort_by(|a, b| a.state.cmp(&b.state).then_with(|| a.watch.cmp(&b.watch)));
    Explanation {
        node: facts.node.name.clone(),
        taints: facts.node.taints.clone(),
        source: Source::of(facts.live.as_ref().map(|view| (&view.identity, &view.version))),
        judged_by,
        not_judged_by,
        others: facts.others.clone(),
    }
}

fn verdict(facts: &Facts, watch: &TrafficWatch) -> Result<NodeJudgment, String> {
    let live = facts.live.as_ref().ok().and_then(|view| {
        view.watches.iter().find(|w| {
            (Some(&w.namespace), &w.name) == (watch.namespace().as_ref(), &watch.name_any())
        })
    });
    let judged = live.and_then(|w| Some((w, w.nodes.iter().find(|n| n.name == facts.node.name)?)));
    match judged {
        Some((w, node)) => Ok(from_view(facts, watch, w, node)),
        // A status may be older than the node's labels.
        None if !selects(facts, watch) => Err(absence(facts, watch)),
        None => of_status(facts, watch).ok_or_else(|| absence(facts, watch)),
    }
}

fn from_view(facts: &Facts, watch: &TrafficWatch, w: &WatchView, node: &NodeView) -> NodeJudgment {
    let measures = w.measures.iter().map(|measure| {
        let value = node.values.iter().find(|value| value.measure == measure.name);
        Measured {
            measure: measure.clone(),
            value: value.and_then(|v| v.value),
            device: value.and_then(|v| v.device.clone()),
            unfit: value.and_then(|v| v.unfit),
            streak: value.map(|v| v.streak),
            needed: value.map(|v| v.needed),
            reason: value.and_then(|v| v.reason.clone()),
        }
    });
    let measures: Vec<_> = measures.collect();
    // Before its first verdict a node has no label.
    let decided = measures.iter().any(|m| m.unfit.is_some());
    let mut limit = limit(watch);
    limit.nodes = w.room;
    limit.limit = Some(w.limit);
    // The view may have been requested for this node only; the status lists those that are unfit.
    if w.nodes.len() > 1 {
        limit.truncated = w.nodes_truncated;
        limit.marked = peers(w, NodeState::Unfit);
        limit.waiting = peers(w, NodeState::Suppressed);
    }
    NodeJudgment {
        watch: name_of(watch),
        state: node.state,
        reason: node.reason.clone(),
        since: Some(node.since),
        seconds: Some(elapsed(node.since, facts.now)),
        sample_age_seconds: node.age_seconds,
        taken: None,
        label: label(facts, watch, decided.then_some(node.unfit)),
        limit,
        reservation: node.reservation.clone(),
        problems: problems(watch),
        measures,
    }
}

fn peers(w: &WatchView, state: NodeState) -> Vec<Peer> {
    let nodes = w.nodes.iter().filter(|node| node.state == state);
    nodes
        .map(|node| Peer {
            node: node.name.clone(),
            value: node.values.first().and_then(|value| value.value),
        })
        .collect()
}

fn elapsed(since: Timestamp, now: Timestamp) -> i64 {
    now.as_second().saturating_sub(since.as_second()).max(0)
}

fn label(facts: &Facts, watch: &TrafficWatch, decided: Option<bool>) -> Label {
    let key = watch.label_key();
    let value = facts.node.labels.get(&key).cloned();
    let wanted = decided
        .filter(|_| watch.spec.mode == Mode::Enforce)
        .map(|unfit| if unfit { "true" } else { "false" }.to_owned());
    // No decision, but a label: an earlier decision, which stays. No label and no `unfit` due: some
    // measure has not judged the node yet, or the label was removed because there is no evidence.
    let none_due = value.is_none() && decided == Some(false);
    let agrees = wanted.is_none() || wanted == value || none_due;
    Label { key, value, wanted, agrees }
}

fn selects(facts: &Facts, watch: &TrafficWatch) -> bool {
    mismatches(watch.spec.node_selector.as_ref(), &facts.node.labels).is_empty()
}

/// Returns the reason why a `TrafficWatch` has no judgment of the node.
fn absence(facts: &Facts, watch: &TrafficWatch) -> String {
    let missing = mismatches(watch.spec.node_selector.as_ref(), &facts.node.labels);
    if !missing.is_empty() {
        return missing.join("; ");
    }
    if let Some(problem) = problems(watch).into_iter().next() {
        return format!("it is selected, but: {problem}");
    }
    match &watch.status {
        None => "it is selected, but the operator has not looked at this TrafficWatch yet: is it running?".into(),
        Some(status) if status.nodes_truncated => {
            "it is selected, but the status lists only some of the nodes, not this one: only \
             the leader knows"
                .into()
        }
        Some(_) => "it is selected, but not judged yet".into(),
    }
}

/// Returns the parts of a selector that the labels do not match.
fn mismatches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Vec<String> {
    let matches = |selector: &Selector| selector.matches(|key| labels.get(key).map(String::as_str));
    let has = |key: &str| labels.get(key).map_or("no such label".into(), |v| format!("{v:?}"));
    let Some(selector) = selector else {
        let key = "kubernetes.io/os";
        return if matches(&Selector::linux()) {
            vec![]
        } else {
            vec![format!(
                "only Linux nodes are judged unless spec.nodeSelector says otherwise; {key} is {}",
                has(key)
            )]
        };
    };
    let labels_of = selector.match_labels.iter().flatten().map(|(key, value)| {
        let one = LabelSelector {
            match_labels: Some([(key.clone(), value.clone())].into()),
            match_expressions: None,
        };
        (one, format!("spec.nodeSelector wants {key}={value}; the node has {}", has(key)))
    });
    let expressions = selector.match_expressions.iter().flatten().map(|e| {
        let values = e.values.as_deref().unwrap_or_default().join(", ");
        let wanted = format!("{} {} {values}", e.key, e.operator);
        let text =
            format!("spec.nodeSelector wants {}; the node has {}", wanted.trim_end(), has(&e.key));
        (LabelSelector { match_labels: None, match_expressions: Some(vec![e.clone()]) }, text)
    });
    labels_of
        .chain(expressions)
        .filter_map(|(one, text)| match Selector::new(&one) {
            Ok(one) => (!matches(&one)).then_some(text),
            Err(invalid) => Some(format!("spec.nodeSelector.{invalid}")),
        })
        .collect()
}

/// Returns the verdict as it was last written; `None` if the status does not list the node.
fn of_status(facts: &Facts, watch: &TrafficWatch) -> Option<NodeJudgment> {
    let status = watch.status.as_ref()?;
    let node = status.nodes.get(&facts.node.name)?;
    let state = node.state.unwrap_or(if node.unfit { NodeState::Unfit } else { NodeState::Fit });
    let measures = measures(watch).unwrap_or_default();
    let measures = measures.into_iter().map(|measure| measured(watch, node, state, measure));
    let since = node.since.as_ref().map(|time| time.0);
    Some(NodeJudgment {
        watch: name_of(watch),
        state,
        reason: node.reason.clone(),
        since,
        seconds: since.map(|since| elapsed(since, facts.now)),
        sample_age_seconds: None,
        taken: Timestamp::from_second(node.time).ok().filter(|_| node.time > 0),
        measures: measures.collect(),
        label: label(facts, watch, (state != NodeState::Unknown).then_some(node.unfit)),
        limit: limit(watch),
        reservation: None,
        problems: problems(watch),
    })
}

/// Returns one measure from the status, which lists them separately if there are several, or if the
/// only one is not a percentage.
fn measured(
    watch: &TrafficWatch,
    node: &NodeStatus,
    state: NodeState,
    measure: MeasureView,
) -> Measured {
    let consecutive = watch.spec.consecutive;
    let own = node.criteria.iter().find(|criterion| criterion.name == measure.name);
    let unfit = own.and_then(|own| own.unfit);
    let is_high = unfit.unwrap_or(matches!(state, NodeState::Unfit | NodeState::Suppressed));
    let alone = node.criteria.is_empty();
    let reason = if alone {
        node.reason.clone().filter(|_| state == NodeState::Unknown)
    } else {
        own.and_then(|own| own.reason.clone())
    };
    Measured {
        value: if alone {
            percent(node)
        } else {
            own.and_then(|own| number(own.value.as_deref()?))
        },
        device: node.device.clone().filter(|_| alone || measure.name == BANDWIDTH),
        unfit,
        streak: None,
        needed: Some(if is_high { consecutive.fit } else { consecutive.unfit }),
        reason,
        measure,
    }
}

fn percent(node: &NodeStatus) -> Option<f64> {
    number(&node.current_bandwidth_percent)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns the value of the first measure.
fn value(node: &NodeStatus) -> Option<f64> {
    match node.criteria.first() {
        None => percent(node),
        Some(first) => number(first.value.as_deref()?),
    }
}

/// Returns the unfit nodes according to the status.
fn limit(watch: &TrafficWatch) -> Limit {
    let Some(status) = &watch.status else { return Limit::default() };
    let peers = |state| {
        let nodes = status.nodes.iter().filter(|(_, node)| node.state == Some(state));
        nodes.map(|(name, node)| Peer { node: name.clone(), value: value(node) }).collect()
    };
    let (marked, waiting): (Vec<_>, Vec<_>) =
        (peers(NodeState::Unfit), peers(NodeState::Suppressed));
    let summary = status.summary.unwrap_or_default();
    let all =
        usize::try_from(summary.unfit.saturating_add(summary.suppressed)).unwrap_or(usize::MAX);
    Limit {
        nodes: summary.nodes,
        limit: Settings::of(watch)
            .ok()
            .map(|settings| settings.limits.of(usize::try_from(summary.nodes).unwrap_or(0)))
            .and_then(|limit| u32::try_from(limit).ok()),
        truncated: marked.len() + waiting.len() < all,
        marked,
        waiting,
    }
}

/// Returns the conditions that indicate a problem.
fn problems(watch: &TrafficWatch) -> Vec<String> {
    let conditions = watch.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|c| matches!(c.type_.as_str(), "Ready" | "MetricsAvailable") && c.status != "True")
        .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message))
        .collect()
}

/// Returns the measures from the spec, as the leader would show them. `query` is empty, because it
/// depends on the labels that name nodes, which are unknown here.
fn measures(watch: &TrafficWatch) -> Result<Vec<MeasureView>, Error> {
    let settings = Settings::of(watch)?;
    let view = |criterion: &_| MeasureView {
        query: String::new(),
        ..MeasureView::of(criterion, &Exporters::default())
    };
    Ok(settings.criteria.iter().map(view).collect())
}

#[cfg(test)]
mod tests;
