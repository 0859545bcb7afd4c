//! Records the results of the judgments of one history.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{Change, NodeRun, Run, Span};
use crate::{
    api::traffic_watch::NodeState,
    inspect::offers::{Offers, OffersRun},
    traffic_watch::Evaluation,
};

/// Unfit again within this many seconds is a flap: the hour over which the dashboards count.
const FLAP_SECONDS: i64 = 3600;

/// The record of one run.
#[derive(Debug)]
pub struct Recorder {
    step_seconds: f64,
    run: Run,
    nodes: BTreeMap<Arc<str>, Account>,
}

#[derive(Debug, Default)]
struct Account {
    run: NodeRun,
    marked: bool,
    became_unfit: Option<Timestamp>,
}

/// The judgment of one node.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// Name of the judged node.
    pub node: &'a Arc<str>,
    /// State after the judgment.
    pub state: NodeState,
    /// True if it is marked unfit.
    pub marked: bool,
}

impl Recorder {
    /// Creates a recorder of judgments that each hold for one step.
    #[must_use]
    pub fn new(step_seconds: f64) -> Self {
        Self { step_seconds, run: Run::default(), nodes: BTreeMap::new() }
    }

    /// Records one judgment, which holds until `end`.
    pub fn take<'a>(
        &mut self,
        (now, end): (Timestamp, Timestamp),
        evaluation: Evaluation,
        changes: impl IntoIterator<Item = Change>,
        judged: impl Iterator<Item = Judged<'a>>,
    ) {
        self.run.evaluations.count(evaluation);
        self.run.transitions.extend(changes);
        let mut held = false;
        for Judged { node, state, marked } in judged {
            let account = self.nodes.entry(Arc::clone(node)).or_default();
            account.enter(now, end, state);
            account.mark(now, marked);
            // The mark keeps pods away: a node without evidence may be marked as well.
            if marked {
                account.run.unfit_seconds += self.step_seconds;
            }
            match state {
                NodeState::Unfit => {}
                NodeState::Suppressed => account.run.suppressed_seconds += self.step_seconds,
                NodeState::Unknown => account.run.unknown_seconds += self.step_seconds,
                NodeState::Fit => account.run.fit_seconds += self.step_seconds,
            }
            if state == NodeState::Suppressed {
                held = true;
                self.run.breaker.node_seconds += self.step_seconds;
            }
        }
        self.run.breaker.judgments += u64::from(held);
    }

    /// Records what nodes would offer after a judgment.
    pub fn offer(&mut self, offers: Option<&Offers>, changed: usize) {
        if let Some(offers) = offers {
            OffersRun::add(&mut self.run.offers, offers, changed);
        }
    }

    /// Returns the complete record.
    #[must_use]
    pub fn finish(self) -> Run {
        let nodes = self
            .nodes
            .into_iter()
            .map(|(name, account)| NodeRun { name: name.to_string(), ..account.run });
        Run { nodes: nodes.collect(), ..self.run }
    }
}

impl Account {
    fn enter(&mut self, now: Timestamp, end: Timestamp, state: NodeState) {
        match self.run.spans.last_mut() {
            Some(span) if span.state == state => span.to = end,
            _ => self.run.spans.push(Span { state, from: now, to: end }),
        }
    }

    fn mark(&mut self, now: Timestamp, marked: bool) {
        if marked && !self.marked {
            self.run.times_unfit += 1;
            let again = self
                .became_unfit
                .is_some_and(|last| now.as_second() - last.as_second() < FLAP_SECONDS);
            self.run.flaps += u32::from(again);
            self.became_unfit = Some(now);
        }
        self.marked = marked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::backtest::text::seconds;

    /// One node's states, ten minutes each.
    fn run(states: &[NodeState]) -> Run {
        let mut recorder = Recorder::new(600.0);
        let node = Arc::from("a");
        let at = |i: usize| Timestamp::from_second(600 * i64::try_from(i).unwrap()).unwrap();
        for (i, state) in states.iter().enumerate() {
            let judged = Judged { node: &node, state: *state, marked: *state == NodeState::Unfit };
            recorder.take((at(i), at(i + 1)), Evaluation::Ok, [], [judged].into_iter());
        }
        recorder.finish()
    }

    #[test]
    fn time_is_kept_by_state() {
        use NodeState::{Fit, Suppressed, Unfit, Unknown};
        let run = run(&[Fit, Unfit, Unfit, Suppressed, Unknown]);
        let node = &run.nodes[0];
        let times =
            [node.fit_seconds, node.unfit_seconds, node.suppressed_seconds, node.unknown_seconds];
        assert_eq!(times.map(seconds), ["10m", "20m", "10m", "10m"]);
        assert_eq!(node.spans.len(), 4);
        assert_eq!((run.breaker.judgments, seconds(run.breaker.node_seconds)), (1, "10m".into()));
        assert_eq!(run.evaluations.ok, 5);
    }

    /// All samples are stale and `onUnknown` is Unfit: the node is Unknown, and marked.
    #[test]
    fn time_unfit_is_the_time_of_the_mark() {
        let mut recorder = Recorder::new(600.0);
        let (node, at) = (Arc::from("a"), |s| Timestamp::from_second(s).unwrap());
        for (second, marked) in [(0, true), (600, true), (1200, false)] {
            let judged = Judged { node: &node, state: NodeState::Unknown, marked };
            let times = (at(second), at(second + 600));
            recorder.take(times, Evaluation::Ok, [], [judged].into_iter());
        }
        let node = &recorder.finish().nodes[0];
        assert_eq!([node.unfit_seconds, node.unknown_seconds].map(seconds), ["20m", "30m"]);
        assert_eq!(node.times_unfit, 1);
    }

    #[test]
    fn unfit_again_within_an_hour_is_a_flap() {
        use NodeState::{Fit, Unfit};
        let twice = run(&[Unfit, Fit, Unfit]);
        assert_eq!((twice.nodes[0].times_unfit, twice.nodes[0].flaps), (2, 1));
        // Six steps of ten minutes are the hour.
        let later = run(&[Unfit, Fit, Fit, Fit, Fit, Fit, Unfit]);
        assert_eq!((later.nodes[0].times_unfit, later.nodes[0].flaps), (2, 0));
        let summary = twice.summary(60.0, true);
        assert_eq!((summary.flaps, summary.nodes_unfit), (1, 1));
        assert_eq!(seconds(summary.unfit_seconds), "20m");
    }
}
