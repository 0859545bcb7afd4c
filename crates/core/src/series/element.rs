//! One element of an instant vector in the form in which Prometheus writes it, read without
//! allocating: `{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}`.
//!
//! Everything else that is valid (spaces, escapes, histograms, further fields) is
//! [`Stop::Unusual`] and left to a full JSON parser, which decides what is valid.
//!
//! Most elements differ from the previous one only in the values of labels and the number, and most
//! of these values are the same too: the text between the differences is not parsed again, only
//! compared.
use std::ops::Range;

use super::{
    Labels, Series,
    cursor::{Cursor, Stop, plain},
    labels::FEW,
};

/// Reads the elements of one answer, one after the other.
#[derive(Debug, Default)]
pub struct Elements {
    form: Form,
}

/// The properties that elements have in common.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Counts the sequences of names in the answer.
    number: u64,
    /// Counts the sequences together with the values that stay.
    turn: u64,
    /// The text of the element that had it first.
    text: String,
    labels: Vec<Label>,
    /// The range of the number.
    sample: Range<usize>,
    /// True if at most one value changes: nothing better can be expected.
    settled: bool,
    /// The number of unexpected elements; and the number of expected ones in a row since then.
    surprises: u32,
    calm: u32,
}

/// Number of expected elements in a row after which a surprise counts as the first one.
const CALM: u32 = 16;

/// A label in the text of a form.
#[derive(Debug)]
struct Label {
    /// The length of its name.
    name: usize,
    /// The range of its value.
    value: Range<usize>,
    /// True if its value is expected to stay.
    stays: bool,
}

/// The text between the name of a label and its value.
const BETWEEN: &str = "\":\"";

/// The text after the number.
const END: &[u8] = b"\"]}";

impl Form {
    /// Returns the number of the sequence of names within the answer.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of that sequence with the values that stay.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the names of its labels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| {
            let end = label.value.start.saturating_sub(BETWEEN.len());
            self.text.get(end.saturating_sub(label.name)..end).unwrap_or_default()
        })
    }

    /// Returns the value of a label, if it stays.
    pub fn staying(&self, place: usize) -> Option<&str> {
        let label = self.labels.get(place).filter(|label| label.stays)?;
        self.text.get(label.value.clone())
    }

    /// Finds the values in an element of this form: all of them, or only those that do not stay.
    fn places(&self, text: &str, all: bool) -> Option<Places> {
        let (mut places, bytes) = (Places::default(), text.as_bytes());
        // Up to here both texts have been read.
        let (mut at, mut known) = (0, 0);
        for (place, label) in places.values.iter_mut().zip(&self.labels) {
            if label.stays && !all {
                continue;
            }
            let before = self.text.as_bytes().get(known..label.value.start)?;
            let rest = bytes.get(at..)?.strip_prefix(before)?;
            let start = at + before.len();
            at = start + plain(rest);
            *place = (start, at);
            known = label.value.end;
        }
        let before = self.text.as_bytes().get(known..self.sample.start)?;
        let rest = bytes.get(at..)?.strip_prefix(before)?;
        let start = at + before.len();
        let len = plain(rest);
        places.number = (start, start + len);
        places.end = start + len + END.len();
        rest.get(len..)?.starts_with(END).then_some(places)
    }

    /// Finds the values in an element of this form, and adapts to it: less and less often if nearly
    /// every element is a surprise.
    fn find(&mut self, text: &str) -> Option<Places> {
        if self.labels.is_empty() {
            return None;
        }
        let expected = self.places(text, false);
        if self.settled && expected.is_some() {
            self.calm = self.calm.saturating_add(1);
            if self.calm == CALM {
                self.surprises = 0;
            }
            return expected;
        }
        self.calm = 0;
        self.surprises = self.surprises.saturating_add(1);
        let adapts = self.surprises.is_power_of_two();
        if expected.is_some() && !adapts {
            return expected;
        }
        let places = self.places(text, true)?;
        if adapts {
            self.adapt(text, &places);
        } else {
            self.labels.iter_mut().for_each(|label| label.stays = false);
            self.begin_turn();
        }
        Some(places)
    }

    fn begin_turn(&mut self) {
        self.turn += 1;
        self.settled = self.labels.iter().filter(|label| !label.stays).count() <= 1;
    }

    /// Marks the values that this element shares with the previous one as expected to stay.
    fn adapt(&mut self, text: &str, places: &Places) {
        for (label, (start, end)) in self.labels.iter_mut().zip(places.values) {
            label.stays = text.get(start..end) == self.text.get(label.value.clone());
            label.value = start..end;
        }
        self.sample = places.number.0..places.number.1;
        self.text.clear();
        self.text.push_str(text.get(..places.end).unwrap_or_default());
        self.begin_turn();
    }
}

/// The ranges of the values in an element.
#[derive(Default)]
struct Places {
    values: [(usize, usize); FEW],
    number: (usize, usize),
    end: usize,
}

impl Elements {
    /// Reads the element at the beginning of `text`, and returns it with its length.
    ///
    /// # Errors
    /// When it is not complete, or in another form than Prometheus' own.
    pub fn read<'a>(&'a mut self, text: &'a str) -> Result<(Series<'a>, usize), Stop> {
        let places = match self.form.find(text) {
            Some(places) => places,
            None => self.learn(text)?,
        };
        let (start, end) = places.number;
        let value = text.get(start..end).and_then(|number| number.parse().ok());
        let value = value.ok_or(Stop::Unusual)?;
        let labels = Labels::of(&self.form, text, places.values);
        Ok((Series { labels, value: Some(value) }, places.end))
    }

    /// Reads an element of any usual form, which becomes the expected form of the following ones.
    fn learn(&mut self, text: &str) -> Result<Places, Stop> {
        let mut cursor = Cursor { bytes: text.as_bytes(), at: 0 };
        let mut places = Places::default();
        let mut names = [0; FEW];
        let mut count = 0;
        cursor.literal(b"{\"metric\":{")?;
        if !cursor.takes(b'}')? {
            loop {
                cursor.literal(b"\"")?;
                let name = cursor.string()?;
                cursor.literal(&BETWEEN.as_bytes()[1..])?;
                let value = cursor.string()?;
                *names.get_mut(count).ok_or(Stop::Unusual)? = name.len();
                places.values[count] = (value.start, value.end);
                count += 1;
                if cursor.takes(b'}')? {
                    break;
                }
                cursor.literal(b",")?;
            }
        }
        cursor.literal(b",\"value\":[")?;
        cursor.number()?;
        cursor.literal(b",\"")?;
        let number = cursor.string()?;
        cursor.literal(&END[1..])?;
        (places.number, places.end) = ((number.start, number.end), cursor.at);
        let element = text.get(..cursor.at).ok_or(Stop::Unusual)?;
        let form = &mut self.form;
        form.number += 1;
        form.text.clear();
        form.text.push_str(element);
        form.labels.clear();
        for (name, (start, end)) in names.into_iter().zip(places.values).take(count) {
            form.labels.push(Label { name, value: start..end, stays: false });
        }
        form.sample = number;
        (form.surprises, form.calm) = (0, 0);
        form.begin_turn();
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_seconds_is_as_json_writes_it() {
        let read = |number: &str| {
            let text = format!(r#"{{"metric":{{}},"value":[{number},"8"]}}"#);
            let mut elements = Elements::default();
            let read = elements.read(&text);
            read.map(|(series, len)| (series.value, len == text.len()))
        };
        for number in ["0", "0.5", "1", "1.5", "1700000000.123"] {
            assert_eq!(read(number), Ok((Some(8.0), true)), "{number}");
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
            write!(f, "{} {:?}", self.0.labels, self.0.value)
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
            let text = format!(
                r#"{{"metric":{{"a":"eth0","b":"{node}","c":"{measure}"}},"value":[1,"8"]}}"#
            );
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
}
