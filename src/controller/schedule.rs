//! The times of passes: ticks that objects with the same period share.
use std::time::{Duration, Instant};

use crate::clock;

/// A clock with aligned ticks: everything with a period of 10 s happens at 0, 10, 20, … s after
/// `epoch`, so that objects that need the same measurement need it at the same moment and share one
/// request.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    epoch: Instant,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { epoch: clock::instant() }
    }
}

impl Schedule {
    /// Returns the time at which the current tick of `period` began.
    #[must_use]
    pub fn tick_start(&self, now: Instant, period: Duration) -> Instant {
        now.checked_sub(self.elapsed_in_tick(now, period)).unwrap_or(self.epoch)
    }

    /// Returns the number of the current tick of `period`.
    #[must_use]
    pub fn tick(&self, now: Instant, period: Duration) -> u64 {
        let elapsed = now.saturating_duration_since(self.epoch).as_nanos();
        u64::try_from(elapsed / period.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// Returns the time until the next tick of `period`; never zero.
    #[must_use]
    pub fn until_next(&self, now: Instant, period: Duration) -> Duration {
        period.saturating_sub(self.elapsed_in_tick(now, period))
    }

    /// Returns the time from `now` until the pass that follows one that began at `began`: until the
    /// next tick, or none if another tick has begun since. A pass that outlasts its tick would
    /// otherwise miss every second one.
    #[must_use]
    pub fn until_due(&self, began: Instant, now: Instant, period: Duration) -> Duration {
        if self.tick(began, period) == self.tick(now, period) {
            self.until_next(now, period)
        } else {
            Duration::ZERO
        }
    }

    fn elapsed_in_tick(&self, now: Instant, period: Duration) -> Duration {
        let elapsed = now.saturating_duration_since(self.epoch).as_nanos();
        let into = elapsed % period.as_nanos().max(1);
        Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_periods_share_their_ticks() {
        let schedule = Schedule::default();
        let at = |ms| schedule.epoch + Duration::from_millis(ms);
        let period = Duration::from_secs(10);
        assert_eq!(schedule.tick_start(at(23_400), period), at(20_000));
        assert_eq!(schedule.tick(at(23_400), period), 2);
        assert_eq!(schedule.until_next(at(23_400), period), Duration::from_millis(6_600));
        assert_eq!(schedule.until_next(at(20_000), period), period);
        // A multiple of the period has common ticks with it.
        assert_eq!(schedule.tick_start(at(31_000), Duration::from_secs(30)), at(30_000));
    }

    #[test]
    fn a_pass_that_outlasts_its_tick_misses_none() {
        let schedule = Schedule::default();
        let at = |ms| schedule.epoch + Duration::from_millis(ms);
        let due = |began, now| schedule.until_due(at(began), at(now), Duration::from_secs(10));
        assert_eq!(due(20_050, 20_400), Duration::from_millis(9_600));
        assert_eq!(due(20_050, 29_999), Duration::from_millis(1));
        for now in [30_000, 30_050, 39_900, 45_000] {
            assert_eq!(due(20_050, now), Duration::ZERO, "{now}");
        }
    }
}
