//! The clocks of decisions: real ones, which follow tokio's paused time in the simulation.
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

/// Returns the monotonic time, as timers of tokio count it.
pub(crate) fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time of day.
pub(crate) fn timestamp() -> Timestamp {
    #[cfg(test)]
    if let Some(now) = simulated::timestamp() {
        return now;
    }
    Timestamp::now()
}

/// The time of day of a simulation.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    use k8s_openapi::jiff::Timestamp;
    use tokio::time::Instant;

    thread_local! {
        static BEGAN: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
    }

    /// Sets the time of day of this thread, which passes with tokio's clock from now on.
    pub(crate) fn begin(at: Timestamp) {
        BEGAN.set(Some((Instant::now(), at)));
    }

    /// Returns to the real time of day.
    pub(crate) fn end() {
        BEGAN.set(None);
    }

    /// Reports whether this thread is in a simulation.
    pub(crate) fn is_running() -> bool {
        BEGAN.get().is_some()
    }

    pub(super) fn timestamp() -> Option<Timestamp> {
        let (began, at) = BEGAN.get()?;
        Some(at + began.elapsed())
    }
}
