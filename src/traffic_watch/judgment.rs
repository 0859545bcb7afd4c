//! The state of every node: from evidence, through hysteresis and the limit, to a state.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    evidence::Evaluation,
    findings::{Gathered, gather, sample},
    limits::{self, Candidate, Headroom},
    memory::{MeasureState, NodeMemory, Reason, Streak, Transition},
    observed::Observed,
    settings::{Criterion, Settings},
};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState, NodeStatus, Summary, UnknownAction},
    },
    nodes::NodeFacts,
};

/// Samples with times that differ by less are from one scrape: where the time of the evaluation is
/// not known, a request takes some time to arrive; and no exporter is scraped this often.
const SAME_SCRAPE: Duration = Duration::from_millis(500);

/// A change of one node.
#[derive(Debug)]
pub(super) struct Change {
    /// Its index in `seen.nodes`.
    pub(super) node: usize,
    /// The state it entered.
    pub(super) transition: Option<Transition>,
    /// True if it is marked unfit now and was not, or the other way round.
    pub(super) flip: Option<bool>,
    /// True if evidence has just stayed away for as long as the spec allows.
    pub(super) expired: bool,
}

/// One judgment in the making.
pub(super) struct Judgment<'a> {
    pub(super) watch: &'a TrafficWatch,
    pub(super) seen: &'a Observed,
    pub(super) settings: &'a Settings,
    /// The evidence of each measure, in the order of the criteria.
    pub(super) gathered: Vec<Gathered>,
    pub(super) nodes: Vec<NodeMemory>,
    /// True for the nodes that can take the pods in question, their marks apart.
    pub(super) takes_pods: Vec<bool>,
    /// The marks as they were before this judgment.
    before: Vec<Option<bool>>,
    /// Nodes without evidence for as long as the spec allows.
    expired: Vec<bool>,
    /// Maximum number of nodes that can take the pods and may be marked, and their actual number.
    pub(super) limit: usize,
    pub(super) room: usize,
    /// The nodes that only the operator-wide ceiling keeps from being marked, by place.
    pub(super) above_ceiling: Vec<usize>,
    pub(super) summary: Summary,
    pub(super) changes: Vec<Change>,
}

impl<'a> Judgment<'a> {
    /// Judges every node.
    pub(super) fn of(watch: &'a TrafficWatch, seen: &'a Observed, settings: &'a Settings) -> Self {
        let gathered: Vec<_> =
            (0..settings.criteria.len()).map(|place| gather(seen, settings, place)).collect();
        let mut known = seen.memory.nodes.in_turn();
        let remember = |node| remember(watch, seen, settings, node, known(&node.name));
        let nodes: Vec<_> = seen.nodes.iter().map(remember).collect();
        let mut judgment = Self {
            before: nodes.iter().map(|node| node.marked).collect(),
            expired: vec![false; nodes.len()],
            takes_pods: seen.nodes.iter().map(|facts| settings.room.takes(facts)).collect(),
            watch,
            seen,
            settings,
            gathered,
            nodes,
            limit: 0,
            room: 0,
            above_ceiling: Vec::new(),
            summary: Summary::default(),
            changes: Vec::new(),
        };
        judgment.apply_hysteresis();
        judgment.expire();
        judgment.limit();
        judgment.settle();
        judgment
    }

    /// Reports whether this pass is the first of its tick: only that one counts as a judgment.
    pub(super) fn is_new(&self) -> bool {
        self.seen.memory.tick != Some(self.seen.tick)
    }

    /// Returns the result of the measurement as a whole: that of the worst measure.
    pub(super) fn evaluation(&self) -> Evaluation {
        self.gathered.iter().map(|measure| measure.evaluation).max().unwrap_or(Evaluation::Ok)
    }

    /// Reports whether every measure has evidence about a node.
    pub(super) fn has_evidence(&self, node: usize) -> bool {
        self.gathered.iter().all(|measure| measure.findings[node].is_ok())
    }

    /// Returns what every node lacks, if none has evidence: the reasons, each with its nodes.
    pub(super) fn without_evidence(&self) -> Option<String> {
        let mut reasons = BTreeMap::<&str, usize>::new();
        for node in 0..self.nodes.len() {
            let why =
                self.gathered.iter().find_map(|measure| measure.findings[node].as_ref().err());
            *reasons.entry(why?.reason()).or_default() += 1;
        }
        let counted: Vec<_> =
            reasons.into_iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
        Some(format!("no node has evidence ({})", counted.join(", ")))
    }

    /// Reports whether the label of a node must be removed, because there is no evidence about it.
    pub(super) fn drops_label(&self, node: usize) -> bool {
        self.expired[node] && self.settings.on_unknown.1 == UnknownAction::RemoveLabel
    }

    /// Hysteresis: streaks, and what they make of each node.
    fn apply_hysteresis(&mut self) {
        let is_new = self.is_new();
        let same_scrape = SAME_SCRAPE.min(self.settings.interval / 4).as_secs_f64();
        for (measure, (place, criterion)) in
            self.gathered.iter().zip(self.settings.criteria.iter().enumerate())
        {
            for (node, finding) in self.nodes.iter_mut().zip(&measure.findings) {
                let unmarked = node.marked.is_none().then_some(false);
                let Some(side) = node.sides_mut().nth(place) else { continue };
                let evidence = match finding {
                    Ok(evidence) => evidence,
                    // Missing evidence neither advances nor resets a streak.
                    Err(why) => {
                        side.missing = Some(*why);
                        continue;
                    }
                };
                side.missing = None;
                side.last = Some(sample(evidence, measure.asked));
                if !is_new {
                    continue;
                }
                // The same scrape again confirms nothing.
                if let Some(age) = evidence.age.get() {
                    let scraped = measure.evaluated - age;
                    if (scraped - side.scraped).abs() < same_scrape {
                        continue;
                    }
                    side.scraped = scraped;
                }
                let unfit = criterion.is_unfit(evidence.value, side.judged);
                // A node that was never judged counts as fit: evidence that it is changes nothing.
                if side.judged.or(unmarked) == Some(unfit) {
                    side.judged = Some(unfit);
                    side.against = Streak::default();
                    continue;
                }
                side.against = side.against.with(unfit);
                if side.against.count >= self.settings.needed(unfit) {
                    side.judged = Some(unfit);
                    side.against = Streak::default();
                }
            }
        }
    }

    /// The clock of nodes without evidence, and what happens when it runs out.
    fn expire(&mut self) {
        let (after, action) = self.settings.on_unknown;
        let interval = u32::try_from(self.settings.interval.as_millis()).unwrap_or(u32::MAX);
        let is_new = self.is_new();
        let places = self.nodes.iter_mut().zip(&mut self.expired).enumerate();
        for (place, (node, expired)) in places {
            if !is_unknown(node) {
                node.unknown_ms = 0;
                continue;
            }
            // The clock stops while the measurement itself fails.
            let stands = |(side, measure): (&MeasureState, &Gathered)| {
                side.missing.is_some() && measure.clock_stands(place)
            };
            if node.sides().zip(&self.gathered).any(stands) {
                continue;
            }
            if is_new {
                // One judgment proves no time without evidence, however long the interval is.
                let first = node.unknown_ms == 0;
                let time = if first { interval.min(after.saturating_sub(1)) } else { interval };
                node.unknown_ms = node.unknown_ms.saturating_add(time.max(1));
            }
            if node.unknown_ms < after || action == UnknownAction::Hold {
                continue;
            }
            *expired = true;
            for side in node.sides_mut().filter(|side| side.missing.is_some()) {
                side.against = Streak::default();
                side.judged = match action {
                    UnknownAction::Unfit => Some(true),
                    UnknownAction::Fit => Some(false),
                    UnknownAction::RemoveLabel | UnknownAction::Hold => None,
                };
            }
        }
    }

    /// The breaker: which of the nodes that are judged unfit are marked so.
    fn limit(&mut self) {
        let failed = &self.seen.memory.failed;
        let nodes = self.nodes.iter().zip(&*self.seen.nodes).enumerate();
        let candidates: Vec<_> = nodes
            .map(|(i, (node, facts))| Candidate {
                name: &facts.name,
                judged: self.judged(i),
                marked: self.carried(i),
                severity: self.severity(i),
                recovering: self.is_recovering(i),
                takes_pods: self.takes_pods[i],
                blind: is_unknown(node) && !self.expired[i],
                open: facts.open,
                counted: facts.unfit,
                stuck: facts.label.as_deref() == Some("true") && failed.has(&facts.name),
            })
            .collect();
        // Observe writes no label, so that nothing of the ceiling is used.
        let headroom = match self.watch.spec.mode {
            Mode::Enforce => self.seen.headroom,
            Mode::Observe => Headroom::UNLIMITED,
        };
        let limited = limits::mark(&candidates, &self.settings.limits, headroom);
        for (node, mark) in self.nodes.iter_mut().zip(limited.marks) {
            node.marked = mark;
        }
        self.limit = limited.limit;
        self.room = limited.room;
        self.above_ceiling = limited.above_ceiling;
    }

    /// The mark that a node has. A mark that is not written takes its turn among the others if it
    /// is one of Observe, when no node may be marked any more, or when the write that was to free
    /// its place has failed.
    fn carried(&self, node: usize) -> Option<bool> {
        let (marked, facts) = (self.nodes[node].marked, &self.seen.nodes[node]);
        let written = facts.label.as_deref() == Some("true");
        let Headroom { open, all, .. } = self.seen.headroom;
        let none_left = !facts.unfit && if facts.open { open == 0 } else { all == 0 };
        let enforce = self.watch.spec.mode == Mode::Enforce;
        let failed = !self.seen.memory.failed.is_empty();
        let dropped = enforce && !written && (none_left || failed || self.seen.memory.observes);
        if marked == Some(true) && dropped { Some(false) } else { marked }
    }

    /// Combines the verdicts of all measures about a node. A node that has a mark is not without a
    /// verdict because some measure never had evidence: when the measure that judged it unfit
    /// judges it fit, it is fit; when no measure has a verdict (the measures have changed), the
    /// mark stays.
    fn judged(&self, node: usize) -> Option<bool> {
        let memory = &self.nodes[node];
        if self.drops_label(node) {
            return memory.judged();
        }
        let found_fit = memory.sides().any(|side| side.judged == Some(false));
        memory
            .judged()
            .or_else(|| if found_fit { memory.marked.and(Some(false)) } else { memory.marked })
    }

    /// Returns the factor by which a node exceeds the thresholds of the unfit measures with
    /// evidence.
    fn severity(&self, node: usize) -> Option<f64> {
        let measured = self
            .unfit_by(node)
            .filter_map(|(place, criterion)| {
                let evidence = self.gathered[place].findings[node].as_ref().ok()?;
                // Nothing above a threshold of zero is no worse than being at one.
                let times = evidence.value / criterion.max;
                Some(if times.is_nan() { 1.0 } else { times })
            })
            .max_by(f64::total_cmp);
        // Nodes that are unfit only for lack of evidence come after all measured ones.
        measured.or_else(|| self.expired[node].then_some(0.0))
    }

    /// Reports whether a node is where it recovers, in all unfit measures with evidence.
    fn is_recovering(&self, node: usize) -> bool {
        let mut unfit = self.unfit_by(node).filter_map(|(place, criterion)| {
            let evidence = self.gathered[place].findings[node].as_ref().ok()?;
            Some(criterion.is_unfit(evidence.value, Some(true)))
        });
        unfit.next() == Some(false) && unfit.all(|unfit| !unfit)
    }

    /// Returns the measures that judge a node unfit, with their indexes.
    pub(super) fn unfit_by(&self, node: usize) -> impl Iterator<Item = (usize, &Criterion)> {
        let sides = self.nodes[node].sides().zip(self.settings.criteria.iter()).enumerate();
        sides
            .filter(|(_, (side, _))| side.judged == Some(true))
            .map(|(place, (_, criterion))| (place, criterion))
    }

    /// States, their reasons, and what changed.
    fn settle(&mut self) {
        let seen = self.seen;
        let mut known = seen.memory.nodes.in_turn();
        for i in 0..self.nodes.len() {
            let (state, mut reason) = state(&self.nodes[i]);
            if state == NodeState::Suppressed && self.above_ceiling.binary_search(&i).is_ok() {
                reason = Some(Reason::OperatorLimitReached);
            }
            let name = &seen.nodes[i].name;
            let before = known(name);
            let before = before.filter(|before| before.uid == self.nodes[i].uid);
            let transition = before.map(|old| old.state).filter(|from| *from != state);
            let transition = transition.map(|from| Transition {
                at: self.seen.now.as_second(),
                node: Arc::clone(name),
                from,
                to: state,
                reason: reason.map_or_else(|| self.why(i), |why| why.as_str().into()),
            });
            // A node that is found fit at first is no news.
            let flip = match (self.before[i], self.nodes[i].marked) {
                (Some(false) | None, Some(true)) => Some(true),
                (Some(true), Some(false) | None) => Some(false),
                _ => None,
            };
            let had_expired =
                before.is_some_and(|old| old.unknown_ms >= self.settings.on_unknown.0);
            let expired = self.expired[i] && !had_expired;
            if transition.is_some() || flip.is_some() || expired {
                self.changes.push(Change { node: i, transition, flip, expired });
            }
            let node = &mut self.nodes[i];
            if node.state != state {
                node.since = self.seen.now;
            }
            (node.state, node.reason) = (state, reason);
            self.summary.nodes += 1;
            self.summary.marked += u32::from(node.marked == Some(true));
            match state {
                NodeState::Fit => self.summary.fit += 1,
                NodeState::Unfit => self.summary.unfit += 1,
                NodeState::Unknown => self.summary.unknown += 1,
                NodeState::Suppressed => self.summary.suppressed += 1,
            }
        }
    }

    /// Why a node is fit or unfit: by measuring; where there are several measures, by which.
    fn why(&self, node: usize) -> Arc<str> {
        match self.unfit_by(node).next() {
            Some((_, criterion)) if self.settings.criteria.len() > 1 => Arc::clone(&criterion.name),
            _ => "Measured".into(),
        }
    }
}

/// Nothing decides the state of the node now: it is not unfit by a measure with evidence, and some
/// measure has none.
fn is_unknown(node: &NodeMemory) -> bool {
    node.sides().any(|side| side.missing.is_some())
        && !node.sides().any(|side| side.judged == Some(true) && side.missing.is_none())
}

fn state(node: &NodeMemory) -> (NodeState, Option<Reason>) {
    // Its label is set, though no current measure set it.
    if node.marked == Some(true) && node.judged().is_none() && !is_unknown(node) {
        return (NodeState::Unfit, None);
    }
    if is_unknown(node) {
        // A measure that judged the node unfit and has no evidence now is the reason why the node
        // keeps its state.
        let held = node.sides().filter(|side| side.judged == Some(true));
        let why = held.chain(node.sides()).find_map(|side| side.missing);
        return (NodeState::Unknown, why.map(Reason::NoEvidence));
    }
    match (node.judged(), node.marked) {
        (Some(true), Some(true)) => (NodeState::Unfit, None),
        (Some(true), _) => (NodeState::Suppressed, Some(Reason::LimitReached)),
        // Not judged yet, and there is no evidence against it.
        _ => (NodeState::Fit, None),
    }
}

/// A node as the last pass left it; after a restart, as label and status record.
fn remember(
    watch: &TrafficWatch,
    seen: &Observed,
    settings: &Settings,
    facts: &NodeFacts,
    known: Option<&NodeMemory>,
) -> NodeMemory {
    if let Some(known) = known.filter(|known| known.uid == facts.incarnation.uid) {
        let (old, new) = (&*seen.memory.criteria, &*settings.criteria);
        let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| a.name == b.name);
        return if same { known.clone() } else { known.clone().with_criteria(old, new) };
    }
    // Verdicts about a deleted node do not apply to a new one with its name.
    let status = watch.status.as_ref().and_then(|status| status.nodes.get(&*facts.name));
    let at = |node: &NodeStatus| node.since.as_ref().map_or(0, |t| t.0.as_second()).max(node.time);
    let reported = status.filter(|node| known.is_none() && facts.incarnation.created <= at(node));
    let label = match (facts.label.as_deref(), watch.spec.mode) {
        (Some("true"), Mode::Enforce) => Some(true),
        (Some("false"), Mode::Enforce) => Some(false),
        // Observe writes no label: the status is its memory.
        (_, Mode::Observe) => {
            reported.filter(|t| t.state != Some(NodeState::Unknown) || t.unfit).map(|t| t.unfit)
        }
        _ => None,
    };
    NodeMemory::from_status(&settings.criteria, reported, label, facts.incarnation.uid, seen.now)
}
