//! Reads all that a decision needs: the place of the set among others, nodes, Calico's objects,
//! sessions, and where they matter the fitness of nodes and their workloads.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Client, ResourceExt,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::Deserialize;

use super::{
    KIND, Others, Question, RouteReflectorReconciler,
    datastore::{self, Report},
    gate::{self, Asked, Measured},
    memory::{Memory, Workloads, seconds},
    plan::{self, Calico, Fitness, Observed, Questions},
    settings::Settings,
    topology::BgpTopology,
};
use crate::{
    api::{Mode, RouteReflectorSet, TrafficWatch, has_ended},
    clock,
    controller::{Error, Reconciler, disruptions, key},
    infra::Api,
    nodes::NodeStore,
    partial_resource::{self, partial_resource},
    prometheus::{Class, Payer, QueryError},
};

/// For how long counted pods are good: until the node that was chosen by them is promoted, as a
/// rule.
const COUNTED: Duration = Duration::from_mins(10);

impl RouteReflectorReconciler {
    /// All objects.
    async fn bgp(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        sets: &BTreeSet<String>,
    ) -> Result<(Arc<datastore::Snapshot>, BgpTopology), datastore::Error> {
        let snapshot = self.datastore(set)?.read().await?;
        let speakers = self.nodes.speakers();
        let bgp = BgpTopology::new(&speakers, &snapshot, settings.keys(), &set.name_any(), sets);
        Ok((snapshot, bgp))
    }

    /// The sessions that are established, by node.
    async fn measure(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        questions: &Questions,
    ) -> Option<Result<Arc<Measured>, String>> {
        let sessions = questions.sessions.as_ref()?;
        let interval = questions.interval;
        if let Err(text) = self.check(set) {
            return Some(Err(text));
        }
        let built_in = || gate::query(&self.exporters, sessions);
        let query = settings.query.clone().unwrap_or_else(built_in);
        // A custom query counts, and knows no names.
        let wanted = settings.query.is_none().then(|| Arc::clone(sessions));
        let endpoint = set.spec.transition.prometheus.as_str();
        let tick = self.schedule.tick_start(clock::instant(), interval);
        let key: Question = (endpoint.into(), query.into());
        // It has no namespace.
        let payer = match &settings.query {
            Some(_) => Payer::Own("".into()),
            None => Payer::BuiltIn("".into()),
        };
        let client = self.prometheus.get(endpoint).cloned();
        let ask = |permit| {
            let ((endpoint, query), client) = (key.clone(), client.clone());
            let (nodes, labels) = (self.nodes.clone(), self.exporters.node_labels.clone());
            let (metrics, wanted) = (self.metrics.clone(), wanted.clone());
            async move {
                // Before it is sent: no sample counts as younger than it is.
                let asked = Asked { wanted, at: seconds(clock::timestamp()) };
                let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
                let client = client.ok_or_else(gone)?;
                let result = client.query_with_permit(&query, permit, |answer| {
                    let identity = nodes.identity();
                    let answer = (answer.status, answer.content_type.as_str(), &*answer.body);
                    Measured::read(answer, &identity, &labels, &asked)
                });
                let result = result.await.map(Arc::new);
                match &result {
                    Ok(measured) => metrics.samples_rejected("session", measured.rejected),
                    Err(error) => tracing::warn!(
                        endpoint = &*endpoint, reason = error.class.reason(), %error,
                        "sessions not counted, reflectors stay as they are"
                    ),
                }
                result
            }
        };
        // An answer after the next tick would be late, but no server answers in zero time.
        let patience = interval.clamp(Duration::from_secs(5), Duration::from_secs(10));
        let permit = || self.prometheus.permit(endpoint, &payer);
        let asked = self.measurements.get(&key, tick, patience, permit, ask).await;
        let result = asked.unwrap_or_else(|late| Err(self.prometheus.late(endpoint, late, &payer)));
        Some(result.map_err(|error| error.to_string()))
    }

    /// Adds Calico's new reports to those since the last step. If they cannot be read there are
    /// none: the gate stays shut, and repair goes on.
    async fn hear_reports(&self, set: &RouteReflectorSet, memory: &mut Memory) {
        if memory.asked.is_empty() {
            return;
        }
        match self.reports(set).await {
            Ok(reports) => memory.statuses.hear(reports, seconds(clock::timestamp())),
            Err(error) => tracing::warn!(
                set = set.name_any(),
                reason = error.reason(),
                error = error.to_text(),
                "CalicoNodeStatuses not read, sessions count as not reported"
            ),
        }
    }

    async fn reports(&self, set: &RouteReflectorSet) -> Result<BTreeMap<String, Report>, Error> {
        let datastore = self.datastore(set)?;
        let Some(statuses) = datastore.node_status() else { return Ok(BTreeMap::new()) };
        Ok(statuses.read_reports().await?)
    }
}

/// All facts.
pub(super) async fn observe(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
    deleting: bool,
) -> Result<Observed, Error> {
    let all = others.state();
    let readable = || all.iter().filter_map(|other| other.0.as_ref().ok());
    // A set that writes nothing takes over no BGPPeers either.
    let keeps =
        |other: Option<&RouteReflectorSet>| set.spec.mode == Mode::Observe || precedes(other, set);
    let keep = all.iter().filter(|other| keeps(other.0.as_ref().ok()));
    let sets = keep.map(|other| other.name_any()).collect();
    let mut observed = Observed {
        now: clock::timestamp(),
        held: held(set, readable()),
        settings: Settings::of(set).map_err(|error| error.to_string()),
        // On the way back to the mesh, a gate that cannot be evaluated counts as shut.
        misconfigured: if deleting { None } else { reconciler.check(set).err() },
        speakers: vec![],
        bgp: Err(Calico { reason: "Unknown", text: "not read".into() }),
        fitness: None,
        measured: None,
        busy: BTreeMap::new(),
        memory: reconciler.memories.get(&key(set)),
    };
    observed.memory.began.get_or_insert(observed.now);
    let Ok(settings) = observed.settings.clone() else { return Ok(observed) };
    if observed.held.is_some() || set.spec.paused && !deleting {
        return Ok(observed);
    }
    observed.speakers = reconciler.nodes.speakers();
    let holder = disruptions::holder(KIND, &key(set));
    let nodes = observed.speakers.iter().map(|speaker| &speaker.name);
    observed.busy = reconciler.disruptions.blocked(&holder, nodes);
    // On the way back to the mesh, no node is chosen.
    if !deleting {
        observed.fitness = fitness_or_freeze(&reconciler.client, &reconciler.nodes, set).await;
    }
    let figures = observed.memory.figures.as_ref();
    let retired = figures.is_some_and(|figures| figures.retiring && figures.steps_left == 0);
    if settings.retire && !retired {
        // Not everything that says who programs the routes is watched.
        reconciler.datastore(set)?.refresh();
    }
    observed.bgp = match reconciler.bgp(set, &settings, &sets).await {
        Ok(bgp) => Ok(bgp),
        Err(datastore::Error::Kube { action, source }) => {
            return Err(Error::Kube { action, source });
        }
        Err(datastore::Error::Invalid(text)) => return Err(Error::Invalid(text)),
        Err(error) => Err(Calico { reason: error.reason(), text: error.to_string() }),
    };
    // The second phase.
    let questions = plan::questions(set, &observed, deleting);
    if questions.workloads {
        let known = observed.memory.workloads.as_ref();
        let fresh = known.is_some_and(|(at, _)| clock::instant().duration_since(*at) < COUNTED);
        if !fresh {
            let count = count_workloads(&reconciler.client);
            let known = observed.memory.workloads.take();
            observed.memory.workloads = counted(count, known).await;
        }
    }
    // They are Calico's objects too.
    if !matches!(&observed.bgp, Ok((snapshot, _)) if snapshot.stale.is_some()) {
        reconciler.hear_reports(set, &mut observed.memory).await;
    }
    observed.measured = reconciler.measure(set, &settings, &questions).await;
    Ok(observed)
}

/// Describes the older set that serves the cluster; `None` if this one does.
pub(super) fn held<'a>(
    set: &RouteReflectorSet,
    others: impl IntoIterator<Item = &'a RouteReflectorSet>,
) -> Option<String> {
    if !claims(set) {
        return None;
    }
    let older = others.into_iter().filter(|other| {
        claims(other) && other.name_any() != set.name_any() && rank(other) < rank(set)
    });
    let holder = older.min_by_key(|other| rank(other))?;
    Some(format!(
        "the cluster is served by the older RouteReflectorSet {}; only one can be active",
        holder.name_any()
    ))
}

/// Reports whether the BGPPeers of another set stay its own: it may serve the cluster before this
/// one. A set that cannot be read (`None`) might.
fn precedes(other: Option<&RouteReflectorSet>, set: &RouteReflectorSet) -> bool {
    other.is_none_or(|other| claims(other) && rank(other) < rank(set))
}

/// With Observe, nothing is written, so no claim is needed; nor once the object is cleaned up.
fn claims(set: &RouteReflectorSet) -> bool {
    set.spec.mode == Mode::Enforce && !has_ended(set, RouteReflectorReconciler::FINALIZER)
}

/// Older first, ties by name.
fn rank(set: &RouteReflectorSet) -> (Option<i64>, String) {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, set.name_any())
}

/// Reads the fitness; `None` if the spec names no `TrafficWatch`.
///
/// # Errors
/// The error of the read.
pub(super) async fn read_fitness(
    client: &Client,
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
    let frozen = frozen(&watch);
    let frozen = frozen.map(|why| format!("TrafficWatch {}/{} {why}", of.namespace, of.name));
    let unfit = nodes.carriers_of(&watch.label_key(), "true");
    Ok(Some(Fitness { unfit: unfit.into_iter().collect(), frozen }))
}

/// Reads the fitness for a pass. A read that fails only means that no reflector is replaced for
/// being unfit: dead ones are, and the mesh is restored, without any `TrafficWatch`.
async fn fitness_or_freeze(
    client: &Client,
    nodes: &NodeStore,
    set: &RouteReflectorSet,
) -> Option<Fitness> {
    let error = match read_fitness(client, nodes, set).await {
        Ok(fitness) => return fitness,
        Err(error) => error,
    };
    let of = set.spec.candidates.fitness_ref.as_ref()?;
    tracing::warn!(
        set = set.name_any(),
        namespace = of.namespace,
        watch = of.name,
        reason = error.reason(),
        error = error.to_text(),
        "TrafficWatch not read, no reflector is replaced for being unfit"
    );
    // The condition Ready has this text. That of the server may differ each time, which would be a
    // write each time.
    let (namespace, name, reason) = (&of.namespace, &of.name, error.reason());
    let frozen = Some(format!("TrafficWatch {namespace}/{name} cannot be read ({reason})"));
    Some(Fitness { frozen, ..Fitness::default() })
}

/// Returns why the marks of a `TrafficWatch` are not acted on: without judgments the last ones stay
/// on the nodes, and so does the condition about their measurements.
fn frozen(watch: &TrafficWatch) -> Option<&'static str> {
    let condition = |type_: &str| -> Option<&Condition> {
        let mut all = watch.status.iter().flat_map(|status| &status.conditions);
        all.find(|condition| condition.type_ == type_)
    };
    if watch.spec.paused {
        return Some("is paused");
    }
    if watch.spec.mode == Mode::Observe {
        return Some("is in mode Observe, and marks no node");
    }
    // With this text the API server refuses its Deployment, and nodes are still judged.
    let is_invalid = |ready: &Condition| {
        ready.reason == "InvalidSpec" && !ready.message.starts_with("spec.deployment: ")
    };
    if condition("Ready").is_some_and(is_invalid) {
        return Some("has an invalid spec");
    }
    let is_measured = condition("MetricsAvailable").is_some_and(|found| found.status == "True");
    (!is_measured).then_some("has no measurement")
}

/// For how long a choice waits for the count.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pods in one answer: some hundred kilobytes.
const PAGE: u32 = 500;

/// A Pod without the fields that are not read.
#[derive(Clone, Debug, Deserialize)]
struct Workload {
    #[serde(deserialize_with = "partial_resource::metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

partial_resource!(Workload as Pod, NamespaceResourceScope);

impl Workload {
    /// Reports whether a loss of routes affects it: it runs, on the pod network, and not on every
    /// node.
    fn counts(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        let everywhere = owners.into_iter().any(|owner| owner.kind == "DaemonSet");
        self.status.phase == "Running" && !self.spec.host_network && !everywhere
    }
}

/// Running pods of the pod network, by node, without those of `DaemonSet`s. Read once when a
/// reflector must be chosen.
pub(super) async fn count_workloads(
    client: &kube::Client,
) -> Result<BTreeMap<Arc<str>, u32>, Error> {
    let api = Api::<Workload>::all(client.clone());
    let mut counted: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let add = |pod: Workload| {
        if let Some(node) = pod.spec.node_name.as_deref().filter(|_| pod.counts()) {
            match counted.get_mut(node) {
                Some(number) => *number += 1,
                None => drop(counted.insert(node.into(), 1)),
            }
        }
    };
    let listed = api.list_pages(ListParams::default().limit(PAGE), add).await;
    listed.map_err(Error::kube("list Pods")).map(|()| counted)
}

/// Returns the count and its time; if it fails or takes too long, the one that is known. It decides
/// only between nodes that are otherwise equal, and must not keep a dead reflector in its place.
async fn counted(
    count: impl Future<Output = Result<BTreeMap<Arc<str>, u32>, Error>>,
    known: Option<(Instant, Workloads)>,
) -> Option<(Instant, Workloads)> {
    let why = match tokio::time::timeout(PATIENCE, count).await {
        Ok(Ok(counted)) => return Some((clock::instant(), Arc::new(counted))),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    tracing::warn!(why, "pods not counted, reflectors are chosen without");
    known
}

#[cfg(test)]
mod tests;
