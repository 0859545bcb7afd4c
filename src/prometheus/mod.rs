//! Prometheus: PromQL in, numbers out.
//!
//! `config` says which endpoints there are, `endpoints` has a client for each. `client` asks, over
//! `transport` with the `secrets` of now; `decode` reads (pure); `promql` checks and writes the
//! text; `sharing` lets everything that needs the same answer in the same tick have it from one
//! request.
mod client;
mod config;
pub mod decode;
mod endpoints;
pub mod promql;
mod secrets;
mod sharing;
#[cfg(test)]
mod testing;
mod transport;

pub use client::{Answer, Client};
pub use config::{DEFAULT, DEFAULT_URL, EndpointConfig, EndpointsConfig};
pub use endpoints::Endpoints;
pub use sharing::Shared;

/// Why there is no answer. The words are condition reasons and metric labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// The class.
    pub class: Class,
    /// For a person: what was tried and what came back, without figures that change every time.
    pub message: String,
}

/// The classes of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No connection, or it broke, or the server is not the one it should be.
    Unreachable,
    /// Nothing came back in time.
    Timeout,
    /// The server or a gateway says: not now (5xx, 429, starting, stopping).
    Unavailable,
    /// The query is wrong (400): it will not get better by itself.
    QueryInvalid,
    /// The query failed on today's data (422).
    QueryFailed,
    /// 401 or 403, or what we would identify ourselves with is missing.
    Unauthorized,
    /// Something answered that is not the Prometheus API, or not in a form that can be judged.
    BadAnswer,
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
        }
    }
}

impl QueryError {
    /// An error of one class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}
