//! The objects of one kind, from its watch and from the answers to our own writes.
//!
//! After a write, the next pass must see its result, although the watch may be behind: the answer
//! of the API server goes into the mirror ([`Mirror::wrote`]), which then ignores older events.
use std::{borrow::Borrow, collections::BTreeMap, mem};

use kube::{core::ObjectMeta, runtime::watcher::Event};

/// Returns the version of an object. Versions are compared as numbers, as Kubernetes allows since
/// 1.35; one that is not a number counts as oldest, so that data from the watch wins.
#[must_use]
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}

/// An object of a watch, reduced to the stored facts.
#[derive(Clone, Debug)]
pub struct Reduced<K, V> {
    /// Identifies the object within its mirror.
    pub key: K,
    /// Its version.
    pub version: u64,
    /// The facts about it; `None` for an object that is ignored.
    pub facts: Option<V>,
}

impl<K, V> Reduced<K, V> {
    /// Creates an object with this metadata.
    #[must_use]
    pub fn new(key: K, metadata: &ObjectMeta, facts: Option<V>) -> Self {
        Self { key, version: version(metadata), facts }
    }
}

struct Known<V> {
    version: u64,
    /// True for the answer to a write of ours that the watch has not delivered yet.
    ours: bool,
    facts: V,
}

/// The known objects, by key.
pub struct Mirror<K, V> {
    known: BTreeMap<K, Known<V>>,
    /// The objects of a list that is not complete yet.
    listing: BTreeMap<K, Known<V>>,
    /// The version of the last object that went: an older event about an unknown one is outdated.
    deleted: u64,
    synced: bool,
}

impl<K, V> Default for Mirror<K, V> {
    fn default() -> Self {
        let (known, listing) = (BTreeMap::new(), BTreeMap::new());
        Self { known, listing, deleted: 0, synced: false }
    }
}

impl<K: Ord, V> Mirror<K, V> {
    /// Takes one event of the watch; returns the facts about objects that are gone with it.
    pub fn apply(&mut self, event: Event<Reduced<K, V>>) -> Vec<V> {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(Reduced { key, version, facts: Some(facts) }) => {
                self.listing.insert(key, Known { version, ours: false, facts });
            }
            Event::InitDone => return self.listed(),
            Event::Apply(Reduced { key, version, facts: Some(facts) }) => {
                self.put(key, Known { version, ours: false, facts });
            }
            // An object that is ignored from now on is gone, or its last facts would stay for ever.
            Event::Delete(Reduced { key, version, .. })
            | Event::Apply(Reduced { key, version, facts: None })
                if !self.is_outdated(&key, version) =>
            {
                self.deleted = self.deleted.max(version);
                return self.remove(&key).into_iter().collect();
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
        vec![]
    }

    /// Takes the answer to a write of ours.
    pub fn wrote(&mut self, key: K, version: u64, facts: V) {
        self.put(key, Known { version, ours: true, facts });
    }

    /// Removes an object: the answer to a deletion of ours.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.known.remove(key).map(|known| known.facts)
    }

    /// Returns the facts about an object.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.known.get(key).map(|known| &known.facts)
    }

    /// The known objects, by key.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.known.iter().map(|(key, known)| (key, &known.facts))
    }

    /// Reports whether a list has been completed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    fn put(&mut self, key: K, new: Known<V>) {
        if !self.is_outdated(&key, new.version) {
            self.known.insert(key, new);
        }
    }

    fn is_outdated(&self, key: &K, version: u64) -> bool {
        version < self.known.get(key).map_or(self.deleted, |known| known.version)
    }

    /// Replaces the known objects by the listed ones, regardless of their versions: those of a
    /// restored etcd are older. Only a write of ours may be newer than the list.
    fn listed(&mut self) -> Vec<V> {
        let mut listed = mem::take(&mut self.listing);
        let mut gone = Vec::new();
        for (key, old) in mem::take(&mut self.known) {
            match listed.get_mut(&key) {
                Some(new) if old.ours && old.version > new.version => *new = old,
                Some(_) => {}
                None => gone.push(old.facts),
            }
        }
        (self.known, self.deleted, self.synced) = (listed, 0, true);
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    type Numbers = Mirror<u8, u64>;

    /// An object whose content is its version.
    fn object(key: u8, version: u64) -> Reduced<u8, u64> {
        Reduced { key, version, facts: Some(version) }
    }

    fn known(mirror: &Numbers) -> Vec<(u8, u64)> {
        mirror.iter().map(|(key, facts)| (*key, *facts)).collect()
    }

    fn lists(mirror: &mut Numbers, objects: &[(u8, u64)]) -> Vec<u64> {
        mirror.apply(Event::Init);
        for (key, version) in objects {
            mirror.apply(Event::InitApply(object(*key, *version)));
        }
        mirror.apply(Event::InitDone)
    }

    #[test]
    fn a_list_replaces_what_was_known_and_no_newer_write_of_ours() {
        let mut mirror = Numbers::default();
        assert!(!mirror.is_synced());
        assert!(lists(&mut mirror, &[(1, 11), (2, 12), (3, 13)]).is_empty());
        assert!(mirror.is_synced());
        mirror.wrote(2, 14, 14);
        assert_eq!(lists(&mut mirror, &[(2, 12), (3, 13)]), [11]);
        assert_eq!(known(&mirror), [(2, 14), (3, 13)]);
        // A restored etcd counts from an earlier number.
        mirror.apply(Event::Apply(object(2, 14)));
        assert!(lists(&mut mirror, &[(2, 4), (3, 3)]).is_empty());
        mirror.apply(Event::Apply(object(3, 5)));
        assert_eq!(known(&mirror), [(2, 4), (3, 5)]);
    }

    #[test]
    fn an_event_from_before_a_write_or_a_deletion_is_ignored() {
        let mut mirror = Numbers::default();
        mirror.wrote(1, 20, 20);
        mirror.apply(Event::Apply(object(1, 19)));
        assert!(mirror.apply(Event::Delete(object(1, 18))).is_empty());
        mirror.wrote(1, 17, 17);
        assert_eq!(known(&mirror), [(1, 20)]);
        assert_eq!(mirror.apply(Event::Delete(object(1, 21))), [20]);
        // The answer to a write arrives after the deletion that followed it.
        mirror.wrote(1, 20, 20);
        mirror.apply(Event::Apply(object(1, 20)));
        assert!(known(&mirror).is_empty());
    }

    #[test]
    fn an_object_that_is_ignored_can_still_be_deleted() {
        let ignored = |version| Reduced { facts: None, ..object(1, version) };
        let mut mirror = Numbers::default();
        mirror.apply(Event::Apply(ignored(1)));
        assert!(known(&mirror).is_empty());
        mirror.apply(Event::Apply(object(1, 2)));
        mirror.apply(Event::Delete(ignored(3)));
        assert!(known(&mirror).is_empty());
    }

    #[test]
    fn an_object_that_is_ignored_from_now_on_is_gone() {
        let ignored = |version| Reduced { facts: None, ..object(1, version) };
        let mut mirror = Numbers::default();
        mirror.wrote(1, 5, 5);
        assert!(mirror.apply(Event::Apply(ignored(4))).is_empty(), "from before our write");
        assert_eq!(known(&mirror), [(1, 5)]);
        assert_eq!(mirror.apply(Event::Apply(ignored(9))), [5]);
        assert!(known(&mirror).is_empty());
        // The answer to a write arrives after the edit that followed it.
        mirror.wrote(1, 8, 8);
        assert!(known(&mirror).is_empty());
        mirror.apply(Event::Apply(object(1, 10)));
        assert_eq!(known(&mirror), [(1, 10)]);
    }

    /// An API server with delayed events and answers.
    #[derive(Default)]
    struct Cluster {
        version: u64,
        objects: BTreeMap<u8, u64>,
        events: VecDeque<Event<Reduced<u8, u64>>>,
        answers: Vec<(u8, u64)>,
        /// The version of the last list.
        listed: u64,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write {
            key: u8,
            ours: bool,
        },
        Delete(u8),
        /// The watch begins again with a list.
        List,
        Event,
        Answer(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..3_u8;
        prop_oneof![
            3 => (key.clone(), any::<bool>()).prop_map(|(key, ours)| Step::Write { key, ours }),
            1 => key.prop_map(Step::Delete),
            1 => Just(Step::List),
            5 => Just(Step::Event),
            2 => (0..9_usize).prop_map(Step::Answer),
        ]
    }

    impl Cluster {
        fn take(&mut self, step: Step, mirror: &mut Numbers) {
            match step {
                Step::Write { key, ours } => {
                    self.version += 1;
                    self.objects.insert(key, self.version);
                    self.events.push_back(Event::Apply(object(key, self.version)));
                    self.answers.extend(ours.then_some((key, self.version)));
                }
                Step::Delete(key) => {
                    if self.objects.remove(&key).is_some() {
                        self.version += 1;
                        self.events.push_back(Event::Delete(object(key, self.version)));
                    }
                }
                Step::List => {
                    let objects = self.objects.iter();
                    let objects = objects.map(|(key, at)| Event::InitApply(object(*key, *at)));
                    let events = [Event::Init].into_iter().chain(objects);
                    self.events = events.chain([Event::InitDone]).collect();
                    self.listed = self.version;
                }
                Step::Event => {
                    let Some(event) = self.events.pop_front() else { return };
                    if matches!(event, Event::InitDone) {
                        // No answer takes longer than a list that is requested later.
                        let listed = self.listed;
                        self.answer(mirror, |version| version <= listed);
                    }
                    mirror.apply(event);
                }
                Step::Answer(place) => {
                    let place = place % self.answers.len().max(1);
                    let chosen = self.answers.get(place).map(|(_, version)| *version);
                    self.answer(mirror, |version| Some(version) == chosen);
                }
            }
        }

        fn answer(&mut self, mirror: &mut Numbers, comes: impl Fn(u64) -> bool) {
            for (key, version) in self.answers.extract_if(.., |(_, version)| comes(*version)) {
                mirror.wrote(key, version, version);
            }
        }
    }

    proptest! {
        #[test]
        fn in_any_order_of_events_and_own_writes_the_newest_wins(
            steps in prop::collection::vec(step(), 0..60),
            answers_first in any::<bool>(),
        ) {
            let (mut cluster, mut mirror) = (Cluster::default(), Numbers::default());
            for step in steps {
                let before: BTreeMap<_, _> = known(&mirror).into_iter().collect();
                cluster.take(step, &mut mirror);
                for (key, version) in known(&mirror) {
                    prop_assert!(before.get(&key).is_none_or(|old| *old <= version), "back");
                }
            }
            if answers_first {
                cluster.answer(&mut mirror, |_| true);
            }
            while !cluster.events.is_empty() {
                cluster.take(Step::Event, &mut mirror);
            }
            cluster.answer(&mut mirror, |_| true);
            prop_assert_eq!(known(&mirror), cluster.objects.into_iter().collect::<Vec<_>>());
        }
    }
}
