//! The possible events in a world, and their maximum numbers.
use std::time::Instant;

use serde_json::json;

use super::{MAPS, PARTS, STREAMS, WORKERS, WORKLOAD};
use crate::api::Swarm;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weak {
    Nothing,
    /// The head is written after the parts.
    HeadLast,
    /// A part that is older than the head states is trusted.
    NoFence,
}

pub struct Plot {
    /// The wishes of the user in turn: numbers of workers.
    pub wishes: Vec<(usize, Swarm)>,
    pub changes: u8,
    pub faults: u8,
    pub crashes: u8,
    pub weak: Weak,
    pub began: Instant,
}

impl Default for Plot {
    fn default() -> Self {
        let swarm = || {
            serde_json::from_value(json!({
                "metadata": {"name": "s", "namespace": "n", "uid": "s"},
                "spec": {
                    "workload": {"name": WORKLOAD}, "jobs": STREAMS, "configMap": {"files": PARTS},
                    "refresh": {"strategy": "HotReload"},
                }
            }))
            .expect("a Swarm")
        };
        Self {
            wishes: vec![(2, swarm()), (1, swarm())],
            changes: 1,
            faults: 0,
            crashes: 0,
            weak: Weak::Nothing,
            began: Instant::now(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The operator observes and decides; writes, or is killed before one of its writes.
    Look,
    Finish(Option<usize>),
    /// The next write of the one that hangs arrives.
    Arrive,
    Wish(usize),
    /// A worker reads the next version of its part; its pod is deleted; another pod is created.
    Deliver(usize),
    Go(usize),
    Come(usize),
    /// A user adds a comment to a `ConfigMap`; deletes it.
    Edit(usize),
    Lose(usize),
}

pub fn moves(plot: &Plot) -> Vec<Move> {
    let mut all = vec![Move::Look, Move::Finish(None), Move::Arrive];
    all.extend((0..=MAPS).map(|writes| Move::Finish(Some(writes))));
    all.extend((0..plot.wishes.len()).map(Move::Wish));
    for w in 0..WORKERS {
        all.extend([Move::Deliver(w), Move::Go(w), Move::Come(w)]);
    }
    for map in 0..MAPS {
        all.extend([Move::Edit(map), Move::Lose(map)]);
    }
    all
}
