//! Keeps account of what the judgements of one history come to.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{Change, NodeRun, Run, Span};
use crate::{api::traffic_watch::NodeState, traffic_watch::Evaluation};

/// Unfit again within this many seconds is a flap: the hour over which the dashboards count.
const FLAP_SECONDS: i64 = 3600;

/// The account of one run.
#[derive(Debug)]
pub struct Recorder {
    step_seconds: f64,
    run: Run,
    nodes: BTreeMap<Arc<str>, Account>,
}

#[derive(Debug, Default)]
struct Account {
    run: NodeRun,
    became_unfit: Option<Timestamp>,
}

/// What a judgement made of one node.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The node.
    pub node: &'a Arc<str>,
    /// Its state.
    pub state: NodeState,
}

impl Recorder {
    /// An account of judgements that each hold for one step.
    #[must_use]
    pub fn new(step_seconds: f64) -> Self {
        Self { step_seconds, run: Run::default(), nodes: BTreeMap::new() }
    }

    /// Takes one judgement, which holds until `end`.
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
        for Judged { node, state } in judged {
            let account = self.nodes.entry(Arc::clone(node)).or_default();
            account.enter(now, end, state);
            let seconds = match state {
                NodeState::Unfit => &mut account.run.unfit_seconds,
                NodeState::Suppressed => &mut account.run.suppressed_seconds,
                NodeState::Unknown => &mut account.run.unknown_seconds,
                NodeState::Fit => &mut account.run.fit_seconds,
            };
            *seconds += self.step_seconds;
            if state == NodeState::Suppressed {
                held = true;
                self.run.breaker.node_seconds += self.step_seconds;
            }
        }
        self.run.breaker.judgements += u64::from(held);
    }

    /// The whole account.
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
            _ => {
                self.run.spans.push(Span { state, from: now, to: end });
                if state == NodeState::Unfit {
                    self.run.times_unfit += 1;
                    let again = self
                        .became_unfit
                        .is_some_and(|last| now.as_second() - last.as_second() < FLAP_SECONDS);
                    self.run.flaps += u32::from(again);
                    self.became_unfit = Some(now);
                }
            }
        }
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
            let judged = Judged { node: &node, state: *state };
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
        assert_eq!((run.breaker.judgements, seconds(run.breaker.node_seconds)), (1, "10m".into()));
        assert_eq!(run.evaluations.ok, 5);
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
