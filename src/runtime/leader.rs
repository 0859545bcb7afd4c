//! The parts of the process from which the leader builds the configured kinds.
use std::{sync::Arc, time::Duration};

use super::{
    admin::Readiness,
    kinds::Definitions,
    start::Views,
    status_page::Live,
    webhook::{Prober, WebhookConfig},
};
use crate::{
    controller::disruptions::Disruptions,
    infra::{lease::Fence, shutdown::Shutdown},
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters},
    swarm::{self, acknowledge::WorkerClient},
    traffic_watch::{self, Quota, limits::Share},
    webhook::certificates::Certificates,
};

/// The parts of the process from which the leader builds the configured kinds.
pub(super) struct Leader {
    pub(super) client: kube::Client,
    pub(super) fence: Fence,
    pub(super) metrics: Metrics,
    pub(super) live: Arc<Live>,
    pub(super) watches: traffic_watch::Memories,
    pub(super) nodes: NodeStore,
    pub(super) prober: Prober,
    pub(super) definitions: Definitions,
    pub(super) swarms: swarm::memory::Memories,
    pub(super) workers: WorkerClient,
    pub(super) certificates: Certificates,
    pub(super) webhook: WebhookConfig,
    pub(super) namespace: String,
    pub(super) endpoints: Endpoints,
    pub(super) readiness: Readiness,
    pub(super) shutdown: Shutdown,
    pub(super) exporters: Exporters,
    pub(super) own_queries: bool,
    pub(super) max_unfit: Share,
    pub(super) quota: Quota,
    pub(super) disruptions: Disruptions,
    pub(super) views: Views,
    /// The time after which it leads no longer if no kind has seen all of its objects.
    pub(super) patience: Duration,
}
