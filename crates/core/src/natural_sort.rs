//! The order in which people list workers: `worker-2` before `worker-10`.
use std::cmp::Ordering;

/// Compares the text before the number at the end, then the number, then the whole text: different
/// names are never equal, no matter how many leading zeros a number has.
#[must_use]
pub fn compare(a: &str, b: &str) -> Ordering {
    let (text_a, number_a) = split(a);
    let (text_b, number_b) = split(b);
    text_a
        .cmp(text_b)
        // Digits without leading zeros: the longer number is the larger one, regardless of its
        // size.
        .then_with(|| number_a.len().cmp(&number_b.len()))
        .then_with(|| number_a.cmp(number_b))
        .then_with(|| a.cmp(b))
}

/// The text, and the number at its end without leading zeros.
fn split(name: &str) -> (&str, &str) {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (text, name[text.len()..].trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = ["w-10", "w-2", "w-0", "v-3", "w", "w-", "w-02", "w-1"];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(names, ["v-3", "w", "w-", "w-0", "w-1", "w-02", "w-2", "w-10"]);
    }

    const NAME: &str = "[ab]{0,2}[0-9]{0,3}";

    proptest! {
        #[test]
        fn it_is_an_order(a in NAME, b in NAME, c in NAME) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &b) == Ordering::Equal, a == b);
            if compare(&a, &b).is_lt() && compare(&b, &c).is_lt() {
                prop_assert!(compare(&a, &c).is_lt());
            }
        }
    }
}
