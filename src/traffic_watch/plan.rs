//! The decision: what every node is, and what must be written for it to be so.
use std::{collections::HashMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{
    children::{self, Child},
    claims::Claim,
    evidence::{Evidence, NoEvidence},
    limits::{self, Candidate},
    memory::{Memory, NodeMemory, Sample, Streak},
    reading::Reading,
    report,
    settings::Settings,
};
use crate::{
    api::{
        TrafficWatch, TrafficWatchStatus,
        traffic_watch::{Mode, NodeState, Summary},
    },
    controller::{Error, Notice, Plan},
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

/// What has to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Node labels to write.
    pub labels: Vec<LabelWrite>,
    /// The Deployment to apply.
    pub deployment: Option<Child>,
    /// What the next pass has to know; `None` keeps what is there.
    pub memory: Option<Memory>,
    /// State changes, to be counted.
    pub transitions: Vec<Transition>,
    /// What became of this tick's measurement, to be counted; `None` if it was counted already.
    pub evaluation: Option<Evaluation>,
}

/// One label of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelWrite {
    /// The node.
    pub node: Arc<str>,
    /// The label's key.
    pub key: String,
    /// Its value; `None` removes it.
    pub value: Option<bool>,
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

type TrafficWatchPlan = Plan<Desired, TrafficWatchStatus>;

pub(super) fn plan(watch: &TrafficWatch, seen: &Observed) -> Result<TrafficWatchPlan, Error> {
    let settings = Settings::of(watch)?;
    let child = children::deployment(watch)?;
    if watch.spec.paused {
        return Ok(report::paused(watch, settings.interval));
    }
    if let Claim::HeldBy(holder) = &seen.claim {
        let key = watch.label_key();
        return Err(Error::Conflict(format!(
            "node label {key} belongs to the older TrafficWatch {holder}; set spec.label to another prefix"
        )));
    }
    let mut judgement = Judgement::new(watch, seen, &settings);
    judgement.judge_all();
    judgement.limit();
    judgement.settle();
    Ok(judgement.finish(child))
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
    notices: Vec<Notice>,
    transitions: Vec<Transition>,
}

impl<'a> Judgement<'a> {
    fn new(watch: &'a TrafficWatch, seen: &'a Observed, settings: &'a Settings) -> Self {
        let (evidence, evaluation) = gather(seen, settings);
        let nodes: Vec<_> = seen.nodes.iter().map(|node| remember(watch, seen, node)).collect();
        Self {
            before: nodes.iter().map(|node| node.marked).collect(),
            watch,
            seen,
            settings,
            evidence,
            nodes,
            evaluation,
            summary: Summary::default(),
            notices: Vec::new(),
            transitions: Vec::new(),
        }
    }

    /// Whether this pass is the first of its tick: only that one counts as a judgement.
    fn is_new(&self) -> bool {
        self.seen.memory.tick != Some(self.seen.tick)
    }

    /// Hysteresis: streaks, and what they make of each node.
    fn judge_all(&mut self) {
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
        for (((facts, node), evidence), before_mark) in all {
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
            if before.is_some_and(|before| before != state) {
                let why = reason.unwrap_or("Measured");
                self.transitions.push(Transition { to: state, reason: why });
                self.notices.extend(report::entered(facts, state, why, self.evaluation));
            }
            self.notices.extend(report::flip(self.watch, self.settings, facts, *before_mark, node));
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

    fn finish(mut self, child: Option<Child>) -> TrafficWatchPlan {
        let ready = self.is_ready();
        let enforce = self.watch.spec.mode == Mode::Enforce;
        let labels = if enforce { self.label_writes() } else { vec![] };
        let child = child.filter(|_| enforce && ready);
        let refused = report::refused(child.as_ref(), &self.seen.memory);
        let conditions = report::conditions(&self, ready, refused);
        self.notices.extend(report::news(self.watch, &conditions));
        let status = report::status(&self, ready);
        let last_success = match self.evaluation {
            Evaluation::Ok => Some(self.seen.now),
            _ => self.seen.memory.last_success,
        };
        let memory = Memory {
            tick: Some(self.seen.tick),
            threshold: self.settings.max,
            summary: self.summary,
            last_success,
            applied: self.seen.memory.applied.clone(),
            nodes: self
                .seen
                .nodes
                .iter()
                .map(|facts| Arc::clone(&facts.name))
                .zip(std::mem::take(&mut self.nodes))
                .collect::<HashMap<_, _>>(),
        };
        let is_new = self.seen.memory.tick != Some(self.seen.tick);
        Plan {
            desired: Desired {
                labels,
                deployment: child.filter(|child| self.must_apply(child)),
                memory: Some(memory),
                transitions: self.transitions,
                evaluation: is_new.then_some(self.evaluation),
            },
            status,
            conditions,
            notices: self.notices,
            period: self.settings.interval,
        }
    }

    /// Every node with data was judged once, now or ever before.
    fn is_ready(&self) -> bool {
        let was = self.watch.status.as_ref().is_some_and(|status| status.ready);
        let with_data = || self.nodes.iter().zip(&self.evidence).filter(|(_, e)| e.is_ok());
        was || (with_data().next().is_some() && with_data().all(|(node, _)| node.judged.is_some()))
    }

    fn label_writes(&self) -> Vec<LabelWrite> {
        let key = self.watch.label_key();
        let flips = self.seen.nodes.iter().zip(&self.nodes).filter_map(|(facts, node)| {
            let value = node.marked?;
            let is = facts.label.as_deref();
            let wanted = if value { "true" } else { "false" };
            (is != Some(wanted)).then(|| LabelWrite {
                node: Arc::clone(&facts.name),
                key: key.clone(),
                value: Some(value),
            })
        });
        let strays = self.seen.stray.iter().map(|stray| LabelWrite {
            node: Arc::clone(&stray.node),
            key: stray.key.clone(),
            value: None,
        });
        flips.chain(strays).collect()
    }

    /// Applying what is there already costs the API server as much as a change.
    fn must_apply(&self, child: &Child) -> bool {
        use children::Outcome;
        let Some(applied) = self.seen.memory.applied.as_ref().filter(|a| a.hash == child.hash)
        else {
            return true;
        };
        match (&applied.outcome, &self.seen.deployment) {
            (Outcome::Refused(_), _) => false,
            (Outcome::Accepted { uid, generation }, Some((now_uid, now_generation))) => {
                // The store may lag behind our own apply: an older generation is no edit.
                uid != now_uid || now_generation > generation
            }
            (Outcome::Accepted { .. }, None) => true,
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
        .filter_map(|facts| reading.nodes.get(&facts.name))
        .filter(|node| settings.rules.has_data(node))
        .count();
    if with_data * 2 < seen.nodes.len() {
        return (none(NoEvidence::LowCoverage), Evaluation::LowCoverage);
    }
    let evidence = seen.nodes.iter().map(|facts| {
        settings.rules.evidence(reading.nodes.get(&facts.name), settings.capacity(facts))
    });
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
    report::from_status(told, label, seen.now)
}

#[cfg(test)]
mod tests;
