//! The explanation of a node that is not Fit, as labels of one series.
use super::super::{
    memory::{MeasureState, NodeMemory, Reason},
    settings::Criterion,
};
use super::labels::joined;
use crate::api::traffic_watch::NodeState;

/// The reason of a node in the state of a measurement, as in
/// `traffic_operator_trafficwatch_transitions_total`.
const MEASURED: &str = "Measured";

/// The labels after the node's: the text before the last value, and that value.
pub(super) fn labels<'a>(node: &'a NodeMemory, criteria: &'a [Criterion]) -> (String, &'a str) {
    let decisive = decisive(node, criteria);
    let criterion = decisive.map_or("", |(criterion, _)| &*criterion.name);
    let sample = decisive.and_then(|(_, side)| side.last.as_ref());
    let device = sample.and_then(|sample| sample.device.as_deref()).unwrap_or_default();
    let measured = if decisive.is_some() { MEASURED } else { "" };
    let reason = node.reason.map_or(measured, Reason::as_str);
    let labels = [("state", node.state.as_str()), ("criterion", criterion), ("reason", reason)];
    (joined(&labels, "device"), device)
}

/// Returns the measure that explains the state: of an Unknown node one without evidence, which the
/// reason is about, and of the others the one that exceeds its threshold most. There is none if a
/// label is kept that no measure set.
fn decisive<'a>(
    node: &'a NodeMemory,
    criteria: &'a [Criterion],
) -> Option<(&'a Criterion, &'a MeasureState)> {
    let sides = || criteria.iter().zip(node.sides());
    if node.state == NodeState::Unknown {
        let mut held = sides().filter(|(_, side)| side.judged == Some(true));
        let held = held.find(|(_, side)| side.missing.is_some());
        return held.or_else(|| sides().find(|(_, side)| side.missing.is_some()));
    }
    let unfit = sides().filter(|(_, side)| side.judged == Some(true) && side.missing.is_none());
    unfit.max_by(|a, b| times(a.0, a.1).total_cmp(&times(b.0, b.1)))
}

/// The factor by which a measure exceeds its threshold.
fn times(criterion: &Criterion, side: &MeasureState) -> f64 {
    let times = side.last.as_ref().map_or(0.0, |sample| sample.value / criterion.max);
    // Nothing above a threshold of zero is no worse than being at one.
    if times.is_nan() { 1.0 } else { times }
}
