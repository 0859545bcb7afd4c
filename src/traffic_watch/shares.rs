//! The shares that namespaces have of the operator-wide ceiling, while it is full.
//!
//! As long as nobody waits for a place, each namespace takes as many as there are. When one waits
//! that has fewer than its share, those with more give places back. The operator's own namespace is
//! the platform's: it never gives any back, and half of the places are its own if it wants them.
use std::collections::{BTreeMap, BTreeSet};

/// Some of the nodes, and who wants how many of them.
#[derive(Debug, Default)]
pub(super) struct Contest<'a> {
    /// Number of these nodes that may be marked, by all objects together.
    pub(super) places: usize,
    /// Number of further nodes that may be marked now.
    pub(super) free: usize,
    /// Of each marked node, the namespaces whose objects mark it.
    pub(super) marks: Vec<BTreeSet<&'a str>>,
    /// Of each namespace, the number of nodes that only the ceiling keeps from being marked.
    pub(super) waiting: BTreeMap<&'a str, usize>,
}

/// What a namespace may take, and must give back, while another one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) take: usize,
    pub(super) give_back: usize,
}

impl Contest<'_> {
    /// Returns the terms of a namespace, or `None` if nobody with fewer than its share waits for
    /// what it has. `platform` is the operator's own namespace.
    pub(super) fn terms(&self, namespace: &str, platform: &str) -> Option<Terms> {
        if namespace == platform {
            return None;
        }
        // A node that the platform marks too costs nobody else a place. Several others pay for a
        // node each: together they could not have more than their shares otherwise.
        let mut loads = BTreeMap::<_, usize>::new();
        for marks in self.marks.iter().filter(|marks| !marks.contains(platform)) {
            for tenant in marks {
                *loads.entry(*tenant).or_default() += 1;
            }
        }
        let load = |namespace: &str| loads.get(namespace).copied().unwrap_or_default();
        let tenants: BTreeSet<_> = loads.keys().chain(self.waiting.keys()).collect();
        let tenants = tenants.into_iter().filter(|tenant| **tenant != platform).count();
        let share = self.places / (2 * tenants.max(2));
        let others = self.waiting.iter().filter(|(other, _)| **other != namespace);
        let asked: usize = others
            .map(|(other, wanted)| {
                if *other == platform {
                    *wanted
                } else {
                    share.saturating_sub(load(other)).min(*wanted)
                }
            })
            .sum();
        if asked == 0 {
            return None;
        }
        let own = load(namespace);
        let Some(left) = share.checked_sub(own).filter(|left| *left > 0) else {
            return Some(Terms {
                take: self.free.saturating_sub(asked),
                give_back: (own - share).min(asked.saturating_sub(self.free)),
            });
        };
        Some(Terms { take: left.min(self.free), give_back: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLATFORM: &str = "ops";

    fn terms(
        (places, free): (usize, usize),
        marks: &[(&'static str, usize)],
        waiting: &[(&'static str, usize)],
        namespace: &str,
    ) -> Option<(usize, usize)> {
        let marks = marks.iter().flat_map(|(namespaces, nodes)| {
            let namespaces: BTreeSet<_> = namespaces.split(' ').collect();
            std::iter::repeat_n(namespaces, *nodes)
        });
        let waiting = waiting.iter().copied().collect();
        let contest = Contest { places, free, marks: marks.collect(), waiting };
        contest.terms(namespace, PLATFORM).map(|terms| (terms.take, terms.give_back))
    }

    #[test]
    fn who_has_more_than_a_share_gives_back_what_others_wait_for() {
        for (what, marks, waiting, namespace, expected) in [
            ("nobody else waits", &[("a", 40)][..], &[("a", 9)][..], "a", None),
            ("the platform waits", &[("a", 40)], &[("ops", 12)], "a", Some((0, 12))),
            ("down to the share", &[("a", 40)], &[("ops", 99)], "a", Some((0, 30))),
            ("the platform keeps all", &[("ops", 40)], &[("a", 1), ("b", 1)], "ops", None),
            ("a share is a quarter", &[("a", 31), ("ops", 9)], &[("b", 99)], "a", Some((0, 10))),
            ("two have their shares", &[("a", 30), ("b", 10)], &[("b", 9)], "a", None),
            ("b waits for more than its share", &[("a", 30), ("b", 10)], &[("b", 9)], "b", None),
            // Four tenants have half of the places together.
            (
                "four tenants",
                &[("a", 10), ("b", 10), ("c", 10), ("d", 10)],
                &[("ops", 40)],
                "a",
                Some((0, 5)),
            ),
            // Two that mark the same nodes do not hide behind each other.
            ("the same nodes", &[("a b", 40)], &[("ops", 40)], "a", Some((0, 30))),
            ("nodes of the platform", &[("a ops", 40)], &[("ops", 40)], "a", Some((0, 0))),
        ] {
            assert_eq!(terms((40, 0), marks, waiting, namespace), expected, "{what}");
        }
    }

    #[test]
    fn places_that_are_free_already_are_not_given_back_again() {
        let after = [("a", 28)];
        assert_eq!(terms((40, 12), &after, &[("ops", 12)], "a"), Some((0, 0)));
        assert_eq!(terms((40, 12), &after, &[("ops", 5)], "a"), Some((7, 0)));
        assert_eq!(terms((40, 12), &after, &[("ops", 20)], "a"), Some((0, 8)));
    }

    /// In a cluster of three nodes nobody has a share, and who came first keeps the place; but the
    /// platform gets it.
    #[test]
    fn a_ceiling_that_is_too_small_to_be_shared_is_the_platform_s() {
        assert_eq!(terms((1, 0), &[("a", 1)], &[("b", 1)], "a"), None);
        assert_eq!(terms((1, 0), &[("a", 1)], &[("ops", 1)], "a"), Some((0, 1)));
    }

    proptest! {
        /// Whatever tenants mark and wait for, the platform gets half of the places in the end, and
        /// a tenant that has less than its share never gives anything back.
        #[test]
        fn the_platform_gets_half_of_the_places(
            places in 0..60_usize,
            marks in prop::collection::vec(prop::collection::btree_set("[a-e]", 1..4), 0..60),
            waiting in prop::collection::btree_map("[a-e]", 1..60_usize, 0..5),
        ) {
            let mut marks: Vec<BTreeSet<&str>> =
                marks.iter().map(|set| set.iter().map(|name| &**name).collect()).collect();
            marks.truncate(places);
            let mut waiting: BTreeMap<&str, usize> =
                waiting.iter().map(|(name, count)| (&**name, *count)).collect();
            waiting.insert(PLATFORM, places);
            for _ in 0..places {
                for tenant in ["a", "b", "c", "d", "e"] {
                    let free = places - marks.len();
                    let contest = Contest { places, free, marks: marks.clone(), waiting: waiting.clone() };
                    let terms = contest.terms(tenant, PLATFORM);
                    let mut owed = terms.map_or(0, |terms| terms.give_back);
                    for node in &mut marks {
                        if owed > 0 && node.remove(tenant) {
                            owed -= 1;
                        }
                    }
                    prop_assert_eq!(owed, 0, "no more than it has");
                    marks.retain(|node| !node.is_empty());
                }
            }
            prop_assert!(marks.len() <= places / 2, "{} of {}", marks.len(), places);
        }
    }
}
