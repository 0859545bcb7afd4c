//! The memory of one process about a `RouteReflectorSet`, which may be lost at any time; and the
//! times that gates and waits count from.
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;

use super::{
    gate::Measured,
    steps::{Deed, Step},
};
use crate::{
    api::RouteReflectorSet,
    controller::{self, Verdict, contest::Rounds},
};

/// Pods that an interruption would hit, by node.
pub type Workloads = Arc<BTreeMap<Arc<str>, u32>>;

/// The memory of one set.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The time of the last step, as far as this process knows: the status may not have it yet.
    pub last_step: Option<Timestamp>,
    /// The start of this process: the previous one may have taken a step without recording it, so
    /// gates and waits count from here too.
    pub began: Option<Timestamp>,
    /// The time since which the gate has been closed for the next step.
    pub shut_since: Option<Timestamp>,
    /// Pods that an interruption would hit, by node, and when they were counted.
    pub workloads: Option<(Instant, Workloads)>,
    /// Reports of `CalicoNodeStatus` objects about nodes since the last step.
    pub statuses: Measured,
    /// The nodes that have such an object of ours.
    pub asked: Vec<Arc<str>>,
    /// True if these objects could not be changed accordingly: the next pass tries it again.
    pub unsettled: bool,
    /// The step that the API server refuses.
    pub blocked: Option<Blocked>,
    /// The steps of the last minutes: how often each was taken again, and the last time. One that has
    /// to be taken again and again is undone by another client.
    pub taken: BTreeMap<Deed, (Rounds, Timestamp)>,
    /// The last refusal, so that it is reported once.
    pub refused: Option<String>,
    /// No session carries a route to pods: there is nothing to reflect.
    pub idle: bool,
    /// The time since which no route has depended on BGP, with `mesh: Retire`.
    pub witnessed: Option<Timestamp>,
    /// The values for the metrics; `None` until this process has decided once: zeros would say that
    /// every route is there.
    pub figures: Option<Arc<Figures>>,
    /// Counters since this process started.
    pub counters: Counters,
}

/// A step that the API server refuses, or would: it is reported until a write succeeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// The step.
    pub step: Step,
    /// The condition.
    pub verdict: Verdict,
    /// The time of the refusal; `None` if it was foreseen.
    pub at: Option<Timestamp>,
}

impl Memory {
    /// Notes that a step was taken, and reports whether it had been shortly before.
    pub(super) fn takes(&mut self, step: &Step, now: Timestamp) -> bool {
        self.taken.retain(|_, (_, at)| !Rounds::is_over(elapsed(*at, now)));
        let deed = step.deed();
        let before = self.taken.get(&deed).copied();
        let rounds =
            before.map_or_else(Rounds::default, |(rounds, at)| rounds.again(elapsed(at, now)));
        self.taken.insert(deed, (rounds, now));
        before.is_some()
    }

    /// Returns the desired number of reflectors as last decided, by zone.
    #[must_use]
    pub fn desired(&self) -> BTreeMap<Arc<str>, usize> {
        self.figures.as_ref().map(|figures| figures.desired.clone()).unwrap_or_default()
    }
}

/// Counters of one set for the metrics.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Steps by kind and result.
    pub steps: BTreeMap<(&'static str, &'static str), u64>,
    /// Plans and steps that would have cost routes, or made too many paths.
    pub refusals: u64,
}

/// The last decision.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Desired number of reflectors, by zone.
    pub desired: BTreeMap<Arc<str>, usize>,
    /// Number of reflectors, by zone and state.
    pub slots: BTreeMap<(Arc<str>, &'static str), usize>,
    /// True if the mesh is on.
    pub mesh: bool,
    /// True if `mesh: Retire` is being carried out, or has been: no route depends on any session.
    pub retiring: bool,
    /// Ordered pairs of nodes without a route; `None` if an object that cannot be read may carry
    /// the routes.
    pub missing: Option<u64>,
    /// The same with the one reflector down that costs most.
    pub missing_without_one: Option<u64>,
    /// Objects of Calico's that cannot be read.
    pub unreadable: usize,
    /// Clients with fewer than two established sessions; `None` while nothing is measured.
    pub at_risk: Option<usize>,
    /// Ready clients without any session; `None` while nothing is measured.
    pub silent: Option<usize>,
    /// BGPPeers that are not ours.
    pub foreign: usize,
    /// Paths in the largest table, estimated.
    pub paths: u64,
    /// Steps that are left.
    pub steps_left: usize,
    /// Returns the time since which the next step has been waiting for its gate.
    pub waiting_since: Option<Timestamp>,
}

/// The memories of all sets.
pub type Memories = controller::Memories<Memory>;

#[must_use]
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970, to the millisecond")]
#[must_use]
pub fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

/// In whole seconds, as a status has it: a fraction would be written again at every pass. Rounded
/// up: no sample from before a step may pass for one after it.
#[must_use]
pub fn whole(time: Timestamp) -> Timestamp {
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(time)
}

/// Returns the time from which gates and waits count.
pub fn last_step(set: &RouteReflectorSet, memory: &Memory, now: Timestamp) -> Option<Timestamp> {
    known_step(set, memory, now).max(memory.began)
}

/// The last known step. One in the future is of a leader whose clock was ahead: it was before this
/// process began, and nothing waits until its time has come.
pub fn known_step(set: &RouteReflectorSet, memory: &Memory, now: Timestamp) -> Option<Timestamp> {
    let published = set.status.as_ref().and_then(|status| status.last_step_time.as_ref());
    let published = published.map(|time| time.0);
    let ahead = published.is_some_and(|time| time > whole(now));
    let began = memory.began.map(whole).filter(|_| ahead);
    began.or(published).max(memory.last_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The last step as a status has it, for a process that has begun at 1000.
    fn last(published: i64, own: Option<i64>, now: Timestamp) -> (Option<i64>, Option<i64>) {
        let set = serde_json::json!({
            "metadata": {"name": "main"}, "spec": {},
            "status": {"lastStepTime": at(published).to_string()},
        });
        let set = serde_json::from_value(set).unwrap();
        let memory = Memory { began: Some(at(1000)), last_step: own.map(at), ..Memory::default() };
        let seconds = |time: Option<Timestamp>| time.map(Timestamp::as_second);
        (seconds(known_step(&set, &memory, now)), seconds(last_step(&set, &memory, now)))
    }

    /// Otherwise each step that needs the gate would wait as long as the clocks were apart.
    #[test]
    fn a_step_of_a_leader_whose_clock_was_ahead_was_before_this_process() {
        let now = at(1100);
        assert_eq!(last(900, None, now), (Some(900), Some(1000)));
        assert_eq!(last(5000, None, now), (Some(1000), Some(1000)));
        assert_eq!(last(5000, Some(1050), now), (Some(1050), Some(1050)));
        // A time of this process, rounded up as it is published.
        let now = at(1100) + Duration::from_millis(300);
        assert_eq!(last(1101, Some(1101), now), (Some(1101), Some(1101)));
        assert_eq!(last(1101, None, now), (Some(1101), Some(1101)));
    }
}
