//! What every node is: from evidence through hysteresis and the breaker to a state.
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{
    claims::Claim,
    evidence::{Evidence, NoEvidence},
    limits::{self, Candidate},
    memory::{Memory, NodeMemory, Sample, Streak},
    reading::Reading,
    settings::Settings,
};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState, Summary},
    },
    nodes::NodeFacts,
    prometheus::QueryError,
};

/// What was read before deciding.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When.
    pub now: Timestamp,
    /// Which tick of the interval this is: one tick is one judgement, however many passes it has.
    pub tick: u64,
    /// The judged nodes, by name.
    pub nodes: Vec<NodeFacts>,
    /// Nodes that carry a key of ours they should not: it is not theirs any more.
    pub stray: Vec<Stray>,
    /// What Prometheus says; `None` if it was not asked, because nothing may be decided.
    pub reading: Option<Result<Arc<Reading>, QueryError>>,
    /// What the last pass remembered.
    pub memory: Arc<Memory>,
    /// Whether the node label is ours to write.
    pub claim: Claim,
    /// The Deployment as it is, by UID and generation.
    pub deployment: Option<(String, i64)>,
}

/// A node with a label that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The node.
    pub node: Arc<str>,
    /// The label's key.
    pub key: String,
}

/// A node entered a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transition {
    /// The state.
    pub to: NodeState,
    /// Why.
    pub reason: &'static str,
}

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Nodes were judged.
    Ok,
    /// Too few nodes had data.
    LowCoverage,
    /// The request failed.
    Failed,
}

impl Evaluation {
    /// The metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LowCoverage => "low_coverage",
            Self::Failed => "failed",
        }
    }
}

/// What changed about one node.
#[derive(Debug)]
pub(super) struct Change {
    /// Its place in `seen.nodes`.
    pub(super) node: usize,
    /// The state it entered.
    pub(super) transition: Option<Transition>,
    /// Whether it is marked unfit now and was not, or the other way round.
    pub(super) flip: Option<bool>,
}

/// One judgement in the making.
pub(super) struct Judgement<'a> {
    pub(super) watch: &'a TrafficWatch,
    pub(super) seen: &'a Observed,
    pub(super) settings: &'a Settings,
    /// What is proved about each node, in the order of `seen.nodes`.
    pub(super) evidence: Vec<Result<Evidence, NoEvidence>>,
    pub(super) nodes: Vec<NodeMemory>,
    /// The marks as they were before this judgement.
    before: Vec<Option<bool>>,
    pub(super) evaluation: Evaluation,
    pub(super) summary: Summary,
    pub(super) changes: Vec<Change>,
}

impl<'a> Judgement<'a> {
    /// Judges every node.
    pub(super) fn of(watch: &'a TrafficWatch, seen: &'a Observed, settings: &'a Settings) -> Self {
        let (evidence, evaluation) = gather(seen, settings);
        let nodes: Vec<_> = seen.nodes.iter().map(|node| remember(watch, seen, node)).collect();
        let mut judgement = Self {
            before: nodes.iter().map(|node| node.marked).collect(),
            watch,
            seen,
            settings,
            evidence,
            nodes,
            evaluation,
            summary: Summary::default(),
            changes: Vec::new(),
        };
        judgement.apply_hysteresis();
        judgement.limit();
        judgement.settle();
        judgement
    }

    /// Whether this pass is the first of its tick: only that one counts as a judgement.
    pub(super) fn is_new(&self) -> bool {
        self.seen.memory.tick != Some(self.seen.tick)
    }

    /// Hysteresis: streaks, and what they make of each node.
    fn apply_hysteresis(&mut self) {
        if !self.is_new() {
            return;
        }
        for (node, evidence) in self.nodes.iter_mut().zip(&self.evidence) {
            // Missing evidence neither advances nor resets a streak.
            let Ok(evidence) = evidence else { continue };
            let unfit = self.settings.is_unfit(evidence.percent, node.judged);
            if node.judged == Some(unfit) {
                node.against = Streak::default();
                continue;
            }
            node.against = node.against.with(unfit);
            if node.against.count >= self.settings.needed(unfit) {
                node.judged = Some(unfit);
                node.against = Streak::default();
            }
        }
    }

    /// The breaker: which of the nodes that are judged unfit are marked so.
    fn limit(&mut self) {
        let candidates = self.seen.nodes.iter().zip(&self.nodes).zip(&self.evidence);
        let candidates: Vec<_> = candidates
            .map(|((facts, node), evidence)| Candidate {
                name: &facts.name,
                judged: node.judged,
                marked: node.marked,
                percent: evidence.as_ref().ok().map(|e| e.percent),
            })
            .collect();
        let marks = limits::mark(&candidates);
        for (node, mark) in self.nodes.iter_mut().zip(marks) {
            node.marked = mark;
        }
    }

    /// States, their reasons, and what changed.
    fn settle(&mut self) {
        let seconds = self.seen.now.as_second();
        let all = self.seen.nodes.iter().zip(&mut self.nodes).zip(&self.evidence).zip(&self.before);
        for (i, (((facts, node), evidence), mark)) in all.enumerate() {
            let (state, reason) = match (evidence, node.judged, node.marked) {
                (Err(why), _, _) => (NodeState::Unknown, Some(why.reason())),
                (Ok(_), Some(true), Some(true)) => (NodeState::Unfit, None),
                (Ok(_), Some(true), _) => (NodeState::Suppressed, Some("LimitReached")),
                // Not judged yet, and nothing speaks against it.
                (Ok(_), _, _) => (NodeState::Fit, None),
            };
            if let Ok(evidence) = evidence {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "counters are below 2^63 and age below a day; `as` saturates"
                )]
                let (total, age) = (evidence.total.unwrap_or(0.0) as i64, evidence.age as i64);
                node.last = Some(Sample {
                    percent: evidence.percent,
                    total,
                    time: seconds - age,
                    device: evidence.device.clone(),
                });
            }
            node.age = evidence.as_ref().ok().map(|e| e.age);
            let before = self.seen.memory.nodes.get(&facts.name).map(|old| old.state);
            if node.state != state {
                node.since = self.seen.now;
            }
            let transition = before
                .filter(|before| *before != state)
                .map(|_| Transition { to: state, reason: reason.unwrap_or("Measured") });
            // A node that is found fit at first is no news.
            let flip = match (mark, node.marked) {
                (Some(false) | None, Some(true)) => Some(true),
                (Some(true), Some(false)) => Some(false),
                _ => None,
            };
            if transition.is_some() || flip.is_some() {
                self.changes.push(Change { node: i, transition, flip });
            }
            (node.state, node.reason) = (state, reason);
            self.summary.nodes += 1;
            match state {
                NodeState::Fit => self.summary.fit += 1,
                NodeState::Unfit => self.summary.unfit += 1,
                NodeState::Unknown => self.summary.unknown += 1,
                NodeState::Suppressed => self.summary.suppressed += 1,
            }
        }
    }
}

/// What is proved about each node, and what became of the measurement.
fn gather(seen: &Observed, settings: &Settings) -> (Vec<Result<Evidence, NoEvidence>>, Evaluation) {
    let none = |why| seen.nodes.iter().map(|_| Err(why)).collect();
    let Some(Ok(reading)) = &seen.reading else {
        return (none(NoEvidence::MetricsUnavailable), Evaluation::Failed);
    };
    let with_data = seen
        .nodes
        .iter()
        .filter_map(|facts| reading.get(&facts.name))
        .filter(|node| settings.rules.has_data(node))
        .count();
    if with_data * 2 < seen.nodes.len() {
        return (none(NoEvidence::LowCoverage), Evaluation::LowCoverage);
    }
    let evidence = seen
        .nodes
        .iter()
        .map(|facts| settings.rules.evidence(reading.get(&facts.name), settings.capacity(facts)));
    (evidence.collect(), Evaluation::Ok)
}

/// A node as the last pass left it; after a restart, as label and status tell.
fn remember(watch: &TrafficWatch, seen: &Observed, facts: &NodeFacts) -> NodeMemory {
    if let Some(known) = seen.memory.nodes.get(&facts.name) {
        return known.clone();
    }
    let told = watch.status.as_ref().and_then(|status| status.nodes.get(&*facts.name));
    let label = match (facts.label.as_deref(), watch.spec.mode) {
        (Some("true"), Mode::Enforce) => Some(true),
        (Some("false"), Mode::Enforce) => Some(false),
        // Observe writes no label: the status is its memory.
        (_, Mode::Observe) => {
            told.filter(|t| t.state != Some(NodeState::Unknown) || t.unfit).map(|t| t.unfit)
        }
        _ => None,
    };
    NodeMemory::from_status(told, label, seen.now)
}
