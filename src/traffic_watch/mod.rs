//! Serves [`TrafficWatch`]: labels the nodes with a bad network, and runs a Deployment on the
//! others.
//!
//! | file | holds |
//! |---|---|
//! | `observe`, `observed` | reads nodes, measurements and pods; the facts they become |
//! | `query`, `reading`, `evidence` | `PromQL`; the answer sorted by node; the evidence in it |
//! | `findings`, `judgment`, `limits`, `room` | states of nodes, and how many may be marked |
//! | `reservation`, `requests` | what nodes offer to pods, and what pods request of it |
//! | `plan` | the planned writes: labels, taints, the Deployment (`children`), `evictions` |
//! | `apply` | the writes, and their removal with the object |
//! | `conflict`, `ceiling`, `shares`, `pace` | other objects: the holder of a label key, the common limit of marks, and what each namespace has of it, of writes and of requests |
//! | `memory`, `retries` | the state kept between two passes |
//! | `report`, `metrics`, `overview`, `live` | conditions and events; metrics; the status page |
//! | `replay` | the same decisions over a history |
use std::sync::Arc;

use kube::runtime::reflector::Store;
use tokio::sync::Semaphore;

use crate::{
    api::{TrafficWatch, TrafficWatchStatus, traffic_watch::Mode},
    controller::{Error, Key, Notice, Plan, Reconciler, schedule::Schedule},
    infra::watch::DeserializeGuard,
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters, QueryError, Shared},
};

mod apply;
pub(crate) mod ceiling;
mod children;
mod conflict;
mod deployments;
pub(crate) mod device_classes;
mod evictions;
mod evidence;
mod findings;
mod judgment;
pub(crate) mod limits;
mod live;
mod memory;
mod metrics;
mod observe;
mod observed;
pub mod overview;
mod pace;
mod plan;
pub mod query;
mod reading;
pub mod replay;
mod report;
mod requests;
mod reservation;
mod retries;
mod room;
mod settings;
mod shares;

pub use ceiling::Ceiling;
pub use conflict::Quota;
pub(crate) use conflict::{Claim, claim};
pub use deployments::DeploymentStore;
pub use device_classes::DeviceClasses;
pub use evidence::Evaluation;
pub(crate) use live::watches;
use memory::Entry;
pub use memory::{Memories, Transition};
pub use metrics::Gauges;
use observed::Observed;
pub use pace::Pace;
use plan::Desired;
use query::Request;
use reading::Measurement;
pub use requests::RequestStore;
pub(crate) use settings::{BANDWIDTH, Settings};

/// The number of nodes that are patched at once, by all objects together: enough for a mass flip to
/// end soon, few enough to leave the API server's fair share to others.
pub const LABEL_CONCURRENCY: usize = 8;

/// The dependencies of the controller.
pub struct TrafficWatchReconciler {
    /// Writes.
    pub client: kube::Client,
    /// The cache of all nodes.
    pub nodes: NodeStore,
    /// The Deployments we own.
    pub deployments: DeploymentStore,
    /// The requests of pods for what nodes offer.
    pub requests: RequestStore,
    /// Classes of devices that stand for what nodes offer.
    pub device_classes: DeviceClasses,
    /// The endpoints.
    pub prometheus: Endpoints,
    /// True if custom PromQL is allowed.
    pub own_queries: bool,
    /// Labels that may name a node, beside `instance`.
    pub exporters: Exporters,
    /// The ticks.
    pub schedule: Schedule,
    /// Memories, and the metrics read from them.
    pub memories: Memories,
    /// Counters.
    pub metrics: Metrics,
    /// The zones that evictions disrupt.
    pub disruptions: crate::controller::disruptions::Disruptions,
    /// Permits to patch a node: [`LABEL_CONCURRENCY`] of them.
    pub label_writes: Semaphore,
    /// Maximum number of nodes that all objects together may mark.
    pub ceiling: Ceiling,
    /// How many objects may write labels.
    pub quota: Quota,
    /// How often those of a namespace may write and ask.
    pub pace: Pace,
    /// Shares one request among callers with the same query.
    pub readings: Shared<Request, Measured>,
}

type Measured = Result<Arc<Measurement>, QueryError>;

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.prometheus";

type Others = Store<DeserializeGuard<TrafficWatch>>;

impl Reconciler for TrafficWatchReconciler {
    type Kind = TrafficWatch;
    type Observed = Observed;
    type Desired = Desired;
    type Memory = Entry;
    const NAME: &'static str = "trafficwatch";
    const FINALIZER: &'static str = "traffic.example.com/node-labels";

    fn needs_cleanup(&self, watch: &TrafficWatch) -> bool {
        watch.spec.mode == Mode::Enforce
    }

    async fn observe(&self, watch: &TrafficWatch, others: &Others) -> Result<Observed, Error> {
        observe::observe(self, watch, others).await
    }

    fn plan(
        watch: &TrafficWatch,
        observed: &Observed,
    ) -> Result<Plan<Desired, TrafficWatchStatus>, Error> {
        plan::plan(watch, observed)
    }

    async fn apply(&self, watch: &TrafficWatch, desired: Desired) -> Result<Vec<Notice>, Error> {
        apply::apply(self, watch, desired).await
    }

    async fn cleanup(&self, watch: &TrafficWatch, others: &Others) -> Result<Vec<Notice>, Error> {
        apply::cleanup(self, watch, others).await
    }

    fn memories(&self) -> &Memories {
        &self.memories
    }

    fn forgotten(&self, key: &Key) {
        self.requests.need(key, false);
    }
}

/// Succeeds if `spec.deployment` is a valid Deployment.
///
/// # Errors
/// When its Deployment is invalid.
pub(crate) fn check_deployment(watch: &TrafficWatch) -> Result<(), Error> {
    children::deployment(watch).map(drop)
}
