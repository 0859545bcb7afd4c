//! The status of a `TrafficWatch`, used when the leader does not answer.
use k8s_openapi::jiff::Timestamp;

use super::{Facts, Limit, Measured, NodeJudgment, Peer, elapsed, label};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{NodeState, NodeStatus},
    },
    inspect::{cluster::name_of, measures},
    traffic_watch::{BANDWIDTH, Settings, overview::MeasureView},
};

/// Returns the verdict as it was last written; `None` if the status does not list the node.
pub(super) fn verdict(facts: &Facts, watch: &TrafficWatch) -> Option<NodeJudgment> {
    let status = watch.status.as_ref()?;
    let node = status.nodes.get(&facts.node.name)?;
    let state = node.state.unwrap_or(if node.unfit { NodeState::Unfit } else { NodeState::Fit });
    let measures = measures::of(watch).unwrap_or_default();
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

pub(super) fn percent(node: &NodeStatus) -> Option<f64> {
    number(&node.current_bandwidth_percent)
}

pub(super) fn number(text: &str) -> Option<f64> {
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
pub(super) fn problems(watch: &TrafficWatch) -> Vec<String> {
    let conditions = watch.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|c| matches!(c.type_.as_str(), "Ready" | "MetricsAvailable") && c.status != "True")
        .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message))
        .collect()
}
