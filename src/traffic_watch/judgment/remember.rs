//! The memory of a node at the beginning of a judgment.
use super::super::{memory::NodeMemory, observed::Observed, settings::Settings};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState, NodeStatus},
    },
    nodes::NodeFacts,
};

/// A node as the last pass left it; after a restart, as label and status record.
pub(super) fn remember(
    watch: &TrafficWatch,
    seen: &Observed,
    settings: &Settings,
    facts: &NodeFacts,
    known: Option<&NodeMemory>,
) -> NodeMemory {
    if let Some(known) = known.filter(|known| known.uid == facts.incarnation.uid) {
        let (old, new) = (&*seen.memory.criteria, &*settings.criteria);
        let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| a.name == b.name);
        return if same { known.clone() } else { known.clone().with_criteria(old, new) };
    }
    // Verdicts about a deleted node do not apply to a new one with its name.
    let status = watch.status.as_ref().and_then(|status| status.nodes.get(&*facts.name));
    let at = |node: &NodeStatus| node.since.as_ref().map_or(0, |t| t.0.as_second()).max(node.time);
    let reported = status.filter(|node| known.is_none() && facts.incarnation.created <= at(node));
    let label = match (facts.label.as_deref(), watch.spec.mode) {
        (Some("true"), Mode::Enforce) => Some(true),
        (Some("false"), Mode::Enforce) => Some(false),
        // Observe writes no label: the status is its memory.
        (_, Mode::Observe) => {
            reported.filter(|t| t.state != Some(NodeState::Unknown) || t.unfit).map(|t| t.unfit)
        }
        _ => None,
    };
    NodeMemory::from_status(&settings.criteria, reported, label, facts.incarnation.uid, seen.now)
}
