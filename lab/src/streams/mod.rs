//! The runs of streams: the reports of a Swarm's workers, and the conclusions from them.
//!
//! Each worker posts the intervals in which it ran a stream to a [`Sink`]. Its [`Ledger`] finds the
//! times in which two pods ran a stream (which must not happen), and in which none did. A worker
//! that could not report does so later, so a cut cable hides nothing.

use std::time::{SystemTime, UNIX_EPOCH};

mod coverage;
mod ledger;
mod report;
mod sink;

pub use coverage::{Millis, Stretch};
pub use ledger::{Gap, Ledger, Overlap, Regression, Run};
pub use report::{Interval, Report};
pub use sink::Sink;

/// Returns the time by the clock of the workers' reports.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
