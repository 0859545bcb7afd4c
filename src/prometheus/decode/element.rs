//! One element of an instant vector in the form in which Prometheus writes it, read without
//! allocating: `{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}`.
//!
//! Everything else that is valid (spaces, escapes, histograms, further fields) is
//! [`Stop::Unusual`] and left to a full JSON parser, which decides what is valid.
use std::ops::Range;

use super::{Labels, Series, labels::FEW};

/// Why there is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end within it.
    Incomplete,
    /// It is in no form that is read here.
    Unusual,
}

/// Reads the element that `bytes` begin with, and says how long it is.
pub(super) fn read(bytes: &[u8]) -> Result<(Series<'_>, usize), Stop> {
    let mut cursor = Cursor { bytes, at: 0 };
    cursor.literal(b"{\"metric\":{")?;
    let mut places: [(Range<usize>, Range<usize>); FEW] = std::array::from_fn(|_| (0..0, 0..0));
    let mut count = 0;
    if !cursor.takes(b'}')? {
        loop {
            cursor.literal(b"\"")?;
            let name = cursor.string()?;
            cursor.literal(b":\"")?;
            let place = places.get_mut(count).ok_or(Stop::Unusual)?;
            *place = (name, cursor.string()?);
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
    let value = cursor.string()?;
    cursor.literal(b"]}")?;
    // Once for all of it: the places are between quotes, which are characters of their own.
    let text = bytes.get(..cursor.at).and_then(|element| std::str::from_utf8(element).ok());
    let text = text.ok_or(Stop::Unusual)?;
    let part = |place: &Range<usize>| text.get(place.clone()).unwrap_or_default();
    let value = part(&value).parse().map_err(|_| Stop::Unusual)?;
    let labels = places.iter().take(count).map(|(name, value)| (part(name), part(value)));
    Ok((Series { labels: Labels::few(labels), value: Some(value) }, cursor.at))
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
            Some(0) => Err(Stop::Unusual),
            Some(len) if !rest[0].is_ascii_digit() || !rest[len - 1].is_ascii_digit() => {
                Err(Stop::Unusual)
            }
            Some(len) => {
                self.at += len;
                Ok(())
            }
            None => Err(Stop::Incomplete),
        }
    }
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
            read(text.as_bytes()).map(|(series, len)| (series.value, len == text.len()))
        };
        for number in ["1", "1.5", "1700000000.123"] {
            assert_eq!(read(number), Ok((Some(8.0), true)), "{number}");
        }
        // Left to the parser that knows all of JSON.
        for number in ["", ".5", "1.", "-1", "1e3", "x"] {
            assert_eq!(read(number), Err(Stop::Unusual), "{number}");
        }
    }
}
