//! Writes that failed, and when each is tried again.
//!
//! A node whose patch is refused at every try must not keep the others from being judged, nor be asked
//! about at every judgement.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use crate::controller::Verdict;

/// The first pause: one judgement of the default interval.
const FIRST: Duration = Duration::from_secs(10);

/// The longest pause: an API server or admission policy that was mended is noticed within it.
const LONGEST: Duration = Duration::from_mins(5);

/// Nodes whose last write failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailedWrites {
    nodes: BTreeMap<Arc<str>, Failed>,
    /// What the last failure said in the condition Ready: it stands until the next try.
    why: Option<Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Failed {
    times: u32,
    again: Timestamp,
}

impl FailedWrites {
    /// Whether a node may be written now.
    #[must_use]
    pub fn is_due(&self, node: &str, now: Timestamp) -> bool {
        self.nodes.get(node).is_none_or(|failed| failed.again <= now)
    }

    /// Whether none failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What the last failure said, while there is one.
    #[must_use]
    pub fn why(&self) -> Option<&Verdict> {
        self.why.as_ref().filter(|_| !self.is_empty())
    }

    /// Takes the result of a write: what failed, if it did.
    pub fn take(&mut self, node: &Arc<str>, failure: Option<Verdict>, now: Timestamp) {
        let Some(why) = failure else {
            self.nodes.remove(node);
            return;
        };
        self.why = Some(why);
        let times = self.nodes.get(node).map_or(0, |known| known.times).saturating_add(1);
        // Ten seconds, doubled: the sixth pause is the longest.
        let pause = FIRST.saturating_mul(1 << (times - 1).min(5)).min(LONGEST);
        let again = now.checked_add(pause).unwrap_or(now);
        self.nodes.insert(Arc::clone(node), Failed { times, again });
    }

    /// Drops nodes that are gone.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| keep(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Error;

    #[test]
    fn t10_a_write_that_fails_is_tried_again_after_longer_and_longer_pauses() {
        let why = || Error::Refused("no".into()).verdict();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut failed = FailedWrites::default();
        let node = Arc::from("a");
        let (mut now, mut pauses) = (0, vec![]);
        for _ in 0..8 {
            failed.take(&node, Some(why()), at(now));
            let next = (now..now + 1000).find(|second| failed.is_due("a", at(*second))).unwrap();
            pauses.push(next - now);
            now = next;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert!(failed.is_due("b", at(0)), "others do not wait");
        assert_eq!(failed.why(), Some(&why()));
        failed.take(&node, None, at(now));
        assert!(failed.is_empty() && failed.why().is_none());
    }
}
