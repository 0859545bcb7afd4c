//! What the status of a `TrafficWatch` tells, for when the leader cannot be asked.
use k8s_openapi::jiff::Timestamp;

use super::{Facts, Limit, Measured, Peer, Verdict, elapsed, label};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{NodeState, NodeStatus},
    },
    inspect::{cluster::name_of, measures},
};

/// The verdict as it was last written; `None` if the status does not list the node.
pub(super) fn verdict(facts: &Facts, watch: &TrafficWatch) -> Option<Verdict> {
    let status = watch.status.as_ref()?;
    let node = status.nodes.get(&facts.node.name)?;
    let state = node.state.unwrap_or(if node.unfit { NodeState::Unfit } else { NodeState::Fit });
    let is_high = matches!(state, NodeState::Unfit | NodeState::Suppressed);
    let consecutive = watch.spec.consecutive;
    let measures = measures::of(watch).unwrap_or_default().into_iter().enumerate();
    let measures = measures.map(|(i, measure)| {
        // The status has the first measure's value only.
        let first = i == 0;
        Measured {
            measure,
            value: value(node).filter(|_| first),
            device: node.device.clone().filter(|_| first),
            unfit: None,
            streak: None,
            needed: Some(if is_high { consecutive.fit } else { consecutive.unfit }),
            reason: node.reason.clone().filter(|_| first && state == NodeState::Unknown),
        }
    });
    let since = node.since.as_ref().map(|time| time.0);
    Some(Verdict {
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
        problems: problems(watch),
    })
}

fn value(node: &NodeStatus) -> Option<f64> {
    node.current_bandwidth_percent.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Who is unfit, as the status tells.
pub(super) fn limit(watch: &TrafficWatch) -> Limit {
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
        limit: None,
        truncated: marked.len() + waiting.len() < all,
        marked,
        waiting,
    }
}

/// Conditions that are not as they should be.
pub(super) fn problems(watch: &TrafficWatch) -> Vec<String> {
    let conditions = watch.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|c| matches!(c.type_.as_str(), "Ready" | "MetricsAvailable") && c.status != "True")
        .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message))
        .collect()
}
