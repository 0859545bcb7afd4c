//! The nodes, the operator, and one step after the other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};

use super::Scene;
use super::operator::Operator;
use super::set::Set;
use super::step::Step;
use super::table::{Row, Writes, from_peers};
use crate::objects::ours;
use crate::report::Act;
use lab::bgp::{Measure, Monitoring, Site, Start, more_while_restarting};
use lab::cluster::apply::apply;

/// The object that all is about.
pub(super) const NAME: &str = "route-reflectors";
/// Each of a dozen writes waits until all sessions were scraped again, longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);
/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(200);
/// The time for which everything must have been as it should be: what a change costs shows within
/// two seconds.
const STILL: Duration = Duration::from_secs(1);
/// Nodes hear of a change each in its own time, as from confds that poll nothing and are busy.
const SKEW: Duration = Duration::from_millis(200);

pub(super) struct Stage<'a> {
    pub site: Site,
    pub client: Client,
    pub measure: Measure,
    pub monitoring: Monitoring,
    pub operator: Operator,
    pub sets: Api<DynamicObject>,
    act: Act<'a>,
    pub zones: &'static [&'static str],
    pub rows: Vec<Row>,
    /// Nodes whose BIRD is dead.
    pub dead: BTreeSet<String>,
    /// Violations of the rules.
    pub wrong: Vec<String>,
}

impl<'a> Stage<'a> {
    pub async fn set(scene: &Scene, operator: &Path, act: Act<'a>) -> Result<Self> {
        let site = Site::start(scene.nodes, scene.zones, scene.families, SKEW).await?;
        let client = site.plane.client()?;
        let measure = Measure::start(Arc::clone(&site.ground))?;
        let monitoring = Monitoring::start(Arc::clone(&site.ground)).await?;
        let operator = Operator::start(operator, &site, &monitoring).await?;
        measure.watch.complete(0, PATIENCE).await?;
        let sets = ours("RouteReflectorSet", "routereflectorsets");
        Ok(Self {
            sets: Api::all_with(client.clone(), &sets),
            site,
            client,
            measure,
            monitoring,
            operator,
            act,
            zones: scene.zones,
            rows: Vec::new(),
            dead: BTreeSet::new(),
            wrong: Vec::new(),
        })
    }

    /// Takes everything down.
    pub async fn strike(self) -> Result<()> {
        // Their sockets would keep the namespaces.
        drop((self.measure, self.monitoring, self.operator));
        self.site.stop().await
    }

    /// Says what happens next, or what has happened.
    pub fn say(&self, text: &str) {
        self.act.say(text);
    }

    pub async fn apply(&self, yaml: &str) -> Result<()> {
        apply(&self.client, yaml).await
    }

    /// Returns the status of the object.
    pub async fn reported(&self) -> Result<Set> {
        Ok(Set::read(&self.sets.get(NAME).await?))
    }

    /// Takes a step, waits until the set has converged to what is wanted and BGP to that, and
    /// judges the time it took.
    ///
    /// `wanted` says what is missing.
    pub async fn step(
        &mut self,
        step: Step,
        act: impl AsyncFnOnce(&mut Self) -> Result<()>,
        wanted: impl Fn(&Set) -> Option<String>,
    ) -> Result<()> {
        let start = Start::now();
        self.say(&format!("{} …", step.name));
        act(self).await.with_context(|| step.name.clone())?;
        self.settled(&step.name, async |stage: &Self| {
            let set = stage.reported().await?;
            Ok(match wanted(&set) {
                Some(still) => Some(format!("{still}; {}", set.why)),
                None if !set.current || !set.converged => Some(set.why),
                None if !set.safe => Some("RoutesSafe is not True".to_owned()),
                None => stage.crowded(),
            })
        })
        .await?;
        self.judge(step, start).await
    }

    /// Judges what happened from `start` until now.
    pub async fn judge(&mut self, step: Step, start: Start) -> Result<()> {
        let took = start.at.elapsed();
        let outcome = self.measure.outcome(start, &self.site.confd, &step.touched).await?;
        let mut row = Row::new(&step, took, outcome);
        let sessions = self.site.confd.last().sessions;
        let twice = step.restarts.map(|node| more_while_restarting(&sessions, &node));
        row.twice = twice.unwrap_or(0);
        row.estimate = self.operator.estimate(start.at);
        row.peers = self.peers().await?;
        row.writes =
            Writes::of(&self.site.plane.audit_since(start.time)?, start.time, Timestamp::now());
        self.say(&format!("==> {}", row.line()));
        self.wrong.extend(row.wrong());
        self.rows.push(row);
        Ok(())
    }

    /// Waits until it holds, every session is established, no route is missing, and stays so.
    pub async fn settled(
        &self,
        what: &str,
        missing: impl AsyncFn(&Self) -> Result<Option<String>>,
    ) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut since = None;
        loop {
            if let Some(why) = self.operator.supervise()? {
                self.say(&format!(
                    "    the operator ended and is started again: {}",
                    why.lines().last().unwrap_or_default()
                ));
            }
            let still = match missing(self).await {
                Ok(still) => still.or_else(|| self.unsettled()),
                Err(error) => Some(format!("{error:#}")),
            };
            match still {
                None if since.get_or_insert_with(Instant::now).elapsed() >= STILL => return Ok(()),
                None => {}
                Some(still) => {
                    since = None;
                    if Instant::now() > end {
                        bail!("{what}: not within {} s: {still}", PATIENCE.as_secs());
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn unsettled(&self) -> Option<String> {
        if let Err(error) = self.site.follower.check() {
            return Some(format!("{error:#}"));
        }
        let sessions = self.site.confd.last().sessions;
        let down = self.site.ground.down_sessions(&sessions, &self.dead);
        if let Some((node, protocol)) = down.first() {
            return Some(format!("{} session ends down, {node} {protocol}", down.len()));
        }
        let mut missing = self.measure.watch.missing().into_iter();
        missing
            .find(|(who, whose)| !self.dead.contains(who) && !self.dead.contains(whose))
            .map(|(who, whose)| format!("{who} has no route to {whose}"))
    }

    /// Returns a table that still holds paths that the previous step made superfluous: BIRD
    /// sends withdrawals some time after its sessions have changed.
    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
    fn crowded(&self) -> Option<String> {
        let (held, expected) = (from_peers(self.measure.held()), self.operator.estimated()?);
        (held as f64 > expected)
            .then(|| format!("a table holds {held} paths from peers, not {expected}"))
    }

    /// Waits until it holds of the set.
    pub async fn until(&self, what: &str, holds: impl Fn(&Set) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.reported().await;
            if found.as_ref().is_ok_and(&holds) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{what}: not within {} s: {found:?}", PATIENCE.as_secs());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Returns the number of the operator's BGPPeers.
    async fn peers(&self) -> Result<usize> {
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=traffic-operator");
        Ok(calicos(&self.client, "BGPPeer", "bgppeers").list(&ours).await?.items.len())
    }
}

pub(super) fn calicos(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}
