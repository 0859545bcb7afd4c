//! The tasks of a process, the signals that end it, and its limit of open files.
use anyhow::{Context, anyhow};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{AbortHandle, JoinSet},
};

/// The tasks of a process, each of which runs for as long as the process does.
#[derive(Default)]
pub(crate) struct Tasks(JoinSet<(&'static str, anyhow::Result<()>)>);

impl Tasks {
    /// Starts a task under a name.
    pub(crate) fn start<F>(&mut self, name: &'static str, task: F) -> AbortHandle
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.0.spawn(async move { (name, task.await) })
    }

    /// Waits for the first task that ends, which none should, and returns the reason.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow!("{name} ended"),
            Some(Ok((name, Err(error)))) => error.context(name),
            Some(Err(error)) => anyhow::Error::new(error).context("a task died"),
            None => anyhow!("there is nothing to do"),
        }
    }
}

/// The signals that end a process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens for the signals from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT")?,
        })
    }

    /// Waits for either signal.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The limit of descriptors assumed if the system reports none: the usual initial one of a process.
const USUAL_DESCRIPTORS: u64 = 1024;

/// Raises the soft limit of descriptors to the hard limit, and returns the new limit. The soft limit exists for
/// programs that use `select()`; the hard limit is what the node's administrator intends.
pub(super) fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL_DESCRIPTORS };
    if soft >= hard {
        return soft;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, hard, "the limit of open files stays");
            soft
        }
    }
}
