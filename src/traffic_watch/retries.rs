//! Writes that failed, and when each is tried again.
//!
//! A node whose patch is always refused must not keep the others from being judged, nor cause a
//! request at every judgment.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use crate::controller::Verdict;

/// The first pause: one judgment of the default interval.
const FIRST: Duration = Duration::from_secs(10);

/// The longest pause of one node, so that the API server does not get requests about thousands of
/// nodes that it refuses.
const LONGEST: Duration = Duration::from_mins(5);

/// The time within which one failed write is retried: its success shows that rights or a policy
/// were fixed, and then all writes are due.
const SCOUT: Duration = Duration::from_secs(15);

/// Nodes with a failed last write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailedWrites {
    nodes: BTreeMap<Arc<str>, Failed>,
    /// The time of the last failed write.
    last: Option<Timestamp>,
    /// A node, and the failure of its write in the condition Ready. The failures of others for the
    /// same reason do not replace it: nodes that take turns would reword the condition for ever.
    why: Option<(Arc<str>, Verdict)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Failed {
    times: u32,
    again: Timestamp,
}

impl FailedWrites {
    /// Returns the nodes that may be written now: those with an expired pause, and one that is
    /// tried on behalf of all.
    pub fn due(&self, now: Timestamp) -> impl Fn(&str) -> bool {
        let rested = self.last.is_none_or(|last| after(last, SCOUT) <= now);
        let next = self.nodes.iter().min_by_key(|(_, failed)| failed.again);
        let scout = next.map(|(node, _)| node).filter(|_| rested);
        move |node| {
            let Some(failed) = self.nodes.get(node) else { return true };
            failed.again <= now || scout.is_some_and(|scout| **scout == *node)
        }
    }

    /// Reports whether none failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Reports whether the last write of a node failed.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Returns the failure to report, while there is one.
    #[must_use]
    pub fn why(&self) -> Option<&Verdict> {
        self.reported().map(|(_, why)| why)
    }

    /// Returns the failure to report, and its node.
    #[must_use]
    pub fn reported(&self) -> Option<(&Arc<str>, &Verdict)> {
        self.why.as_ref().filter(|_| !self.is_empty()).map(|(node, why)| (node, why))
    }

    /// Records the result of a write: the error, if it failed.
    pub fn take(&mut self, node: &Arc<str>, failure: Option<Verdict>, now: Timestamp) {
        let Some(why) = failure else {
            if self.nodes.remove(node).is_some() {
                self.nodes.values_mut().for_each(|failed| failed.again = now);
            }
            return;
        };
        let stands = self.why.as_ref().is_some_and(|(reported, known)| {
            reported != node
                && self.nodes.contains_key(reported)
                && (known.status, known.reason) == (why.status, why.reason)
        });
        if !stands {
            self.why = Some((Arc::clone(node), why));
        }
        self.last = Some(now);
        let times = self.nodes.get(node).map_or(0, |known| known.times).saturating_add(1);
        // Ten seconds, doubled: the sixth pause is the longest.
        let pause = FIRST.saturating_mul(1 << (times - 1).min(5)).min(LONGEST);
        self.nodes.insert(Arc::clone(node), Failed { times, again: after(now, pause) });
    }

    /// Returns the failed writes that are still needed. A node that needs none was written although
    /// the answer was lost, or needs no change any more; if it stayed, it would be the one that is
    /// tried on behalf of all, and never is.
    #[must_use]
    pub fn needed<'a>(self: &Arc<Self>, nodes: impl Iterator<Item = &'a str>) -> Arc<Self> {
        if self.is_empty() {
            return Arc::clone(self);
        }
        let nodes: BTreeSet<&str> = nodes.collect();
        if self.nodes.keys().all(|node| nodes.contains(&**node)) {
            return Arc::clone(self);
        }
        let mut needed = Self::clone(self);
        needed.retain(|node| nodes.contains(node));
        Arc::new(needed)
    }

    /// Drops nodes that are gone.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| keep(node));
    }
}

fn after(at: Timestamp, pause: Duration) -> Timestamp {
    at.checked_add(pause).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Error;

    #[test]
    fn a_write_that_fails_is_tried_again_after_longer_and_longer_pauses() {
        let why = || Error::Refused("no".into()).verdict();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut failed = FailedWrites::default();
        let node = Arc::from("a");
        // Another node is tried for both, again and again.
        let scout = Arc::from("b");
        let (mut now, mut pauses) = (0, vec![]);
        for _ in 0..8 {
            failed.take(&node, Some(why()), at(now));
            let next = (now..now + 1000).find(|second| {
                failed.nodes.remove("b");
                failed.take(&scout, Some(why()), at(*second - 1));
                failed.due(at(*second))("a")
            });
            let next = next.unwrap();
            pauses.push(next - now);
            now = next;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert!(failed.due(at(0))("c"), "others do not wait");
        assert_eq!(failed.why(), Some(&why()));
        failed.take(&node, None, at(now));
        failed.take(&scout, None, at(now));
        assert!(failed.is_empty() && failed.why().is_none());
    }

    #[test]
    fn one_node_shows_within_seconds_that_all_can_be_written_again() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let why = || Error::Refused("no".into()).verdict();
        let mut failed = FailedWrites::default();
        let nodes = ["a", "b", "c"].map(Arc::from);
        for second in [0, 10, 30, 70, 150] {
            for node in &nodes {
                failed.take(node, Some(why()), at(second));
            }
        }
        let due = |failed: &FailedWrites, second| {
            let due = failed.due(at(second));
            nodes.iter().filter(|node| due(node)).count()
        };
        assert_eq!([due(&failed, 164), due(&failed, 165), due(&failed, 300)], [0, 1, 1]);
        failed.take(&nodes[0], None, at(165));
        assert_eq!(due(&failed, 165), 3);
    }

    #[test]
    fn one_of_several_nodes_is_reported_until_it_is_written() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let why = |text: &str| Error::Refused(text.into()).verdict();
        let (mut failed, a, b) = (FailedWrites::default(), Arc::from("a"), Arc::from("b"));
        for second in 0..3 {
            failed.take(&a, Some(why("a")), at(second));
            failed.take(&b, Some(why("b")), at(second));
            assert_eq!(failed.reported(), Some((&a, &why("a"))));
        }
        failed.take(&b, Some(Error::Taken("b".into()).verdict()), at(3));
        assert_eq!(failed.why().unwrap().reason, "Conflict", "another reason is news");
        failed.take(&b, None, at(4));
        failed.take(&a, Some(why("a")), at(4));
        assert_eq!(failed.reported(), Some((&a, &why("a"))));
    }

    #[test]
    fn a_write_that_was_made_without_an_answer_does_not_hold_up_the_others() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut failed = FailedWrites::default();
        for second in [0, 10, 30, 70, 150] {
            for (place, node) in ["a", "b"].into_iter().enumerate() {
                let why = Error::Refused("no".into()).verdict();
                // "a" is always the next in turn.
                let second = second + i64::try_from(place).unwrap();
                failed.take(&Arc::from(node), Some(why), at(second));
            }
        }
        let failed = Arc::new(failed);
        assert!(!failed.due(at(170))("b"), "it is the turn of a");
        let needed = failed.needed(["b"].into_iter());
        assert!(needed.due(at(170))("b"), "a has its label, and is not written");
        assert!(!needed.due(at(165))("b"), "as often as before");
        let same = failed.needed(["a", "b", "c"].into_iter());
        assert!(Arc::ptr_eq(&same, &failed));
    }
}
