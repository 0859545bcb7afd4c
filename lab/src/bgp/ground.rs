//! A ground: its network, its nodes, and what takes it down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::family::Family;
use super::machine::Machine;
use super::network::{self, MOST_NODES};
use super::render::Texts;
use super::sessions::Sessions;
use super::teardown;
use crate::cluster::{guard, program};
use crate::control_plane::free_port;
use crate::packages;
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::{listening, lock, until};
use crate::{progress, workspace};

/// Nodes with real BGP between them. Needs root.
///
/// - Nothing is configured in the caller's network namespace; Prometheus is reached through a relay
///   on loopback.
/// - It ends with [`Ground::stop`], when dropped, and by a guard process if its starter is killed.
#[derive(Debug)]
pub struct Ground {
    pub(super) id: String,
    /// The directory of the run.
    pub dir: PathBuf,
    machines: Mutex<BTreeMap<String, Arc<Machine>>>,
    /// Prometheus, relays.
    helpers: Mutex<BTreeMap<String, Process>>,
    /// Its other end of a pipe keeps the guard waiting.
    guard: Mutex<Option<Child>>,
}

impl Ground {
    /// Creates a network with this many nodes that speak some address families; their BIRDs do not
    /// run yet.
    pub async fn start(nodes: u8, families: &[Family]) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "network namespaces need root");
        ensure!((1..=MOST_NODES).contains(&nodes), "1 to {MOST_NODES} nodes, not {nodes}");
        // On a fresh machine this takes a while: signals must be heard meanwhile.
        let (versions, lab) = tokio::task::spawn_blocking(|| {
            teardown::sweep()?;
            anyhow::Ok((packages::ensure_routers()?, program::find()?))
        })
        .await??;
        progress(&versions);
        let started = Instant::now();
        let id = workspace::unique();
        let dir = teardown::create(&id)?;
        let ground = Self {
            id,
            dir,
            machines: Mutex::default(),
            helpers: Mutex::default(),
            guard: Mutex::default(),
        };
        // From here on everything is taken down again whatever happens: by dropping `ground`, or
        // else by the guard.
        let copy = ground.dir.join("lab");
        fs::copy(lab, &copy).context("copying the lab program")?;
        let guard = guard::start(&copy, &ground.dir, &["bgp-guard", &ground.id])?;
        *lock(&ground.guard) = Some(guard);
        network::create(&ground.id)?;
        ground.add(nodes, families)?;
        progress(&format!("{nodes} nodes in {:.2} s", started.elapsed().as_secs_f64()));
        Ok(ground)
    }

    /// Adds nodes; their BIRDs do not run yet.
    pub fn add(&self, nodes: u8, families: &[Family]) -> Result<Vec<Arc<Machine>>> {
        let there: Vec<u8> = self.machines().iter().map(|machine| machine.number).collect();
        // A number is never used twice: nobody takes a new node for an old one.
        let first = there.iter().max().map_or(0, |last| last + 1);
        ensure!(nodes <= MOST_NODES - first, "more than {MOST_NODES} nodes");
        let new: Vec<u8> = (first..first + nodes).collect();
        network::add(&self.id, &there, &new, families)?;
        let machine = |number: &u8| {
            Arc::new(Machine::new(&self.id, &self.dir, &node_name(*number), *number, families))
        };
        let new: Vec<Arc<Machine>> = new.iter().map(machine).collect();
        let named = new.iter().map(|machine| (machine.name.clone(), Arc::clone(machine)));
        lock(&self.machines).extend(named);
        Ok(new)
    }

    /// Removes a node as if it had been switched off.
    ///
    /// All watchers must have stopped: an open socket keeps a namespace.
    pub fn remove(&self, name: &str) -> Result<()> {
        let machine = self.machine(name)?;
        machine.end()?;
        network::remove(&self.id, machine.number)?;
        lock(&self.machines).remove(name);
        Ok(())
    }

    /// All nodes, by name.
    pub fn machines(&self) -> Vec<Arc<Machine>> {
        lock(&self.machines).values().cloned().collect()
    }

    /// A node.
    pub fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let found = lock(&self.machines).get(name).cloned();
        found.with_context(|| format!("no node {name:?} here"))
    }

    /// Pulls the cable of a node, or plugs it in again.
    pub fn set_link(&self, name: &str, up: bool) -> Result<()> {
        network::set_link(&self.id, self.machine(name)?.number, up)
    }

    /// Gives every node routes to the pods of all others that do not depend on BGP, as Felix does.
    pub fn program_routes(&self) -> Result<()> {
        let numbers: Vec<u8> = self.machines().iter().map(|machine| machine.number).collect();
        self.each(|machine| network::program(&self.id, machine.number, &numbers, &machine.families))
    }

    /// Gives all nodes their configurations at once, as confd would. Returns the names of those
    /// that had another one.
    pub fn configure(&self, texts: &BTreeMap<String, Texts>) -> Result<BTreeSet<String>> {
        let changed = Mutex::new(BTreeSet::new());
        self.each(|machine| {
            if machine.configure(texts.get(&machine.name).unwrap_or(&Texts::new()))? {
                lock(&changed).insert(machine.name.clone());
            }
            Ok(())
        })?;
        Ok(changed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something on all nodes at once.
    pub(super) fn each(&self, act: impl Fn(&Machine) -> Result<()> + Sync) -> Result<()> {
        let machines = self.machines();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                machines.iter().map(|machine| scope.spawn(|| act(machine))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"))
            })
        })
    }

    /// Waits until every session is established; those with nodes in `down` are not waited for.
    pub async fn established(
        &self,
        sessions: &Sessions,
        down: &BTreeSet<String>,
        limit: Duration,
    ) -> Result<Duration> {
        let began = Instant::now();
        until("all sessions established", limit, || async {
            let missing = self.down_sessions(sessions, down);
            let first = missing.first();
            Ok(first.map(|(node, protocol)| format!("{} down, {node} {protocol}", missing.len())))
        })
        .await?;
        Ok(began.elapsed())
    }

    /// The ends of sessions that are not established, by node and protocol.
    pub fn down_sessions(
        &self,
        sessions: &Sessions,
        down: &BTreeSet<String>,
    ) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        for machine in self.machines().iter().filter(|machine| !down.contains(&machine.name)) {
            let up = machine.established();
            let ends = sessions.get(&machine.name).into_iter().flatten();
            let lost = ends
                .filter(|(protocol, end)| !up.contains(*protocol) && !down.contains(&end.peer))
                .map(|(protocol, _)| (machine.name.clone(), protocol.clone()));
            missing.extend(lost);
        }
        missing
    }

    /// Makes an address of the ground's own network reachable on loopback; returns the address
    /// there.
    pub async fn relay(&self, name: &str, target: &str) -> Result<String> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let network = network::outer(&self.id);
        let arguments = ["relay", "--listen", &listen, "--network", &network, "--target", target];
        self.help(name, CommandLine::new(self.dir.join("lab"), arguments))?;
        listening(name, Duration::from_secs(10), &listen, || Ok(())).await?;
        Ok(listen)
    }

    /// Starts a process of the ground; one of the same name that runs is ended.
    pub(super) fn help(&self, name: &str, command: CommandLine) -> Result<()> {
        self.end_helper(name)?;
        let process = Process::start(name, command, &self.dir, Lifetime::Starter)?;
        lock(&self.helpers).insert(name.to_owned(), process);
        Ok(())
    }

    /// Kills a process of the ground; fine if there is none.
    pub(super) fn end_helper(&self, name: &str) -> Result<()> {
        lock(&self.helpers).remove(name).map_or(Ok(()), |process| process.kill())
    }

    /// Takes everything down, even if it is still in use.
    pub fn stop(&self) -> Result<()> {
        // The guard first: it would do the same at the same time.
        if let Some(mut guard) = lock(&self.guard).take() {
            guard.kill()?;
            guard.wait()?;
        }
        // Then what this process started, so that it is reaped; the rest by what is on disk.
        lock(&self.helpers).values().try_for_each(Process::kill)?;
        self.machines().iter().try_for_each(|machine| machine.end())?;
        teardown::end(&self.id)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.dir.exists() {
            return;
        }
        if std::thread::panicking() {
            guard::save_logs(&self.dir);
        }
        if let Err(error) = self.stop() {
            progress(&format!("taking the BGP ground down failed: {error:#}"));
        }
    }
}

pub fn node_name(number: u8) -> String {
    format!("bgp-{number:02}")
}

#[cfg(test)]
mod tests {
    use super::super::render::texts;
    use super::super::sessions::sessions;
    use super::super::states;
    use super::super::watch::{Seen, Watch};
    use super::super::world::World;
    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// Waits for the end, or the return, of all routes of BGP; returns what was seen meanwhile.
    async fn configured(ground: &Ground, watch: &Watch, mesh: bool, routes: usize) -> Seen {
        let world = World { mesh, ..states::dual(states::mesh(3)) };
        let began = Instant::now();
        ground.configure(&texts(&world, &sessions(&world))).unwrap();
        let sessions = if mesh { 4 } else { 0 };
        until("BGP", PATIENCE, || async {
            let machines = ground.machines();
            let found = machines.iter().map(|machine| machine.established().len());
            Ok((!found.clone().all(|found| found == sessions))
                .then(|| format!("{:?}", found.collect::<Vec<_>>())))
        })
        .await
        .unwrap();
        until("routes", PATIENCE, || async {
            let missing = watch.missing().len();
            Ok((missing != routes).then(|| format!("{missing} are missing")))
        })
        .await
        .unwrap();
        // Two rounds of probes, which say what the routes are worth.
        watch.seen(began, Instant::now() + Duration::from_millis(200)).await.unwrap()
    }

    /// The stage on which `mesh: Retire` is played: without these routes, everything is lost.
    #[tokio::test]
    async fn routes_beside_those_of_bird_carry_every_probe_when_bgp_ends() {
        if !nix::unistd::geteuid().is_root() {
            return crate::skips::left_out("routes beside BIRD's: network namespaces need root");
        }
        let ground = Ground::start(3, &Family::ALL).await.unwrap();
        let world = states::dual(states::mesh(3));
        let texts = texts(&world, &sessions(&world));
        ground.each(|machine| machine.boot(&texts[&machine.name])).unwrap();
        let watch = Watch::start(&ground.machines()).unwrap();
        watch.complete(0, PATIENCE).await.unwrap();
        let bare = configured(&ground, &watch, false, 6).await;
        assert!(bare.losses() > 0 && bare.pairs().len() == 6, "{bare:?}");
        configured(&ground, &watch, true, 0).await;
        ground.program_routes().unwrap();
        let seen = configured(&ground, &watch, false, 0).await;
        assert!(seen.sent > 0 && seen.losses() == 0 && seen.gaps.is_empty(), "{seen:?}");
        drop(watch);
        ground.stop().unwrap();
    }
}
