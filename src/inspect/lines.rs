//! The lines that all explanations share.
use std::fmt::Write;

use super::probing::Advice;

/// Adds a fact under its name.
pub fn line(text: &mut String, name: &str, told: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {name:<12} {told}");
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
