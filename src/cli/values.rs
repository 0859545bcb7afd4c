//! Parsers of flag values; each error describes a valid value.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
pub(super) use traffic_operator_agent::cli::values::duration;

/// Parses the lifetime of a certificate: a minute is long enough for every replica to read the next
/// one.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_mins(1) { Err("must be at least 1m".into()) } else { Ok(duration) }
}

/// Accepts only https, because the API server calls webhooks only over TLS.
pub(super) fn https_url(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if url.scheme() == "https" && url.host_str().is_some() && url.path() == "/" {
        Ok(url)
    } else {
        Err("must be https://host or https://host:port".into())
    }
}

/// Accepts an address that a browser opens.
pub(super) fn web_url(text: &str) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if ["http", "https"].contains(&url.scheme()) && url.host_str().is_some() {
        Ok(url)
    } else {
        Err("must be an http or https URL".into())
    }
}

/// Parses a lease duration: whole seconds, the unit of a Lease; at least five, because a renewal
/// must be answered within a third of it.
pub(super) fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(5) || duration.subsec_nanos() != 0 {
        return Err("must be at least 5s, in whole seconds".into());
    }
    Ok(duration)
}

/// Accepts a valid label name, because it becomes part of the text of a query.
pub(super) fn label_name(text: &str) -> Result<String, String> {
    let ok = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok(text.to_owned()) } else { Err("must match [a-zA-Z_][a-zA-Z0-9_]*".into()) }
}

/// A point in time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time before now; zero is now.
    Before(Duration),
    /// A time in milliseconds since the Unix epoch.
    At(i64),
}

impl Moment {
    /// Milliseconds since the Unix epoch.
    pub(super) fn at(self, now: i64) -> i64 {
        match self {
            Self::Before(ago) => {
                now.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))
            }
            Self::At(at) => at,
        }
    }
}

/// Parses `now`, `-24h`, a date with a time, or Unix seconds.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if text == "now" {
        return Ok(Moment::Before(Duration::ZERO));
    }
    if let Some(ago) = text.strip_prefix('-') {
        return duration(ago).map(Moment::Before);
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000).map(Moment::At).ok_or_else(|| "is too late".into());
    }
    text.parse::<Timestamp>().map(|at| Moment::At(at.as_millisecond())).map_err(|_| {
        "must be `now`, a time before now (-24h), a moment (2026-01-31T12:00:00Z) or Unix seconds"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_relative_or_absolute() {
        let at = |text: &str| moment(text).map(|moment| moment.at(1_000_000));
        assert_eq!(at("now"), Ok(1_000_000));
        assert_eq!(at("-10s"), Ok(990_000));
        assert_eq!(at("1790000000"), Ok(1_790_000_000_000));
        assert_eq!(at("2026-09-21T14:13:20Z"), Ok(1_790_000_000_000));
        assert_eq!(at("2026-09-21T16:13:20+02:00"), Ok(1_790_000_000_000));
        for wrong in ["yesterday", "24h", "-", "-0s", "2026-09-21"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
