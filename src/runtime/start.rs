//! Runs the leader: waits for the lease, and starts each kind with the parts of the process that it
//! needs.
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{Semaphore, watch};

use super::{
    Tasks,
    admin::Readiness,
    first_ended,
    kinds::{Definition, Definitions},
    status_page::Live,
    webhook::{Prober, WebhookConfig},
};
use crate::{
    api::{NetworkProber, RouteReflectorSet, Swarm, TrafficWatch},
    controller::{self, Reconciler, disruptions::Disruptions, schedule::Schedule},
    infra::{
        lease::{Candidate, Fence},
        shutdown::Shutdown,
        watch::DeserializeGuard,
    },
    metrics::{Metrics, Unlisted},
    network_prober::{self, NetworkProberReconciler, state::ClusterState},
    nodes::NodeStore,
    prometheus::{Endpoints, Exporters, Shared},
    route_reflector::{self, RouteReflectorReconciler, datastore},
    swarm::{self, SwarmReconciler, acknowledge::WorkerClient},
    traffic_watch::{self, Quota, TrafficWatchReconciler, limits::Share},
    webhook::certificates::{CertificateKeeper, Certificates},
};

/// The time for which the controller waits for the webhook's certificate: a deadline of the API
/// server's calls.
const CERTIFICATE: Duration = Duration::from_secs(10);

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

impl Leader {
    /// Waits for the lease, and runs the controllers while it is held; returns the reason for its
    /// end.
    pub(super) async fn run(
        self,
        candidate: &mut Candidate,
        readiness: Readiness,
    ) -> anyhow::Error {
        tokio::select! {
            () = candidate.acquire(|| readiness.reached("lease")) => {}
            () = self.shutdown.begun() => return anyhow::anyhow!("stopped while following"),
        }
        tracing::info!("leading");
        self.metrics.set_leader(true);
        self.live.lead();
        let (metrics, shutdown) = (self.metrics.clone(), self.shutdown.clone());
        let mut tasks = Tasks::new();
        let blind = self.views.blind(self.patience);
        self.start(&mut tasks);
        readiness.reached("lease");
        let why = tokio::select! {
            lost = candidate.renew() => anyhow::Error::new(lost),
            () = blind => anyhow::anyhow!(
                "leads, and has not seen all objects of any kind: another replica may see more"
            ),
            why = ended(&mut tasks, &shutdown) => why,
        };
        metrics.set_leader(false);
        why
    }

    /// Starts the configured kinds; a kind is one more line here.
    fn start(self, tasks: &mut Tasks) {
        self.metrics.register(self.disruptions.gauges());
        let leader = Arc::new(self);
        leader.spawn::<NetworkProberReconciler>(tasks);
        leader.spawn::<SwarmReconciler>(tasks);
        leader.spawn::<RouteReflectorReconciler>(tasks);
        leader.spawn::<TrafficWatchReconciler>(tasks);
    }

    /// Starts a configured kind as one task: now, or as soon as its dependencies exist.
    fn spawn<R: Start>(self: &Arc<Self>, tasks: &mut Tasks) {
        let Some(definition) = self.definitions.of::<R::Kind>() else { return };
        let unlisted = self.metrics.unlisted(R::NAME);
        if let Some(needs) = R::Needs::now(self, &definition) {
            R::expect(&self.readiness);
            tasks.spawn(self.control::<R>(needs, unlisted));
            return;
        }
        let leader = Arc::clone(self);
        tasks.spawn(async move {
            let needs = tokio::select! {
                needs = R::Needs::later(&leader, &definition) => needs?,
                () = leader.shutdown.begun() => return Ok(R::TASK),
            };
            leader.control::<R>(needs, unlisted).await
        });
    }

    /// Builds one kind, and runs its controller once the objects that it follows have been listed.
    /// Ends with the last pass after a shutdown has begun; or with an error, when a watch ends.
    fn control<R: Start>(
        &self,
        needs: R::Needs,
        unlisted: Unlisted,
    ) -> impl Future<Output = anyhow::Result<&'static str>> + Send + 'static + use<R> {
        self.views.waits();
        let mut watches = Tasks::new();
        let controller = R::build(self, needs, &mut watches);
        let Controller { reconciler, schedule, listed, synced } = controller;
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let views = self.views.clone();
        let listed_all = move || {
            synced();
            views.complete();
            drop(unlisted);
        };
        let (ends, stop) = (self.shutdown.begun(), self.shutdown.begun());
        async move {
            let passes = async move {
                tokio::select! {
                    () = listed => {}
                    () = ends => return,
                }
                let triggers = reconciler.changes();
                controller::run(client, reconciler, schedule, metrics, triggers, listed_all, stop)
                    .await;
            };
            let watched = !watches.is_empty();
            tokio::select! {
                () = passes => Ok(R::TASK),
                why = first_ended(&mut watches), if watched => Err(why),
            }
        }
    }
}

/// What the kinds of a leader have seen.
#[derive(Clone, Default)]
pub(super) struct Views(watch::Sender<View>);

#[derive(Clone, Copy, Default, PartialEq)]
enum View {
    /// No kind is served.
    #[default]
    Nothing,
    /// Kinds list their objects.
    Waits,
    /// One kind has seen all of its objects.
    Complete,
}

impl Views {
    fn waits(&self) {
        self.0.send_if_modified(|view| {
            let first = *view == View::Nothing;
            if first {
                *view = View::Waits;
            }
            first
        });
    }

    fn complete(&self) {
        self.0.send_replace(View::Complete);
    }

    /// Returns if kinds have listed for this long and none has seen all of its objects. A kind
    /// that waits beside one that works is no reason: that one's decisions would end with it.
    fn blind(&self, patience: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut view = self.0.subscribe();
        async move {
            // The sender lives in the leader, whose end is the end of this as well.
            let _ = view.wait_for(|view| *view != View::Nothing).await;
            let complete = view.wait_for(|view| *view == View::Complete);
            if tokio::time::timeout(patience, complete).await.is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Waits for the first kind that ends, which none may, and returns the reason. After a shutdown has
/// begun, waits for all of them, each of which ends with its passes: a request of a pass that is
/// cut off could still be on its way when the next leader writes.
async fn ended(tasks: &mut Tasks, shutdown: &Shutdown) -> anyhow::Error {
    let why = first_ended(tasks).await;
    if shutdown.has_begun() {
        while tasks.join_next().await.is_some() {}
    }
    why
}

/// Facts that a kind needs before it starts.
pub(super) trait Needs: Sized + Send + 'static {
    /// Facts that already exist; `None` if the kind must wait for them.
    fn now(leader: &Leader, definition: &Definition) -> Option<Self>;
    /// Waits for them.
    fn later(
        leader: &Leader,
        definition: &Definition,
    ) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// The definition is enough.
impl Needs for () {
    fn now(_: &Leader, definition: &Definition) -> Option<Self> {
        definition.is_served().then_some(())
    }

    async fn later(_: &Leader, definition: &Definition) -> anyhow::Result<Self> {
        definition.served().await;
        Ok(())
    }
}

/// A kind that the leader can start.
pub(super) trait Start: Reconciler + Sized {
    /// Facts that must exist first; `()` if the definition is enough.
    type Needs: Needs;
    /// The name of the controller's task, for the error with which the process ends if the task
    /// does.
    const TASK: &'static str;

    /// Registers conditions for the process's readiness, if the kind starts at once.
    fn expect(_: &Readiness) {}
    /// Builds the reconciler, registers its metrics, and starts the watches that it follows.
    fn build(leader: &Leader, needs: Self::Needs, tasks: &mut Tasks) -> Controller<Self>;
    /// Returns objects to reconcile although they did not change: none if the kind's own ticks are
    /// enough.
    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<Self::Kind>>> + Send + 'static {
        stream::pending()
    }
}

/// A reconciler that is ready to run.
pub(super) struct Controller<R> {
    pub(super) reconciler: R,
    pub(super) schedule: Schedule,
    /// Resolves when everything that passes need has been listed.
    pub(super) listed: BoxFuture<'static, ()>,
    /// Called when the objects have been listed.
    pub(super) synced: Box<dyn FnOnce() + Send>,
}

impl<R> Controller<R> {
    /// A controller that starts once the nodes are known.
    fn after_nodes(reconciler: R, schedule: Schedule, nodes: NodeStore) -> Self {
        let listed = async move { nodes.synced().await }.boxed();
        Self { reconciler, schedule, listed, synced: Box::new(|| ()) }
    }
}

/// Runs a watch that never ends.
fn follow(tasks: &mut Tasks, name: &'static str, watch: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        watch.await;
        Ok(name)
    });
}

/// The cluster as the webhook of this replica knows it.
impl Needs for ClusterState {
    fn now(leader: &Leader, _: &Definition) -> Option<Self> {
        leader.prober.borrow().clone()
    }

    async fn later(leader: &Leader, _: &Definition) -> anyhow::Result<Self> {
        let mut prober = leader.prober.clone();
        let known = prober.wait_for(Option::is_some).await.context("webhook")?.clone();
        known.context("webhook")
    }
}

impl Start for NetworkProberReconciler {
    type Needs = ClusterState;
    const TASK: &'static str = "controller of networkprobers";

    fn build(leader: &Leader, state: ClusterState, tasks: &mut Tasks) -> Controller<Self> {
        let (client, metrics) = (leader.client.clone(), leader.metrics.clone());
        let keeper = CertificateKeeper::new(
            client.clone(),
            &leader.namespace,
            leader.webhook.lifetimes,
            leader.webhook.names(&leader.namespace),
            &leader.certificates,
        );
        tasks.spawn(async move { match keeper.keep().await {} });
        metrics.register(Box::new(network_prober::Gauges(state.clone())));
        let owned = network_prober::Owned::default();
        let watch = owned.clone().follow(client.clone(), metrics.clone());
        follow(tasks, "watch of agents' objects", watch);
        let entries = network_prober::Entries::default();
        state.has(entries.clone());
        let watch = entries.clone().follow(client.clone(), metrics);
        follow(tasks, "watch of webhooks", watch);
        let sweep = entries.clone().sweep(client.clone(), state.clone());
        let (known, listed) = (state.clone(), entries.clone());
        follow(tasks, "sweep of webhooks", async move {
            // Without them, every entry would seem to have no owner.
            known.synced().await;
            listed.synced().await;
            sweep.await;
        });
        let mut bundle = leader.certificates.bundle();
        let reconciler = Self {
            client,
            cluster: state.clone(),
            memories: network_prober::Memories::default(),
            owned: owned.clone(),
            entries: entries.clone(),
            bundle: bundle.clone(),
            endpoint: leader.webhook.endpoint(),
            discovered: Mutex::default(),
            refusals: network_prober::Refusals::default(),
            failed_creates: network_prober::FailedCreates::default(),
            lost_paths: network_prober::LostPaths::new(&leader.endpoints),
            metrics: leader.metrics.clone(),
        };
        let listed = async move {
            // Without them, every object would seem to be missing.
            state.synced().await;
            owned.synced().await;
            entries.synced().await;
            // Reports a missing CA on every object; a CA that is still being issued is not an
            // error.
            let _ = tokio::time::timeout(CERTIFICATE, bundle.wait_for(Option::is_some)).await;
        };
        let (schedule, synced) = (Schedule::default(), Box::new(|| ()));
        Controller { reconciler, schedule, listed: listed.boxed(), synced }
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<NetworkProber>>> + Send + 'static {
        self.triggers()
    }
}

impl Start for SwarmReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of swarms";

    fn build(leader: &Leader, (): (), tasks: &mut Tasks) -> Controller<Self> {
        leader.metrics.register(Box::new(swarm::Gauges(leader.swarms.clone())));
        let cache = swarm::watches::WorkloadCache::default();
        let watch = cache.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of workers", watch);
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            cache,
            nodes: leader.nodes.clone(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            workers: leader.workers.clone(),
            memories: leader.swarms.clone(),
            schedule,
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            measurements: Shared::default(),
        };
        // Without the nodes, every node would seem fit.
        Controller::after_nodes(reconciler, schedule, leader.nodes.clone())
    }

    fn changes(&self) -> impl Stream<Item = ObjectRef<DeserializeGuard<Swarm>>> + Send + 'static {
        self.triggers()
    }
}

impl Start for RouteReflectorReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of routereflectorsets";

    fn build(leader: &Leader, (): (), _: &mut Tasks) -> Controller<Self> {
        let memories = route_reflector::memory::Memories::default();
        leader.metrics.register(Box::new(route_reflector::Gauges(memories.clone())));
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            nodes: leader.nodes.clone(),
            kubernetes: datastore::Datastore::Kubernetes(Arc::new(datastore::Kubernetes::new(
                leader.client.clone(),
            ))),
            namespace: leader.namespace.clone(),
            fence: leader.fence.clone(),
            stores: route_reflector::stores::Stores::default(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            exporters: leader.exporters.clone(),
            memories,
            schedule,
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            measurements: Shared::default(),
        };
        // Without the nodes, every reflector would seem to be gone.
        Controller::after_nodes(reconciler, schedule, leader.nodes.clone())
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<RouteReflectorSet>>> + Send + 'static {
        self.triggers()
    }
}

impl Start for TrafficWatchReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of trafficwatches";

    fn expect(readiness: &Readiness) {
        for what in ["nodes", "deployments", "trafficwatches"] {
            readiness.expect(what);
        }
    }

    fn build(leader: &Leader, (): (), tasks: &mut Tasks) -> Controller<Self> {
        let deployments = traffic_watch::DeploymentStore::default();
        leader.metrics.register_streaming(Box::new(traffic_watch::Gauges(leader.watches.clone())));
        let (memories, own) = (leader.watches.clone(), leader.quota.own.clone());
        let ceiling =
            traffic_watch::Ceiling::new(leader.nodes.clone(), leader.max_unfit, memories, own);
        leader.metrics.register(Box::new(ceiling.clone()));
        let watch = deployments.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of deployments", watch);
        let requests = traffic_watch::RequestStore::default();
        let watch = requests.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of requesting pods", watch);
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            nodes: leader.nodes.clone(),
            deployments: deployments.clone(),
            requests,
            device_classes: traffic_watch::DeviceClasses::default(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            exporters: leader.exporters.clone(),
            schedule,
            memories: leader.watches.clone(),
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            label_writes: Semaphore::new(traffic_watch::LABEL_CONCURRENCY),
            ceiling,
            quota: leader.quota.clone(),
            pace: traffic_watch::Pace::new(leader.quota.clone()),
            readings: Shared::default(),
        };
        let (nodes, readiness) = (leader.nodes.clone(), leader.readiness.clone());
        let listed = async move {
            // Without the nodes, every node would seem deleted.
            nodes.synced().await;
            readiness.reached("nodes");
            deployments.synced().await;
            readiness.reached("deployments");
        };
        let readiness = leader.readiness.clone();
        let synced = Box::new(move || readiness.reached("trafficwatches"));
        Controller { reconciler, schedule, listed: listed.boxed(), synced }
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<TrafficWatch>>> + Send + 'static {
        self.ceiling.debtors().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// Adds a kind whose passes take this time to end after a shutdown has begun.
    fn add(tasks: &mut Tasks, shutdown: &Shutdown, name: &'static str, seconds: u64) {
        let stop = shutdown.begun();
        tasks.spawn(async move {
            stop.await;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(name)
        });
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_signal_the_passes_of_all_kinds_end_before_the_lease_is_released() {
        let (mut tasks, shutdown) = (Tasks::new(), Shutdown::default());
        add(&mut tasks, &shutdown, "idle", 0);
        add(&mut tasks, &shutdown, "busy", 3);
        shutdown.begin();
        let began = Instant::now();
        assert_eq!(ended(&mut tasks, &shutdown).await.to_string(), "idle ended");
        // No task was left to be cut off.
        assert_eq!((began.elapsed().as_secs(), tasks.len()), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_is_blind_while_no_kind_has_seen_all_of_its_objects() {
        let minutes = Duration::from_mins;
        let (views, patience) = (Views::default(), minutes(5));
        let blind = || tokio::time::timeout(minutes(60), views.blind(patience));
        assert!(blind().await.is_err(), "no definition is there: nothing to see");
        views.waits();
        let began = Instant::now();
        assert!(blind().await.is_ok() && began.elapsed() == patience);
        views.complete();
        assert!(blind().await.is_err());
        views.waits();
        assert!(blind().await.is_err(), "another kind waits, this one works");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_signal_the_first_kind_that_ends_ends_the_process() {
        let (mut tasks, shutdown) = (Tasks::new(), Shutdown::default());
        add(&mut tasks, &shutdown, "busy", 3);
        tasks.spawn(async { Ok("broken") });
        let why = ended(&mut tasks, &shutdown).await;
        assert_eq!((why.to_string().as_str(), tasks.len()), ("broken ended", 1));
    }
}
