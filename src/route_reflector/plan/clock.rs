//! Times, and what they count from.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::{api::RouteReflectorSet, route_reflector::memory::Memory};

pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
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
pub(super) fn last_step(set: &RouteReflectorSet, memory: &Memory) -> Option<Timestamp> {
    known_step(set, memory).max(memory.began)
}

/// The last known step.
pub(super) fn known_step(set: &RouteReflectorSet, memory: &Memory) -> Option<Timestamp> {
    let published = set.status.as_ref().and_then(|status| status.last_step_time.as_ref());
    published.map(|time| time.0).max(memory.last_step)
}
