//! The lines that all explanations share.
use std::fmt::Write;

use super::probing::Advice;
use crate::text::style::Tone;

/// Adds a fact under its name.
pub fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {name:<12} {value}");
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
        let _ = writeln!(text, "  {}\n    try: {}", one.what, one.next);
    }
}

/// Returns the text, or a dash.
#[must_use]
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
