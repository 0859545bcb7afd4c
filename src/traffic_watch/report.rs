//! What the owner is told: status, conditions, events.
use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    children::{Child, Outcome},
    judgement::{Change, Evaluation, Judgement, Transition},
    memory::{Memory, NodeMemory},
};
use crate::{
    api::{
        TrafficWatch, TrafficWatchStatus,
        go::format_exponent,
        traffic_watch::{Mode, NodeState, NodeStatus},
    },
    controller::{Notice, Verdict},
    nodes::NodeFacts,
};

/// How many nodes a status lists: 21 kB; the summary counts them all.
const MAX_LISTED: usize = 100;

/// How often the values in a status are refreshed though no state changed. They are metrics; the
/// status is for looking.
const REFRESH_SECONDS: i64 = 60;

/// How many nodes get an event of their own when many change in one judgement: more would be read by
/// nobody, and each is a write.
const EVENTS_OF_A_KIND: usize = 10;

/// The events of the nodes that changed: one per node, and for those beyond the first few of a kind
/// one for all.
pub(super) fn changes(j: &Judgement<'_>) -> Vec<Notice> {
    let of = |change: &Change| {
        let (facts, node) = (&j.seen.nodes[change.node], &j.nodes[change.node]);
        let flipped = change.flip.and_then(|unfit| flip(j, facts, node, unfit));
        let entered = change.transition.as_ref().and_then(|t| entered(j, facts, t));
        [flipped, entered]
    };
    let mut by_reason: BTreeMap<&str, Vec<Notice>> = BTreeMap::new();
    for notice in j.changes.iter().flat_map(of).flatten() {
        by_reason.entry(notice.reason).or_default().push(notice);
    }
    by_reason.into_values().flat_map(shortened).collect()
}

fn shortened(mut notices: Vec<Notice>) -> Vec<Notice> {
    let more = notices.len().saturating_sub(EVENTS_OF_A_KIND);
    if more > 0 {
        notices.truncate(EVENTS_OF_A_KIND);
        let Notice { warning, reason, .. } = notices[0];
        let note = format!("{more} more nodes at the same time: see the metrics");
        notices.push(Notice { warning, reason, note, node: None });
    }
    notices
}

fn flip(j: &Judgement<'_>, facts: &NodeFacts, node: &NodeMemory, unfit: bool) -> Option<Notice> {
    let sample = node.last.as_ref()?;
    let device = sample.device.as_ref().map(|d| format!(" on {d}")).unwrap_or_default();
    let (reason, compared) = if unfit {
        ("NodeUnfit", format!("above {} %", short(j.settings.max)))
    } else {
        ("NodeFit", format!("at or below {} %", short(j.settings.recover)))
    };
    let observe = match j.watch.spec.mode {
        Mode::Enforce => "",
        Mode::Observe => " (not labelled: mode is Observe)",
    };
    Some(Notice {
        warning: unfit,
        reason,
        note: format!(
            "node {} uses {} % of its link capacity{device}, {compared}{observe}",
            facts.name,
            short(sample.percent)
        ),
        node: Some(facts.name.to_string()),
    })
}

/// The event of a node that is not judged as it was. When all nodes are without evidence, one event
/// about the measurement says it for all.
fn entered(j: &Judgement<'_>, facts: &NodeFacts, transition: &Transition) -> Option<Notice> {
    let (reason, note) = match transition.to {
        NodeState::Unknown if j.evaluation == Evaluation::Ok => {
            let why = transition.reason;
            ("NodeUnknown", format!("node {}: {why}; its label stays as it is", facts.name))
        }
        NodeState::Suppressed => (
            "NodeSuppressed",
            format!("node {} is above the threshold, but too many nodes are unfit", facts.name),
        ),
        _ => return None,
    };
    Some(Notice { warning: true, reason, note, node: Some(facts.name.to_string()) })
}

/// A number for a person: up to three decimals, none that are zero.
fn short(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the API server said when it refused the Deployment that is still wanted.
pub(super) fn refused(child: Option<&Child>, memory: &Memory) -> Option<String> {
    let applied = memory.applied.as_ref().filter(|a| Some(a.hash) == child.map(|c| c.hash))?;
    match &applied.outcome {
        Outcome::Refused(text) => Some(format!("spec.deployment: {text}")),
        Outcome::Accepted { .. } => None,
    }
}

pub(super) fn conditions(j: &Judgement<'_>, ready: bool, refused: Option<String>) -> Vec<Verdict> {
    let verdict = |type_, status, reason, message: String| Verdict {
        type_,
        status: Some(status),
        reason,
        message,
    };
    let consecutive = j.settings.consecutive;
    let ready = if j.seen.nodes.is_empty() {
        let message = "no node matches spec.nodeSelector; labels stay as they are";
        verdict("Ready", false, "NoNodes", message.into())
    } else if let Some(refused) = refused {
        verdict("Ready", false, "InvalidSpec", refused)
    } else if ready {
        verdict("Ready", true, "Judged", "every node with data has been judged".into())
    } else {
        let message = format!(
            "waiting until every node with data was judged fit {} or unfit {} times in a row",
            consecutive.fit, consecutive.unfit
        );
        verdict("Ready", false, "Judging", message)
    };
    let limited = if j.summary.suppressed > 0 {
        let message = "more nodes are above the threshold than may be marked unfit; \
                       the least loaded of them keep the label \"false\"";
        verdict("PlacementLimited", true, "LimitReached", message.into())
    } else {
        verdict("PlacementLimited", false, "WithinLimits", String::new())
    };
    vec![ready, metrics_available(j), limited]
}

fn metrics_available(j: &Judgement<'_>) -> Verdict {
    let verdict = |status, reason, message| Verdict {
        type_: "MetricsAvailable",
        status: Some(status),
        reason,
        message,
    };
    let reading = match &j.seen.reading {
        Some(Ok(reading)) => reading,
        Some(Err(error)) => return verdict(false, error.class.reason(), error.message.clone()),
        None => {
            return Verdict {
                type_: "MetricsAvailable",
                status: None,
                reason: "NoNodes",
                message: "there is no node to ask about".into(),
            };
        }
    };
    let mut notes = Vec::new();
    let (unmapped, named) = &reading.unmapped;
    if *unmapped > 0 {
        notes.push(format!(
            "{unmapped} exporters belong to no known node (instance {}): see --node-label",
            named.join(", ")
        ));
    }
    if let Some(warning) = reading.warnings.first() {
        notes.push(format!("Prometheus warns: {warning}"));
    }
    if j.evaluation == Evaluation::LowCoverage {
        let nodes = &j.seen.nodes;
        let covered =
            |n: &&NodeFacts| reading.get(&n.name).is_some_and(|r| j.settings.rules.has_data(r));
        let covered = nodes.iter().filter(covered).count();
        let reason = if covered == 0 { "NoSamples" } else { "LowCoverage" };
        notes.insert(0, format!(
            "{covered} of {} nodes have data, at least half are needed: is the node exporter scraped, \
             and does spec.devices match its devices?",
            nodes.len()
        ));
        return verdict(false, reason, notes.join("; "));
    }
    verdict(true, "Available", notes.join("; "))
}

/// Events of conditions that changed.
pub(super) fn news(watch: &TrafficWatch, conditions: &[Verdict]) -> Vec<Notice> {
    let old = |type_: &str| {
        let status = watch.status.as_ref()?;
        let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
        Some(condition.status == "True")
    };
    let notice = |warning, reason, note: &str| {
        Some(Notice { warning, reason, note: note.to_owned(), node: None })
    };
    let one = |new: &Verdict| match (new.type_, old(new.type_), new.status) {
        ("MetricsAvailable", None | Some(true), Some(false)) => {
            let note = format!("{}: {}; labels stay as they are", new.reason, new.message);
            notice(true, "MetricsUnavailable", &note)
        }
        ("MetricsAvailable", Some(false), Some(true)) => {
            notice(false, "MetricsRestored", "Prometheus answers, nodes are judged again")
        }
        ("PlacementLimited", None | Some(false), Some(true)) => {
            notice(true, "PlacementLimited", &new.message)
        }
        ("PlacementLimited", Some(true), Some(false)) => notice(
            false,
            "PlacementUnlimited",
            "every node above the threshold can be marked again",
        ),
        _ => None,
    };
    conditions.iter().filter_map(one).collect()
}

pub(super) fn status(j: &Judgement<'_>, ready: bool) -> TrafficWatchStatus {
    let old = j.watch.status.clone().unwrap_or_default();
    let mut order: Vec<_> = (0..j.nodes.len()).collect();
    // `seen.nodes` is sorted by name and this sort is stable.
    order.sort_by_key(|&i| j.nodes[i].state);
    let listed: BTreeMap<_, _> = order
        .iter()
        .take(MAX_LISTED)
        .map(|&i| (j.seen.nodes[i].name.to_string(), node_status(&j.nodes[i])))
        .collect();
    let nodes = if is_fresh(&old.nodes, j.seen.now) && same_states(&old.nodes, &listed) {
        old.nodes
    } else {
        listed
    };
    TrafficWatchStatus {
        ready,
        nodes,
        nodes_truncated: j.nodes.len() > MAX_LISTED,
        summary: Some(j.summary),
        // The record of which key is on the nodes, for when it changes: Observe puts none there.
        label: match j.watch.spec.mode {
            Mode::Enforce => Some(j.watch.label_key()),
            Mode::Observe => old.label,
        },
        observed_generation: old.observed_generation,
        conditions: old.conditions,
    }
}

fn is_fresh(nodes: &BTreeMap<String, NodeStatus>, now: Timestamp) -> bool {
    let newest = nodes.values().map(|node| node.time).max();
    newest.is_some_and(|newest| now.as_second().saturating_sub(newest) < REFRESH_SECONDS)
}

fn same_states(a: &BTreeMap<String, NodeStatus>, b: &BTreeMap<String, NodeStatus>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name_a, a), (name_b, b))| {
            (name_a, a.unfit, a.state, &a.reason, &a.since)
                == (name_b, b.unfit, b.state, &b.reason, &b.since)
        })
}

fn node_status(node: &NodeMemory) -> NodeStatus {
    let last = node.last.as_ref();
    NodeStatus {
        current_bandwidth_percent: format_exponent(last.map_or(f64::NAN, |l| l.percent)),
        current_transmit_total: last.map_or(0, |l| l.total),
        time: last.map_or(0, |l| l.time),
        unfit: node.marked == Some(true),
        state: Some(node.state),
        reason: node.reason.map(str::to_owned),
        device: last.and_then(|l| l.device.as_ref().map(ToString::to_string)),
        // The API server keeps whole seconds.
        since: Timestamp::from_second(node.since.as_second()).ok().map(Time),
    }
}
