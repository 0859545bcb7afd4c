//! One step after the other: what each has cost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::confd::Confd;
use super::ground::Ground;
use super::history::{History, Version, changed, kept};
use super::journal;
use super::watch::{Seen, Watch};
use crate::wait::{Task, lock};

/// Time between two counts of the paths in all tables.
const COUNT: Duration = Duration::from_secs(1);

/// The time when a step began.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// By the clock that stretches of time are measured with.
    pub at: Instant,
    /// By the clock of logs.
    pub time: Timestamp,
}

impl Start {
    /// Returns the current time, by both clocks.
    pub fn now() -> Self {
        Self { at: Instant::now(), time: Timestamp::now() }
    }
}

/// The effects of a step.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The period of the report.
    pub took: Duration,
    /// Nodes that were promoted, demoted or given another cluster id, that came or went, and those
    /// that the step itself has touched.
    pub changed: BTreeSet<String>,
    /// The observations between all nodes.
    pub all: Seen,
    /// The observations between unchanged nodes: nothing may happen there.
    pub others: Seen,
    /// Ends of sessions that were closed.
    pub resets: usize,
    /// Those between nodes that are not changed that are the same before and after: none may be
    /// closed.
    pub needless: Vec<(String, String)>,
    /// The most paths that a table held.
    pub paths: usize,
    /// The configurations in this time, and the one before.
    pub versions: Vec<Version>,
}

impl Outcome {
    /// Returns the observations of pairs with a changed node.
    pub fn own(&self) -> Seen {
        self.all.only(&self.changed)
    }
}

#[derive(Debug)]
pub struct Measure {
    ground: Arc<Ground>,
    /// Routes and probes.
    pub watch: Watch,
    /// The number of paths in the fullest table, by time.
    paths: Arc<Mutex<Vec<(Instant, usize)>>>,
    _counter: Task,
}

impl Measure {
    pub fn start(ground: Arc<Ground>) -> Result<Self> {
        let watch = Watch::start(&ground.machines())?;
        let paths = Arc::<Mutex<Vec<(Instant, usize)>>>::default();
        let counter = Task::spawn(count(Arc::clone(&ground), Arc::clone(&paths)));
        Ok(Self { ground, watch, paths, _counter: counter })
    }

    /// Says what has happened since a step began; `touched` are the nodes that it was done to.
    pub async fn outcome(
        &self,
        since: Start,
        confd: &Confd,
        touched: &BTreeSet<String>,
    ) -> Result<Outcome> {
        let (until, end) = (Instant::now(), Timestamp::now());
        let all = self.watch.seen(since.at, until).await?;
        let history: History = confd.history();
        let versions = history.since(since.at).to_vec();
        let mut changed = changed(&versions);
        changed.extend(touched.iter().cloned());
        let kept = kept(&versions, &changed);
        let (mut resets, mut needless) = (0, Vec::new());
        for machine in self.ground.machines() {
            for event in machine.logs().iter().flat_map(|log| journal::read(log)) {
                if event.up || event.time < since.time || event.time > end {
                    continue;
                }
                resets += 1;
                if kept.contains(&(machine.name.as_str(), event.protocol.as_str())) {
                    needless.push((machine.name.clone(), event.protocol));
                }
            }
        }
        Ok(Outcome {
            took: until - since.at,
            others: all.without(&changed),
            all,
            resets,
            needless,
            paths: self.most_paths(since.at),
            changed,
            versions,
        })
    }

    /// Returns the number of paths in the fullest table at the last count.
    pub fn held(&self) -> usize {
        lock(&self.paths).last().map_or(0, |(_, count)| *count)
    }

    fn most_paths(&self, since: Instant) -> usize {
        let now = fullest(&self.ground);
        let paths = lock(&self.paths);
        let counted = paths.iter().filter(|(at, _)| *at >= since).map(|(_, count)| *count);
        counted.chain([now]).max().unwrap_or(0)
    }
}

async fn count(ground: Arc<Ground>, paths: Arc<Mutex<Vec<(Instant, usize)>>>) {
    loop {
        tokio::time::sleep(COUNT).await;
        let ground = Arc::clone(&ground);
        let at = Instant::now();
        let Ok(most) = tokio::task::spawn_blocking(move || fullest(&ground)).await else { return };
        lock(&paths).push((at, most));
    }
}

fn fullest(ground: &Ground) -> usize {
    ground.machines().iter().filter_map(|machine| machine.paths()).max().unwrap_or(0)
}
