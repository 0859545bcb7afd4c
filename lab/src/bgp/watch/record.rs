//! The pairs of nodes without a route, with start and end, and the lost probes. No IO.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::bgp::family::Family;

/// Numbers of nodes: who misses a route or sends a probe, and to whom.
pub(super) type Pair = (u8, u8);
/// A pair in an address family that both speak.
type Lane = (Family, Pair);

/// Everything seen so far.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// All nodes that ever were there.
    names: BTreeMap<u8, String>,
    there: BTreeSet<(Family, u8)>,
    open: BTreeMap<Lane, Instant>,
    closed: Vec<(Lane, Instant, Instant)>,
    /// The times at which probes were sent, and their number.
    rounds: Vec<(Instant, u64)>,
    lost: Vec<(Instant, Pair)>,
}

impl Record {
    /// The nodes that speak a family, without one.
    fn others(&self, family: Family, number: u8) -> impl Iterator<Item = u8> + use<> {
        let there = self.there.iter().filter(|(of, other)| *of == family && *other != number);
        there.map(|(_, other)| *other).collect::<Vec<_>>().into_iter()
    }

    /// A node speaks a family from now on: every node that does must learn its route, and it must
    /// learn all; except routes that already exist.
    pub fn join(
        &mut self,
        family: Family,
        number: u8,
        name: &str,
        now: Instant,
        has: impl Fn(Pair) -> bool,
    ) {
        for other in self.others(family, number) {
            let pairs = [(number, other), (other, number)].into_iter();
            let missing = pairs.filter(|pair| !has(*pair));
            self.open.extend(missing.map(|pair| ((family, pair), now)));
        }
        self.there.insert((family, number));
        self.names.insert(number, name.to_owned());
    }

    /// A node is gone: nobody owes it anything.
    pub fn leave(&mut self, number: u8, now: Instant) {
        self.there.retain(|(_, other)| *other != number);
        let is_its = |(_, pair): &Lane| pair.0 == number || pair.1 == number;
        for (lane, from) in self.open.extract_if(.., |lane, _| is_its(lane)) {
            self.closed.push((lane, from, now));
        }
    }

    /// Records the new content of a node's table of a family.
    pub fn table(&mut self, family: Family, number: u8, networks: &BTreeSet<u8>, now: Instant) {
        for other in self.others(family, number) {
            let lane = (family, (number, other));
            if !networks.contains(&other) {
                self.open.entry(lane).or_insert(now);
            } else if let Some(from) = self.open.remove(&lane) {
                self.closed.push((lane, from, now));
            }
        }
    }

    /// Probes that were sent, and those that did not arrive.
    pub fn probed(&mut self, sent_at: Instant, sent: u64, lost: impl IntoIterator<Item = Pair>) {
        self.rounds.push((sent_at, sent));
        self.lost.extend(lost.into_iter().map(|pair| (sent_at, pair)));
    }

    /// The pairs that miss a route now, in any family.
    pub fn missing(&self) -> Vec<(String, String)> {
        let pairs: BTreeSet<Pair> = self.open.keys().map(|(_, pair)| *pair).collect();
        pairs.into_iter().map(|pair| self.named(pair)).collect()
    }

    /// Returns the observations in a period of time.
    pub fn seen(&self, since: Instant, until: Instant) -> Seen {
        let open = self.open.iter().map(|(lane, from)| (*lane, *from, until));
        let all = self.closed.iter().copied().chain(open);
        let gaps = all
            .filter(|(_, from, to)| *to >= since && *from < until)
            .map(|((_, pair), from, to)| Gap {
                pair: self.named(pair),
                from: from.max(since),
                to: to.min(until),
            })
            .collect();
        let within = |time: &Instant| (since..until).contains(time);
        let mut lost = BTreeMap::new();
        for (_, pair) in self.lost.iter().filter(|(time, _)| within(time)) {
            *lost.entry(self.named(*pair)).or_default() += 1;
        }
        let rounds = self.rounds.iter().filter(|(time, _)| within(time));
        Seen { gaps, lost, sent: rounds.map(|(_, sent)| sent).sum() }
    }

    fn named(&self, pair: Pair) -> (String, String) {
        let name = |number| self.names.get(&number).cloned().unwrap_or_default();
        (name(pair.0), name(pair.1))
    }
}

/// A stretch of time in which a node had no route to another's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The pair: the node, and the one whose route it lacks.
    pub pair: (String, String),
    /// The time when it began.
    pub from: Instant,
    /// The time when it ended.
    pub to: Instant,
}

impl Gap {
    pub fn time(&self) -> Duration {
        self.to - self.from
    }
}

/// The observations in a period of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Every one, cut off where the stretch of time ends.
    pub gaps: Vec<Gap>,
    /// Number of lost probes, by sender and receiver.
    pub lost: BTreeMap<(String, String), u64>,
    /// Number of probes sent in total.
    pub sent: u64,
}

impl Seen {
    /// Only what happened between nodes of which neither is in `nodes`.
    pub fn without(&self, nodes: &BTreeSet<String>) -> Self {
        self.of(|pair| !nodes.contains(&pair.0) && !nodes.contains(&pair.1))
    }

    /// Only observations of pairs with one node in `nodes`.
    pub fn only(&self, nodes: &BTreeSet<String>) -> Self {
        self.of(|pair| nodes.contains(&pair.0) || nodes.contains(&pair.1))
    }

    fn of(&self, wanted: impl Fn(&(String, String)) -> bool) -> Self {
        let mut seen = self.clone();
        seen.gaps.retain(|gap| wanted(&gap.pair));
        seen.lost.retain(|pair, _| wanted(pair));
        seen
    }

    /// The pairs that missed a route at any time.
    pub fn pairs(&self) -> BTreeSet<&(String, String)> {
        self.gaps.iter().map(|gap| &gap.pair).collect()
    }

    pub fn longest(&self) -> Duration {
        self.gaps.iter().map(Gap::time).max().unwrap_or_default()
    }

    /// The most pairs that missed a route at one time.
    pub fn peak(&self) -> usize {
        let overlaps =
            |at: Instant| self.gaps.iter().filter(|gap| gap.from <= at && at < gap.to).count();
        self.gaps.iter().map(|gap| overlaps(gap.from)).max().unwrap_or(0)
    }

    /// Returns the number of lost probes.
    pub fn losses(&self) -> u64 {
        self.lost.values().sum()
    }

    /// The first few gaps, for people.
    pub fn examples(&self) -> String {
        let text = |gap: &Gap| {
            let (node, origin) = &gap.pair;
            format!("{node} had no route to {origin} for {} ms", gap.time().as_millis())
        };
        self.gaps.iter().take(3).map(text).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock(Instant);

    impl Clock {
        fn at(&self, millis: u64) -> Instant {
            self.0 + Duration::from_millis(millis)
        }
    }

    fn three(clock: &Clock) -> Record {
        let mut record = Record::default();
        for number in 0..3 {
            record.join(Family::V4, number, &format!("n{number}"), clock.at(0), |_| false);
        }
        for number in 0..3 {
            record.table(Family::V4, number, &BTreeSet::from([0, 1, 2]), clock.at(100));
        }
        record
    }

    fn pair(from: u8, to: u8) -> (String, String) {
        (format!("n{from}"), format!("n{to}"))
    }

    #[test]
    fn every_pair_has_its_gap_exactly() {
        let clock = Clock(Instant::now());
        let mut record = three(&clock);
        assert_eq!(record.missing(), []);
        record.table(Family::V4, 0, &BTreeSet::from([1]), clock.at(200));
        record.table(Family::V4, 1, &BTreeSet::from([0]), clock.at(250));
        record.table(Family::V4, 0, &BTreeSet::from([1, 2]), clock.at(300));
        assert_eq!(record.missing(), [pair(1, 2)]);
        let seen = record.seen(clock.at(150), clock.at(400));
        let times: Vec<_> =
            seen.gaps.iter().map(|gap| (gap.pair.clone(), gap.time().as_millis())).collect();
        assert_eq!(times, [(pair(0, 2), 100), (pair(1, 2), 150)]);
        assert_eq!((seen.pairs().len(), seen.peak()), (2, 2));
        assert_eq!(seen.longest(), Duration::from_millis(150));
        assert!(record.seen(clock.at(301), clock.at(400)).gaps.len() == 1, "the other is over");
        // A route that is replaced by nothing for no time at all was still missing.
        record.table(Family::V4, 2, &BTreeSet::from([1]), clock.at(500));
        record.table(Family::V4, 2, &BTreeSet::from([0, 1]), clock.at(500));
        let none =
            record.seen(clock.at(450), clock.at(600)).without(&BTreeSet::from(["n1".to_owned()]));
        assert_eq!((none.gaps.len(), none.longest()), (1, Duration::ZERO));
    }

    #[test]
    fn nobody_owes_routes_to_a_node_that_is_gone() {
        let clock = Clock(Instant::now());
        let mut record = three(&clock);
        record.join(Family::V4, 3, "n3", clock.at(200), |pair| pair == (1, 3));
        assert_eq!(record.missing().len(), 5);
        record.table(Family::V4, 0, &BTreeSet::from([1, 2, 3]), clock.at(300));
        record.leave(3, clock.at(400));
        assert_eq!(record.missing(), []);
        record.table(Family::V4, 0, &BTreeSet::from([1, 2]), clock.at(500));
        assert_eq!(record.missing(), []);
        let seen = record.seen(clock.at(150), clock.at(600));
        assert_eq!(seen.gaps.len(), 5);
        assert_eq!(seen.without(&BTreeSet::from(["n3".to_owned()])).gaps, []);
        assert_eq!(seen.only(&BTreeSet::from(["n3".to_owned()])).gaps.len(), 5);
    }

    #[test]
    fn probes_are_counted_when_they_were_sent() {
        let clock = Clock(Instant::now());
        let mut record = three(&clock);
        record.probed(clock.at(200), 6, []);
        record.probed(clock.at(250), 6, [(0, 1), (2, 1)]);
        record.probed(clock.at(300), 6, [(0, 1)]);
        let seen = record.seen(clock.at(200), clock.at(300));
        assert_eq!((seen.sent, seen.losses()), (12, 2));
        let all = record.seen(clock.at(0), clock.at(999));
        assert_eq!((all.sent, all.lost[&pair(0, 1)]), (18, 2));
    }

    #[test]
    fn a_route_is_missing_if_it_is_in_one_family_that_both_speak() {
        let clock = Clock(Instant::now());
        let mut record = three(&clock);
        for number in [0, 1] {
            record.join(Family::V6, number, &format!("n{number}"), clock.at(200), |_| false);
        }
        assert_eq!(record.missing(), [pair(0, 1), pair(1, 0)], "2 speaks only the other one");
        record.table(Family::V6, 0, &BTreeSet::from([1]), clock.at(300));
        record.table(Family::V6, 1, &BTreeSet::from([0]), clock.at(300));
        assert!(record.missing().is_empty());
        record.table(Family::V4, 0, &BTreeSet::from([2]), clock.at(400));
        record.table(Family::V6, 0, &BTreeSet::new(), clock.at(450));
        assert_eq!(record.missing(), [pair(0, 1)]);
        let seen = record.seen(clock.at(350), clock.at(500));
        assert_eq!(
            (seen.gaps.len(), seen.pairs().len(), seen.longest()),
            (2, 1, Duration::from_millis(100))
        );
    }
}
