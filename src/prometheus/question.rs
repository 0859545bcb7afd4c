//! A query on its way from the client to the transport.
use std::time::Duration;

/// A query, for the current time or for a range.
pub(super) struct Question {
    pub promql: String,
    /// Start and end in Unix seconds, and the step between two points.
    pub range: Option<(i64, i64, Duration)>,
    /// The time after which the server gives up.
    pub timeout: Duration,
}

impl Question {
    pub fn instant(promql: &str) -> Self {
        Self { promql: promql.to_owned(), range: None, timeout: Duration::ZERO }
    }

    /// Returns the server's timeout in milliseconds.
    pub fn milliseconds(&self) -> i64 {
        i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX)
    }
}
