//! What is remembered between two judgements of one `TrafficWatch`.
//!
//! None of it decides anything that the API server does not know too: after a restart the labels
//! say which nodes are unfit, the status says since when, and streaks begin at zero.
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::children::Applied;
use crate::api::traffic_watch::{NodeState, NodeStatus, Summary};

/// One `TrafficWatch`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The last tick whose measurement was judged.
    pub tick: Option<u64>,
    /// The nodes.
    pub nodes: NodeTable,
    /// Percent above which a node is unfit.
    pub threshold: f64,
    /// How many nodes are in which state.
    pub summary: Summary,
    /// When a measurement last succeeded.
    pub last_success: Option<Timestamp>,
    /// The Deployment as it was last applied.
    pub applied: Option<Applied>,
}

/// Nodes by name: a sorted list, because a hash table of 5,000 nodes for each of 100 objects is half
/// empty space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTable(Box<[(Arc<str>, NodeMemory)]>);

impl NodeTable {
    /// A table of nodes that are sorted by name.
    pub fn sorted(nodes: impl Iterator<Item = (Arc<str>, NodeMemory)>) -> Self {
        let table = Self(nodes.collect());
        debug_assert!(table.0.is_sorted_by(|a, b| a.0 < b.0), "sorted by name");
        table
    }

    /// One node.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&NodeMemory> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(place).map(|(_, node)| node)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &NodeMemory)> {
        self.0.iter().map(|(name, node)| (name, node))
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMemory {
    /// What hysteresis says: unfit or not; `None` until the first judgement.
    pub judged: Option<bool>,
    /// What the limits made of it: the value of the label.
    pub marked: Option<bool>,
    /// Judgements in a row that contradict `judged`.
    pub against: Streak,
    /// The state shown.
    pub state: NodeState,
    /// Why it is Unknown or Suppressed.
    pub reason: Option<&'static str>,
    /// Since when.
    pub since: Timestamp,
    /// What was last measured.
    pub last: Option<Sample>,
    /// How old the sample was, if this judgement had one.
    pub age: Option<f64>,
}

impl NodeMemory {
    /// A node as its status and label tell, for the first pass after a restart.
    #[must_use]
    pub fn from_status(told: Option<&NodeStatus>, label: Option<bool>, now: Timestamp) -> Self {
        let last = told.filter(|t| t.time > 0).and_then(|t| {
            Some(Sample {
                percent: t
                    .current_bandwidth_percent
                    .parse()
                    .ok()
                    .filter(|p: &f64| p.is_finite())?,
                total: t.current_transmit_total,
                time: t.time,
                device: t.device.as_deref().map(Into::into),
            })
        });
        Self {
            judged: label,
            marked: label,
            against: Streak::default(),
            state: told.and_then(|t| t.state).unwrap_or(NodeState::Unknown),
            reason: None,
            since: told.and_then(|t| t.since.as_ref()).map_or(now, |since| since.0),
            last,
            age: None,
        }
    }
}

/// Judgements in a row for one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    /// The side: unfit or not.
    pub unfit: bool,
    /// How many.
    pub count: u32,
}

impl Streak {
    /// One more judgement for a side.
    #[must_use]
    pub fn with(self, unfit: bool) -> Self {
        let count = if self.unfit == unfit { self.count.saturating_add(1) } else { 1 };
        Self { unfit, count }
    }
}

/// What was measured of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Percent of capacity.
    pub percent: f64,
    /// Bytes sent since the counters began.
    pub total: i64,
    /// When, in Unix seconds.
    pub time: i64,
    /// The busiest link.
    pub device: Option<Arc<str>>,
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
}
