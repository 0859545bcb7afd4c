//! PromQL as text: literals, and the label matchers that are added to every selector of a built-in
//! query. User input never enters a query unquoted. Whether a query of a user's is valid, the server
//! decides: each has a dialect of its own.
use std::{fmt, str::FromStr};

/// A string literal of PromQL, quoted.
#[must_use]
pub fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A duration literal of PromQL, to the millisecond (its own resolution).
#[must_use]
pub fn duration(duration: std::time::Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

/// The longest text, in bytes: some labels.
const LONGEST: usize = 1000;

/// Label matchers, such as `job="node-exporter"`; without any, every series matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Matchers(String);

impl Matchers {
    /// Returns the selector of a metric with our own matchers and these.
    #[must_use]
    pub fn select(&self, metric: &str, own: &str) -> String {
        match (own, self.0.as_str()) {
            ("", "") => metric.to_owned(),
            (own, "") => format!("{metric}{{{own}}}"),
            ("", these) => format!("{metric}{{{these}}}"),
            (own, these) => format!("{metric}{{{own},{these}}}"),
        }
    }

    /// Reports whether every series matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Matchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Matchers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        if inner.trim().is_empty() {
            return Ok(Self::default());
        }
        let refused = |why: &str| {
            format!(
                "{why}: write label matchers as PromQL has them, such as job=\"node-exporter\"; a \
                 shell takes the quotes away unless they are within single quotes"
            )
        };
        if inner.len() > LONGEST {
            return Err(refused(&format!("has more than {LONGEST} bytes")));
        }
        let (matchers, rest) = matchers(inner).map_err(|why| refused(&why))?;
        if !rest.is_empty() {
            return Err(refused(&format!("{rest:?} is more than label matchers")));
        }
        if matchers.iter().any(|matcher| matcher.label == NAME) {
            return Err(refused(&format!("{NAME} is no label of an exporter's series")));
        }
        // Printed from what was read, so that the query is exactly what was checked.
        let written: Vec<_> = matchers
            .iter()
            .map(|Matcher { label, operator, value }| format!("{label}{operator}{}", string(value)))
            .collect();
        Ok(Self(written.join(",")))
    }
}

/// The label that holds the name of a metric.
const NAME: &str = "__name__";

/// One label matcher.
#[derive(Debug, PartialEq)]
struct Matcher<'a> {
    label: &'a str,
    operator: &'static str,
    value: String,
}

/// Reads label matchers with commas between them, and returns the rest of the text.
fn matchers(text: &str) -> Result<(Vec<Matcher<'_>>, &str), String> {
    let mut matchers = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (label, after) = name(rest, false);
        if label.is_empty() {
            return Ok((matchers, rest));
        }
        let after = after.trim_start();
        let found = ["=~", "!~", "!=", "="].into_iter().find_map(|operator| {
            after.strip_prefix(operator).map(|value| (operator, value.trim_start()))
        });
        let Some((operator, after)) = found else {
            return Err(format!("{label:?} has no =, !=, =~ or !~ behind it"));
        };
        let (value, after) =
            literal(after).ok_or_else(|| format!("the value of {label} is not within quotes"))?;
        matchers.push(Matcher { label, operator, value });
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None => return Ok((matchers, rest)),
        }
    }
}

/// Splits off the name of a label, or of a metric, which may contain colons.
fn name(text: &str, metric: bool) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || metric && c == ':';
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return ("", text);
    }
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

/// Reads a string literal, and returns the rest of the text. Rare escapes, by number, are refused.
fn literal(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let (mut value, mut escaped) = (String::new(), false);
    for (place, c) in text.char_indices().skip(1) {
        match c {
            c if escaped => {
                value.push(match c {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '\\' => c,
                    c if c == quote => c,
                    _ => return None,
                });
                escaped = false;
            }
            c if c == quote => return Some((value, &text[place + 1..])),
            '\\' if quote != '`' => escaped = true,
            '\n' if quote != '`' => return None,
            c => value.push(c),
        }
    }
    None
}

/// Reports whether a query is only the selector of one metric, without a time of its own, so that
/// its elements are stored samples. With one name only, because `timestamp` drops it, and two names
/// may have the same labels.
#[must_use]
pub fn is_selector(text: &str) -> bool {
    // Called for each request; a selector is short.
    if text.len() > LONGEST {
        return false;
    }
    let (metric, rest) = name(text.trim(), true);
    // These two are numbers.
    let is_number = ["inf", "nan"].iter().any(|number| metric.eq_ignore_ascii_case(number));
    let Some(inner) = rest.trim_start().strip_prefix('{') else {
        return !metric.is_empty() && !is_number && is_end(rest);
    };
    let Ok((matchers, rest)) = matchers(inner) else { return false };
    let by_name = |matcher: &Matcher<'_>| matcher.label == NAME && matcher.operator == "=";
    rest.strip_prefix('}').is_some_and(is_end)
        && (!metric.is_empty() || matchers.iter().any(by_name))
}

/// Reports whether nothing but an offset and comments ends a selector.
fn is_end(text: &str) -> bool {
    let mut words = text.lines().flat_map(|line| {
        let code = line.split_once('#').map_or(line, |(code, _)| code);
        code.split_whitespace()
    });
    match (words.next(), words.next(), words.next()) {
        (None, ..) => true,
        (Some("offset"), Some(duration), None) => {
            let is_part = |c: char| c.is_ascii_digit() || "-+smhdwy".contains(c);
            duration.chars().all(is_part)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    fn read(text: &str) -> Result<String, String> {
        text.parse::<Matchers>().map(|matchers| matchers.to_string())
    }

    #[test]
    fn matchers_are_read_and_written_as_promql_has_them() {
        for (text, written) in [
            ("", ""),
            ("{ }", ""),
            (r#"job="node-exporter""#, r#"job="node-exporter""#),
            (r#"{job="a", namespace='b',}"#, r#"job="a",namespace="b""#),
            (r#"job=~"a|b",cluster!="c",zone!~"d.*""#, r#"job=~"a|b",cluster!="c",zone!~"d.*""#),
            (r#"job="a\"} or vector(1)""#, r#"job="a\"} or vector(1)""#),
            (r#"job=~"a\\.b""#, r#"job=~"a\\.b""#),
        ] {
            assert_eq!(read(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn matchers_cannot_leave_the_selector() {
        for text in [
            "job=node-exporter",
            "node-exporter",
            r#"job="a"} or vector(1) or up{job="b""#,
            r#"job="a"}[5m:1m"#,
            r#"job="a"} offset 1h #"#,
            r#"job="a" or job="b""#,
            r#"__name__="a""#,
            " ",
            "job=\"a\" #\n",
        ] {
            let read = text.parse::<Matchers>();
            match read {
                Ok(matchers) => assert!(
                    matchers.is_empty() || matchers.to_string() == r#"job="a""#,
                    "{text}: {matchers}"
                ),
                Err(error) => assert!(error.contains("job=\"node-exporter\""), "{error}"),
            }
        }
        assert!("x=\"".parse::<Matchers>().is_err());
        assert!(format!("job=\"{}\"", "x".repeat(LONGEST)).parse::<Matchers>().is_err());
    }

    #[test]
    fn a_selector_is_told_from_other_queries() {
        for text in [
            "up",
            " job:loss:ratio ",
            r#"up{job="a}",node!~'b'}"#,
            "up {}",
            r#"{__name__="up", a="b",}"#,
            "up offset -5m",
            "up # a comment\n",
        ] {
            assert!(is_selector(text), "{text}");
        }
        for text in [
            "",
            "up[5m]",
            "up offset 1m + 1",
            "up @ 5",
            "up # a comment\n + 1",
            "-up",
            "up + 1",
            "rate(up[5m])",
            "NaN",
            "inf",
            "1",
            r#"{a="b"}"#,
            r#"{__name__=~"up|down"}"#,
            r#"up{a="b" or c="d"}"#,
            r#"up{a="b"} or vector(1)"#,
            "up{",
        ] {
            assert!(!is_selector(text), "{text}");
        }
        assert!(!is_selector(&"x".repeat(LONGEST + 1)));
    }

    #[test]
    fn a_selector_has_both_kinds_of_matchers() {
        let some: Matchers = r#"job="a""#.parse().unwrap();
        let none = Matchers::default();
        assert_eq!(some.select("m", "b=\"c\""), r#"m{b="c",job="a"}"#);
        assert_eq!(some.select("m", ""), r#"m{job="a"}"#);
        assert_eq!(none.select("m", "b=\"c\""), r#"m{b="c"}"#);
        assert_eq!(none.select("m", ""), "m");
    }

    proptest! {
        /// Written matchers were checked, and mean the same when they are read again.
        #[test]
        fn whatever_is_taken_is_written_as_it_is_read(
            some in "([a-z_]{1,4}(=|!=|=~|!~)[\"'`]?([a-z.*|(){}\\\\]|\\PC){0,4}[\"'`]?,? ?){0,3}",
            other in ".{0,60}",
        ) {
            for text in [some, other] {
                let Ok(matchers) = text.parse::<Matchers>() else { continue };
                let again = matchers.to_string().parse::<Matchers>();
                prop_assert_eq!(again, Ok(matchers.clone()), "{}", text);
                let query = matchers.select("up", "own=\"x\"");
                prop_assert!(is_selector(&query), "{text} is {query}");
            }
        }

        #[test]
        fn every_value_stays_within_its_quotes(
            values in collection::vec(
                ("[a-z]{1,6}", any::<bool>(), "(\\PC|[\"'`{},=~#]|\\\\){0,8}"), 0..4,
            ),
        ) {
            let each = values.iter().enumerate().map(|(i, (name, equal, value))| {
                format!("{name}_{i}{}{}", if *equal { "=" } else { "!=" }, string(value))
            });
            let text = each.collect::<Vec<_>>().join(",");
            prop_assert_eq!(read(&text), Ok(text));
        }
    }

    #[test]
    fn quotes_characters_that_would_end_the_literal() {
        assert_eq!(string(r#"eth0"} or vector(1) #\"#), r#""eth0\"} or vector(1) #\\""#);
        assert_eq!(duration(std::time::Duration::from_mins(2)), "120000ms");
    }

    proptest! {
        #[test]
        fn a_literal_ends_only_at_its_end(text in ".{0,60}") {
            let quoted = string(&text);
            let inner = &quoted[1..quoted.len() - 1];
            let mut escaped = false;
            for c in inner.chars() {
                prop_assert!(escaped || c != '"', "{quoted}");
                prop_assert_ne!(c, '\n');
                escaped = !escaped && c == '\\';
            }
            prop_assert!(!escaped, "{quoted}");
        }
    }
}
