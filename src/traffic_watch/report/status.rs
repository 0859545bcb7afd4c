//! The status.
use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::super::{evidence::Unit, judgment::Judgment, memory::NodeMemory, observed::Observed};
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

pub(in super::super) fn status(j: &Judgment<'_>, ready: bool, refresh: bool) -> TrafficWatchStatus {
    let old = j.watch.status.clone().unwrap_or_default();
    let mut order: Vec<_> = (0..j.nodes.len()).collect();
    // `seen.nodes` is sorted by name and this sort is stable.
    order.sort_by_key(|&i| j.nodes[i].state);
    let listed: BTreeMap<_, _> = order
        .iter()
        .take(MAX_LISTED)
        .map(|&i| (j.seen.nodes[i].name.to_string(), node_status(j, i)))
        .collect();
    let nodes = if !refresh && same_states(&old.nodes, &listed) { old.nodes } else { listed };
    TrafficWatchStatus {
        ready,
        nodes,
        nodes_truncated: j.nodes.len() > MAX_LISTED,
        summary: Some(j.summary),
        max: Some(j.settings.max_text()),
        // The record of which key is on the nodes, for when it changes: Observe puts none there.
        label: match j.watch.spec.mode {
            // An empty selection freezes: the old key is still on the nodes.
            Mode::Enforce if !j.seen.nodes.is_empty() => Some(j.watch.label_key()),
            _ => old.label,
        },
        reservation: old.reservation,
        observed_generation: old.observed_generation,
        conditions: old.conditions,
    }
}

/// Reports whether the status must be refreshed though no state changed.
pub(in super::super) fn is_due(seen: &Observed) -> bool {
    is_past(seen.memory.refreshed, seen.now)
}

/// Reports whether something last happened long enough ago to happen again.
pub(super) fn is_past(at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_none_or(|at| now.duration_since(at).unsigned_abs().as_secs() >= REFRESH_SECONDS)
}

fn same_states(a: &BTreeMap<String, NodeStatus>, b: &BTreeMap<String, NodeStatus>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name_a, a), (name_b, b))| {
            let sides = |node: &NodeStatus| -> Vec<_> {
                node.criteria.iter().map(|c| (c.name.clone(), c.unfit)).collect()
            };
            (name_a, a.unfit, a.state, &a.reason, &a.since)
                == (name_b, b.unfit, b.state, &b.reason, &b.since)
                && sides(a) == sides(b)
        })
}

fn node_status(j: &Judgment<'_>, i: usize) -> NodeStatus {
    let node = &j.nodes[i];
    let criteria = &j.settings.criteria;
    let main = criteria.first().filter(|c| c.is_bandwidth());
    let last = node.sides().next().and_then(|side| side.last.as_ref());
    let bandwidth = last.filter(|_| main.is_some());
    let alone = criteria.len() == 1 && main.is_some_and(|c| c.rules.unit == Unit::Percent);
    let by: Vec<_> = j.unfit_by(i).map(|(_, criterion)| &*criterion.name).collect();
    NodeStatus {
        current_bandwidth_percent: format_exponent(bandwidth.map_or(f64::NAN, |l| l.percent)),
        current_transmit_total: bandwidth.map_or(0, |l| l.total),
        time: last.map_or(0, |l| l.time),
        unfit: node.marked == Some(true),
        state: Some(node.state),
        reason: match (node.reason, node.state) {
            (None, NodeState::Unfit) if criteria.len() > 1 => Some(by.join(",")),
            (reason, _) => reason.map(str::to_owned),
        },
        device: last.and_then(|l| l.device.as_ref().map(ToString::to_string)),
        // The API server keeps whole seconds.
        since: Timestamp::from_second(node.since.as_second()).ok().map(Time),
        unknown_seconds: node.unknown_ms / 1000,
        criteria: if alone { vec![] } else { criterion_statuses(j, node) },
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
