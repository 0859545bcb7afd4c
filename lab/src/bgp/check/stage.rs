//! The ground, one step after the other, and what each was expected to cost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bgp::confd::Confd;
use crate::bgp::family::Family;
use crate::bgp::ground::Ground;
use crate::bgp::machine::Machine;
pub(super) use crate::bgp::measure::Outcome;
use crate::bgp::measure::{Measure, Start};
use crate::bgp::propagation::{self, Rule};
use crate::bgp::sessions::count;
use crate::bgp::world::World;
use crate::checks::Check;

/// Sessions by selector collide; with BIRD 2 the last is up after 2 to 8 s, on a busy machine
/// later.
const PATIENCE: Duration = Duration::from_mins(1);
/// The cost of a change shows within two seconds.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) struct Stage {
    pub ground: Arc<Ground>,
    pub confd: Confd,
    pub measure: Measure,
    pub checks: Vec<Check>,
    pub nodes: u8,
}

impl Stage {
    pub async fn new(nodes: u8) -> Result<Self> {
        let ground = Arc::new(Ground::start(nodes, &[Family::V4]).await?);
        let confd = Confd::new(Arc::clone(&ground));
        let measure = Measure::start(Arc::clone(&ground))?;
        Ok(Self { ground, confd, measure, checks: Vec::new(), nodes })
    }

    /// Takes everything down.
    pub fn end(self) -> Result<Vec<Check>> {
        // Its sockets would keep the namespaces.
        drop(self.measure);
        self.ground.stop()?;
        Ok(self.checks)
    }

    /// Remembers what must hold, and says it.
    pub fn check(&mut self, name: &str, pass: bool, figure: impl Into<String>) {
        let check = Check::new(name, pass, figure);
        let verdict = if pass { "PASS" } else { "FAIL" };
        println!("{verdict}  {}: {}", check.name, check.figure);
        self.checks.push(check);
    }

    /// Restarts all BIRDs; checks that exactly the routes that BIRD's rule predicts are missing.
    pub async fn start(&mut self, name: &str, world: World) -> Result<()> {
        let began = Instant::now();
        self.confd.restart(world).with_context(|| name.to_owned())?;
        let version = self.confd.last();
        let expected = propagation::missing(&version.sessions, &BTreeSet::new(), Rule::Bird);
        let rfc = propagation::missing(&version.sessions, &BTreeSet::new(), Rule::Rfc);
        self.measure.watch.complete(expected.len(), PATIENCE).await?;
        let complete = began.elapsed();
        self.ground.established(&version.sessions, &BTreeSet::new(), PATIENCE).await?;
        let established = began.elapsed();
        // Whether more is learned than should be shows only after a while.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let missing: propagation::Pairs = self.measure.watch.missing().into_iter().collect();
        let figure = format!(
            "{} missing (BIRD's rule {}, RFC 4456 {}), {} sessions, routes after {:.1} s, all sessions after {:.1} s",
            missing.len(),
            expected.len(),
            rfc.len(),
            count(&version.sessions),
            complete.as_secs_f64(),
            established.as_secs_f64(),
        );
        self.check(name, missing == expected, figure);
        Ok(())
    }

    /// Does something, waits until all sessions are established and the routes are as they will be,
    /// and says what it cost.
    pub async fn step(
        &mut self,
        touched: &[&str],
        act: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<Outcome> {
        let start = Start::now();
        act(self).await?;
        let sessions = self.confd.last().sessions;
        let down: BTreeSet<String> = touched.iter().map(|&node| node.to_owned()).collect();
        let all = !touched.iter().any(|name| !self.machine(name).is_ok_and(|m| m.runs()));
        let waited_for = if all { BTreeSet::new() } else { down.clone() };
        self.ground.established(&sessions, &waited_for, PATIENCE).await?;
        tokio::time::sleep(SETTLE).await;
        self.measure.outcome(start, &self.confd, &down).await
    }

    /// A step that is one write of everything.
    pub async fn apply(&mut self, world: World) -> Result<Outcome> {
        self.step(&[], async |stage| stage.confd.apply(world).map(drop)).await
    }

    pub fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        self.ground.machine(name)
    }
}

/// Returns the cost of a step in one line.
pub(super) fn figure(outcome: &Outcome) -> String {
    let all = &outcome.all;
    format!(
        "{} pairs without a route, {} of them between others; the longest {:.2} s; {} of {} probes lost; {} session ends closed, {} of them needlessly",
        all.pairs().len(),
        outcome.others.pairs().len(),
        all.longest().as_secs_f64(),
        all.losses(),
        all.sent,
        outcome.resets,
        outcome.needless.len(),
    )
}
