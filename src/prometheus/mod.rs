//! Prometheus: PromQL in, numbers out.
//!
//! `config` defines the endpoints, and `endpoints` has a client for each. `client` sends queries
//! over `transport` with the current `secrets`; `decode` reads the answers (pure); `promql` checks
//! and writes queries, and `exporters` selects the accepted series; with `sharing`, all callers
//! that need the same answer in the same tick share one request, and `budget` limits the requests.
mod budget;
mod client;
mod config;
pub(crate) mod decode;
mod endpoints;
pub mod exporters;
pub(crate) mod promql;
mod question;
mod secrets;
mod sharing;
#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod testing;
mod transport;

use budget::Budget;
pub use budget::{Payer, Permit, REQUESTS};
pub use client::{Answer, Client};
pub use config::{DEFAULT, DEFAULT_URL, EndpointConfig, EndpointsConfig};
pub use endpoints::Endpoints;
pub use exporters::Exporters;
pub use sharing::{Late, Shared};

/// The reason why there is no answer. Its classes are condition reasons and metric labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// The class of the failure, which is the reason in conditions and metrics.
    pub class: Class,
    /// For people: the attempt and the result, without numbers that change every time.
    pub message: String,
}

/// The classes of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No connection, a broken one, or the wrong server.
    Unreachable,
    /// No answer arrived in time.
    Timeout,
    /// The server or a gateway is temporarily unavailable (5xx, 429, starting, stopping).
    Unavailable,
    /// The query is invalid (400): it does not recover by itself.
    QueryInvalid,
    /// The query failed on today's data (422).
    QueryFailed,
    /// 401 or 403, or our credentials are missing.
    Unauthorized,
    /// The answer is not from the Prometheus API, or not in a usable form.
    BadAnswer,
    /// It exceeds the namespace's share of concurrent requests, or of memory.
    OverBudget,
}

impl Class {
    /// The condition's reason and the metric's label.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "PrometheusUnreachable",
            Self::Timeout => "PrometheusTimeout",
            Self::Unavailable => "PrometheusUnavailable",
            Self::QueryInvalid => "QueryInvalid",
            Self::QueryFailed => "QueryFailed",
            Self::Unauthorized => "Unauthorized",
            Self::BadAnswer => "BadAnswer",
            Self::OverBudget => "OverBudget",
        }
    }
}

impl QueryError {
    /// An error of one class. Messages contain text from servers and proxies, so they are
    /// shortened.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: shortened(message.into(), MESSAGE) }
    }
}

/// Maximum length of an error message, in bytes: the position and the cause of a PromQL error fit;
/// it appears in a condition, in events and in the log at every pass.
const MESSAGE: usize = 1000;

/// Cuts a text from a server to at most `max` bytes, on one line.
#[must_use]
pub fn shortened(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_of_a_server_is_long_or_has_lines(text in "(.|\n|\u{1b}){0,80}", max in 0..60usize) {
            let short = shortened(text.clone(), max);
            prop_assert!(short.len() <= max + '…'.len_utf8());
            prop_assert!(!short.contains(char::is_control), "{short:?}");
            if text.len() <= max {
                prop_assert_eq!(short.chars().count(), text.chars().count());
            }
        }
    }

    #[test]
    fn a_message_of_a_mebibyte_is_cut() {
        let error = QueryError::new(Class::BadAnswer, "ä".repeat(1 << 20));
        assert!(error.message.len() <= MESSAGE + 3 && error.message.ends_with('…'));
    }
}
