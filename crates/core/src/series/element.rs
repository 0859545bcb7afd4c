//! One element of an instant vector in the form in which Prometheus writes it, read without
//! allocating: `{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}`.
//!
//! Everything else that is valid (spaces, escapes, histograms, further fields) is
//! [`Stop::Unusual`] and left to a full JSON parser, which decides what is valid.
//!
//! Most elements differ from the previous one only in the values of labels and the number, and most
//! of these values are the same too: the text between the differences is not parsed again, only
//! compared.
use super::{
    Labels, Series,
    cursor::{Cursor, Stop},
    form::{BETWEEN, END, FEW, Form, Places},
};

/// Reads the elements of one answer, one after the other.
#[derive(Debug, Default)]
pub struct Elements {
    form: Form,
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
        let time = self.form.time();
        let labels = Labels::of(&self.form, text, places.values);
        Ok((Series { labels, time, value: Some(value) }, places.end))
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
        let time = cursor.number()?;
        cursor.literal(b",\"")?;
        let number = cursor.string()?;
        cursor.literal(&END[1..])?;
        (places.number, places.end) = ((number.start, number.end), cursor.at);
        let element = text.get(..cursor.at).ok_or(Stop::Unusual)?;
        let time = text.get(time).and_then(|time| time.parse().ok());
        self.form.begin(element, time, &names[..count], &places);
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
