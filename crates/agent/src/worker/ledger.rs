//! The intervals in which streams ran, and those that have been reported.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::Serialize;

/// Maximum number of ended intervals that are kept while no report is accepted: a report of them
/// has about a megabyte, and a worker with a hundred streams can lose and regain all of them a
/// hundred times.
const MOST: usize = 10_000;

/// A time in which a stream ran, in Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Id of the stream.
    #[serde(serialize_with = "text")]
    pub stream: Arc<str>,
    /// Its fencing token.
    pub epoch: u64,
    /// The start, or the end of the part that has been reported.
    pub from: u64,
    /// The time at which it ended, or until which it has run.
    pub to: u64,
}

/// The running streams, and ended intervals that are not reported yet.
#[derive(Debug, Default)]
pub struct Ledger {
    open: BTreeMap<Arc<str>, Open>,
    ended: VecDeque<Interval>,
    /// Number of ended intervals that have left the queue, reported or dropped.
    left: u64,
}

#[derive(Debug)]
struct Open {
    epoch: u64,
    from: u64,
}

/// The contents of one report, kept until the server has accepted it.
#[derive(Debug)]
pub struct Batch {
    /// The intervals in the report.
    pub intervals: Vec<Interval>,
    at: u64,
    /// Ended intervals up to this one, counted from the beginning.
    ended: u64,
}

impl Ledger {
    /// Records that a stream runs from now on.
    pub fn begin(&mut self, stream: Arc<str>, epoch: u64, now: u64) {
        self.open.insert(stream, Open { epoch, from: now });
    }

    /// Records that a stream no longer runs. Returns the number of intervals dropped to make room.
    pub fn end(&mut self, stream: &str, now: u64) -> u64 {
        let Some((stream, Open { epoch, from })) = self.open.remove_entry(stream) else { return 0 };
        self.ended.push_back(Interval { stream, epoch, from, to: now });
        let lost = self.ended.len().saturating_sub(MOST);
        self.ended.drain(..lost);
        let lost = u64::try_from(lost).unwrap_or(u64::MAX);
        self.left += lost;
        lost
    }

    /// Returns everything that is not reported yet; `None` if there is nothing.
    #[must_use]
    pub fn report(&self, now: u64) -> Option<Batch> {
        let open = self.open.iter().map(|(stream, Open { epoch, from })| Interval {
            stream: stream.clone(),
            epoch: *epoch,
            from: *from,
            to: now,
        });
        let intervals: Vec<_> = self.ended.iter().cloned().chain(open).collect();
        let ended = self.left + u64::try_from(self.ended.len()).unwrap_or(u64::MAX);
        (!intervals.is_empty()).then_some(Batch { intervals, at: now, ended })
    }

    /// Removes the contents of a report that the server accepted.
    pub fn taken(&mut self, batch: &Batch) {
        let taken = usize::try_from(batch.ended.saturating_sub(self.left)).unwrap_or(usize::MAX);
        self.ended.drain(..taken.min(self.ended.len()));
        self.left = self.left.max(batch.ended);
        // An interval that ended during the report was reported up to that time.
        for Interval { from, .. } in &mut self.ended {
            *from = batch.at.max(*from);
        }
        for Open { from, .. } in self.open.values_mut() {
            *from = batch.at.max(*from);
        }
    }
}

fn text<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(stream: &str, epoch: u64, from: u64, to: u64) -> Interval {
        Interval { stream: stream.into(), epoch, from, to }
    }

    fn intervals(batch: Option<Batch>) -> Vec<Interval> {
        batch.map(|batch| batch.intervals).unwrap_or_default()
    }

    #[test]
    fn intervals_follow_each_other_without_a_gap() {
        let mut ledger = Ledger::default();
        assert!(ledger.report(5).is_none());
        ledger.begin("a".into(), 12, 10);
        let batch = ledger.report(20).unwrap();
        assert_eq!(batch.intervals, [interval("a", 12, 10, 20)]);
        ledger.taken(&batch);
        assert_eq!(intervals(ledger.report(30)), [interval("a", 12, 20, 30)]);
    }

    #[test]
    fn what_was_not_taken_grows_and_what_ended_is_kept() {
        let mut ledger = Ledger::default();
        ledger.begin("a".into(), 1, 10);
        ledger.begin("b".into(), 1, 10);
        drop(ledger.report(20));
        ledger.end("a", 25);
        ledger.begin("a".into(), 3, 28);
        drop(ledger.report(30));
        let expected =
            [interval("a", 1, 10, 25), interval("a", 3, 28, 40), interval("b", 1, 10, 40)];
        let batch = ledger.report(40).unwrap();
        assert_eq!(batch.intervals, expected);
        ledger.taken(&batch);
        let expected = [interval("a", 3, 40, 50), interval("b", 1, 40, 50)];
        assert_eq!(intervals(ledger.report(50)), expected);
    }

    #[test]
    fn what_ends_while_a_report_is_under_way_is_reported_from_there() {
        let mut ledger = Ledger::default();
        ledger.begin("a".into(), 1, 10);
        let batch = ledger.report(20).unwrap();
        ledger.end("a", 23);
        ledger.begin("a".into(), 2, 24);
        ledger.end("a", 26);
        ledger.taken(&batch);
        let expected = [interval("a", 1, 20, 23), interval("a", 2, 24, 26)];
        let batch = ledger.report(30).unwrap();
        assert_eq!(batch.intervals, expected);
        ledger.taken(&batch);
        assert!(ledger.report(40).is_none());
    }

    #[test]
    fn the_oldest_are_given_up_when_nobody_takes_them() {
        let mut ledger = Ledger::default();
        let mut lost = 0;
        let mut under_way = None;
        for n in 0..MOST as u64 + 7 {
            ledger.begin("a".into(), n, 2 * n);
            lost += ledger.end("a", 2 * n + 1);
            if n == 9 {
                under_way = ledger.report(20);
            }
        }
        assert_eq!(lost, 7);
        // Ten were reported, of which seven had been dropped in the meantime.
        ledger.taken(&under_way.unwrap());
        let left = intervals(ledger.report(0));
        assert_eq!(left.len(), MOST - 3);
        assert_eq!(left[0].epoch, 10);
        assert!(ledger.end("b", 1) == 0);
    }
}
