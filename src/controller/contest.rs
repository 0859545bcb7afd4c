//! Objects that another client changes again and again: two that undo each other's work for ever
//! would keep the API server busy.
use std::time::Duration;

/// Time after which a change by another client is a new one, and not a further round.
const CALM: Duration = Duration::from_mins(10);

/// Number of rounds after which the object is restored ever less often.
const ROUNDS: u32 = 2;

/// The first pause, which doubles with each round, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// How often the same content had to be written again, each time soon after the last one.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct Rounds(u32);

impl Rounds {
    /// Returns the rounds after one more write, so long after the last one.
    #[must_use]
    pub fn again(self, since: Duration) -> Self {
        if Self::is_over(since) { Self::default() } else { Self(self.0.saturating_add(1)) }
    }

    /// Reports whether a change so long after the last write would be a new one.
    #[must_use]
    pub fn is_over(since: Duration) -> bool {
        since >= CALM
    }

    /// Returns the time for which the object is left as it is, so long after the last write; `None`
    /// if no other client contests it.
    #[must_use]
    pub fn left(self, since: Duration) -> Option<Duration> {
        let over = self.0.checked_sub(ROUNDS).filter(|_| !Self::is_over(since))?;
        let (first, longest) = PAUSES;
        let pause = first.saturating_mul(1 << over.min(5)).min(longest);
        Some(pause.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_restored_ever_less_often_until_it_is_left_alone() {
        let minute = Duration::from_mins(1);
        let mut rounds = Rounds::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pauses.push(rounds.left(Duration::ZERO).map(|left| left.as_secs()));
            rounds = rounds.again(minute);
        }
        let [none, some @ ..] = &pauses[1..] else { panic!("{pauses:?}") };
        assert_eq!((pauses[0], *none), (None, None));
        assert_eq!(some, [10, 20, 40, 80, 160, 300, 300, 300].map(Some));
        assert_eq!(rounds.left(minute).map(|left| left.as_secs()), Some(240));
        assert_eq!((rounds.left(CALM), rounds.again(CALM)), (None, Rounds::default()));
    }
}
