use proptest::{collection, option, prelude::*};

use super::*;

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

#[test]
fn a_number_of_seconds_is_as_json_writes_it() {
    let read = |number: &str| {
        let text = format!(r#"{{"metric":{{}},"value":[{number},"8"]}}"#);
        let mut elements = Elements::default();
        let read = elements.read(&text);
        read.map(|(series, len)| (series.time, series.value, len == text.len()))
    };
    for number in ["0", "0.5", "1", "1.5", "1700000000.123"] {
        let time = number.parse().ok();
        assert_eq!(read(number), Ok((time, Some(8.0), true)), "{number}");
    }
    // Left to the parser that knows all of JSON.
    for number in ["", ".", ".5", "1.", "1.2.3", "1..2", "01", "00.5", "-1", "1e3", "x"] {
        assert_eq!(read(number), Err(Stop::Unusual), "{number}");
    }
}

#[test]
fn an_element_like_the_one_before_is_read_as_one_that_is_not() {
    let element = |a: &str, b: &str, time: &str, value: &str| {
        format!(r#"{{"metric":{{"a":"{a}","bb":"{b}"}},"value":[{time},"{value}"]}}"#)
    };
    let usual = element("x", "", "1.5", "8");
    for text in [
        element("long enough for two words", "y", "1.5", "-1e3"),
        element("", "", "1.5", "NaN"),
        element("ä", "ö", "1.5", "+Inf"),
        element("x", "y", "1.6", "8"),
        usual.replace("bb", "cc"),
        usual.replace(r#","bb":"""#, ""),
        usual.replace('}', r#","c":"z"}"#),
        usual.replace(r#""a":"x","bb":"""#, ""),
        element("x", "\\n", "1.5", "8"),
        element("x", "y", "1.5", "eight"),
        element("x", "y", "1.5", "8").replace("\"]}", "\" ]}"),
    ] {
        let read = |elements: &mut Elements, text: &str| {
            let read = elements.read(text);
            read.map(|(series, len)| (format!("{series:?}", series = Shown(&series)), len))
        };
        let alone = read(&mut Elements::default(), &text);
        let mut elements = Elements::default();
        assert!(read(&mut elements, &usual).is_ok());
        assert_eq!(read(&mut elements, &text), alone, "{text}");
        // And the next one.
        assert_eq!(read(&mut elements, &usual), read(&mut Elements::default(), &usual));
        for cut in 0..text.len() {
            let alone = read(&mut Elements::default(), &text[..text.floor_char_boundary(cut)]);
            let again = read(&mut elements, &text[..text.floor_char_boundary(cut)]);
            assert_eq!(again, alone, "{text} to {cut}");
        }
    }
}

struct Shown<'a>(&'a Series<'a>);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.0.labels, self.0.time, self.0.value)
    }
}

#[test]
fn names_keep_their_places_while_the_form_is_the_same() {
    let mut elements = Elements::default();
    let mut form = |text: &str| {
        let (series, _) = elements.read(text).unwrap();
        let labels = series.labels;
        (labels.form(), labels.place("b"), labels.place("c"), labels.at(1).map(str::to_owned))
    };
    let first = form(r#"{"metric":{"a":"1","b":"2"},"value":[1,"8"]}"#);
    assert_eq!(first, (Some(1), Some(1), None, Some("2".into())));
    let like = form(r#"{"metric":{"a":"3","b":""},"value":[1,"9"]}"#);
    assert_eq!(like, (Some(1), Some(1), None, None));
    let other = form(r#"{"metric":{"b":"1","c":"2"},"value":[1,"8"]}"#);
    assert_eq!(other, (Some(2), Some(0), Some(1), Some("2".into())));
}

#[test]
fn values_that_stay_are_as_good_as_those_that_are_read() {
    // Runs of every length, by node and by measure, so that the values that stay keep changing.
    let series = (1..60usize).rev().flat_map(|run| {
        (0..run).map(move |i| (format!("node-{}", i * run % 7), format!("m{}", run % 5)))
    });
    let mut elements = Elements::default();
    let (mut turns, mut all) = (std::collections::HashMap::new(), 0);
    for (node, measure) in series {
        let text =
            format!(r#"{{"metric":{{"a":"eth0","b":"{node}","c":"{measure}"}},"value":[1,"8"]}}"#);
        let (series, len) = elements.read(&text).unwrap();
        assert_eq!(len, text.len());
        let labels = series.labels;
        assert_eq!(labels.get("a"), Some("eth0"));
        assert_eq!((labels.get("b"), labels.get("c")), (Some(&*node), Some(&*measure)));
        let staying = [0, 1, 2].map(|place| labels.staying(place).map(str::to_owned));
        all += usize::from(staying.iter().flatten().count() == 2);
        let turn = turns.entry(labels.turn()).or_insert_with(|| staying.clone());
        assert_eq!(*turn, staying);
    }
    assert!(all > 1000, "{all}");
}
