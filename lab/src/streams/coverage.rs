//! Arithmetic of intervals. No IO.

/// Milliseconds since the Unix epoch.
pub type Millis = u64;

/// A half-open interval of time: it excludes `to`, so that adjacent ones share no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch {
    pub from: Millis,
    /// The first millisecond after it.
    pub to: Millis,
}

impl Stretch {
    /// All of time.
    pub const ALWAYS: Self = Self { from: 0, to: Millis::MAX };

    /// Returns the stretch between two times; empty if the second is not the later one.
    pub const fn new(from: Millis, to: Millis) -> Self {
        Self { from, to }
    }

    /// Returns its duration.
    pub const fn millis(self) -> Millis {
        self.to.saturating_sub(self.from)
    }

    pub const fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// Returns the part that lies within another stretch, which may be empty.
    pub fn within(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }
}

/// The times in which nobody did something, and in which more than one did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Coverage {
    /// By two or more; in order, none touching the next.
    pub twice: Vec<Stretch>,
    /// By nobody, between the first beginning and the last end; in order, none touching the next.
    pub never: Vec<Stretch>,
}

/// Compares the times of any number of doers; the stretches of one doer must not overlap.
pub(super) fn coverage(stretches: impl IntoIterator<Item = Stretch>) -> Coverage {
    let mut turns: Vec<(Millis, i32)> = stretches
        .into_iter()
        .filter(|stretch| !stretch.is_empty())
        .flat_map(|stretch| [(stretch.from, 1), (stretch.to, -1)])
        .collect();
    // At the same moment ends come first: -1 before 1.
    turns.sort_unstable();
    let mut found = Coverage::default();
    let (mut depth, mut since) = (0, turns.first().map_or(0, |turn| turn.0));
    for (time, change) in turns {
        let stretch = Stretch::new(since, time);
        match depth {
            0 => append(&mut found.never, stretch),
            1 => {}
            _ => append(&mut found.twice, stretch),
        }
        depth += change;
        since = time;
    }
    found
}

/// Adds a stretch behind the others, as part of the last one if they touch.
fn append(all: &mut Vec<Stretch>, stretch: Stretch) {
    if stretch.is_empty() {
        return;
    }
    match all.last_mut() {
        Some(last) if last.to == stretch.from => last.to = stretch.to,
        _ => all.push(stretch),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_of_a_stretch_may_be_nothing() {
        let stretch = Stretch::new(10, 20);
        assert_eq!(stretch.within(Stretch::new(15, 99)), Stretch::new(15, 20));
        assert!(stretch.within(Stretch::new(20, 30)).is_empty());
        assert_eq!(stretch.within(Stretch::new(30, 40)).millis(), 0);
        assert_eq!(stretch.within(Stretch::ALWAYS), stretch);
    }

    proptest! {
        /// Agrees with a check of every single millisecond.
        #[test]
        fn every_millisecond_is_counted_once(
            pairs in prop::collection::vec((0..60_u64, 0..20_u64), 0..12)
        ) {
            let given: Vec<Stretch> =
                pairs.iter().map(|&(from, length)| Stretch::new(from, from + length)).collect();
            let found = coverage(given.clone());
            let some = || given.iter().filter(|stretch| !stretch.is_empty());
            let begin = some().map(|stretch| stretch.from).min().unwrap_or(0);
            let end = some().map(|stretch| stretch.to).max().unwrap_or(0);
            let holds = |all: &[Stretch], time| all.iter().any(|s| (s.from..s.to).contains(&time));
            for time in 0..100 {
                let doers = given.iter().filter(|s| (s.from..s.to).contains(&time)).count();
                prop_assert_eq!(holds(&found.twice, time), doers >= 2, "at {}", time);
                let nobody = doers == 0 && (begin..end).contains(&time);
                prop_assert_eq!(holds(&found.never, time), nobody, "at {}", time);
            }
            for all in [&found.twice, &found.never] {
                prop_assert!(all.iter().all(|stretch| !stretch.is_empty()));
                prop_assert!(all.windows(2).all(|pair| pair[0].to < pair[1].from));
            }
        }
    }
}
