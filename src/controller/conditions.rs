//! Status conditions, as pure functions over a clock value.
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// One condition's status with its reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The condition's type: `Ready`, `MetricsAvailable`, …
    pub type_: &'static str,
    /// `Some(true)` is `True`, `None` is `Unknown`.
    pub status: Option<bool>,
    /// `PascalCase`, stable: people alert on it.
    pub reason: &'static str,
    /// For people. Contains no numbers that change at every pass, because each new text is a write.
    pub message: String,
}

/// Returns one condition's verdict.
#[must_use]
pub fn verdict(
    type_: &'static str,
    status: Option<bool>,
    reason: &'static str,
    message: impl Into<String>,
) -> Verdict {
    Verdict { type_, status, reason, message: message.into() }
}

/// Converts a number for a status.
#[must_use]
pub fn count(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

impl Verdict {
    /// `True`, `False` or `Unknown`.
    pub(crate) fn status(&self) -> &'static str {
        match self.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }

    /// Returns the condition of this verdict, without the transition time.
    fn condition(&self, generation: Option<i64>) -> Condition {
        Condition {
            type_: self.type_.into(),
            status: self.status().into(),
            reason: self.reason.into(),
            // The API server's limit for condition messages.
            message: truncate(&self.message, 32_768),
            observed_generation: generation,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }
}

/// Adds a failed write to a plan's conditions; returns false if the plan already has another
/// failure for the same reason, whose text stays: failures that take turns would each be a write.
pub(super) fn fail(conditions: &mut Vec<Verdict>, failure: Verdict) -> bool {
    let same = |known: &Verdict| {
        (known.type_, known.status, known.reason) == (failure.type_, failure.status, failure.reason)
    };
    // What a person must fix is always reported.
    if failure.status.is_none() && conditions.iter().any(same) {
        return false;
    }
    conditions.retain(|known| known.type_ != failure.type_);
    conditions.push(failure);
    true
}

/// Sets one condition, keeping `lastTransitionTime` unless the status changed.
///
/// - A condition of a new type is added with `now`.
/// - A condition whose status is unchanged keeps its transition time, so that writing it again
///   is a no-op for the API server and does not wake this controller.
/// - A condition whose status changed takes `now`.
pub fn set(
    conditions: &mut Vec<Condition>,
    verdict: &Verdict,
    generation: Option<i64>,
    now: Timestamp,
) {
    let mut new = verdict.condition(generation);
    new.last_transition_time = Time(now);
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// Cuts a text to at most `max` bytes, at a character boundary, marking the cut.
#[must_use]
pub fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: Option<bool>) -> Verdict {
        Verdict { type_: "Ready", status, reason: "Because", message: String::new() }
    }

    #[test]
    fn keeps_the_transition_time_of_an_unchanged_status() {
        let (t1, t2) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let mut conditions = vec![];
        set(&mut conditions, &ready(Some(true)), Some(1), t1);
        let first = conditions.clone();
        set(&mut conditions, &ready(Some(true)), Some(1), t2);
        assert_eq!(conditions, first);
        set(&mut conditions, &ready(None), Some(1), t2);
        assert_eq!(conditions[0].last_transition_time, Time(t2));
        assert_eq!(conditions[0].status, "Unknown");
    }

    #[test]
    fn a_failure_does_not_reword_another_one_for_the_same_reason() {
        let failure = |status, reason, text| verdict("Ready", status, reason, text);
        let mut conditions = vec![failure(None, "ApiError", "a")];
        assert!(!fail(&mut conditions, failure(None, "ApiError", "b")));
        assert_eq!(conditions, [failure(None, "ApiError", "a")]);
        for news in [failure(None, "Forbidden", "b"), failure(Some(false), "InvalidSpec", "c")] {
            assert!(fail(&mut conditions, news.clone()));
            assert_eq!(conditions, [news]);
        }
        assert!(fail(&mut conditions, failure(Some(false), "InvalidSpec", "d")));
    }

    #[test]
    fn truncates_bytes_not_characters() {
        assert_eq!(truncate("short", 10), "short");
        let cut = truncate(&"é".repeat(600), 1024);
        assert!(cut.len() <= 1024 && cut.ends_with('…'), "{}", cut.len());
    }
}
