//! Any text is read as a parser of JSON reads it, or left to one.
use proptest::{collection, option, prelude::*};
use serde::Deserialize;

use super::{Elements, Labels};

/// An element as a full parser reads it.
#[derive(Deserialize)]
struct Parsed<'a> {
    #[serde(borrow)]
    metric: Labels<'a>,
    value: (f64, String),
}

/// An element in the form in which Prometheus writes it.
fn element() -> impl Strategy<Value = String> {
    let name = prop::sample::select(&["a", "bb", "ccc", "node", "measure"][..]);
    let value = prop_oneof![Just(String::new()), "node-[0-9]", "[a-zäß😀 ]{0,20}"];
    let labels = collection::vec((name, value), 0..=6);
    let time = prop_oneof![Just("1.5".to_owned()), "(0|[1-9][0-9]{0,9})([.][0-9]{1,3})?"];
    let number = "-?[0-9]{1,3}([.][0-9])?|NaN|[+-]Inf|1e-?[0-9]{1,2}";
    (labels, time, number).prop_map(|(labels, time, number)| {
        let labels = labels.iter().map(|(name, value)| format!("\"{name}\":\"{value}\""));
        let labels = labels.collect::<Vec<_>>().join(",");
        format!("{{\"metric\":{{{labels}}},\"value\":[{time},\"{number}\"]}}")
    })
}

/// An edit: where, how many bytes vanish, and what is written there.
fn edit() -> impl Strategy<Value = (usize, usize, String)> {
    (0..160_usize, 0..4_usize, "([\"{}:,0-9]|\\[|\\]|\\\\|\n|\u{1b}|\\PC){0,2}")
}

fn edited(text: &str, (at, gone, written): (usize, usize, String)) -> String {
    let start = text.floor_char_boundary(at.min(text.len()));
    let end = text.floor_char_boundary((start + gone).min(text.len())).max(start);
    format!("{}{written}{}", &text[..start], &text[end..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// In a row, because what an element has in common with those before it is not read again.
    #[test]
    fn what_is_read_is_what_a_parser_reads(
        answer in collection::vec((element(), option::of(edit())), 1..16),
    ) {
        let mut elements = Elements::default();
        for (text, edit) in answer {
            let usual = edit.is_none();
            let text = edit.map_or(text.clone(), |edit| edited(&text, edit));
            match elements.read(&text) {
                Ok((series, len)) => {
                    let parsed = serde_json::from_str::<Parsed<'_>>(&text[..len]);
                    prop_assert!(parsed.is_ok(), "{text} to {len}: {:?}", parsed.err());
                    let Ok(parsed) = parsed else { continue };
                    prop_assert_eq!(series.labels.to_string(), parsed.metric.to_string());
                    prop_assert_eq!(series.time, Some(parsed.value.0));
                    let number = parsed.value.1.parse::<f64>().ok();
                    prop_assert_eq!(series.value.map(f64::to_bits), number.map(f64::to_bits));
                    prop_assert!(!usual || len == text.len(), "{text} to {len}");
                }
                Err(stop) => prop_assert!(!usual, "{text}: {stop:?}"),
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(texts in collection::vec(".{0,60}", 1..6), element in element()) {
        let mut elements = Elements::default();
        for text in &texts {
            let _ = elements.read(text);
            let _ = elements.read(&element);
            let _ = elements.read(&format!("{element}{text}"));
        }
    }
}
