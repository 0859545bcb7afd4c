//! The knowledge of every replica: the `NetworkProber`s, the namespaces and the selected pods, and
//! the conclusions, as one immutable [`Snapshot`].
//!
//! The webhook, the pinglists and the controller read the snapshot; none of them sends requests to
//! the API server. The watched pods are defined in [`watches`]: without a `NetworkProber` there are
//! none.
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{
    Stream, StreamExt,
    stream::{BoxStream, SelectAll, abortable},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Client, Resource, ResourceExt,
    runtime::{
        reflector::{self, Store},
        watcher::Event,
    },
};
use tokio::{
    sync::{Semaphore, watch as signal},
    time::Instant,
};

use super::{
    constraints::{ByNamespace, reading},
    entries::Entries,
    members::Nodes,
    places::Places,
    scope::NamespaceFacts,
    snapshot::{self, Key, Pods, ProberState, Setup, Snapshot, Surroundings},
    watches::{self, Demand, PodQuery, PodWatches},
};
use crate::{
    api::NetworkProber,
    clock,
    infra::{
        Api,
        watch::{self, DeserializeGuard, Metadata},
    },
    metrics::Metrics,
    nodes::NodeStore,
    pods::PodObject,
    webhook::injection::NATIVE_SIDECARS,
};

/// The time for which changes are collected: a rollout affects many pods at once, and peers should
/// learn of each within three seconds.
const COLLECT: Duration = Duration::from_millis(200);

/// The time for which the controller waits after a change: a rollout is one write of the status a
/// second, not one for each pod. (Agents do not wait for it: their lists come from the snapshot.)
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// The time for which changes of nodes are collected: a silent node is known before its pods leave
/// the lists, and a series of label changes does not cause a pass for each.
const COLLECT_NODES: Duration = Duration::from_secs(2);

/// Time between two passes without any change of a pod: pods on a dead node leave the lists after a
/// time.
const REFRESH: Duration = Duration::from_secs(30);

/// The snapshot and what keeps it up to date; clones share it.
#[derive(Clone)]
pub struct ClusterState(Arc<Inner>);

struct Inner {
    setup: Setup,
    nodes: NodeStore,
    snapshot: signal::Sender<Arc<Snapshot>>,
    /// The webhooks' entries, in a process that follows them.
    entries: OnceLock<Entries>,
}

impl ClusterState {
    /// An empty state.
    #[must_use]
    pub fn new(setup: Setup, nodes: NodeStore) -> Self {
        let (snapshot, entries) = (signal::Sender::default(), OnceLock::new());
        Self(Arc::new(Inner { setup, nodes, snapshot, entries }))
    }

    /// Has the entries of the webhooks, which say since when pods must have been seen by them.
    pub fn has(&self, entries: Entries) {
        // A process leads once.
        let _ = self.0.entries.set(entries);
    }

    /// Returns the settings of this replica.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.0.setup
    }

    /// A state that knows this, without a cluster.
    #[cfg(test)]
    pub(super) fn knowing(setup: Setup, snapshot: Snapshot) -> Self {
        let cluster = Self::new(setup, NodeStore::default());
        cluster.0.snapshot.send_replace(Arc::new(snapshot));
        cluster
    }

    /// Returns the current snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.snapshot.borrow())
    }

    /// Returns a receiver to wait for changes.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver<Arc<Snapshot>> {
        self.0.snapshot.subscribe()
    }

    /// Waits until `NetworkProber`s and namespaces were listed.
    pub async fn synced(&self) {
        let mut snapshots = self.subscribe();
        // The sender lives in `self`.
        let _ = snapshots.wait_for(|snapshot| snapshot.synced).await;
    }

    /// Returns the objects that changed, or whose surroundings did; never ends.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        let snapshots = self.subscribe();
        let state = (snapshots, Arc::new(Snapshot::default()));
        futures::stream::unfold(state, |(mut snapshots, before)| async move {
            snapshots.changed().await.ok()?;
            tokio::time::sleep(WRITE_PAUSE).await;
            let now = Arc::clone(&snapshots.borrow_and_update());
            let changed: Vec<_> = now
                .views
                .iter()
                .filter(|(key, view)| {
                    before.views.get(*key).is_none_or(|old| !Arc::ptr_eq(old, view))
                })
                .map(|(key, _)| key.clone())
                .collect();
            Some((futures::stream::iter(changed), (snapshots, now)))
        })
        .flatten()
    }

    /// Follows the cluster; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        self.0.nodes.synced().await;
        let (tell, constraints) = signal::channel(Arc::default());
        let operator = self.setup().tenancy.operator().to_owned();
        let reading = reading::follow(client.clone(), self.subscribe(), operator, tell);
        let mut follower = Follower::new(self, client, metrics, constraints);
        let following = async {
            loop {
                follower.step().await;
            }
        };
        tokio::select! {
            () = reading => {}
            () = following => {}
        }
    }
}

/// Identifies a spec of an object: UID, generation (deletion changes it), and whether it can be
/// read.
type Spec = (Option<String>, Option<i64>, bool);

fn spec(prober: &DeserializeGuard<NetworkProber>) -> Spec {
    (prober.uid(), prober.meta().generation, prober.0.is_ok())
}

/// The one task that keeps the snapshot.
struct Follower {
    cluster: ClusterState,
    client: Client,
    metrics: Metrics,
    probers: Store<DeserializeGuard<NetworkProber>>,
    namespaces: Store<DeserializeGuard<Metadata<Namespace>>>,
    objects: SelectAll<BoxStream<'static, Seen>>,
    pods: PodWatches,
    /// Limits the number of concurrent lists of pods.
    lists: Arc<Semaphore>,
    synced: (bool, bool),
    /// The last seen specs of the `NetworkProber`s: their status is ours, and changes nothing here.
    specs: BTreeSet<Spec>,
    nodes: signal::Receiver<u64>,
    /// The requirements of namespaces on pods.
    constraints: signal::Receiver<Arc<ByNamespace>>,
    /// The time at which the snapshot is computed again.
    due: Instant,
}

/// An event of a watch; `true` at the end of a list.
enum Seen {
    Probers(bool),
    Namespaces(bool),
    Pods(Arc<PodQuery>, Box<Event<PodObject>>),
}

impl Follower {
    fn new(
        cluster: ClusterState,
        client: Client,
        metrics: Metrics,
        constraints: signal::Receiver<Arc<ByNamespace>>,
    ) -> Self {
        let nodes = cluster.0.nodes.changes();
        let (probers, prober_writer) = reflector::store();
        let (namespaces, namespace_writer) = reflector::store();
        let mut objects = SelectAll::new();
        let events = watch::follow(Api::all(client.clone()), watch::config());
        let events = reflector::reflector(prober_writer, events);
        let events = watch::reported(events, "networkprobers", &metrics);
        objects.push(events.map(|e| Seen::Probers(matches!(e, Event::InitDone))).boxed());
        let events = watch::follow(Api::all(client.clone()), watch::config());
        let events = reflector::reflector(namespace_writer, events);
        let events = watch::readable(events, "namespaces", &metrics);
        objects.push(events.map(|e| Seen::Namespaces(matches!(e, Event::InitDone))).boxed());
        Self {
            cluster,
            client,
            metrics,
            probers,
            namespaces,
            objects,
            pods: PodWatches::default(),
            lists: Arc::new(Semaphore::new(watches::LISTS)),
            synced: (false, false),
            specs: BTreeSet::new(),
            nodes,
            constraints,
            due: Instant::now() + REFRESH,
        }
    }

    async fn step(&mut self) {
        tokio::select! {
            Some(seen) = self.objects.next() => self.take(seen),
            Ok(()) = self.nodes.changed() => {
                self.due = self.due.min(Instant::now() + COLLECT_NODES);
            }
            Ok(()) = self.constraints.changed() => {
                self.due = self.due.min(Instant::now() + COLLECT);
            }
            () = tokio::time::sleep_until(self.due) => {
                self.due = Instant::now() + REFRESH;
                // With thousands of pods this takes longer than an admission may wait.
                tokio::task::block_in_place(|| self.publish());
            }
        }
    }

    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Probers(done) => {
                self.synced.0 |= done;
                let specs = self.probers.state().iter().map(|prober| spec(prober)).collect();
                if self.specs == specs && !done {
                    return;
                }
                self.specs = specs;
            }
            Seen::Namespaces(done) => self.synced.1 |= done,
            Seen::Pods(query, event) => {
                if !self.pods.take(&query, *event, clock::instant()) {
                    return;
                }
            }
        }
        self.due = self.due.min(Instant::now() + COLLECT);
    }

    /// Computes the snapshot again, if anything in it changed.
    fn publish(&mut self) {
        if self.synced != (true, true) {
            return;
        }
        let probers = self.probers.state();
        let mut setup = self.cluster.setup().clone();
        // A kubelet that does not know them would wait for the agent to end.
        let oldest = self.cluster.0.nodes.oldest_kubelet();
        setup.native_sidecars &= oldest.is_none_or(|version| version >= NATIVE_SIDECARS);
        let (read, ending) = snapshot::to_serve(&probers);
        let namespaces = self.namespaces.state();
        // Nothing can be created in a terminating namespace.
        let stay = namespaces.iter().filter(|n| n.meta().deletion_timestamp.is_none());
        let namespaces: Vec<_> =
            stay.map(|namespace| NamespaceFacts::of(namespace.meta())).collect();
        let reaches = snapshot::reaches(&read, &setup, &namespaces);
        let demands = read.iter().zip(&reaches).filter_map(|(prober, reach)| {
            reach.demand(prober.namespace().as_deref().unwrap_or_default(), &setup.tenancy)
        });
        self.watch_pods(demands.collect());
        let before = self.cluster.snapshot();
        let now = Duration::try_from(clock::timestamp().as_duration()).unwrap_or_default();
        let constraints = Arc::clone(&self.constraints.borrow_and_update());
        let mut places = Places::new(&setup.tenancy);
        let mut snapshot = Snapshot {
            synced: true,
            ending,
            constraints: Arc::clone(&constraints),
            ..Snapshot::default()
        };
        let mut demanded = 0..;
        for (prober, reach) in read.into_iter().zip(reaches) {
            let key = (prober.namespace().unwrap_or_default(), prober.name_any());
            let entries = self.cluster.0.entries.get();
            let surroundings = Surroundings {
                before: &snapshot,
                places: &places,
                constraints: &constraints,
                nodes: Nodes {
                    zone: &|node| self.cluster.0.nodes.zone(node),
                    readiness: &|node| self.cluster.0.nodes.readiness(node),
                    ends: &|node| self.cluster.0.nodes.is_ending(node),
                },
                entry_written: entries.and_then(|entries| entries.written(&key)),
                now,
            };
            let last = before.views.get(&key).map(|view| &**view);
            // A new namespace does not delay the others.
            let known = last.is_some_and(|last| last.is_of(prober) && last.synced);
            let beyond = reach.beyond_all().cloned();
            let place = if beyond.is_none() { demanded.next() } else { None };
            let listed = place.and_then(|place| self.pods.pods(place, known));
            let over = beyond.as_ref().or_else(|| self.pods.over(place?));
            let pods = match (over, &listed) {
                (Some(over), _) => Pods::OverBudget(over),
                (None, Some(pods)) => Pods::Listed(pods),
                (None, None) => Pods::Unlisted,
            };
            let view = ProberState::of(prober, reach, pods, last, &surroundings);
            let view = match before.views.get(&key) {
                Some(old) if old.is_same(&view) => Arc::clone(old),
                _ => Arc::new(view),
            };
            view.take_place(&mut places);
            snapshot.views.insert(key, view);
        }
        self.metrics.stored("networkprobers", snapshot.views.len());
        self.metrics.stored("pods", self.pods.kept());
        self.metrics.stored("pod_watches", self.pods.open());
        let same = before.synced
            && before.ending == snapshot.ending
            && Arc::ptr_eq(&before.constraints, &constraints)
            && before.views.len() == snapshot.views.len()
            && snapshot
                .views
                .iter()
                .all(|(key, view)| before.views.get(key).is_some_and(|old| Arc::ptr_eq(old, view)));
        if !same {
            self.cluster.0.snapshot.send_replace(Arc::new(snapshot));
        }
    }

    /// Watches what is needed within the budgets, and nothing else.
    fn watch_pods(&mut self, demands: Vec<Demand>) {
        let Self { pods, objects, client, metrics, lists, .. } = self;
        pods.settle(demands, clock::instant(), |query| {
            let events = watches::follow(client, query, lists);
            let (events, stop) = abortable(watch::readable(events, "pods", metrics));
            let query = Arc::clone(query);
            let each = move |event| Seen::Pods(Arc::clone(&query), Box::new(event));
            objects.push(events.map(each).boxed());
            stop
        });
    }
}
