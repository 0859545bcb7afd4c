//! The probing itself: one task per target, so that a target that does not answer delays only its
//! own task.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{
    destination::{self, Surroundings},
    members::Identity,
    metrics::{Metrics, Refreshed, Series, Skipped},
    pinglist::{Destination, Pinglist},
    probe::{Outcome, Probe},
    schedule::{Clock, Schedule, Start},
    source::Refresh,
    target::{self, Target},
};

/// A list lives for at least this many periods: with a period of minutes, ten minutes without the
/// operator do not matter.
const PERIODS: u32 = 10;

/// The period of probes of a target, and the timeout of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timing {
    period: Duration,
    timeout: Duration,
}

/// Keeps the running probes in agreement with the lists.
pub struct Prober {
    who: Identity,
    metrics: Metrics,
    /// The time for which a list stays valid without confirmation.
    ttl: Duration,
    /// Slots keep their times across a restart.
    clock: Clock,
    list: Option<Pinglist>,
    /// The list is kept but not followed: its source may still confirm it.
    expired: bool,
    confirmed: Instant,
    timing: watch::Sender<Timing>,
    targets: BTreeSet<Target>,
    running: BTreeMap<Target, AbortHandle>,
    /// What the probes of destinations depend on.
    surroundings: Surroundings,
    destinations: BTreeMap<Destination, AbortHandle>,
    tasks: JoinSet<()>,
}

impl Prober {
    /// Creates a prober without targets.
    #[must_use]
    pub fn new(who: Identity, metrics: Metrics, ttl: Duration, surroundings: Surroundings) -> Self {
        let timing = Timing { period: Duration::MAX, timeout: Duration::MAX };
        Self {
            who,
            metrics,
            ttl,
            clock: Clock::new(),
            list: None,
            expired: false,
            confirmed: Instant::now(),
            timing: watch::Sender::new(timing),
            targets: BTreeSet::new(),
            running: BTreeMap::new(),
            surroundings,
            destinations: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until the source of lists ends.
    ///
    /// # Errors
    /// When a task panics.
    pub async fn run(mut self, mut lists: mpsc::Receiver<Refresh>) -> anyhow::Result<()> {
        loop {
            let expires = self.expires();
            tokio::select! {
                refresh = lists.recv() => match refresh {
                    Some(refresh) => self.refresh(refresh),
                    None => return Ok(()),
                },
                () = sleep_until(expires.unwrap_or_else(Instant::now)), if expires.is_some() => {
                    self.expire();
                }
                Some(ended) = self.tasks.join_next() => match ended {
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => return Err(error).context("a probe"),
                    Ok(()) => bail!("a probe ended by itself"),
                },
            }
        }
    }

    fn refresh(&mut self, refresh: Refresh) {
        match refresh {
            Refresh::Changed(list) => {
                self.metrics.refreshed(Refreshed::Changed);
                self.confirmed = Instant::now();
                self.follow(*list);
            }
            Refresh::Unchanged => {
                self.metrics.refreshed(Refreshed::Unchanged);
                self.confirmed = Instant::now();
                if self.expired
                    && let Some(list) = self.list.take()
                {
                    self.follow(list);
                }
            }
            Refresh::Error => self.metrics.refreshed(Refreshed::Error),
        }
    }

    /// The time at which the list expires; `None` without a valid one.
    fn expires(&self) -> Option<Instant> {
        let list = self.list.as_ref().filter(|_| !self.expired)?;
        self.confirmed.checked_add(self.ttl.max(list.period.saturating_mul(PERIODS)))
    }

    /// Stops all probes: old addresses may belong to other pods by now.
    fn expire(&mut self) {
        tracing::warn!(
            age = %humantime::format_duration(Duration::from_secs(self.confirmed.elapsed().as_secs())),
            "the operator no longer confirms the list of peers: probing stops"
        );
        self.expired = true;
        self.metrics.set_list(0, super::pinglist::DEFAULT_PERIOD);
        self.replace(BTreeSet::new());
        self.replace_destinations(&[]);
    }

    fn follow(&mut self, list: Pinglist) {
        let targets = target::targets(&list, &self.who);
        tracing::info!(
            peers = list.peers.len(),
            targets = targets.len(),
            destinations = list.targets.len(),
            unreachable = target::unreachable(&list, &self.who),
            period = %humantime::format_duration(list.period),
            timeout = %humantime::format_duration(list.timeout),
            "list of peers"
        );
        self.metrics.set_list(list.peers.len(), list.period);
        let timing = Timing { period: list.period, timeout: list.timeout };
        // Running probes finish first: only the following slots move.
        self.timing.send_if_modified(|now| std::mem::replace(now, timing) != timing);
        self.expired = false;
        self.replace(targets);
        self.replace_destinations(&list.targets);
        self.list = Some(list);
    }

    fn replace_destinations(&mut self, wanted: &[Destination]) {
        let gone = self.destinations.extract_if(.., |to, _| !wanted.contains(to));
        for (to, task) in gone {
            task.abort();
            self.metrics.forget_target(&to.name);
        }
        for to in wanted {
            if self.destinations.contains_key(to) {
                continue;
            }
            let Identity { namespace, name, ips, .. } = &self.who;
            let slots = destination::Slots {
                surroundings: self.surroundings.clone(),
                series: self.metrics.target(to),
                metrics: self.metrics.clone(),
                clock: self.clock,
                identity: format!("{namespace}/{name}:{ips:?}>{}", to.name),
                to: to.clone(),
            };
            self.destinations.insert(to.clone(), self.tasks.spawn(slots.run()));
        }
    }

    fn replace(&mut self, targets: BTreeSet<Target>) {
        for gone in self.targets.difference(&targets) {
            if let Some(task) = self.running.remove(gone) {
                task.abort();
            }
        }
        self.metrics.forget(&target::stale(&self.targets, &targets));
        for target in targets.difference(&self.targets) {
            let series = self.metrics.series(target);
            let prober = Slots {
                probe: Probe::new(target, &series),
                identity: target.identity.clone(),
                series,
                metrics: self.metrics.clone(),
                clock: self.clock,
            };
            let task = self.tasks.spawn(prober.run(self.timing.subscribe()));
            self.running.insert(target.clone(), task);
        }
        self.targets = targets;
    }
}

/// The slots of one target, one after the other.
struct Slots {
    probe: Probe,
    identity: String,
    series: Series,
    metrics: Metrics,
    clock: Clock,
}

impl Slots {
    async fn run(mut self, mut timing: watch::Receiver<Timing>) {
        loop {
            let Timing { period, timeout } = *timing.borrow_and_update();
            let schedule = Schedule::new(&self.identity, period);
            let timeout = timeout.min(schedule.longest_probe());
            let mut slot = schedule.next(self.clock.now());
            loop {
                let due = self.clock.instant(schedule.due(slot));
                tokio::select! {
                    biased;
                    changed = timing.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    () = sleep_until(due) => {}
                    never = self.probe.idle() => match never {},
                }
                slot = self.slot(&schedule, slot, due, timeout).await;
            }
        }
    }

    /// Performs the actions of a slot, and returns the next one. Each slot is counted once: as a
    /// success, as a failure, or as skipped.
    async fn slot(
        &mut self,
        schedule: &Schedule,
        slot: u64,
        due: Instant,
        timeout: Duration,
    ) -> u64 {
        let late = due.elapsed();
        self.metrics.delayed(late);
        let mut lost = Skipped::Starved;
        match schedule.start(late, timeout) {
            Start::Starved => self.metrics.skipped(Skipped::Starved, 1),
            Start::Now => {
                let outcome = self.probe.once(timeout, schedule.longest_delay(timeout)).await;
                match outcome {
                    Outcome::Success(answer) => {
                        lost = Skipped::Busy;
                        self.series.success(answer.rtt, answer.smoothed);
                    }
                    Outcome::Failure(reason) => {
                        lost = Skipped::Busy;
                        self.series.failure(reason);
                    }
                    Outcome::Local => self.metrics.skipped(Skipped::Local, 1),
                    Outcome::Void => self.metrics.skipped(Skipped::Starved, 1),
                }
                self.probe.learn(&outcome).await;
            }
        }
        // A small delay is acceptable (see `Schedule::start`); a probe that is later counts as
        // lost.
        let patience = schedule.longest_delay(timeout);
        let next = schedule.next(self.clock.now().saturating_sub(patience)).max(slot + 1);
        self.metrics.skipped(lost, next - slot - 1);
        next
    }
}
