//! One element of an instant vector in the form in which Prometheus writes it, read without
//! allocating: `{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}`.
//!
//! Everything else that is valid (spaces, escapes, histograms, further fields) is
//! [`Stop::Unusual`] and left to a full JSON parser, which decides what is valid.
//!
//! Most elements are like the one before but for the values of labels and the number: of the text
//! between these nothing is read again, it is compared.
use std::ops::Range;

use super::{Labels, Series, labels::FEW};

/// The reason why there is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The bytes end within it.
    Incomplete,
    /// It is in no form that is read here.
    Unusual,
}

/// Reads the elements of one answer, one after the other.
#[derive(Debug, Default)]
pub struct Elements {
    form: Form,
}

/// An element without the values of its labels and its number.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Counts the forms of the answer.
    number: u64,
    /// The text of the element that had it first.
    text: String,
    /// Of each label the text before its value, and its name, which is part of that.
    labels: Vec<(Range<usize>, Range<usize>)>,
    /// The text between the labels and the number.
    middle: Range<usize>,
}

impl Form {
    /// The number of the form within the answer.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The names of its labels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|(_, name)| self.part(name))
    }

    fn part(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    fn literal(&self, range: &Range<usize>) -> &[u8] {
        self.text.as_bytes().get(range.clone()).unwrap_or_default()
    }

    /// Finds the values in an element of this form.
    fn places(&self, bytes: &[u8]) -> Option<Places> {
        let mut places = Places::default();
        let mut at = 0;
        for (place, (before, _)) in places.values.iter_mut().zip(&self.labels) {
            let rest = bytes.get(at..)?.strip_prefix(self.literal(before))?;
            let start = bytes.len() - rest.len();
            at = start + plain(rest);
            *place = (start, at);
        }
        let rest = bytes.get(at..)?.strip_prefix(self.literal(&self.middle))?;
        let start = bytes.len() - rest.len();
        let len = plain(rest);
        places.number = (start, start + len);
        places.end = start + len + END.len();
        rest.get(len..)?.starts_with(END).then_some(places)
    }
}

/// The text after the number.
const END: &[u8] = b"\"]}";

/// The places of the values in an element.
#[derive(Default)]
struct Places {
    values: [(usize, usize); FEW],
    number: (usize, usize),
    end: usize,
}

impl Elements {
    /// Reads the element that `bytes` begin with, and says how long it is.
    ///
    /// # Errors
    /// When it is not complete, or in another form than Prometheus' own.
    pub fn read<'a>(&'a mut self, bytes: &'a [u8]) -> Result<(Series<'a>, usize), Stop> {
        let known = if self.form.labels.is_empty() { None } else { self.form.places(bytes) };
        let places = match known {
            Some(places) => places,
            None => self.learn(bytes)?,
        };
        let text = |(start, end)| {
            let text = bytes.get(start..end).and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.ok_or(Stop::Unusual)
        };
        let value = text(places.number)?.parse().map_err(|_| Stop::Unusual)?;
        let mut values = [""; FEW];
        for (value, place) in values.iter_mut().zip(places.values).take(self.form.labels.len()) {
            *value = text(place)?;
        }
        let labels = Labels::of(&self.form, values);
        Ok((Series { labels, value: Some(value) }, places.end))
    }

    /// Reads an element of any usual form, which becomes the form of those after it.
    fn learn(&mut self, bytes: &[u8]) -> Result<Places, Stop> {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut places = Places::default();
        let mut names: [Range<usize>; FEW] = std::array::from_fn(|_| 0..0);
        let mut count = 0;
        cursor.literal(b"{\"metric\":{")?;
        if !cursor.takes(b'}')? {
            loop {
                cursor.literal(b"\"")?;
                let name = cursor.string()?;
                cursor.literal(b":\"")?;
                let value = cursor.string()?;
                *names.get_mut(count).ok_or(Stop::Unusual)? = name;
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
        let text = bytes.get(..cursor.at).and_then(|element| std::str::from_utf8(element).ok());
        let text = text.ok_or(Stop::Unusual)?;
        self.form.number += 1;
        self.form.text.clear();
        self.form.text.push_str(text);
        self.form.labels.clear();
        let mut before = 0;
        for (name, (start, end)) in names.iter().zip(places.values).take(count) {
            self.form.labels.push((before..start, name.clone()));
            before = end;
        }
        self.form.middle = before..number.start;
        Ok(places)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn literal(&mut self, text: &[u8]) -> Result<(), Stop> {
        let rest = &self.bytes[self.at..];
        if rest.starts_with(text) {
            self.at += text.len();
            return Ok(());
        }
        Err(if text.starts_with(rest) { Stop::Incomplete } else { Stop::Unusual })
    }

    /// Reports whether the next byte is this one, which is then taken.
    fn takes(&mut self, byte: u8) -> Result<bool, Stop> {
        let next = self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        let found = *next == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    /// The rest of a string without escapes, and its end.
    fn string(&mut self) -> Result<Range<usize>, Stop> {
        let start = self.at;
        let end = start + plain(&self.bytes[start..]);
        match self.bytes.get(end) {
            Some(b'"') => {
                self.at = end + 1;
                Ok(start..end)
            }
            Some(_) => Err(Stop::Unusual),
            None => Err(Stop::Incomplete),
        }
    }

    /// A number that begins with a digit; nobody reads it.
    fn number(&mut self) -> Result<(), Stop> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
        match len {
            Some(len) if is_usual(&rest[..len]) => {
                self.at += len;
                Ok(())
            }
            Some(_) => Err(Stop::Unusual),
            None => Err(Stop::Incomplete),
        }
    }
}

/// Reports whether a text of digits and points is a number in JSON.
fn is_usual(number: &[u8]) -> bool {
    let (whole, fraction) = match number.iter().position(|byte| *byte == b'.') {
        Some(point) => (&number[..point], &number[point + 1..]),
        None => (number, &b"0"[..]),
    };
    let has_zeros = whole.len() > 1 && whole[0] == b'0';
    !whole.is_empty() && !has_zeros && !fraction.is_empty() && !fraction.contains(&b'.')
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Counts the leading bytes that are neither a quote, nor a backslash, nor a control character:
/// eight at a time.
fn plain(bytes: &[u8]) -> usize {
    let below = |word: u64, bound: u64| word.wrapping_sub(LOW * bound) & !word & HIGH;
    let mut words = bytes.chunks_exact(8);
    let mut at = 0;
    for word in &mut words {
        // A chunk of eight is an array of eight.
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        let special = below(word ^ (LOW * u64::from(b'"')), 1)
            | below(word ^ (LOW * u64::from(b'\\')), 1)
            | below(word, 0x20);
        if special != 0 {
            // The lowest mark is exact; those above it may be borrowed.
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    at + words.remainder().iter().position(special).unwrap_or(words.remainder().len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn plain_text_ends_where_a_search_byte_by_byte_ends(bytes: Vec<u8>, quote in 0..20usize) {
            let mut bytes = bytes;
            if let Some(byte) = bytes.get_mut(quote) {
                *byte = b'"';
            }
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
            let expected = bytes.iter().position(special).unwrap_or(bytes.len());
            prop_assert_eq!(plain(&bytes), expected);
        }
    }

    #[test]
    fn a_number_of_seconds_is_as_json_writes_it() {
        let read = |number: &str| {
            let text = format!(r#"{{"metric":{{}},"value":[{number},"8"]}}"#);
            let mut elements = Elements::default();
            let read = elements.read(text.as_bytes());
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
                let read = elements.read(text.as_bytes());
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
            let (series, _) = elements.read(text.as_bytes()).unwrap();
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
}
