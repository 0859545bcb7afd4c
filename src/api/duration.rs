//! Durations in Go's notation: "10s", "1h30m".
use std::{borrow::Cow, fmt, str::FromStr, time};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A `metav1.Duration`.
///
/// `kube`'s own type panics on texts such as "9999999999999999h" and "1h-5m". The schema
/// refuses such a text, but an object may be older than the schema, or its definition may have been
/// edited: then it must be an error of that object alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Duration(kube::core::Duration);

/// The longest, in seconds: Go's, 2^63 ns or 292 years.
const LONGEST: f64 = 9.2e9;

impl Duration {
    /// Reports whether it is negative.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.0.is_negative()
    }
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let text = crate::prometheus::shortened(text.to_owned(), 50);
            format!("{text:?} is no duration: {why}")
        };
        let unsigned = text.trim_start_matches('+').trim_start_matches('-');
        if unsigned.contains(['+', '-']) {
            return Err(wrong("a sign stands before all of it"));
        }
        // Each number and its unit; what is wrong with them kube's parser says.
        let mut total = 0.0;
        let mut rest = unsigned;
        while let Some(end) = rest.find(char::is_alphabetic) {
            let (number, after) = rest.split_at(end);
            let unit = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit);
            let seconds = match unit {
                "h" => 3600.0,
                "m" => 60.0,
                _ => 1.0,
            };
            // Below a second this is too much, which is as good: nobody means 9.2e9 s in ns.
            total += number.parse::<f64>().map_err(|_| wrong("write for example 1h30m"))? * seconds;
            rest = after;
        }
        if !(0.0..=LONGEST).contains(&total) {
            return Err(wrong("it is too long"));
        }
        text.parse()
            .map(Self)
            .map_err(|error: kube::core::duration::ParseError| wrong(&error.to_string()))
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Self(duration.into())
    }
}

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0.into()
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        kube::core::Duration::schema_name()
    }

    fn inline_schema() -> bool {
        kube::core::Duration::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        kube::core::Duration::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_go_writes() {
        for (text, seconds) in [
            ("10s", 10.0),
            ("1h30m", 5400.0),
            ("1.5m", 90.0),
            ("250ms", 0.25),
            ("0", 0.0),
            ("+1s", 1.0),
        ] {
            let read = time::Duration::from(text.parse::<Duration>().unwrap());
            assert!((read.as_secs_f64() - seconds).abs() < 1e-9, "{text}");
        }
        assert!("-5s".parse::<Duration>().unwrap().is_negative());
    }

    #[test]
    fn a_duration_that_is_too_long_is_an_error_and_no_panic() {
        for text in [
            "9999999999999999999999h",
            "18446744073709551615s",
            "5124095576030431h5124095576030431h",
            "1h-5m",
            "--5s",
            "1h",
            "1e5s",
            "s",
            ".s",
            "10",
            "",
            "é",
        ] {
            let _ = text.parse::<Duration>();
            let _ = serde_json::from_value::<Duration>(text.into());
        }
        let error = "9999999999999999999999h".parse::<Duration>().unwrap_err();
        assert!(error.contains("too long"), "{error}");
        assert!("1h-5m".parse::<Duration>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[-+]?([0-9]{0,25}(\\.[0-9]{0,25})?(ns|us|µs|ms|s|m|h|x|-|é)?){0,4}") {
            if let Ok(duration) = text.parse::<Duration>() {
                let duration = time::Duration::from(duration);
                prop_assert!(duration.as_secs() < 10_000_000_000);
                prop_assert!(std::time::Instant::now().checked_add(duration).is_some());
            }
        }

        #[test]
        fn nor_does_any_other(text in ".{0,40}") {
            let _ = text.parse::<Duration>();
        }

        #[test]
        fn what_is_written_is_read(millis in 0..10_000_000_000_u64) {
            let duration = Duration::from(time::Duration::from_millis(millis));
            let read: Duration = serde_json::from_value(serde_json::to_value(duration).unwrap()).unwrap();
            let [read, duration] = [read, duration].map(|d| time::Duration::from(d).as_secs_f64());
            prop_assert!((read - duration).abs() <= duration * 1e-9);
        }
    }
}
