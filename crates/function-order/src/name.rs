//! Names of functions that stay the same from one build to the next.
//!
//! A symbol of Rust (mangled, v0) has hashes of its crates in it, numbers of closures, places of
//! earlier parts of the symbol, and the crate in which a generic function was compiled. They change
//! with versions, flags and edits elsewhere, while the function is still the same one.

/// Returns the parts of a symbol that stay the same. Symbols of C stay as they are.
#[must_use]
pub fn stable(symbol: &str) -> String {
    // What the optimizer appends when it divides or copies a function.
    let symbol = symbol.split('.').next().unwrap_or_default();
    let Some(mut rest) = symbol.strip_prefix("_R") else { return symbol.to_owned() };
    let mut parts = Vec::new();
    while let Some(first) = rest.bytes().next() {
        let length = match first {
            // The length of an identifier, a separator, and the identifier itself.
            b'0'..=b'9' => {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let begin = digits + usize::from(rest[digits..].starts_with('_'));
                let letters: usize = rest[..digits].parse().unwrap_or(0);
                let end = begin.saturating_add(letters).min(rest.len());
                parts.push(rest.get(begin..end).unwrap_or_default());
                end
            }
            // A number in base 62: of a crate or closure, or the place of an earlier part. The
            // first closure has none.
            b's' | b'B' => rest.find('_').unwrap_or(0) + 1,
            _ => {
                parts.push(rest.get(..1).unwrap_or_default());
                1
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    // The crate that has this copy of a generic function: another one in another build.
    if let [.., "C", _] = parts[..] {
        parts.truncate(parts.len() - 2);
    }
    parts.join("/")
}

/// Returns a short digest of the stable name (FNV-1a): two of a hundred thousand functions have the
/// same one, which costs nothing but the place of one of them.
#[must_use]
pub fn digest(symbol: &str) -> u32 {
    stable(symbol)
        .bytes()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_crates_and_numbers_of_closures_do_not_matter() {
        let before = "_RNCNvMs1_NtCs8RIvBNqRUF_3foo3barNtB5_3Baz4work0B9_";
        for after in [
            // Another version of the crate, and another impl before this one.
            "_RNCNvMs4_NtCsgEkJ5bkVQxz_3foo3barNtB5_3Baz4work0B9_",
            // A longer hash, which moves what follows; another closure before this one.
            "_RNCNvMs1_NtCs8RIvBNqRUF0_3foo3barNtB6_3Baz4works_0Ba_",
            "_RNCNvMs1_NtCs8RIvBNqRUF_3foo3barNtB5_3Baz4work0B9_.llvm.123456",
            // A copy in another crate.
            "_RNCNvMs1_NtCs8RIvBNqRUF_3foo3barNtB5_3Baz4work0Cs3y2z9ldp8li_5other",
        ] {
            assert_eq!(stable(before), stable(after), "{after}");
        }
        for other in [
            "_RNCNvMs1_NtCs8RIvBNqRUF_3foo3barNtB5_3Baz4play0B9_",
            "_RNvMs1_NtCs8RIvBNqRUF_3foo3barNtB5_3Baz4workB9_",
            "_RNCNvMs1_NtCs8RIvBNqRUF_3foo4bar_NtB5_3Baz4work0B9_",
        ] {
            assert_ne!(digest(before), digest(other), "{other}");
        }
    }

    #[test]
    fn what_looks_like_a_hash_in_a_name_is_a_part_of_it() {
        let [a, b] = ["_RNvCs1_1a6s1_fn_", "_RNvCs1_1a6s2_fn_"].map(stable);
        assert_ne!(a, b);
        assert_eq!(a, "N/v/C/a/s1_fn_");
    }

    #[test]
    fn names_of_c_and_broken_ones_are_read_too() {
        assert_eq!(stable("memcpy"), "memcpy");
        for odd in ["_R", "_R9", "_R99999999999999999999999x", "_Rs", "_RB", "_R3ab", ""] {
            assert!(stable(odd).len() <= 2 * odd.len(), "{odd}");
        }
    }
}
