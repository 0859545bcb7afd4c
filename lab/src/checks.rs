//! Claims that were measured, and the table of them.

use std::fmt::Write;

/// One condition that must hold, with the figure that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The condition that must hold.
    pub name: String,
    /// True if it did.
    pub pass: bool,
    /// The measured figure, with its limit.
    pub figure: String,
}

impl Check {
    /// A check with its outcome.
    pub fn new(name: &str, pass: bool, figure: impl Into<String>) -> Self {
        Self { name: name.to_owned(), pass, figure: figure.into() }
    }

    /// Checks that a duration is below `limit` seconds.
    #[must_use]
    pub fn within(name: &str, seconds: f64, limit: f64) -> Self {
        Self::new(
            name,
            (0.0..=limit).contains(&seconds),
            format!("{seconds:.1} s (at most {limit:.0} s)"),
        )
    }
}

/// Renders checks as a table.
#[must_use]
pub fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    checks.iter().fold(String::new(), |mut text, check| {
        let verdict = if check.pass { "PASS" } else { "FAIL" };
        let _ = writeln!(text, "  {verdict}  {:width$}  {}", check.name, check.figure);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_passes_up_to_its_limit() {
        assert!(Check::within("x", 5.0, 30.0).pass && !Check::within("x", 31.0, 30.0).pass);
    }
}
