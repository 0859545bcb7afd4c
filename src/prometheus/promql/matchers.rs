//! Label matchers that are added to every selector of a built-in query.
use std::{fmt, str::FromStr};

use promql_parser::{
    label::MatchOp,
    parser::{self, Expr},
};

use super::{check_vector, string};

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
        let selector = format!("up{{{inner}}}");
        check_vector(&selector).map_err(|error| refused(&error.message))?;
        let parsed = parser::parse(&selector).map_err(|error| refused(&error))?;
        let Expr::VectorSelector(found) = parsed else {
            return Err(refused("is more than label matchers"));
        };
        let all = &found.matchers;
        if found.at.is_some() || found.offset.is_some() || !all.or_matchers.is_empty() {
            return Err(refused("is more than label matchers"));
        }
        // Printed from the parsed form, so that the query is exactly what was checked.
        let mut matchers = Vec::new();
        for matcher in &all.matchers {
            let name = &matcher.name;
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !plain || name == "__name__" {
                return Err(refused(&format!("{name:?} is no label of an exporter's series")));
            }
            let operator = match matcher.op {
                MatchOp::Equal => "=",
                MatchOp::NotEqual => "!=",
                MatchOp::Re(_) => "=~",
                MatchOp::NotRe(_) => "!~",
            };
            matchers.push(format!("{name}{operator}{}", string(&matcher.value)));
        }
        Ok(Self(matchers.join(",")))
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
            r#"job=~"(""#,
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
                prop_assert!(check_vector(&query).is_ok(), "{text} is {query}");
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
}
