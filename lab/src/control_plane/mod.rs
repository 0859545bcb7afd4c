//! A control plane on loopback: real API server semantics in seconds, without nodes and without
//! root.

mod components;
mod plane;
mod ports;

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

pub(crate) use components::{AUDIT_LOG, AUTHORITY, Layout, Ports, SERVICE_CIDR, etcd};
pub(crate) use plane::{
    controllers_ready, prepare, ready, start_controller_manager, start_core, start_scheduler,
};
pub use ports::free_port;

use crate::credentials::Access;
use crate::process::{Lifetime, Process};
use crate::{tools, workspace};

/// Maximum number of attempts to start when another process takes one of the ports.
const ATTEMPTS: usize = 3;

/// Shorter than Kubernetes' default of 50 s, with which every test of a dead node takes a minute.
pub(crate) const NODE_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Options {
    /// Runs kube-controller-manager (service accounts, Deployments, garbage collection,
    /// …).
    pub controller_manager: bool,
    /// Runs kube-scheduler.
    pub scheduler: bool,
    /// Further arguments of kube-apiserver, such as `--feature-gates=…`.
    pub apiserver_arguments: Vec<String>,
    /// The time for which a node without heartbeats stays Ready: where there are no kubelets,
    /// for ever.
    pub node_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_manager: true,
            scheduler: true,
            apiserver_arguments: Vec::new(),
            node_grace: NODE_GRACE,
        }
    }
}

/// etcd, kube-apiserver, kube-controller-manager and kube-scheduler on free loopback ports.
///
/// - Nothing is shared between two of them: ports, data, keys and logs are their own.
/// - They end with [`ControlPlane::stop`], when dropped, and with the process that started them,
///   however it ends.
/// - A panicking test leaves the logs in `.lab/run/` and says where.
#[derive(Debug)]
pub struct ControlPlane {
    layout: Layout,
    access: Access,
    processes: Vec<Process>,
}

impl Deref for ControlPlane {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves.
    pub async fn start(options: Options) -> Result<Self> {
        sweep();
        let mut programs = vec!["etcd", "kube-apiserver"];
        programs.extend(options.controller_manager.then_some("kube-controller-manager"));
        programs.extend(options.scheduler.then_some("kube-scheduler"));
        tools::prepare(programs).await?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&options).await {
                Err(error)
                    if attempt < ATTEMPTS
                        && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn start_once(options: &Options) -> Result<Self> {
        let layout = Layout {
            dir: workspace::own(&format!("control-plane-{}", workspace::unique()))?,
            host: "127.0.0.1".to_owned(),
            ports: ports::free()?,
            network: None,
            nodes: false,
            extra: options.apiserver_arguments.clone(),
        };
        let authority = prepare(&layout, &[])?;
        let access = Access::open(authority, &layout.server(), &layout.dir).await?;
        let processes = start_core(&layout, Lifetime::Starter)?;
        // From here on a failure drops `plane`, which ends what was started.
        let mut plane = Self { layout, access, processes };
        let client = plane.client()?;
        ready(&client, &plane.processes).await?;
        if options.scheduler {
            plane.processes.push(start_scheduler(&plane.layout, Lifetime::Starter)?);
        }
        if options.controller_manager {
            plane.processes.push(start_controller_manager(
                &plane.layout,
                options.node_grace,
                Lifetime::Starter,
            )?);
            controllers_ready(&client, &plane.processes).await?;
        }
        Ok(plane)
    }

    pub fn log(&self, component: &str) -> Result<&Path> {
        Ok(&self.component(component)?.log)
    }

    /// Kills a component (`etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`)
    /// with SIGKILL.
    pub fn kill(&self, component: &str) -> Result<()> {
        self.component(component)?.kill()
    }

    /// Starts a component again, on the same ports and data, and waits until it serves (where that
    /// can be checked: etcd and the API server). Kills a component that is still running first.
    pub async fn restart(&self, component: &str) -> Result<()> {
        let process = self.component(component)?;
        process.kill()?;
        process.spawn()?;
        if matches!(component, "etcd" | "kube-apiserver")
            && self.component("kube-apiserver")?.pid().is_some()
        {
            // A fresh client: pooled connections of an old one may belong to the killed server.
            ready(&self.client()?, std::slice::from_ref(process)).await?;
        }
        Ok(())
    }

    /// Stops a component without ending it (SIGSTOP): it accepts connections and answers none.
    pub fn pause(&self, component: &str) -> Result<()> {
        self.component(component)?.signal(Signal::SIGSTOP)
    }

    /// Lets a paused component continue.
    pub fn resume(&self, component: &str) -> Result<()> {
        self.component(component)?.signal(Signal::SIGCONT)
    }

    /// Ends everything and removes its files.
    #[allow(
        clippy::unused_async,
        reason = "callers await it; ending in order may take time some day"
    )]
    pub async fn stop(self) -> Result<()> {
        self.end()?;
        fs::remove_dir_all(&self.layout.dir)
            .with_context(|| format!("removing {}", self.layout.dir.display()))
    }

    fn component(&self, name: &str) -> Result<&Process> {
        self.processes.iter().find(|process| process.name == name).with_context(|| {
            let names: Vec<&str> =
                self.processes.iter().map(|process| process.name.as_str()).collect();
            format!("no component {name:?} here, only {}", names.join(", "))
        })
    }

    fn end(&self) -> Result<()> {
        // In reverse order, so that no client logs errors about a missing server.
        self.processes.iter().rev().try_for_each(Process::kill)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.end();
        let dir = &self.layout.dir;
        if std::thread::panicking() && dir.exists() {
            let _ = fs::remove_dir_all(dir.join("etcd"));
            crate::progress(&format!(
                "the control plane's logs are kept in {}",
                dir.join("log").display()
            ));
        } else {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Removes the data of control planes whose owner was killed before it could do so; their processes
/// died with it.
///
/// Logs are kept for a day, for later reading.
pub(crate) fn sweep() {
    const DAY: std::time::Duration = std::time::Duration::from_hours(24);
    let Ok(entries) = fs::read_dir(workspace::run()) else { return };
    for dir in entries.flatten().map(|entry| entry.path()) {
        if workspace::is_owned(&dir) != Some(false) {
            continue;
        }
        let old = !workspace::is_younger(&dir.join("owner"), DAY);
        let _ = fs::remove_dir_all(dir.join("etcd"));
        if old || !dir.join("log").exists() {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}
