//! The times of probes: a pure function of the two ends and the number of the slot.
//!
//! Slots come at a fixed rate, whatever the probes take: a schedule that waits *after* each probe
//! would probe less often exactly when the network is slow (coordinated omission). Each target has
//! its own phase, so that neither the probes of one agent nor those of all agents to one target are
//! sent together; and each slot has its own small jitter, so that the probes do not always hit or
//! always miss a periodic event. Both are hashes: a restarted agent continues where it was.
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use traffic_operator_core::placement::hash;

/// The part of a period by which slots are jittered: a tenth leaves at least 9/10 between two
/// slots, and is enough to sweep across events of any period in some ten slots.
const JITTER: u32 = 10;

/// The slots of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    seed: u64,
    period: Duration,
}

/// The decision about a slot whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Probe.
    Now,
    /// Skip: this process is late, and would measure its own delay.
    Starved,
}

impl Schedule {
    /// Creates the slots of `identity` (the two ends and the protocol), one per `period`. A period
    /// of zero counts as a nanosecond.
    #[must_use]
    pub fn new(identity: &str, period: Duration) -> Self {
        Self { seed: hash::of(identity), period: period.max(Duration::from_nanos(1)) }
    }

    /// The time at which slot `number` is due, since the epoch that slots are counted from.
    #[must_use]
    pub fn due(&self, number: u64) -> Duration {
        let whole = nanoseconds(self.period).saturating_mul(u128::from(number));
        let phase = fraction(self.seed, self.period);
        let jitter = fraction(hash::combine(self.seed, number), self.period / JITTER);
        duration(whole).saturating_add(phase).saturating_add(jitter)
    }

    /// The first slot that is due at `now` or later.
    #[must_use]
    pub fn next(&self, now: Duration) -> u64 {
        // Phase and jitter together are less than two periods: starting two slots earlier is
        // enough.
        let near = nanoseconds(now) / nanoseconds(self.period);
        let mut number = u64::try_from(near).unwrap_or(u64::MAX).saturating_sub(2);
        while self.due(number) < now && number < u64::MAX {
            number += 1;
        }
        number
    }

    /// The longest that a probe may take so that it is over before the next slot: a period minus
    /// its jitter.
    #[must_use]
    pub fn longest_probe(&self) -> Duration {
        self.period.saturating_sub(self.period / JITTER)
    }

    /// Decides whether a probe that is `late` should still start. An agent that was not run for as
    /// long as its own timeout cannot tell a lost packet from its own absence; and a probe that is
    /// half a period late would be closer to the next slot than to its own.
    #[must_use]
    pub fn start(&self, late: Duration, timeout: Duration) -> Start {
        if late > self.longest_delay(timeout) { Start::Starved } else { Start::Now }
    }

    /// The longest time that this process may be late without spoiling the measurement.
    #[must_use]
    pub fn longest_delay(&self, timeout: Duration) -> Duration {
        timeout.min(self.period / 2)
    }
}

fn nanoseconds(duration: Duration) -> u128 {
    duration.as_nanos()
}

fn duration(nanoseconds: u128) -> Duration {
    u64::try_from(nanoseconds).map_or(Duration::MAX, Duration::from_nanos)
}

/// A part of `of` in [0, 1), by a hash.
fn fraction(hash: u64, of: Duration) -> Duration {
    duration((u128::from(hash) * of.as_nanos()) >> u64::BITS)
}

/// A clock that reads the wall clock once, at the start, and counts by the monotonic clock from
/// then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Instant,
    epoch: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), epoch }
    }

    /// The current time since the Unix epoch.
    pub(super) fn now(&self) -> Duration {
        self.epoch + self.started.elapsed()
    }

    /// The instant of that time; a time before the start counts as the start.
    pub(super) fn instant(&self, due: Duration) -> Instant {
        self.started + due.saturating_sub(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_late_start_is_bounded_by_timeout_and_half_the_period() {
        let ms = Duration::from_millis;
        for (period, timeout, late, expected) in [
            (10_000, 1_000, 999, Start::Now),
            (10_000, 1_000, 1_001, Start::Starved),
            (1_000, 900, 500, Start::Now),
            (1_000, 900, 501, Start::Starved),
            (100, 90, 0, Start::Now),
            (100, 90, 51, Start::Starved),
        ] {
            let schedule = Schedule::new("x", ms(period));
            assert_eq!(schedule.start(ms(late), ms(timeout)), expected, "{period} {late}");
        }
    }

    #[test]
    fn phases_of_many_targets_are_spread_over_the_period() {
        let mut tenths = [0; 10];
        for i in 0..1000 {
            let first = Schedule::new(&format!("a>b-{i}/http"), SECOND).due(0);
            tenths[usize::try_from(first.as_millis() % 1000 / 100).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| *count > 50), "{tenths:?}");
    }

    proptest! {
        #[test]
        fn slots_are_at_a_fixed_rate_and_never_closer_than_the_longest_probe(
            identity: String, nanos in 1u64..100_000_000_000, number in 0u64..1_000_000,
        ) {
            let period = Duration::from_nanos(nanos);
            let schedule = Schedule::new(&identity, period);
            let (one, two) = (schedule.due(number), schedule.due(number + 1));
            prop_assert!(two > one);
            prop_assert!(two + Duration::from_nanos(1) >= one + schedule.longest_probe());
            let start = schedule.due(0).as_nanos();
            let ideal = start + u128::from(nanos) * u128::from(number);
            // After any number of slots, the time differs from the ideal only by the jitter and
            // never drifts.
            prop_assert!(one.as_nanos().abs_diff(ideal) <= u128::from(nanos / 10) + 1);
        }

        #[test]
        fn the_next_slot_is_the_first_that_is_not_past(
            identity: String, nanos in 1u64..100_000_000_000, now in 0u64..10_000_000_000_000,
        ) {
            let now = Duration::from_nanos(now);
            let schedule = Schedule::new(&identity, Duration::from_nanos(nanos));
            let next = schedule.next(now);
            prop_assert!(schedule.due(next) >= now);
            prop_assert!(next == 0 || schedule.due(next - 1) < now);
        }

        #[test]
        fn the_same_identity_has_the_same_slots(identity: String, number: u64) {
            let (a, b) = (Schedule::new(&identity, SECOND), Schedule::new(&identity, SECOND));
            prop_assert_eq!(a.due(number), b.due(number));
        }
    }
}
