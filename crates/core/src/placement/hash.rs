//! Hashes that never change.
//!
//! Operators and agents of other versions must compute the same numbers, so these functions never
//! change. (`std`'s hasher guarantees nothing across releases.) They do not resist chosen input: a
//! user who chooses names can choose a neighbor.

/// FNV-1a's 64-bit offset basis and prime (Fowler, Noll, Vo).
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the hash of a text: FNV-1a, and then `mix`, because FNV-1a alone hardly changes the
/// upper bits for texts that differ in their last character, as the names of pods do.
#[must_use]
pub fn of(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    mix(text.bytes().fold(BASIS, fold))
}

/// Returns the hash of an ordered pair: the position of `b` on the circle `a`, or how well `b`
/// suits `a` (the score of rendezvous hashing). `combine(a, b)` and `combine(b, a)` are unrelated.
#[must_use]
pub fn combine(a: u64, b: u64) -> u64 {
    mix(mix(a) ^ b)
}

/// One step of `SplitMix64` (Steele, Lea, Flood 2014): each bit of the input flips each bit of the
/// result with a probability near one half. A bijection: different inputs have different results.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs of `SplitMix64` with seed 0 and 1234567.
    #[test]
    fn the_finaliser_is_the_published_one() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }

    /// Otherwise, agents of an older version would probe other peers than the operator expects.
    #[test]
    fn the_numbers_never_change() {
        // FNV-1a of "" and "a" as published: cbf29ce484222325, af63dc4c8601ec8c.
        assert_eq!(of(""), mix(0xcbf2_9ce4_8422_2325));
        assert_eq!(of("a"), mix(0xaf63_dc4c_8601_ec8c));
        assert_eq!(combine(of("a"), of("b")), mix(mix(of("a")) ^ of("b")));
        assert_ne!(combine(of("a"), of("b")), combine(of("b"), of("a")));
    }

    #[test]
    fn names_that_differ_in_one_digit_are_spread_evenly() {
        const BUCKETS: u32 = 64;
        let mut counts = [0_u32; BUCKETS as usize];
        for i in 0..6400 {
            // The top six bits.
            counts[usize::try_from(of(&format!("shop/web-{i}")) >> 58).unwrap()] += 1;
        }
        // 100 each are expected; five standard deviations are 50.
        assert!(counts.iter().all(|count| (50..=150).contains(count)), "{counts:?}");
    }
}
