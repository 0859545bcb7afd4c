//! Serves [`RouteReflectorSet`]: chooses and replaces Calico's route reflectors so that no route is lost.
//!
//! Read in this order: [`fabric`], who peers with whom and which routes arrive where (pure, and compared
//! with what BIRD does); [`planner`], which nodes are to reflect (pure); [`steps`], the single writes from what
//! is there to what is to be, and which of them may be done now; [`gate`], whether the sessions are up that a
//! step stands on; `plan`, which puts these together; [`actual`] and [`datastore`], what is read and
//! written.
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    api::{
        Mode, RouteReflectorSet, RouteReflectorSetStatus, TrafficWatch,
        route_reflector_set::{Datastore as DatastoreSpec, DeletionPolicy, Gate},
    },
    controller::{Error, Notice, Plan, Reconciler, schedule::Schedule},
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Class, Endpoints, QueryError, Shared},
    runtime::lease::Fence,
};

pub mod actual;
pub mod claims;
pub mod datastore;
pub mod fabric;
pub mod gate;
mod gauges;
pub mod memory;
pub mod original;
mod plan;
pub mod planner;
pub mod rehearsal;
mod report;
pub mod settings;
pub mod steps;
pub mod taints;
mod workloads;
mod writing;

use actual::Ground;
use datastore::Datastore;
use gate::Measured;
pub use gauges::Gauges;
use memory::{Memories, Memory};
use plan::{Calico, Desired, Fitness, MOST_EXCLUDED, Next, Observed};
use settings::Settings;

/// How long changes of the surroundings are collected: a zone that comes up is many events in a moment.
const COLLECT: Duration = Duration::from_millis(100);

/// For how long counted pods are good: until the node that was chosen by them is promoted, as a rule.
const COUNTED: Duration = Duration::from_mins(10);

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.transition.prometheus";

/// What is asked of Prometheus: the endpoint and the text.
type Question = (Arc<str>, Arc<str>);
type Measurement = Result<Arc<Measured>, QueryError>;

/// What the controller works with.
pub struct RouteReflectorReconciler {
    /// Writes.
    pub client: kube::Client,
    /// The nodes.
    pub nodes: NodeStore,
    /// Calico's objects in the Kubernetes API.
    pub kubernetes: Datastore,
    /// Where the Secrets of other datastores are: the operator's own namespace.
    pub namespace: String,
    /// Nothing is written to another datastore either while the lease is not held.
    pub fence: Fence,
    /// The datastores of sets that name another one, with what they say of it.
    pub others: Mutex<HashMap<String, (DatastoreSpec, Datastore)>>,
    /// The endpoints, for the gate.
    pub prometheus: Endpoints,
    /// Whether the PromQL of authors is asked.
    pub own_queries: bool,
    /// Labels that may name a node, beside `instance`.
    pub node_labels: Vec<String>,
    /// What is remembered, and told.
    pub memories: Memories,
    /// The ticks.
    pub schedule: Schedule,
    /// Counters.
    pub metrics: Metrics,
    /// One request for all who ask the same.
    pub measurements: Shared<Question, Measurement>,
}

type Others = Store<DeserializeGuard<RouteReflectorSet>>;

impl RouteReflectorReconciler {
    /// The objects to look at though they did not change: nodes or Calico's objects did.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<RouteReflectorSet>>> + Send + 'static + use<>
    {
        let nodes = futures::stream::unfold(self.nodes.changes(), async |mut changes| {
            // The sender lives in the store, and that as long as the process.
            changes.changed().await.ok().map(|()| ((), changes))
        });
        let memories = self.memories.clone();
        futures::stream::select(nodes, self.kubernetes.changes())
            .ready_chunks(1024)
            .then(move |_| {
                let memories = memories.clone();
                async move {
                    tokio::time::sleep(COLLECT).await;
                    futures::stream::iter(memories.names())
                }
            })
            .flatten()
            .map(|name| ObjectRef::new(&name))
    }

    /// What of a spec only the operator's configuration can tell to be wrong.
    fn check(&self, set: &RouteReflectorSet) -> Result<(), String> {
        let transition = &set.spec.transition;
        if transition.gate != Gate::Prometheus {
            return Ok(());
        }
        self.prometheus.named(ENDPOINT, &transition.prometheus)?;
        if transition.query.is_some() && !self.own_queries {
            let text = "spec.transition.query: this operator runs with --own-queries=false: PromQL in a \
                        RouteReflectorSet is switched off";
            return Err(text.into());
        }
        Ok(())
    }

    /// Where this set's Calico keeps its objects. Connections to an etcd are kept as long as its
    /// spec stays.
    fn datastore(&self, set: &RouteReflectorSet) -> Result<Datastore, datastore::Error> {
        let spec = &set.spec.datastore;
        if spec.etcd.is_none() {
            return Ok(self.kubernetes.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, datastore)) = others.get(&set.name_any())
            && known == spec
        {
            return Ok(datastore.clone());
        }
        let client = self.client.clone();
        let datastore = Datastore::new(client, &self.namespace, spec, &self.fence)?;
        others.insert(set.name_any(), (spec.clone(), datastore.clone()));
        Ok(datastore)
    }

    /// Everything that is there.
    async fn ground(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        sets: &BTreeSet<String>,
    ) -> Result<(Arc<datastore::Snapshot>, Ground), datastore::Error> {
        let snapshot = self.datastore(set)?.read().await?;
        let speakers = self.nodes.speakers();
        let ground = Ground::new(&speakers, &snapshot, settings.keys(), &set.name_any(), sets);
        Ok((snapshot, ground))
    }

    /// How many sessions are established, by node.
    async fn measure(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        ground: &Ground,
        leaving: &BTreeSet<Arc<str>>,
        interval: Duration,
    ) -> Option<Result<Arc<Measured>, String>> {
        if settings.gate != Gate::Prometheus {
            return None;
        }
        if let Err(text) = self.check(set) {
            return Some(Err(text));
        }
        let query = if let Some(query) = &settings.query {
            query.clone()
        } else {
            let discounted = plan::discounted(ground, leaving);
            let excluded = plan::excluded(ground, &discounted);
            if excluded.len() > MOST_EXCLUDED {
                let text = format!(
                    "{} addresses would have to be left out of the count: nodes that are not Ready, and \
                     peers outside",
                    excluded.len()
                );
                return Some(Err(text));
            }
            gate::query(&self.node_labels, &excluded)
        };
        let endpoint = set.spec.transition.prometheus.as_str();
        let tick = self.schedule.tick_start(Instant::now(), interval);
        let key: Question = (endpoint.into(), query.into());
        let ask = || async {
            let client = self.prometheus.named(ENDPOINT, endpoint);
            let client = client.map_err(|text| QueryError::new(Class::Unreachable, text))?;
            // An answer that comes after the next tick is late; but nothing answers in no time.
            let deadline = interval.clamp(Duration::from_secs(5), Duration::from_secs(10));
            let result = client.query(&key.1, deadline, |answer| {
                let identity = self.nodes.identity();
                let answer = (answer.status, answer.content_type.as_str(), &*answer.body);
                Measured::read(answer, &identity, &self.node_labels)
            });
            let result = result.await.map(Arc::new);
            match &result {
                Ok(measured) => self.metrics.samples_rejected("session", measured.rejected),
                Err(error) => tracing::warn!(
                    endpoint, reason = error.class.reason(), %error,
                    "sessions not counted, reflectors stay as they are"
                ),
            }
            result
        };
        let result = self.measurements.get(&key, tick, ask).await;
        Some(result.map_err(|error| error.to_string()))
    }

    /// What Calico's own reports say, added to what they have said since the last step.
    async fn reports(&self, set: &RouteReflectorSet, memory: &mut Memory) -> Result<(), Error> {
        if memory.asked.is_empty() {
            return Ok(());
        }
        let datastore = self.datastore(set)?;
        let Some(reports) = datastore.node_status() else { return Ok(()) };
        for (node, report) in reports.read_reports().await? {
            let counted = gate::Counted {
                established: Some(report.established),
                sampled: Some(plan::seconds(report.updated)),
            };
            memory.statuses.nodes.insert(node.as_str().into(), counted);
        }
        Ok(())
    }

    /// All facts.
    async fn look(
        &self,
        set: &RouteReflectorSet,
        others: &Others,
        deleting: bool,
    ) -> Result<Observed, Error> {
        // On the way back to the mesh, a gate that cannot be asked is one that is shut.
        if !deleting {
            self.check(set).map_err(Error::Invalid)?;
        }
        let name = set.name_any();
        let all = others.state();
        let readable = || all.iter().filter_map(|other| other.0.as_ref().ok());
        let sets = all.iter().map(|other| other.name_any()).collect();
        let mut observed = Observed {
            now: Timestamp::now(),
            held: claims::held(set, readable()),
            settings: Settings::of(set).map_err(|error| error.to_string()),
            speakers: vec![],
            ground: Err(Calico { reason: "Unknown", text: "not read".into() }),
            fitness: None,
            measured: None,
            memory: self.memories.get(&name),
        };
        observed.memory.began.get_or_insert(observed.now);
        let Ok(settings) = observed.settings.clone() else { return Ok(observed) };
        if observed.held.is_some() || set.spec.paused && !deleting {
            return Ok(observed);
        }
        observed.speakers = self.nodes.speakers();
        observed.fitness = fitness(&self.client, &self.nodes, set).await?;
        observed.ground = match self.ground(set, &settings, &sets).await {
            Ok(ground) => Ok(ground),
            Err(datastore::Error::Kube { action, source }) => {
                return Err(Error::Kube { action, source });
            }
            Err(datastore::Error::Invalid(text)) => return Err(Error::Invalid(text)),
            Err(error) => Err(Calico { reason: error.reason(), text: error.to_string() }),
        };
        let mut sketch = plan::sketch(set, &observed, deleting);
        if sketch.chooses {
            let known = observed.memory.workloads.as_ref();
            let fresh = known.is_some_and(|(at, _)| at.elapsed() < COUNTED);
            if !fresh {
                let counted = workloads::count(&self.client).await?;
                observed.memory.workloads = Some((Instant::now(), Arc::new(counted)));
            }
            sketch = plan::sketch(set, &observed, deleting);
        }
        self.reports(set, &mut observed.memory).await?;
        // On the way back to the mesh its sessions matter when nobody reflects any more.
        if let Ok((_, ground)) = &observed.ground
            && (deleting || ground.reflectors().next().is_some())
        {
            let interval = if sketch.moves { plan::TRY } else { plan::PERIOD };
            observed.measured =
                self.measure(set, &settings, ground, &sketch.leaving, interval).await;
        }
        Ok(observed)
    }

    /// One step back to the mesh; `Ok` when nothing is left to be done.
    async fn restore(
        &self,
        set: &RouteReflectorSet,
        observed: &mut Observed,
    ) -> Result<Vec<Notice>, Error> {
        let settings = observed.settings.clone().map_err(Error::Invalid)?;
        let ground = match &observed.ground {
            Ok((snapshot, _)) if snapshot.locked => {
                let text = "Calico is migrating its datastore".to_owned();
                return Err(Error::Pending("DatastoreLocked", text));
            }
            Ok((_, ground)) => ground,
            // There is nothing that could be restored.
            Err(calico) if calico.reason == "CalicoNotFound" => return Ok(vec![]),
            Err(calico) => return Err(Error::Pending(calico.reason, calico.text.clone())),
        };
        let (goal, next) = plan::back(set, observed, &settings, ground);
        let datastore = self.datastore(set)?;
        let now = observed.now;
        let mut memory = observed.memory.clone();
        memory.shut_since = match &next {
            Next::Wait(..) | Next::Refuse(..) => memory.shut_since.or(Some(now)),
            _ => None,
        };
        let waited = plan::waited(&memory, now);
        let mut desired = Desired::default();
        let text = match next {
            Next::Done => {
                self.write(set, &datastore, desired).await?;
                let note = "the mesh carries every route; reflectors and peers are removed".into();
                return Ok(vec![Notice {
                    warning: false,
                    reason: "MeshRestored",
                    note,
                    node: None,
                }]);
            }
            Next::Take(step) => {
                let text = step.to_string();
                desired.step = Some((step, goal.label.clone()));
                text
            }
            Next::Wait(step, why) => {
                desired.statuses = plan::asked(&settings, ground, &memory, set);
                format!("{step}: {why}")
            }
            Next::Refuse(step, why) => plan::refusal(step.as_ref(), &why),
        };
        desired.memory = Some(memory);
        if waited > settings.timeout && ground.fabric.mesh() {
            self.write(set, &datastore, Desired::default()).await?;
            let note = format!(
                "the mesh is on, but reflectors and peers are left, since it could not be verified: {text}"
            );
            return Ok(vec![Notice { warning: true, reason: "ReflectorsLeft", note, node: None }]);
        }
        self.write(set, &datastore, desired).await?;
        Err(Error::Pending("RestoringMesh", text))
    }
}

/// What `candidates.fitnessRef` says.
async fn fitness(
    client: &kube::Client,
    nodes: &NodeStore,
    set: &RouteReflectorSet,
) -> Result<Option<Fitness>, Error> {
    let Some(of) = &set.spec.candidates.fitness_ref else { return Ok(None) };
    let api = Api::<TrafficWatch>::namespaced(client.clone(), &of.namespace);
    let watch = api.get_opt(&of.name).await.map_err(Error::kube("get TrafficWatch"))?;
    let Some(watch) = watch else {
        let frozen = Some(format!("there is no TrafficWatch {}/{}", of.namespace, of.name));
        return Ok(Some(Fitness { frozen, ..Fitness::default() }));
    };
    let conditions = watch.status.iter().flat_map(|status| &status.conditions);
    let measured = conditions.into_iter().find(|c| c.type_ == "MetricsAvailable");
    let frozen = measured
        .is_none_or(|condition| condition.status != "True")
        .then(|| format!("TrafficWatch {}/{} has no measurement", of.namespace, of.name));
    let key = watch.label_key();
    let unfit = nodes.carriers_of(&key, "true");
    Ok(Some(Fitness { unfit: unfit.into_iter().collect(), frozen }))
}

/// What would be done on this cluster, step by step. Reads only.
///
/// # Errors
/// What is wrong with the spec, or why the cluster cannot be read.
pub async fn rehearse(
    client: &kube::Client,
    nodes: &NodeStore,
    namespace: &str,
    set: &RouteReflectorSet,
) -> Result<rehearsal::Rehearsal, Error> {
    // A fence that is shut: nothing is written.
    let fence = Fence::default();
    let datastore = Datastore::new(client.clone(), namespace, &set.spec.datastore, &fence)?;
    let snapshot = datastore.read().await?;
    let mut stage =
        rehearsal::Stage { speakers: nodes.speakers(), snapshot: Arc::unwrap_or_clone(snapshot) };
    let fitness = fitness(client, nodes, set).await?;
    let workloads = Arc::new(workloads::count(client).await?);
    rehearsal::rehearse(set, &mut stage, fitness, workloads, Timestamp::now())
}

impl Reconciler for RouteReflectorReconciler {
    type Kind = RouteReflectorSet;
    type Observed = Observed;
    type Desired = Desired;
    const NAME: &'static str = "routereflectorset";
    const FINALIZER: &'static str = "traffic.example.com/route-reflectors";

    /// Nodes and Calico's objects are nobody's children.
    fn needs_cleanup(&self, set: &RouteReflectorSet) -> bool {
        set.spec.mode == Mode::Enforce
    }

    async fn observe(&self, set: &RouteReflectorSet, others: &Others) -> Result<Observed, Error> {
        self.look(set, others, false).await
    }

    fn plan(
        set: &RouteReflectorSet,
        observed: &Observed,
    ) -> Result<Plan<Desired, RouteReflectorSetStatus>, Error> {
        plan::plan(set, observed)
    }

    async fn apply(&self, set: &RouteReflectorSet, desired: Desired) -> Result<Vec<Notice>, Error> {
        if desired.memory.is_none() {
            self.memories.change(&set.name_any(), |_| ());
            return Ok(vec![]);
        }
        let datastore = self.datastore(set)?;
        self.write(set, &datastore, desired).await
    }

    async fn cleanup(
        &self,
        set: &RouteReflectorSet,
        others: &Others,
    ) -> Result<Vec<Notice>, Error> {
        let name = set.name_any();
        if set.spec.deletion_policy == DeletionPolicy::Retain || set.spec.mode == Mode::Observe {
            self.forget("", &name);
            return Ok(vec![]);
        }
        let mut observed = self.look(set, others, true).await?;
        if observed.held.is_some() {
            // It never wrote anything.
            self.forget("", &name);
            return Ok(vec![]);
        }
        let notices = self.restore(set, &mut observed).await?;
        self.forget("", &name);
        Ok(notices)
    }

    fn forget(&self, _: &str, name: &str) {
        self.memories.forget(name);
        self.others.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}
