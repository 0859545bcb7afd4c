//! `backtest`: judges a history as the operator does.
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::{
    api::traffic_watch::NodeState,
    inspect::offers::OffersRun,
    traffic_watch::{
        Evaluation,
        overview::{MeasureView, TransitionView},
    },
};

mod history;
mod html;
mod record;
mod text;
mod thresholds;

pub use history::{Range, Variations, run};
pub use html::html;
pub use text::text;
pub use thresholds::thresholds;

/// The results of judging one history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backtest {
    /// `namespace/name`.
    pub watch: String,
    /// The first judgment.
    pub from: Timestamp,
    /// The end: one step after the last judgment.
    pub to: Timestamp,
    /// Seconds between two judgments.
    pub step_seconds: f64,
    /// The measures; the thresholds vary that of the first.
    pub measures: Vec<MeasureView>,
    /// The limits of the answer.
    pub warnings: Vec<String>,
    /// The outcome of the unchanged spec.
    pub run: Run,
    /// A summary for each threshold, including that of the spec.
    pub thresholds: Vec<Summary>,
}

/// The outcome of one spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Judgments by the result of the measurement.
    pub evaluations: Evaluations,
    /// Every change of a node's state, by time.
    pub transitions: Vec<Change>,
    /// The nodes by name.
    pub nodes: Vec<NodeRun>,
    /// The time for which too many nodes were above the threshold.
    pub breaker: Breaker,
    /// Offers of nodes to pods over the time, if the spec has them offer anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offers: Option<OffersRun>,
}

/// Judgments by the result of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evaluations {
    /// Nodes were judged.
    pub ok: u64,
    /// Too few nodes had data.
    pub low_coverage: u64,
    /// There was no usable answer.
    pub failed: u64,
}

impl Evaluations {
    fn count(&mut self, evaluation: Evaluation) {
        match evaluation {
            Evaluation::Ok => self.ok += 1,
            Evaluation::LowCoverage => self.low_coverage += 1,
            Evaluation::Failed => self.failed += 1,
        }
    }
}

/// A node entered a state.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The change.
    #[serde(flatten)]
    pub transition: TransitionView,
    /// The value of the first measure; none without evidence.
    pub value: Option<f64>,
}

/// One node over the whole time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRun {
    /// Name of the node.
    pub name: String,
    /// Seconds for which it was marked unfit, with or without evidence.
    pub unfit_seconds: f64,
    /// Seconds for which it would have been unfit without the limit.
    pub suppressed_seconds: f64,
    /// Seconds without evidence.
    pub unknown_seconds: f64,
    /// Seconds for which it was fit.
    pub fit_seconds: f64,
    /// The number of times that it became unfit.
    pub times_unfit: u32,
    /// The number of times that it became unfit again within an hour.
    pub flaps: u32,
    /// Its states in their order.
    pub spans: Vec<Span>,
}

/// One state of a node for some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// State of the node during that time.
    pub state: NodeState,
    /// From this moment.
    pub from: Timestamp,
    /// Up to this one.
    pub to: Timestamp,
}

/// The time for which too many nodes were above the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Number of judgments in which the limit held a node back.
    pub judgments: u64,
    /// Seconds, summed over these nodes.
    pub node_seconds: f64,
}

/// A run in one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The threshold of the first measure.
    pub threshold: f64,
    /// True if it is the one of the spec.
    pub configured: bool,
    /// Nodes that were unfit at any time.
    pub nodes_unfit: usize,
    /// Seconds unfit, summed over the nodes.
    pub unfit_seconds: f64,
    /// Changes of state.
    pub transitions: usize,
    /// Times a node became unfit again within an hour.
    pub flaps: u32,
    /// The time for which the limit held nodes back.
    pub breaker: Breaker,
}

impl Run {
    /// Returns the run in one line.
    #[must_use]
    pub fn summary(&self, threshold: f64, configured: bool) -> Summary {
        Summary {
            threshold,
            configured,
            nodes_unfit: self.nodes.iter().filter(|node| node.unfit_seconds > 0.0).count(),
            unfit_seconds: self.nodes.iter().map(|node| node.unfit_seconds).sum(),
            transitions: self.transitions.len(),
            flaps: self.nodes.iter().map(|node| node.flaps).sum(),
            breaker: self.breaker,
        }
    }
}
