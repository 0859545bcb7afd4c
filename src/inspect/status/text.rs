//! The report as a person reads it.
use std::fmt::Write;

use serde_json::Value;

use super::{KindStatus, ObjectStatus, OperatorStatus, Report, Unread};
use crate::text::{
    figures::span,
    style::{Tone, printable},
    table::rows,
};

/// Returns the report as text, with a line break at its end.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = operator(&report.operator);
    for kind in &report.kinds {
        text.push('\n');
        text.push_str(&self::kind(kind));
    }
    text.push('\n');
    if report.attention.is_empty() {
        text.push_str("Nothing needs attention\n");
        return text;
    }
    text.push_str("Needs attention\n");
    for attention in &report.attention {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", printable(&attention.what));
        for problem in &attention.problems {
            let _ = writeln!(text, "    {}", printable(problem));
        }
        let _ = writeln!(text, "    try: {}", printable(&attention.next));
    }
    text
}

fn operator(operator: &OperatorStatus) -> String {
    let mut text = "Operator: ".to_owned();
    if let Some(leader) = &operator.leader {
        let _ = write!(text, "{leader} leads");
        if let (Some(since), Some(seconds)) = (operator.since, operator.seconds) {
            let _ = write!(text, " for {} (since {since:.0})", span(seconds));
        }
        if let Some(image) = &operator.image {
            let _ = write!(text, ", image {image}");
        }
    }
    if let Some(problem) = &operator.problem {
        let separator = if operator.leader.is_some() { "; " } else { "" };
        let _ = write!(text, "{separator}{problem}");
    }
    format!("{}\n", printable(&text))
}

fn kind(kind: &KindStatus) -> String {
    let name = &kind.kind;
    match &kind.unlisted {
        Some(Unread::NotInstalled) => return format!("{name}: the kind is not installed\n"),
        Some(Unread::Forbidden(why) | Unread::Failed(why)) => {
            return format!("{name}: not shown: {}\n", printable(why));
        }
        None if kind.objects.is_empty() => return format!("{name}: none\n"),
        None => {}
    }
    let head: Vec<_> = ["name", "ready", "reason"]
        .iter()
        .chain(kind.columns)
        .map(|column| column.to_uppercase())
        .collect();
    let objects: Vec<_> = kind.objects.iter().map(|object| row(object, kind.columns)).collect();
    format!("{name}: {}\n{}", objects.len(), rows(&head, &objects))
}

fn row(object: &ObjectStatus, columns: &[&'static str]) -> Vec<String> {
    let ready = tone(object).paint(object.ready.as_deref().unwrap_or("-"));
    let mut row = vec![object.name.clone(), ready, object.reason.clone()];
    row.extend(columns.iter().map(|column| figure(object.figures.get(column))));
    row
}

fn tone(object: &ObjectStatus) -> Tone {
    match (object.ready.as_deref() == Some("True"), object.attention) {
        (true, false) => Tone::Good,
        (true, true) | (false, false) => Tone::Notable,
        (false, true) => Tone::Bad,
    }
}

fn figure(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}
