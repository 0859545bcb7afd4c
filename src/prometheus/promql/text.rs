//! Literals of PromQL. User input never enters a query unquoted.

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
