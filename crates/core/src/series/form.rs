//! The text that elements of an answer have in common: only what differs from one to the next is
//! read.
use std::ops::Range;

/// Number of labels that need no allocation: our own queries return five at most.
pub(super) const FEW: usize = 6;

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
    /// The time of its elements: it is in the text that they have in common.
    time: Option<f64>,
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
pub(super) const BETWEEN: &str = "\":\"";

/// The text after the number.
pub(super) const END: &[u8] = b"\"]}";

impl Form {
    /// Returns the number of the sequence of names within the answer.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of that sequence with the values that stay.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the time of its elements, in Unix seconds.
    pub fn time(&self) -> Option<f64> {
        self.time
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
    pub fn find(&mut self, text: &str) -> Option<Places> {
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

    /// Becomes the form of this element of this time, with names of these lengths.
    pub fn begin(&mut self, element: &str, time: Option<f64>, names: &[usize], places: &Places) {
        self.number += 1;
        self.time = time;
        self.text.clear();
        self.text.push_str(element);
        self.labels.clear();
        for (name, (start, end)) in names.iter().zip(places.values) {
            self.labels.push(Label { name: *name, value: start..end, stays: false });
        }
        self.sample = places.number.0..places.number.1;
        (self.surprises, self.calm) = (0, 0);
        self.begin_turn();
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
pub(super) struct Places {
    /// The ranges of the values of its labels.
    pub values: [(usize, usize); FEW],
    /// The range of its number.
    pub number: (usize, usize),
    /// The length of the element.
    pub end: usize,
}

/// The reason why there is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The text ends within it.
    Incomplete,
    /// It is in a form that this parser does not read.
    Unusual,
}

/// Reads a text from its beginning.
pub(super) struct Cursor<'a> {
    pub bytes: &'a [u8],
    /// The position up to which it has been read.
    pub at: usize,
}

impl Cursor<'_> {
    /// Takes a text that must follow.
    pub fn literal(&mut self, text: &[u8]) -> Result<(), Stop> {
        let rest = &self.bytes[self.at..];
        if rest.starts_with(text) {
            self.at += text.len();
            return Ok(());
        }
        Err(if text.starts_with(rest) { Stop::Incomplete } else { Stop::Unusual })
    }

    /// Reports whether the next byte is this one; if so, takes it.
    pub fn takes(&mut self, byte: u8) -> Result<bool, Stop> {
        let next = self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        let found = *next == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    /// Reads the rest of a string without escapes, and its end.
    pub fn string(&mut self) -> Result<Range<usize>, Stop> {
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

    /// Reads a number that begins with a digit.
    pub fn number(&mut self) -> Result<Range<usize>, Stop> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let len = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
        match len {
            Some(len) if is_usual(&rest[..len]) => {
                self.at += len;
                Ok(start..self.at)
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
pub(super) fn plain(bytes: &[u8]) -> usize {
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
            // The lowest mark is exact; a borrow may have set those above it.
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
}
