//! The lines that all explanations share.
use std::fmt::Write;

use serde::Serialize;

use crate::text::{Tone, printable};

/// A problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The findings.
    pub what: String,
    /// The next step.
    pub next: String,
}

impl Advice {
    pub(in crate::inspect) fn of(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into() }
    }
}

/// Adds a fact under its name.
pub fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {:<12} {}", printable(name), printable(value));
}

/// Adds a condition that is not settled; the color tells one that keeps the object from working
/// from all others.
pub fn condition(text: &mut String, sentence: &str) {
    let tone = if sentence.starts_with("Ready=False") { Tone::Bad } else { Tone::Notable };
    let (state, message) = sentence.split_at(sentence.find(": ").unwrap_or(sentence.len()));
    line(text, "condition", &format!("{}{message}", tone.paint(state)));
}

/// Adds the advice, under its own heading.
pub fn advise(text: &mut String, advice: &[Advice]) {
    if !advice.is_empty() {
        text.push_str("\nNext\n");
    }
    for one in advice {
        // Writing to a String cannot fail.
        let (what, next) = (printable(&one.what), printable(&one.next));
        let _ = writeln!(text, "  {what}\n    try: {next}");
    }
}

/// Returns the text, or a dash.
#[must_use]
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_program_stays_in_its_line() {
        let mut text = String::new();
        condition(&mut text, "Ready=False Conflict: a\u{1b}[2J\n  limit        none");
        advise(&mut text, &[Advice::of("b\nc", "d\u{7}")]);
        let state = Tone::Bad.paint("Ready=False Conflict");
        let expected = format!(
            "  condition    {state}: a\u{fffd}[2J   limit        none\n\nNext\n  b c\n    try: \
             d\u{fffd}\n"
        );
        assert_eq!(text, expected);
    }
}
