//! The memories of all `TrafficWatch`es.
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{children::Applied, findings::Evaluation, judgement::Transition};
use crate::{
    api::traffic_watch::{Consecutive, Mode, NodeState},
    controller::Error,
};

mod object;

pub use object::{Memory, NodeMemory, NodeTable, Sample, Side, Streak};

/// By namespace and name; clones share it.
#[derive(Clone, Default)]
pub struct Decisions(Arc<Mutex<BTreeMap<Key, Entry>>>);

pub(super) type Key = (String, String);

/// The time for which transitions are kept for display.
pub(super) const HISTORY_SECONDS: i64 = 3600;

/// Maximum number of stored transitions of one object: a mass flip shows in the states.
const HISTORY: usize = 200;

/// The memory of one object.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) memory: Arc<Memory>,
    pub(super) facts: Facts,
    pub(super) counters: Arc<Counters>,
    /// The youngest last.
    pub(super) history: VecDeque<Transition>,
}

/// The counters of an object since this process started to lead. Shared with a scrape that is under
/// way, and copied only when something is counted meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) transitions: BTreeMap<(NodeState, Arc<str>), u64>,
    pub(super) evaluations: BTreeMap<&'static str, u64>,
    pub(super) evictions: BTreeMap<&'static str, u64>,
}

/// The known facts about an object besides its judgement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) label: String,
    pub(super) mode: Mode,
    pub(super) paused: bool,
    pub(super) interval: Duration,
    pub(super) consecutive: Consecutive,
    /// Replicas of the Deployment: wanted and available.
    pub(super) replicas: Option<(i32, i32)>,
}

/// The decisions of one pass.
pub struct Decided {
    pub(super) memory: Memory,
    pub(super) facts: Facts,
    pub(super) transitions: Vec<Transition>,
    pub(super) evaluation: Option<Evaluation>,
}

impl Decisions {
    /// Returns the memory of one object.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Arc<Memory> {
        let entries = self.entries();
        let entry = entries.get(&(namespace.to_owned(), name.to_owned()));
        entry.map(|entry| Arc::clone(&entry.memory)).unwrap_or_default()
    }

    /// Remembers what one pass decided.
    pub fn put(&self, (namespace, name): (&str, &str), decided: Decided) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        entry.memory = Arc::new(decided.memory);
        entry.facts = decided.facts;
        for transition in decided.transitions {
            let key = (transition.to, Arc::clone(&transition.reason));
            *Arc::make_mut(&mut entry.counters).transitions.entry(key).or_default() += 1;
            entry.remember(transition);
        }
        if let Some(evaluation) = decided.evaluation {
            let counters = Arc::make_mut(&mut entry.counters);
            *counters.evaluations.entry(evaluation.as_str()).or_default() += 1;
        }
    }

    /// Counts one eviction by its result; `refused` is the time of a refusal, if there was one.
    pub fn evicted(
        &self,
        namespace: &str,
        name: &str,
        result: &'static str,
        refused: Option<Timestamp>,
    ) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        *Arc::make_mut(&mut entry.counters).evictions.entry(result).or_default() += 1;
        if refused.is_some() {
            Arc::make_mut(&mut entry.memory).refused = refused;
        }
    }

    /// Remembers which nodes could not be written, so that they are tried again later.
    pub(super) fn wrote(
        &self,
        namespace: &str,
        name: &str,
        results: &[(Arc<str>, std::result::Result<(), Error>)],
        now: Timestamp,
    ) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        if entry.memory.failed.is_empty() && results.iter().all(|(_, result)| result.is_ok()) {
            return;
        }
        let memory = Arc::make_mut(&mut entry.memory);
        let failed = Arc::make_mut(&mut memory.failed);
        for (node, result) in results {
            failed.take(node, result.as_ref().err().map(Error::verdict), now);
        }
        // A node that left is not written any more.
        let nodes = &memory.nodes;
        let tried = |node: &str| results.iter().any(|(written, _)| **written == *node);
        failed.retain(|node| nodes.get(node).is_some() || tried(node));
    }

    /// Remembers the result for the Deployment; returns whether that is new.
    #[must_use]
    pub fn applied(&self, namespace: &str, name: &str, applied: Applied) -> bool {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        let known = entry.memory.applied.as_ref();
        let news = known
            .is_none_or(|known| (known.hash, &known.outcome) != (applied.hash, &applied.outcome));
        Arc::make_mut(&mut entry.memory).applied = Some(applied);
        news
    }

    /// Drops what was decided about one object: its series must not look as if it were judged. What
    /// was counted stays, and that it is there.
    pub(super) fn pause(&self, namespace: &str, name: &str, facts: Facts) {
        let mut entries = self.entries();
        let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_default();
        entry.memory = Arc::default();
        entry.facts = facts;
    }

    /// Drops everything about one object, its series included.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.entries().remove(&(namespace.to_owned(), name.to_owned()));
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn remember(&mut self, transition: Transition) {
        let old = transition.at.saturating_sub(HISTORY_SECONDS);
        while self.history.front().is_some_and(|first| first.at < old)
            || self.history.len() >= HISTORY
        {
            self.history.pop_front();
        }
        self.history.push_back(transition);
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions").finish_non_exhaustive()
    }
}
