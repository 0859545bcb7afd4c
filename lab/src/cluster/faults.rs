//! Faults of the control plane and of kubelets.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::Cluster;
use super::addresses::{GATEWAY, SINK_PORT};
use crate::wait::until;
use crate::workspace;

/// A kubelet that finds its node as it was registers within seconds; a busy machine takes longer.
const REGISTERED: Duration = Duration::from_mins(1);
/// The words with which a kubelet ends its registration, at each of its starts.
const WORDS: &str = "Successfully registered node";

impl Cluster {
    /// Returns address and port of the sink, which discards everything: pods reach it over the link
    /// of their node.
    pub fn sink_address(&self) -> (&'static str, u16) {
        (GATEWAY, SINK_PORT)
    }

    /// Stops a component of the control plane without ending it (SIGSTOP): it accepts connections
    /// and answers none.
    pub fn pause(&self, component: &str) -> Result<()> {
        self.signal(component, Signal::SIGSTOP)
    }

    /// Lets a paused component continue.
    pub fn resume(&self, component: &str) -> Result<()> {
        self.signal(component, Signal::SIGCONT)
    }

    fn signal(&self, component: &str, signal: Signal) -> Result<()> {
        let processes = self.processes();
        let process = processes.get(component);
        process.with_context(|| format!("no {component} was started here"))?.signal(signal)
    }

    /// Kills a node's kubelet, which is started again, and waits until the new one has registered
    /// its node. The pods run on meanwhile.
    ///
    /// A node survives five of these.
    pub async fn restart_kubelet(&self, node: &str) -> Result<()> {
        let before = self.registrations(node)?;
        self.in_node(node, "pkill", &["-KILL", "-x", "kubelet"])?;
        until(&format!("the kubelet of {node} registered again"), REGISTERED, || async {
            let count = self.registrations(node)?;
            Ok((count <= before).then(|| format!("{count} registrations in its log")))
        })
        .await
    }

    /// Counts the registrations in the log of a node's kubelets.
    fn registrations(&self, node: &str) -> Result<usize> {
        self.number_of(node)?;
        let log = self.dir.join(format!("log/{node}-kubelet.log"));
        Ok(workspace::read(&log)?.lines().filter(|line| line.contains(WORDS)).count())
    }
}
