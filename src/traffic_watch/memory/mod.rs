//! The memory of a `TrafficWatch`, with what metrics and the status page show.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{children::Applied, evidence::Evaluation, retries::FailedWrites};
use crate::{
    api::traffic_watch::{Consecutive, Mode, NodeState},
    controller::{self, Error},
};

mod object;

pub use object::{MeasureState, Memory, NodeMemory, NodeTable, Reason, Sample, Streak};

/// A node entered a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transition {
    /// The time of the judgment, in Unix seconds.
    pub at: i64,
    /// Name of the node.
    pub node: Arc<str>,
    /// The state it left.
    pub from: NodeState,
    /// The state it entered.
    pub to: NodeState,
    /// The reason: `Measured`, a name of `NoEvidence`, `LimitReached`, or the measure that judges
    /// it unfit.
    pub reason: Arc<str>,
}

/// The memories of all `TrafficWatch`es.
pub type Memories = controller::Memories<Entry>;

/// The time for which transitions are kept for display.
pub(super) const HISTORY_SECONDS: i64 = 3600;

/// Maximum number of stored transitions of one object: a mass flip shows in the states.
const HISTORY: usize = 200;

/// The memory of one object.
#[derive(Default)]
pub struct Entry {
    pub(super) memory: Arc<Memory>,
    pub(super) facts: Facts,
    pub(super) counters: Arc<Counters>,
    /// The youngest last.
    pub(super) history: VecDeque<Transition>,
    /// Nodes whose offer could not be written. Not in the memory of judgments, which a pause drops:
    /// a paused object still takes its resource away.
    pub(super) failed_offers: Arc<FailedWrites>,
}

/// The counters of an object since this process started to lead. Shared with a scrape that is under
/// way, and copied only when something is counted meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) transitions: BTreeMap<(NodeState, Arc<str>), u64>,
    pub(super) evaluations: BTreeMap<&'static str, u64>,
    pub(super) evictions: BTreeMap<&'static str, u64>,
    pub(super) offers: BTreeMap<&'static str, u64>,
}

/// The known facts about an object besides its judgment.
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

impl Entry {
    /// Remembers what one pass decided.
    pub(super) fn decided(&mut self, decided: Decided) {
        self.memory = Arc::new(decided.memory);
        self.facts = decided.facts;
        for transition in decided.transitions {
            let key = (transition.to, Arc::clone(&transition.reason));
            *Arc::make_mut(&mut self.counters).transitions.entry(key).or_default() += 1;
            self.remember(transition);
        }
        if let Some(evaluation) = decided.evaluation {
            let counters = Arc::make_mut(&mut self.counters);
            *counters.evaluations.entry(evaluation.as_str()).or_default() += 1;
        }
    }

    /// Counts one eviction by its result; `refused` is the time of a refusal, if there was one.
    pub(super) fn evicted(&mut self, result: &'static str, refused: Option<Timestamp>) {
        *Arc::make_mut(&mut self.counters).evictions.entry(result).or_default() += 1;
        if refused.is_some() {
            Arc::make_mut(&mut self.memory).refused = refused;
        }
    }

    /// Remembers which nodes could not be written, so that they are tried again later.
    pub(super) fn wrote(
        &mut self,
        results: &[(Arc<str>, std::result::Result<(), Error>)],
        now: Timestamp,
    ) {
        if self.memory.failed.is_empty() && results.iter().all(|(_, result)| result.is_ok()) {
            return;
        }
        let memory = Arc::make_mut(&mut self.memory);
        let failed = Arc::make_mut(&mut memory.failed);
        for (node, result) in results {
            failed.take(node, result.as_ref().err().map(Error::verdict), now);
        }
        // A node that left is not written any more.
        let nodes = &memory.nodes;
        let tried = |node: &str| results.iter().any(|(written, _)| **written == *node);
        failed.retain(|node| nodes.get(node).is_some() || tried(node));
    }

    /// Counts writes of what nodes offer, and remembers which of them failed.
    pub(super) fn offered(
        &mut self,
        results: &[(Arc<str>, std::result::Result<(), Error>)],
        now: Timestamp,
    ) {
        for (_, result) in results {
            let result = if result.is_ok() { "written" } else { "failed" };
            *Arc::make_mut(&mut self.counters).offers.entry(result).or_default() += 1;
        }
        if self.failed_offers.is_empty() && results.iter().all(|(_, result)| result.is_ok()) {
            return;
        }
        let failed = Arc::make_mut(&mut self.failed_offers);
        for (node, result) in results {
            failed.take(node, result.as_ref().err().map(Error::verdict), now);
        }
    }

    /// Remembers the result for the Deployment; returns whether that is new.
    pub(super) fn applied(&mut self, applied: Applied) -> bool {
        let known = self.memory.applied.as_ref();
        let news = known
            .is_none_or(|known| (known.hash, &known.outcome) != (applied.hash, &applied.outcome));
        Arc::make_mut(&mut self.memory).applied = Some(applied);
        news
    }

    /// Drops what was decided: its series must not look as if it were judged. The counters
    /// and the object itself stay.
    pub(super) fn pause(&mut self, facts: Facts) {
        self.memory = Arc::default();
        self.facts = facts;
    }

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
