//! The checks as a person reads them.
use std::fmt::Write;

use super::{Check, CheckResult};
use crate::text::style::Tone;

/// Maximum number of printed details of one check; the JSON has them all.
const DETAILS: usize = 10;

/// Returns one line per check, its fix below it, and the count of each verdict.
#[must_use]
pub fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        // Writing to a String cannot fail.
        let word = tone(check.verdict).paint(&format!("{:<5}", word(check.verdict)));
        let _ = writeln!(text, "{word} {:<11} {}", check.name, check.message);
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "{:18}fix: {fix}", "");
        }
        // The message names the first few itself.
        let new: Vec<_> = check.details.iter().filter(|d| !check.message.contains(*d)).collect();
        for detail in new.iter().take(DETAILS) {
            let _ = writeln!(text, "{:18}- {detail}", "");
        }
        if new.len() > DETAILS {
            let more = new.len() - DETAILS;
            let _ = writeln!(text, "{:18}- {more} more: -o json lists them", "");
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (ok, warn, fail) =
        (count(CheckResult::Ok), count(CheckResult::Warn), count(CheckResult::Fail));
    let _ = writeln!(text, "{ok} ok, {warn} to look at, {fail} failed");
    text
}

fn tone(verdict: CheckResult) -> Tone {
    match verdict {
        CheckResult::Ok => Tone::Good,
        CheckResult::Warn => Tone::Notable,
        CheckResult::Fail => Tone::Bad,
    }
}

fn word(verdict: CheckResult) -> &'static str {
    match verdict {
        CheckResult::Ok => "ok",
        CheckResult::Warn => "WARN",
        CheckResult::Fail => "FAIL",
    }
}
