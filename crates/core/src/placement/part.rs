//! The part of a divided file that each worker reads.

/// Returns the part, from 0, with the list of a worker: the CRC-32 of its name (as in zlib, gzip
/// and PNG, available in every language), modulo the number of parts. Workers by other authors
/// compute the same number, so it never changes.
#[must_use]
pub fn of(worker: &str, parts: u32) -> u32 {
    crc32fast::hash(worker.as_bytes()) % parts.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `python3 -c 'import zlib; print(zlib.crc32(b"swarm-worker-0"))'` and so on.
    #[test]
    fn the_number_is_the_one_that_zlib_computes() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
        let all: Vec<_> = (0..8).map(|i| of(&format!("swarm-worker-{i}"), 4)).collect();
        assert_eq!(all, [3, 1, 3, 1, 2, 0, 2, 0]);
        assert_eq!((of("w", 1), of("w", 0)), (0, 0));
    }

    /// The parts of 1,000 workers are about equally long: the longest is one and a half times as
    /// long as the mean.
    #[test]
    fn names_with_numbers_spread_evenly() {
        for parts in 2..=32_u32 {
            let mut counts = vec![0_u32; parts as usize];
            for i in 0..1000 {
                counts[super::of(&format!("swarm-worker-{i}"), parts) as usize] += 1;
            }
            let mean = 1000_u32.div_ceil(parts);
            let most = counts.iter().max().copied().unwrap_or(0);
            assert!(most <= mean * 3 / 2 + 1, "{parts} parts: {counts:?}");
        }
    }
}
