//! Numbers as a person reads them.
use k8s_openapi::jiff::Timestamp;

/// Formats a number with up to three decimals, without trailing zeros; very small ones keep their
/// digits.
#[must_use]
pub fn number(x: f64) -> String {
    if x != 0.0 && x.abs() < 0.001 {
        return format!("{x:.2e}");
    }
    let text = format!("{x:.3}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats a number with the unit of its measure: `percent`, `bits_per_second`, or the author's
/// own.
#[must_use]
pub fn value(x: f64, unit: &str) -> String {
    match unit {
        "percent" => format!("{} %", number(x)),
        "bits_per_second" => bits(x),
        "" => number(x),
        other => format!("{} {other}", number(x)),
    }
}

fn bits(x: f64) -> String {
    const STEPS: [(f64, &str); 4] =
        [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let step = STEPS.iter().find(|(scale, _)| x.abs() >= *scale);
    step.map_or_else(
        || format!("{} bit/s", number(x)),
        |(s, unit)| format!("{} {unit}", number(x / s)),
    )
}

/// Formats a time span by its two largest units: `12m 4s`, `59d 16h`.
#[must_use]
pub fn span(seconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let seconds = seconds.max(0);
    let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (unit, name) in UNITS.iter().skip(largest).take(2) {
        if rest >= *unit || (parts.is_empty() && *unit == 1) {
            parts.push(format!("{}{name}", rest / unit));
        }
        rest %= unit;
    }
    parts.join(" ")
}

/// Returns the time since a moment; a moment in the future, because of a different clock, counts as
/// now.
#[must_use]
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    span(now.as_second().saturating_sub(then.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_their_unit() {
        for (x, unit, expected) in [
            (71.5, "percent", "71.5 %"),
            (60.0, "percent", "60 %"),
            (0.000_106_976, "percent", "1.07e-4 %"),
            (0.0, "", "0"),
            (100.0, "", "100"),
            (8.5e8, "bits_per_second", "850 Mbit/s"),
            (2.5e9, "bits_per_second", "2.5 Gbit/s"),
            (12.0, "bits_per_second", "12 bit/s"),
            (0.25, "s", "0.25 s"),
            (f64::NAN, "", "NaN"),
        ] {
            assert_eq!(value(x, unit), expected);
        }
    }

    #[test]
    fn spans_are_whole_seconds_and_never_negative() {
        for (seconds, text) in [
            (724, "12m 4s"),
            (0, "0s"),
            (60, "1m"),
            (3604, "1h"),
            (59 * 86_400 + 60_136, "59d 16h"),
            (-5, "0s"),
        ] {
            assert_eq!(span(seconds), text);
        }
        let at = |s| Timestamp::from_second(s).unwrap();
        assert_eq!(ago(at(10), at(75)), "1m 5s");
        assert_eq!(ago(at(75), at(10)), "0s");
    }
}
