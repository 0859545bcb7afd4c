//! A worker's place in a Swarm: the file of its streams, and the port of its reports.
use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::sync::mpsc;

use super::{
    metrics::{Metrics, Role},
    share::{self, Share},
    status::{Signer, Status},
};
use crate::{
    file::{self, Found},
    server::{self, Limits},
    tasks::Tasks,
};

/// Time between two checks of the file: the handover of a stream waits for it, and one `stat` costs
/// nothing.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of connections: the operator, the kubelet's probes, some replicas of Prometheus,
/// and an occasional user. Connections are kept between requests, for as long as the original's
/// server keeps them.
const CONNECTIONS: Limits =
    Limits { connections: 64, of_one_source: 16, headers: Duration::from_secs(10) };

/// The file of a worker's streams, and the port of its reports.
#[derive(Clone, Debug)]
pub struct Place {
    /// Path of the file with the list.
    pub file: PathBuf,
    /// The name of the worker in the file.
    pub worker: String,
    /// The number of the part of a divided file, and the number of parts.
    pub part: Option<(u32, u32)>,
    /// Port on which it reports what runs.
    pub port: u16,
    /// Signs the reports.
    pub signer: Signer,
}

/// A place in use: its port answers, and its file is followed.
pub(crate) struct Taken {
    pub(crate) worker: Arc<str>,
    pub(crate) status: Status,
    pub(crate) metrics: Metrics,
    /// Results of the checks of the file.
    pub(crate) found: mpsc::Receiver<Found<Share>>,
    pub(crate) tasks: Tasks,
}

impl Place {
    /// Serves the port, and follows the file.
    pub(crate) async fn take(self, role: Role) -> anyhow::Result<Taken> {
        let metrics = Metrics::new(role);
        let worker: Arc<str> = self.worker.into();
        let status = Status::new(worker.clone(), self.signer, metrics.clone());
        let port = self.port;
        let listener = server::listen(port)
            .await
            .with_context(|| format!("HTTP_PORT: cannot listen on TCP port {port}"))?;
        let http = listener.local_addr()?;
        tracing::info!(%worker, file = %self.file.display(), %http, "in a Swarm");
        let mut tasks = Tasks::default();
        tasks.start("server", server::serve(listener, status.clone(), CONNECTIONS));
        // One is enough: the next file waits until this one is taken.
        let (files, found) = mpsc::channel(1);
        let (name, part) = (worker.clone(), self.part);
        let parse = move |text: &[u8]| share::parse(text, &name, part);
        tasks.start("configuration file", file::watch(self.file, INTERVAL, parse, files));
        Ok(Taken { worker, status, metrics, found, tasks })
    }
}
