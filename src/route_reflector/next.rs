//! The next step of those that are left. Pure.
use super::{
    datastore::Snapshot,
    gate::GateClosed,
    steps::{self, Goal, Step},
    topology::BgpTopology,
};

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is left to do.
    Done,
    /// This.
    Take(Step),
    /// This, once the gate opens.
    Wait(Step, GateClosed),
    /// No remaining step is possible without losing routes; the first step, or all, and the reason.
    Refuse(Option<Step>, steps::Refused),
}

/// Tries the steps that are left, in their order.
///
/// `unsound` is why the whole plan is not gone for: then only what repairs is done. `gate` verifies
/// the sessions that a step depends on.
pub fn choose(
    bgp: &BgpTopology,
    goal: &Goal,
    left: &[Step],
    unsound: Option<&steps::Refused>,
    gate: impl Fn(&Step) -> Result<(), GateClosed>,
) -> Next {
    let harmless = |step: &&Step| step.repairs() || **step == Step::Mesh(true);
    if let Some(why) = unsound {
        let repair = left.iter().find(harmless).cloned();
        return repair.map_or_else(|| Next::Refuse(None, why.clone()), Next::Take);
    }
    let mut refused = None;
    for step in left.iter().flat_map(Step::tries) {
        let after = step.after(&bgp.fabric, &goal.label.0, &goal.label.1);
        if let Err(why) = step.admit(&bgp.fabric, &after) {
            refused.get_or_insert((step, why));
            continue;
        }
        if !step.needs_gate() {
            return Next::Take(step);
        }
        return match gate(&step) {
            Ok(()) => Next::Take(step),
            Err(shut) => Next::Wait(step, shut),
        };
    }
    refused.map_or(Next::Done, |(step, why)| Next::Refuse(Some(step), why))
}

/// Succeeds if no known rule of Calico's refuses a step.
///
/// # Errors
/// The rule.
pub fn allowed(snapshot: &Snapshot, step: &Step) -> Result<(), GateClosed> {
    match snapshot.mesh_off_refused().filter(|_| *step == Step::Mesh(false)) {
        Some(error) => Err(GateClosed::Refused(error.to_string())),
        None => Ok(()),
    }
}

/// Describes a refusal and its reason in one line.
#[must_use]
pub fn refusal(step: Option<&Step>, why: &steps::Refused) -> String {
    step.map_or_else(|| format!("the plan: {why}"), |step| format!("{step}: {why}"))
}
