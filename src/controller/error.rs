//! The error type of all reconcile loops, and the handling of each of its classes.
use std::time::Duration;

use super::{Notice, conditions::Verdict};

/// The reason why a reconcile stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object itself is wrong; only its author can repair it. The text starts with the path of
    /// the field.
    #[error("{0}")]
    Invalid(String),
    /// Another object holds a resource that this one claims.
    #[error("{0}")]
    Conflict(String),
    /// There are as many older objects as may do what this one claims.
    #[error("{0}")]
    TooMany(String),
    /// The API server refuses a child that the object describes; the rest of the object is served.
    #[error("{0}")]
    Refused(String),
    /// An object that this one describes belongs to another owner; the rest of the object is
    /// served.
    #[error("{0}")]
    Taken(String),
    /// The API server refuses the record that the rest of the decision relies on: nothing of the
    /// decision is reported.
    #[error("{0}")]
    Unwritten(String),
    /// Some of the decided writes failed. All others were made, so the status reports the decision.
    #[error("{}", first(errors))]
    Stages {
        /// Events about the writes that were made.
        notices: Vec<Notice>,
        /// The failures, in the order of the attempts; never empty.
        errors: Vec<Error>,
        /// The time after which to reconcile again.
        again: Duration,
    },
    /// The operation is not possible yet and is retried: the reason, and a message.
    #[error("{1}")]
    Pending(&'static str, String),
    /// Another client changed the object that was being written. The next pass decides on the new
    /// state; it comes soon even if no change arrives.
    #[error("another client changed what was being written")]
    Outpaced,
    /// The API server failed.
    #[error("kubernetes api: {action}")]
    Kube {
        /// The failed operation, e.g. `apply Deployment`.
        action: &'static str,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
}

fn first(errors: &[Error]) -> String {
    errors.first().map(Error::to_text).unwrap_or_default()
}

impl Error {
    /// Returns the outcome of stages, some of which may have failed.
    ///
    /// # Errors
    /// When any did.
    pub fn stages(notices: Vec<Notice>, errors: Vec<Self>) -> Result<Vec<Notice>, Self> {
        if errors.is_empty() {
            return Ok(notices);
        }
        // Until the driver knows the period.
        let again = Duration::from_secs(1);
        Err(Self::Stages { notices, errors, again })
    }

    /// Wraps a client error with the failed operation.
    pub fn kube(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kube { action, source }
    }

    /// A `PascalCase` name: the metric label, the event reason and the condition reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::Refused(_) | Self::Unwritten(_) => "InvalidSpec",
            Self::Conflict(_) | Self::Taken(_) => "Conflict",
            Self::TooMany(_) => "TooMany",
            Self::Pending(reason, _) => reason,
            Self::Stages { .. } => self.gravest().map_or("ApiError", Self::reason),
            Self::Outpaced => "Outpaced",
            Self::Kube { source: kube::Error::Api(s), .. } if s.is_forbidden() => "Forbidden",
            Self::Kube { .. } => "ApiError",
        }
    }

    /// Reports whether the rest of the decision was written and should be recorded.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Taken(_) | Self::Stages { .. })
    }

    /// Reports whether it is an intermediate step, not a failure.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(..) | Self::Outpaced)
    }

    /// Returns the status of the `Ready` condition: False for a spec or claim that is known to
    /// fail, Unknown for anything else.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some(gravest) = self.gravest() {
            return gravest.verdict();
        }
        let is_known = !matches!(self, Self::Kube { .. } | Self::Pending(..) | Self::Outpaced);
        let status = is_known.then_some(false);
        Verdict { type_: "Ready", status, reason: self.reason(), message: self.to_text() }
    }

    /// Reports whether another object keeps this one from being served: it is looked at again, and is
    /// the same refusal each time.
    #[must_use]
    pub fn is_by_another(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::TooMany(_))
    }

    /// Returns the error among several that only a person can fix, else the first.
    fn gravest(&self) -> Option<&Self> {
        let Self::Stages { errors, .. } = self else { return None };
        errors.iter().find(|error| error.is_partial()).or(errors.first())
    }

    /// Returns the error and its causes in one line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // kube prints some of its sources inside its own text.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        text
    }

    /// Returns the time after which to try again, given `failures` failures in a row; `None` waits
    /// until the object changes.
    ///
    /// A claim is checked again every 10 s, because the holder may go away without touching the
    /// claimant. After a refusal, the rest continues, and the same write is not repeated. API
    /// errors back off to at most 30 s, so that the operator recovers soon after the API server
    /// does.
    #[must_use]
    pub fn requeue_after(&self, failures: u32) -> Option<Duration> {
        let backoff = Duration::from_secs(1 << failures.min(5));
        match self {
            Self::Invalid(_) => None,
            Self::Conflict(_) | Self::TooMany(_) => Some(Duration::from_secs(10)),
            Self::Refused(_) | Self::Taken(_) | Self::Pending(..) | Self::Outpaced => {
                Some(Duration::from_secs(1))
            }
            Self::Stages { again, .. } => Some(*again),
            Self::Unwritten(_) | Self::Kube { .. } => Some(backoff.min(Duration::from_secs(30))),
        }
    }
}

/// Reports whether the API server would refuse the same object again.
#[must_use]
pub fn is_refusal(status: &kube::core::Status) -> bool {
    matches!(status.code, 400 | 422)
        // A field that the server does not know fails while the patch is typed, as code 500.
        || status.message.contains("field not declared in schema")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_error(code: u16, reason: &str) -> Error {
        let status = kube::core::Status::failure("no", reason).with_code(code).boxed();
        Error::Kube { action: "get", source: kube::Error::Api(status) }
    }

    #[test]
    fn only_an_invalid_spec_waits_for_a_change() {
        assert_eq!(Error::Invalid("x".into()).requeue_after(9), None);
        assert_eq!(Error::Conflict("x".into()).requeue_after(9), Some(Duration::from_secs(10)));
        assert_eq!(api_error(500, "x").requeue_after(1), Some(Duration::from_secs(2)));
        assert_eq!(api_error(500, "x").requeue_after(99), Some(Duration::from_secs(30)));
    }

    /// It would report a version that no file has.
    #[test]
    fn a_record_that_is_refused_is_no_partial_success() {
        let error = Error::Unwritten("ConfigMap x: no".into());
        assert!(!error.is_partial());
        assert_eq!((error.reason(), error.verdict().status), ("InvalidSpec", Some(false)));
        assert_eq!(error.requeue_after(3), Some(Duration::from_secs(8)));
    }

    #[test]
    fn reasons_are_bounded_words() {
        assert_eq!(api_error(403, "Forbidden").reason(), "Forbidden");
        assert_eq!(api_error(503, "x").reason(), "ApiError");
        assert_eq!(Error::Invalid("spec.label: x".into()).verdict().status, Some(false));
        assert_eq!(api_error(503, "x").verdict().status, None);
        assert!(api_error(403, "Forbidden").to_text().starts_with("kubernetes api: get: "));
    }
}
