//! Random numbers, good enough to decide which packets to lose.

use std::hash::{BuildHasher, Hasher};

/// A generator of random numbers (xorshift64*, Vigna 2016): fast, and even in its upper bits, which
/// are the ones used.
pub(super) struct Dice(u64);

impl Dice {
    /// Seeds it from the system's randomness.
    pub fn new() -> Self {
        // The standard library seeds this from the system, differently for every call; zero is the
        // one bad seed.
        Self(std::hash::RandomState::new().build_hasher().finish() | 1)
    }

    /// Returns true in this share of all calls, 0 to 1.
    pub fn hits(&mut self, share: f64) -> bool {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        // The upper 32 bits as a number from 0 to 1.
        let upper = u32::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32);
        f64::from(upper.unwrap_or(u32::MAX)) / (f64::from(u32::MAX) + 1.0) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_met_and_the_ends_are_exact() {
        // 100,000 throws: four standard deviations of a fifth are 0.5 %.
        let mut dice = Dice(42);
        let mut hits = |share| (0..100_000).filter(|_| dice.hits(share)).count();
        assert!((19_500..=20_500).contains(&hits(0.2)));
        assert_eq!(hits(0.0), 0);
        assert_eq!(hits(1.0), 100_000);
    }
}
