//! The memory of a `TrafficWatch` between two judgments, with what metrics and the status page show.
//!
//! The API server also has everything in it that decides: after a restart, the labels show which
//! nodes are unfit, the status shows since when, and streaks begin at zero.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    children::Applied,
    evidence::{Evaluation, Unit},
    reading::NoEvidence,
    reservation,
    retries::FailedWrites,
    settings::Criterion,
};
use crate::{
    api::traffic_watch::{Consecutive, Mode, NodeState, NodeStatus, Summary},
    controller::{self, Error},
    nodes::{SortedCursor, is_same},
};

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

/// One `TrafficWatch`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The last tick whose measurement was judged.
    pub tick: Option<u64>,
    /// The memory of each node.
    pub nodes: NodeTable,
    /// True if the marks in it are those of mode Observe, which no label has.
    pub observes: bool,
    /// The measures with their thresholds.
    pub criteria: Arc<[Criterion]>,
    /// Why a measure had no answer, in the order of the criteria.
    pub problems: Vec<Option<String>>,
    /// The number of nodes that may be marked unfit.
    pub limit: usize,
    /// The number of nodes that can take the pods in question.
    pub room: usize,
    /// Number of these without a mark.
    pub unmarked_room: usize,
    /// Number of nodes that are unmarked only because of the operator-wide ceiling.
    pub above_ceiling: usize,
    /// Number of these that can take ordinary pods.
    pub above_ceiling_open: usize,
    /// Nodes whose last write failed, and when each is tried again.
    pub failed: Arc<FailedWrites>,
    /// For how many judgments in a row the window has held too few scrapes.
    pub short_window: u32,
    /// The number of nodes in each state.
    pub summary: Summary,
    /// The time of the last successful measurement.
    pub last_success: Option<Timestamp>,
    /// The time since which this process has seen no evidence, or not of every measure.
    pub blind_since: Option<Timestamp>,
    /// The Deployment as it was last applied.
    pub applied: Option<Applied>,
    /// The time at which the values in the status were last refreshed.
    pub refreshed: Option<Timestamp>,
    /// The time at which only the text of a condition last changed.
    pub reworded: Option<Timestamp>,
    /// The time at which an eviction was last refused.
    pub refused: Option<Timestamp>,
    /// The offer of each node to pods.
    pub reservation: Option<Arc<reservation::Memory>>,
}

/// Nodes by name: a sorted list, because a hash table of 5,000 nodes for each of 100 objects is
/// half empty space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTable {
    /// Shared with the table of the next judgment, mostly.
    names: Arc<[Arc<str>]>,
    /// In the order of the names.
    nodes: Box<[NodeMemory]>,
}

impl NodeTable {
    /// A table of nodes that are sorted by name.
    pub fn sorted(names: impl Iterator<Item = Arc<str>>, nodes: Vec<NodeMemory>) -> Self {
        let names: Arc<[_]> = names.collect();
        debug_assert!(names.is_sorted_by(|a, b| a < b), "sorted by name");
        debug_assert_eq!(names.len(), nodes.len(), "one name for each");
        Self { names, nodes: nodes.into() }
    }

    /// The table that follows this one, of nodes that are sorted by name.
    #[must_use]
    pub fn next<'a>(
        &self,
        names: impl Iterator<Item = &'a Arc<str>> + Clone,
        nodes: Vec<NodeMemory>,
    ) -> Self {
        let same = || self.names.iter().zip(names.clone()).all(|(old, new)| is_same(old, new));
        if self.names.len() == nodes.len() && same() {
            return Self { names: Arc::clone(&self.names), nodes: nodes.into() };
        }
        Self::sorted(names.cloned(), nodes)
    }

    /// One node.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&NodeMemory> {
        let place = self.names.binary_search_by(|known| (**known).cmp(name)).ok()?;
        self.nodes.get(place)
    }

    /// The same for one node after the other, by name.
    pub fn in_turn<'a>(&'a self) -> impl FnMut(&Arc<str>) -> Option<&'a NodeMemory> {
        let mut cursor = SortedCursor::default();
        move |name| {
            let place = cursor.find(&self.names, |known| known, name)?;
            self.nodes.get(place)
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &NodeMemory)> {
        self.names.iter().zip(&self.nodes)
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMemory {
    /// The state of the first measure.
    first: MeasureState,
    /// The states of the other measures: most objects have one measure, and need no allocation for
    /// this.
    more: Box<[MeasureState]>,
    /// The mark after the limits: the value of the label.
    pub marked: Option<bool>,
    /// The state shown.
    pub state: NodeState,
    /// Why it is Unknown or Suppressed.
    pub reason: Option<Reason>,
    /// The time since which it has this state.
    pub since: Timestamp,
    /// Milliseconds for which evidence about this node has been missing while others had it.
    pub unknown_ms: u32,
    /// The hash of the node's UID: another node of the same name starts from scratch.
    pub uid: u64,
}

/// The state of one measure for one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasureState {
    /// The verdict after hysteresis: unfit or not; `None` until the first judgment.
    pub judged: Option<bool>,
    /// Judgments in a row that contradict `judged`.
    pub against: Streak,
    /// The last measured value.
    pub last: Option<Sample>,
    /// Why this judgment had no evidence, if it had none.
    pub missing: Option<NoEvidence>,
    /// The time at which the sample that was judged last was scraped, in Unix seconds; 0 if it is
    /// not known.
    pub scraped: f64,
}

impl MeasureState {
    /// Returns the age of the sample in seconds, if this judgment had one of known age.
    #[must_use]
    pub fn age(&self) -> Option<f64> {
        let sample = self.last.as_ref().filter(|_| self.missing.is_none())?;
        (!sample.age.is_nan()).then_some(sample.age)
    }
}

/// Why a node is Unknown or Suppressed. The words appear in status, metrics and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no evidence about it.
    NoEvidence(NoEvidence),
    /// As many nodes are marked as the limits of the object allow.
    LimitReached,
    /// As many nodes are marked as the operator-wide ceiling allows.
    OperatorLimitReached,
}

impl Reason {
    /// The reason in status, metrics and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEvidence(why) => why.reason(),
            Self::LimitReached => "LimitReached",
            Self::OperatorLimitReached => "OperatorLimitReached",
        }
    }
}

impl NodeMemory {
    /// Restores a node from its status and label, for the first pass after a restart.
    #[must_use]
    pub fn from_status(
        criteria: &[Criterion],
        reported: Option<&NodeStatus>,
        label: Option<bool>,
        uid: u64,
        now: Timestamp,
    ) -> Self {
        let side = |criterion: &Criterion| MeasureState {
            judged: restored(criterion, reported, label),
            last: reported.and_then(|reported| Sample::reported(criterion, reported)),
            ..MeasureState::default()
        };
        let mut node = Self {
            first: criteria.first().map(side).unwrap_or_default(),
            more: criteria.iter().skip(1).map(side).collect(),
            marked: label,
            state: reported.and_then(|t| t.state).unwrap_or(NodeState::Unknown),
            reason: None,
            since: reported.and_then(|t| t.since.as_ref()).map_or(now, |since| since.0),
            unknown_ms: reported.map_or(0, |t| t.unknown_seconds.saturating_mul(1000)),
            uid,
        };
        // The label is the durable record: a node that it marks is unfit by some measure.
        if label == Some(true) && node.judged() == Some(false) {
            node.sides_mut().for_each(|side| side.judged = Some(true));
        }
        node
    }

    /// Returns the same node after the measures changed: those that stayed keep their results.
    #[must_use]
    pub fn with_criteria(self, old: &[Criterion], new: &[Criterion]) -> Self {
        let side = |criterion: &Criterion| {
            let place = old.iter().position(|old| old.name == criterion.name);
            place.and_then(|place| self.sides().nth(place)).cloned().unwrap_or_default()
        };
        let first = new.first().map(side).unwrap_or_default();
        let more = new.iter().skip(1).map(side).collect();
        Self { first, more, ..self }
    }

    /// Returns the state of each measure, in the order of the criteria.
    pub fn sides(&self) -> impl Iterator<Item = &MeasureState> + Clone {
        std::iter::once(&self.first).chain(&*self.more)
    }

    /// Returns the same by mutable reference.
    pub fn sides_mut(&mut self) -> impl Iterator<Item = &mut MeasureState> {
        std::iter::once(&mut self.first).chain(&mut *self.more)
    }

    /// Combines the verdicts of all measures: unfit if any is unfit, fit if all are fit, otherwise
    /// none yet.
    #[must_use]
    pub fn judged(&self) -> Option<bool> {
        if self.sides().any(|side| side.judged == Some(true)) {
            return Some(true);
        }
        self.sides().all(|side| side.judged == Some(false)).then_some(false)
    }

    /// The age of the oldest sample of known age.
    #[must_use]
    pub fn age(&self) -> Option<f64> {
        self.sides().filter_map(MeasureState::age).max_by(f64::total_cmp)
    }
}

/// Restores the state of a measure from before the restart.
///
/// The label only has their combined result; the status has each of them, as long as it speaks of
/// the same label. If it does not contain the node, each measure is assumed to agree with the
/// label, so that an unfit node stays unfit until all of them found it fit. A measure that the
/// status of the node does not name was never judged.
fn restored(
    criterion: &Criterion,
    reported: Option<&NodeStatus>,
    label: Option<bool>,
) -> Option<bool> {
    let label = label?;
    let Some(reported) = reported.filter(|reported| reported.unfit == label) else {
        return Some(label);
    };
    if let Some(own) = reported.criteria.iter().find(|c| c.name == *criterion.name) {
        return own.unfit;
    }
    // The percentage alone is not listed.
    (reported.criteria.is_empty() && criterion.is_bandwidth())
        .then_some(label || reported.state == Some(NodeState::Suppressed))
}

/// Judgments in a row for one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    /// The side: unfit or not.
    pub unfit: bool,
    /// Number of transitions.
    pub count: u32,
}

impl Streak {
    /// One more judgment for a side.
    #[must_use]
    pub fn with(self, unfit: bool) -> Self {
        let count = if self.unfit == unfit { self.count.saturating_add(1) } else { 1 };
        Self { unfit, count }
    }
}

/// The measurement of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// In the measure's unit.
    pub value: f64,
    /// Percent of capacity; `NaN` if it is not known.
    pub percent: f64,
    /// Bytes sent since the counters began.
    pub total: i64,
    /// The time of the sample, in Unix seconds.
    pub time: i64,
    /// Its age when it was judged, in seconds; `NaN` if it is not known.
    pub age: f64,
    /// The busiest link.
    pub device: Option<Arc<str>>,
}

impl Sample {
    /// Returns the last sample of a measure from the status.
    fn reported(criterion: &Criterion, reported: &NodeStatus) -> Option<Self> {
        let finite = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
        let percent = finite(&reported.current_bandwidth_percent);
        let own = reported.criteria.iter().find(|c| c.name == *criterion.name);
        let value = match own {
            Some(own) => finite(own.value.as_deref()?),
            None if criterion.rules.unit == Unit::Percent => percent,
            None => None,
        };
        (reported.time > 0).then_some(Self {
            value: value?,
            percent: percent.filter(|_| criterion.is_bandwidth()).unwrap_or(f64::NAN),
            total: reported.current_transmit_total,
            time: reported.time,
            age: f64::NAN,
            device: reported.device.as_deref().map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_counts_one_side_only() {
        let streak = Streak::default().with(true).with(true);
        assert_eq!(streak, Streak { unfit: true, count: 2 });
        assert_eq!(streak.with(false), Streak { unfit: false, count: 1 });
    }

    #[test]
    fn only_a_judgment_with_evidence_of_known_age_has_an_age() {
        let sample =
            |age| Sample { value: 1.0, percent: 1.0, total: 0, time: 1, age, device: None };
        let side = |age, missing| MeasureState {
            last: Some(sample(age)),
            missing,
            ..MeasureState::default()
        };
        assert_eq!(side(3.2, None).age(), Some(3.2));
        assert_eq!(side(f64::NAN, None).age(), None);
        assert_eq!(side(3.2, Some(NoEvidence::NoSample)).age(), None);
        assert_eq!(MeasureState::default().age(), None);
    }
}
