//! Checks each query once, and not at every pass of every object that has it.
//!
//! A hostile text takes the parser a fifth of a second, and the threads that would wait for it
//! renew the lease as well.
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{PromqlError, check_vector};

/// Maximum number of texts that are known as checked: three mebibytes.
const MOST: usize = 50_000;

/// Maximum number of these that are refused: with their messages, two mebibytes more. An object has
/// only one, because its first error ends the check.
const MOST_REFUSED: usize = 5_000;

/// A text that no object has used for this long makes room for others: longer than most intervals.
const UNUSED: Duration = Duration::from_hours(1);

/// Time between two searches for unused texts, each of which reads all of them.
const SEARCH: Duration = Duration::from_mins(1);

/// Checks that a query can be parsed and gives an instant vector. The result for a text is that of
/// its first check.
///
/// # Errors
/// As for [`check_vector`].
pub fn check_vector_once(text: &str) -> Result<(), PromqlError> {
    static CHECKED: LazyLock<Checked> = LazyLock::new(Checked::default);
    CHECKED.check(text, Instant::now(), parse)
}

fn parse(text: &str) -> Result<(), PromqlError> {
    #[cfg(test)]
    tests::PARSED.set(tests::PARSED.get() + 1);
    check_vector(text)
}

/// Returns the number of texts that this thread has parsed for [`check_vector_once`].
#[cfg(test)]
pub fn parsed() -> usize {
    tests::PARSED.get()
}

/// The results of checks. Texts are not kept, only 128 bits of each under keys that nobody knows:
/// no author can write a text that gets the result of another one.
#[derive(Default)]
struct Checked {
    keys: [RandomState; 2],
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    results: HashMap<[u64; 2], Outcome>,
    /// The number of errors among them.
    refused: usize,
    /// The time of the last search for unused texts.
    searched: Option<Instant>,
}

/// The result for one text.
struct Outcome {
    error: Option<Box<PromqlError>>,
    /// The time of the last check.
    used: Instant,
}

impl Checked {
    fn check(
        &self,
        text: &str,
        now: Instant,
        check: impl FnOnce(&str) -> Result<(), PromqlError>,
    ) -> Result<(), PromqlError> {
        let key = self.keys.each_ref().map(|keys| keys.hash_one(text));
        let known = self.known().find(&key, now);
        known.unwrap_or_else(|| {
            let result = check(text);
            self.known().keep(key, result.as_ref().err(), now);
            result
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&mut self, key: &[u64; 2], now: Instant) -> Option<Result<(), PromqlError>> {
        let outcome = self.results.get_mut(key)?;
        outcome.used = now;
        Some(outcome.error.as_deref().map_or(Ok(()), |error| Err(error.clone())))
    }

    /// Keeps a result if there is room for it. Of more texts than that, those that are known stay:
    /// if each made room for the next, all of them would be parsed at every pass.
    fn keep(&mut self, key: [u64; 2], error: Option<&PromqlError>, now: Instant) {
        let is_due = |at| now.saturating_duration_since(at) >= SEARCH;
        if self.is_full(error.is_some()) && self.searched.is_none_or(is_due) {
            self.searched = Some(now);
            self.results.retain(|_, outcome| now.saturating_duration_since(outcome.used) < UNUSED);
            self.refused = self.results.values().filter(|known| known.error.is_some()).count();
        }
        if self.is_full(error.is_some()) {
            return;
        }
        self.refused += usize::from(error.is_some());
        let error = error.cloned().map(Box::new);
        // Another thread may have checked the same text meanwhile.
        if let Some(before) = self.results.insert(key, Outcome { error, used: now }) {
            self.refused -= usize::from(before.error.is_some());
        }
    }

    fn is_full(&self, refused: bool) -> bool {
        self.results.len() >= MOST || refused && self.refused >= MOST_REFUSED
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static PARSED: Cell<usize> = const { Cell::new(0) };
    }

    /// Checks texts with these numbers, and returns how many of them were parsed.
    fn round(
        checked: &Checked,
        now: Instant,
        numbers: std::ops::Range<usize>,
        result: &Result<(), PromqlError>,
    ) -> usize {
        let mut parsed = 0;
        for number in numbers {
            let found = checked.check(&format!("up + {number}"), now, |_| {
                parsed += 1;
                result.clone()
            });
            assert_eq!(&found, result);
        }
        parsed
    }

    fn refused() -> Result<(), PromqlError> {
        Err(PromqlError { message: "is no PromQL".into(), position: None })
    }

    /// 101 objects with ten criteria each had more texts than were kept, and then parsed all of
    /// them at every pass.
    #[test]
    fn thousands_of_texts_are_parsed_once_each() {
        let (checked, now) = (Checked::default(), Instant::now());
        assert_eq!(round(&checked, now, 0..3_000, &Ok(())), 3_000);
        assert_eq!(round(&checked, now, 0..3_000, &Ok(())), 0);
        assert_eq!(round(&checked, now, 3_000..6_000, &refused()), 3_000);
        assert_eq!(round(&checked, now, 3_000..6_000, &refused()), 0);
    }

    #[test]
    fn of_more_texts_than_are_kept_only_the_excess_is_parsed_again() {
        let (checked, start) = (Checked::default(), Instant::now());
        assert_eq!(round(&checked, start, 0..MOST + 100, &Ok(())), MOST + 100);
        let later = start + 2 * SEARCH;
        assert_eq!(round(&checked, later, 0..MOST + 100, &Ok(())), 100);
        assert_eq!(checked.known().results.len(), MOST);
        let checked = Checked::default();
        assert_eq!(round(&checked, start, 0..MOST_REFUSED + 100, &refused()), MOST_REFUSED + 100);
        assert_eq!(round(&checked, later, 0..MOST_REFUSED + 100, &refused()), 100);
        assert_eq!(checked.known().refused, MOST_REFUSED);
        // Errors leave room for valid texts.
        assert_eq!(round(&checked, later, MOST..MOST + 100, &Ok(())), 100);
        assert_eq!(round(&checked, later, MOST..MOST + 100, &Ok(())), 0);
    }

    /// An author who changes a query again and again fills the memory with texts that no object
    /// has any more.
    #[test]
    fn texts_that_no_object_has_any_more_make_room() {
        let (checked, start) = (Checked::default(), Instant::now());
        round(&checked, start, 0..MOST_REFUSED, &refused());
        let later = start + UNUSED;
        // This one is still in use, and the others are not.
        assert_eq!(round(&checked, later, 0..1, &refused()), 0);
        let new = MOST_REFUSED..MOST_REFUSED + 10;
        assert_eq!(round(&checked, later, new.clone(), &refused()), 10);
        assert_eq!(round(&checked, later, new, &refused()), 0);
        assert_eq!(round(&checked, later, 0..1, &refused()), 0);
        assert_eq!(checked.known().refused, 11);
    }

    #[test]
    fn a_text_that_was_checked_before_has_the_result_of_a_new_check() {
        for text in ["once_valid", "once_invalid +", "1"] {
            let before = parsed();
            let results = [(); 2].map(|()| check_vector_once(text));
            assert_eq!(results, [(); 2].map(|()| check_vector(text)), "{text}");
            assert_eq!(parsed() - before, 1, "{text}");
        }
    }
}
