//! Times, and what they count from.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::{api::RouteReflectorSet, route_reflector::memory::Memory};

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
pub(super) fn last_step(
    set: &RouteReflectorSet,
    memory: &Memory,
    now: Timestamp,
) -> Option<Timestamp> {
    known_step(set, memory, now).max(memory.began)
}

/// The last known step. One in the future is of a leader whose clock was ahead: it was before this
/// process began, and nothing waits until its time has come.
pub(super) fn known_step(
    set: &RouteReflectorSet,
    memory: &Memory,
    now: Timestamp,
) -> Option<Timestamp> {
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
