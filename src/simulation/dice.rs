//! Numbers from a seed.

/// Mixes the bits of a number (splitmix64).
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the number of a text (FNV-1a).
pub fn number(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Returns the sequence of some words: equal words have an equal one. The draws about one thing
    /// thereby do not depend on the order in which things happen.
    pub fn of(words: &[u64]) -> Self {
        Self(words.iter().fold(0, |state, word| mixed(state ^ mixed(*word))))
    }

    /// Returns the next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true in this many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn one<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        let place = self.below(things.len() as u64);
        &things[usize::try_from(place).unwrap()]
    }
}
