//! The body of a worker's report.

use serde::{Deserialize, Serialize};

use super::Millis;

/// The intervals in which a worker ran streams, except for those already reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The worker's name: that of its pod.
    pub worker: String,
    /// Identifies the pod among those of its name: its UID, or a substitute.
    pub pod: String,
    /// Any number of intervals, of any streams.
    pub intervals: Vec<Interval>,
}

/// A stretch of time in which a stream was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub stream: String,
    /// The fencing token under which it was run.
    pub epoch: u64,
    /// The first millisecond, since the Unix epoch.
    pub from: Millis,
    /// The first millisecond after it.
    pub to: Millis,
}
