//! The status.
use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::super::{
    conflict::former_key, evidence::Unit, judgment::Judgment, memory::NodeMemory,
    observed::Observed,
};
use crate::api::{
    TrafficWatchStatus,
    go::format_exponent,
    traffic_watch::{CriterionStatus, Mode, NodeState, NodeStatus},
};

/// Maximum number of nodes in a status: 21 kB; the summary counts them all.
const MAX_LISTED: usize = 100;

/// Time between two updates of the values in a status while no state changes. They are metrics; the
/// status is for looking.
const REFRESH_SECONDS: u64 = 60;

pub(in super::super) fn status(
    j: &Judgment<'_>,
    ready: bool,
    refresh: bool,
    evaluated: bool,
) -> TrafficWatchStatus {
    let old = j.watch.status.clone().unwrap_or_default();
    // Texts for a hundred nodes are only made where they are written.
    let stay = !refresh && same_states(&old.nodes, j);
    let (nodes, last_evaluation_time) = if stay {
        (old.nodes, old.last_evaluation_time)
    } else {
        let nodes = listed(j).map(|i| (j.seen.nodes[i].name.to_string(), node_status(j, i)));
        let now = if evaluated { whole_seconds(j.seen.now) } else { None };
        (nodes.collect(), now.or(old.last_evaluation_time))
    };
    TrafficWatchStatus {
        ready,
        nodes,
        nodes_truncated: j.nodes.len() > MAX_LISTED,
        summary: Some(j.summary),
        max: Some(j.settings.max_text()),
        // Observe puts none on nodes.
        label: match j.watch.spec.mode {
            Mode::Enforce => Some(label(j)),
            Mode::Observe => old.label,
        },
        reservation: old.reservation,
        last_evaluation_time,
        observed_generation: old.observed_generation,
        conditions: old.conditions,
    }
}

/// Returns the key to publish. A former one stays until no node has it: it is recorded nowhere else.
fn label(j: &Judgment<'_>) -> String {
    let has = |key: &&str| j.seen.strays.iter().any(|stray| *stray.key == **key);
    // An empty selection freezes, and finds no strays.
    let stays = |key: &&str| j.seen.nodes.is_empty() || has(key);
    former_key(j.watch).filter(stays).map_or_else(|| j.watch.label_key(), str::to_owned)
}

/// Reports whether the status must be refreshed though no state changed.
pub(in super::super) fn is_due(seen: &Observed) -> bool {
    is_past(seen.memory.refreshed, seen.now)
}

/// Reports whether something last happened long enough ago to happen again.
pub(super) fn is_past(at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_none_or(|at| now.duration_since(at).unsigned_abs().as_secs() >= REFRESH_SECONDS)
}

/// The nodes that the status lists: those that need attention first, then by name.
fn listed<'a>(j: &'a Judgment<'_>) -> impl Iterator<Item = usize> + 'a {
    let by_state = NodeState::ALL
        .into_iter()
        .flat_map(move |state| (0..j.nodes.len()).filter(move |&i| j.nodes[i].state == state));
    by_state.take(MAX_LISTED)
}

/// Reports whether a status lists the same nodes in the same states.
fn same_states(old: &BTreeMap<String, NodeStatus>, j: &Judgment<'_>) -> bool {
    let mut count = 0;
    let same = listed(j).all(|i| {
        count += 1;
        old.get(&*j.seen.nodes[i].name).is_some_and(|old| is_in_state(old, j, i))
    });
    same && count == old.len()
}

/// Reports whether the status of a node shows its present state; its values may be older.
fn is_in_state(old: &NodeStatus, j: &Judgment<'_>, i: usize) -> bool {
    let node = &j.nodes[i];
    let verdicts = old.criteria.iter().map(|c| (c.name.as_str(), c.unfit));
    let criteria = j.settings.criteria.iter().map(|criterion| &*criterion.name);
    let verdicts_now = criteria.zip(node.sides().map(|side| side.judged));
    (old.unfit, old.state, &old.since)
        == (node.marked == Some(true), Some(node.state), &since(node))
        && old.reason == reason(j, i)
        && if lists_criteria(j) { verdicts.eq(verdicts_now) } else { old.criteria.is_empty() }
}

/// The time since which a node is in its state.
fn since(node: &NodeMemory) -> Option<Time> {
    whole_seconds(node.since)
}

/// A time as the API server keeps it.
fn whole_seconds(time: Timestamp) -> Option<Time> {
    Timestamp::from_second(time.as_second()).ok().map(Time)
}

/// The reason of a state; of an unfit node with several measures, those that decide it.
fn reason(j: &Judgment<'_>, i: usize) -> Option<String> {
    match (j.nodes[i].reason, j.nodes[i].state) {
        (None, NodeState::Unfit) if j.settings.criteria.len() > 1 => {
            let by: Vec<_> = j.unfit_by(i).map(|(_, criterion)| &*criterion.name).collect();
            Some(by.join(","))
        }
        (reason, _) => reason.map(|why| why.as_str().to_owned()),
    }
}

/// Reports whether the status lists each measure: of the percentage alone it has the other fields.
fn lists_criteria(j: &Judgment<'_>) -> bool {
    let [criterion] = &*j.settings.criteria else { return true };
    !(criterion.is_bandwidth() && criterion.rules.unit == Unit::Percent)
}

fn node_status(j: &Judgment<'_>, i: usize) -> NodeStatus {
    let node = &j.nodes[i];
    let criteria = &j.settings.criteria;
    let main = criteria.first().filter(|c| c.is_bandwidth());
    let last = node.sides().next().and_then(|side| side.last.as_ref());
    let bandwidth = last.filter(|_| main.is_some());
    NodeStatus {
        current_bandwidth_percent: format_exponent(bandwidth.map_or(f64::NAN, |l| l.percent)),
        current_transmit_total: bandwidth.map_or(0, |l| l.total),
        time: last.map_or(0, |l| l.time),
        unfit: node.marked == Some(true),
        state: Some(node.state),
        reason: reason(j, i),
        device: last.and_then(|l| l.device.as_ref().map(ToString::to_string)),
        since: since(node),
        unknown_seconds: node.unknown_ms / 1000,
        criteria: if lists_criteria(j) { criterion_statuses(j, node) } else { vec![] },
    }
}

fn criterion_statuses(j: &Judgment<'_>, node: &NodeMemory) -> Vec<CriterionStatus> {
    let sides = node.sides().zip(&j.settings.criteria);
    sides
        .map(|(side, criterion)| CriterionStatus {
            name: criterion.name.to_string(),
            value: side.last.as_ref().map(|sample| format_exponent(sample.value)),
            unfit: side.judged,
            reason: side.missing.map(|why| why.reason().to_owned()),
        })
        .collect()
}
