//! Passes that decide nothing.
use super::{Calico, Desired, PERIOD, Reports};
use crate::{
    api::{RouteReflectorSet, RouteReflectorSetStatus},
    controller::{Notice, Plan, Verdict, verdict},
    route_reflector::{datastore::Idle, memory::Memory, report},
};

/// The status as it was, with other conditions: nothing is decided.
fn standing(
    set: &RouteReflectorSet,
    mut memory: Option<Memory>,
    conditions: Vec<Verdict>,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let mut status = set.status.clone().unwrap_or_default();
    status.plan = vec![];
    let reports = memory.as_mut().map(|memory| Reports::next(memory, vec![])).unwrap_or_default();
    let desired = Desired { reports, memory, ..Desired::default() };
    Plan { desired, status, conditions, notices: vec![], period: PERIOD }
}

/// Nothing is decided.
pub(super) fn paused(
    set: &RouteReflectorSet,
    memory: &Memory,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let text = "spec.paused: nothing is decided or written";
    let conditions = vec![
        verdict("Ready", Some(true), "Paused", text),
        verdict("Converged", None, "Paused", text),
    ];
    standing(set, Some(memory.clone()), conditions)
}

/// Calico's objects are not known.
pub(super) fn unknown(
    set: &RouteReflectorSet,
    calico: &Calico,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let known = ["CalicoNotFound", "CalicoUnreadable", "SecretInvalid"].contains(&calico.reason);
    let conditions = vec![
        verdict("Ready", known.then_some(false), calico.reason, calico.text.clone()),
        verdict("Converged", None, calico.reason, "the state of Calico's objects is unknown"),
        verdict("RoutesSafe", None, calico.reason, "the state of Calico's objects is unknown"),
    ];
    standing(set, None, conditions)
}

/// Handles a network in which no session carries a route to pods. Figures of routes would be about
/// routes that nobody uses.
pub(super) fn idle(
    set: &RouteReflectorSet,
    memory: &Memory,
    idle: &Idle,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let Idle { reason, text } = idle;
    let conditions = vec![
        verdict("Ready", Some(false), reason, text.clone()),
        verdict("Converged", Some(false), "Frozen", "nothing is written; see Ready"),
        verdict("RoutesSafe", None, reason, "no session of BGP carries a route to pods"),
    ];
    let memory = Memory { idle: true, figures: None, shut_since: None, ..memory.clone() };
    let mut plan = standing(set, Some(memory), conditions);
    let mut known = set.status.iter().flat_map(|status| &status.conditions);
    if !known.any(|known| known.type_ == "Ready" && known.reason == *reason) {
        plan.notices.push(Notice { warning: true, reason, note: text.clone(), node: None });
    }
    plan
}

/// Handles a spec of which the gate's part is invalid, where nothing can be repaired either.
pub(super) fn misconfigured(
    set: &RouteReflectorSet,
    memory: Memory,
    text: &str,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let conditions = vec![
        verdict("Ready", Some(false), "InvalidSpec", text),
        verdict("Converged", Some(false), "Frozen", "nothing is written; see Ready"),
    ];
    let mut plan = standing(set, Some(memory), conditions);
    plan.notices.extend(report::invalid(set, text));
    plan
}

/// Handles a target that the nodes do not allow: nothing is written, and every reflector stays.
pub(super) fn refused(
    set: &RouteReflectorSet,
    mut memory: Memory,
    text: &str,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let conditions = vec![
        verdict("Ready", Some(false), "PlanRefused", text),
        verdict("Converged", Some(false), "PlanRefused", "nothing is written"),
    ];
    let news = memory.refused.as_deref() != Some(text);
    if news {
        memory.counters.refusals += 1;
        memory.refused = Some(text.to_owned());
    }
    let mut plan = standing(set, Some(memory), conditions);
    if news {
        let note = text.to_owned();
        plan.notices.push(Notice { warning: true, reason: "PlanRefused", note, node: None });
    }
    plan
}
