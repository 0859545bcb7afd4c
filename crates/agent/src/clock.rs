//! Timestamps that are unaffected by changes of the system clock.
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

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
