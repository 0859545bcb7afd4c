//! A real cluster: a control plane and nodes in network namespaces of their own. Needs root.

pub mod addresses;
pub mod apply;
mod cgroups;
mod containers;
pub(crate) mod definitions;
pub(crate) mod exposure;
mod faults;
pub mod forward;
pub(crate) mod guard;
mod impairment;
mod monitoring;
pub(crate) mod network;
mod nodes;
pub mod operator;
pub(crate) mod program;
mod start;
pub(crate) mod state;
mod sysctls;
pub(crate) mod teardown;
mod traffic;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

pub use crate::impair::Counts;
pub use definitions::{
    cached as prometheus_operator_definition, of_karpenter as definitions_of_karpenter,
    of_olm as olm_definition,
};
pub use exposure::Sample;
pub use guard::run as run_guard;
pub use impairment::{Impaired, Impairment, parse_delay, parse_share};
pub use teardown::leftovers;
pub(crate) use teardown::teardown_leftovers;
pub use traffic::{Counters, Traffic, parse_rate};

use crate::control_plane;
use crate::credentials::{ADMINS, Access, Credentials};
use crate::pki::Authority;
use crate::process::{Lifetime, Process};
use crate::wait::lock;
use state::State;

/// Who configures the Prometheus, which has the names of kube-prometheus and scrapes a
/// `node_exporter` on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Monitoring {
    /// There is none.
    None,
    /// The lab: the nodes and the operator's own metrics. Half as many programs to build and to start.
    Plain,
    /// prometheus-operator, from `ServiceMonitor`s, `PodMonitor`s and `PrometheusRule`s.
    Operator,
}

/// The parts of a [`Cluster`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of nodes, `node-1` and up.
    pub nodes: usize,
    /// Link capacity to write on every node as `traffic.example.com/capacity`; none = no
    /// annotation.
    pub capacity: Option<String>,
    /// Zones of the nodes, one after the other and again from the first; none = no label.
    pub zones: Vec<String>,
    /// The Prometheus, and who writes its configuration.
    pub monitoring: Monitoring,
    /// Image archives to import on every node, beside the lab's own.
    pub images: Vec<PathBuf>,
    /// True if it outlives this process.
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            capacity: None,
            zones: Vec::new(),
            monitoring: Monitoring::Operator,
            images: Vec::new(),
            keep: false,
        }
    }
}

/// A control plane with nodes, and on them a Prometheus.
///
/// - Nothing is configured in the caller's network namespace; users come in through relays on
///   loopback.
/// - Unless it is meant to stay, it is taken down when dropped, and by a guard process if its
///   starter is killed.
#[derive(Debug)]
pub struct Cluster {
    state: Mutex<State>,
    dir: PathBuf,
    access: Access,
    /// Started by this process; those of another are known by their pid files alone.
    processes: Mutex<BTreeMap<String, Process>>,
    /// True if dropping it takes it down.
    owned: bool,
    /// True if its processes outlive this one.
    detached: bool,
    /// This end of a pipe keeps the guard waiting.
    guard: Option<Child>,
}

impl Deref for Cluster {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl Cluster {
    /// Starts a cluster and waits until its nodes are ready and, if requested, its Prometheus
    /// answers.
    pub async fn start(options: Options) -> Result<Self> {
        let keep = options.keep;
        let mut cluster = start::start(options).await?;
        if keep {
            cluster.keep()?;
        }
        Ok(cluster)
    }

    /// Starts a cluster that can be kept later: until [`Cluster::keep`] it is taken down when
    /// dropped.
    pub async fn start_keepable(options: Options) -> Result<Self> {
        start::start(Options { keep: true, ..options }).await
    }

    /// From now on the cluster stays, until it is taken down explicitly.
    pub fn keep(&mut self) -> Result<()> {
        let mut state = self.state();
        state.keep = true;
        state.save()?;
        drop(state);
        self.owned = false;
        self.end_process("guard")?;
        if let Some(mut guard) = self.guard.take() {
            guard.wait()?;
        }
        Ok(())
    }

    /// Attaches to the cluster that `lab up` left running.
    pub async fn attach() -> Result<Self> {
        let state = state::kept().context("no cluster is up: `lab up` starts one")?;
        start::attach(state).await
    }

    pub fn node_names(&self) -> Vec<String> {
        (1..=self.state().nodes).map(addresses::node_name).collect()
    }

    /// Runs kubectl as administrator and returns what it prints.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut all =
            vec!["--kubeconfig", self.kubeconfig().to_str().context("a path that is no UTF-8")?];
        all.extend(arguments);
        crate::process::output(crate::tools::ensure("kubectl")?, &all)
    }

    /// Applies manifests (YAML, any number of documents) on the server's side; unknown fields are
    /// refused.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        apply::apply(&self.client()?, yaml).await
    }

    /// Sends traffic from a node, at an even rate, to a sink outside of all nodes.
    pub fn traffic(&self, node: &str, bits_per_second: u64, duration: Duration) -> Result<Traffic> {
        Traffic::start(&self.namespace_of(node)?, bits_per_second, duration)
    }

    /// Starts a program of this machine in the network of a node or, without one, in the network
    /// between the nodes, where its address is [`addresses::GATEWAY`].
    pub fn start_beside(
        &self,
        name: &str,
        node: Option<&str>,
        command: crate::process::CommandLine,
    ) -> Result<()> {
        let network = match node {
            Some(node) => self.namespace_of(node)?,
            None => network::outer(&self.id()),
        };
        self.run(name, command.inside(Some(&network)))
    }

    /// Ends such a program; it may have ended already.
    pub fn end_beside(&self, name: &str) -> Result<()> {
        self.end_process(name)?;
        self.processes().remove(name);
        Ok(())
    }

    /// Writes a kubeconfig of an administrator for such a program; returns its path.
    pub fn kubeconfig_inside(&self, name: &str) -> Result<PathBuf> {
        let layout = start::layout(&self.id());
        let authority = Authority::load(&layout.dir.join("pki"), control_plane::AUTHORITY)?;
        let inside = Credentials::new(authority, &layout.server(), &layout.dir.join("kubeconfig"))?;
        inside.kubeconfig(name, &[ADMINS])
    }

    /// Reads the byte counters of a node's `eth0`.
    pub fn counters(&self, node: &str) -> Result<Counters> {
        traffic::counters(&self.namespace_of(node)?)
    }

    /// Takes everything down.
    #[allow(
        clippy::unused_async,
        reason = "callers await it; ending in order may take time some day"
    )]
    pub async fn down(mut self) -> Result<()> {
        self.owned = false;
        self.end()
    }

    /// Returns the run's directory: logs are in `log/` below it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn end(&self) -> Result<()> {
        // The guard first, or it would do the same at the same time.
        self.end_process("guard")?;
        // Then the children of this process, to reap them; the rest is found by the files on disk.
        self.processes().values().try_for_each(Process::kill)?;
        teardown::teardown(&self.id())
    }

    fn id(&self) -> String {
        self.state().id.clone()
    }

    /// Returns the beginning of the cgroups of all processes on its nodes.
    pub fn cgroup(&self) -> String {
        format!("/lab-{}/", self.id())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        lock(&self.processes)
    }

    fn lifetime(&self) -> Lifetime {
        if self.detached || self.state().keep { Lifetime::Detached } else { Lifetime::Starter }
    }

    /// Returns a node's number and checks that the cluster has it.
    fn number_of(&self, node: &str) -> Result<usize> {
        let nodes = self.state().nodes;
        let number = addresses::node_number(node).filter(|number| *number <= nodes);
        number.with_context(|| {
            format!("no node {node:?} here, only {}", self.node_names().join(", "))
        })
    }

    fn namespace_of(&self, node: &str) -> Result<String> {
        Ok(network::node(&self.id(), self.number_of(node)?))
    }

    /// Starts a process of the cluster and remembers it.
    fn run(&self, name: &str, command: crate::process::CommandLine) -> Result<()> {
        let process = Process::start(name, command, &self.dir, self.lifetime())?;
        self.processes().insert(name.to_owned(), process);
        Ok(())
    }

    /// Ends a process of the cluster, whichever process started it.
    fn end_process(&self, name: &str) -> Result<()> {
        if let Some(process) = self.processes().get(name) {
            return process.kill();
        }
        let file = self.dir.join(format!("{name}.pid"));
        if let Some(pid) = teardown::recorded(&file) {
            crate::process::kill_recorded(pid, &self.dir)?;
            let _ = std::fs::remove_file(file);
        }
        Ok(())
    }

    /// Fails if a process that this process started has ended.
    fn check(&self) -> Result<()> {
        self.processes().values().try_for_each(Process::check)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if std::thread::panicking() {
            guard::save_logs(&self.dir);
        }
        if let Err(error) = self.end() {
            crate::progress(&format!("taking the cluster down failed: {error:#}"));
        }
    }
}

/// Returns the administrator's kubeconfig of the cluster that stayed.
pub(crate) fn kept_kubeconfig() -> Option<PathBuf> {
    state::kept().map(|state| state::dir(&state.id).join("kubeconfig/admin.conf"))
}

/// Checks that a cluster can be run here at all.
fn require_root() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "a cluster with nodes needs root (network namespaces, mounts, cgroups); a control plane alone does not"
    );
    Ok(())
}
