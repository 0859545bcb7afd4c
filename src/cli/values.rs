//! How the values of flags are read; an error says what would be right.
use std::time::Duration;

/// A duration that is more than none.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than zero".into()) } else { Ok(duration) }
}

/// Whole seconds, because that is what a Lease can say; five, because a renewal may take one.
pub(super) fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(5) || duration.subsec_nanos() != 0 {
        return Err("must be at least 5s, in whole seconds".into());
    }
    Ok(duration)
}

/// A label name enters the text of a query, so it must be one.
pub(super) fn label_name(text: &str) -> Result<String, String> {
    let ok = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok(text.to_owned()) } else { Err("must match [a-zA-Z_][a-zA-Z0-9_]*".into()) }
}
