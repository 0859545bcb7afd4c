//! The parts of an element in the form in which Prometheus writes it.
use std::ops::Range;

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
