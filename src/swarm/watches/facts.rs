//! The stored facts about the objects that a `Swarm` depends on.
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};
use kube::core::ObjectMeta;

use super::objects::{
    Container, Fitness, MapObject, PodSpec, PodStatus, WorkerPod, WorkloadObject,
};
use crate::api::GROUP;

/// The annotation that `HotReload` writes: the version of the file that the pod should read. Any
/// change of a pod makes the kubelet sync its volumes at once instead of within a minute.
pub const NUDGE: &str = "traffic.example.com/swarm-epoch";

/// The annotation of a pod that states whether its worker signs its answers, `signed` or `plain`,
/// where that does not follow from its containers.
pub const ACKNOWLEDGEMENTS: &str = "traffic.example.com/acknowledgements";

/// A `StatefulSet` or `Deployment`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadFacts {
    /// Name of the workload.
    pub name: String,
    /// UID of the workload.
    pub uid: String,
    /// The version of its spec.
    pub generation: i64,
    /// The version of its spec that its controller has seen.
    pub observed_generation: i64,
    /// Desired number of workers.
    pub replicas: u32,
    /// The ordinal of the first.
    pub start: u32,
    /// `OnDelete`, `RollingUpdate` (the default).
    pub on_delete: bool,
    /// The pods that are its own.
    pub selector: LabelSelector,
    /// The volumes of its template that are `ConfigMap`s: name of the volume, name of the
    /// `ConfigMap`.
    pub mounts: Vec<(Box<str>, Box<str>)>,
    /// Those of them that are nothing else beside it.
    pub plain: Vec<Box<str>>,
}

impl<K> From<&WorkloadObject<K>> for WorkloadFacts {
    fn from(object: &WorkloadObject<K>) -> Self {
        let spec = &object.spec;
        let natural = |number: i32| u32::try_from(number).unwrap_or_default();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            observed_generation: object.status.observed_generation,
            // The API server's default.
            replicas: natural(spec.replicas.unwrap_or(1)),
            start: natural(spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start)),
            on_delete: spec.update_strategy.as_ref().is_some_and(|s| s.type_ == "OnDelete"),
            selector: spec.selector.clone(),
            mounts: mounts(&spec.template.spec),
            plain: spec
                .template
                .spec
                .volumes
                .iter()
                .filter(|volume| volume.config_map.is_some())
                .map(|volume| volume.name.clone())
                .collect(),
        }
    }
}

fn mounts(spec: &PodSpec) -> Vec<(Box<str>, Box<str>)> {
    let each = spec.volumes.iter().flat_map(|volume| {
        let projected = volume.projected.iter().flat_map(|projected| &projected.sources);
        let projected = projected.filter_map(|projection| projection.config_map.as_ref());
        let sources = volume.config_map.iter().chain(projected);
        sources.filter_map(|source| Some((volume.name.clone(), source.name.clone()?)))
    });
    each.collect()
}

/// A pod of a worker.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each as the API server tells it"
)]
pub struct PodFacts {
    /// Name of the pod.
    pub name: Arc<str>,
    /// UID of the pod.
    pub uid: Arc<str>,
    /// The time at which it was created.
    pub created: Option<Timestamp>,
    /// Kind and name of its controller.
    pub controller: Option<(Box<str>, Box<str>)>,
    /// The revision of the `Deployment` that it belongs to.
    pub template: Option<Box<str>>,
    /// Node of the pod; none before it is scheduled.
    pub node: Option<Box<str>>,
    /// Its address.
    pub ip: Option<IpAddr>,
    /// True if it is ready.
    pub ready: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// True if it never runs anything again: its phase is final and every container has terminated,
    /// or it is being deleted and never got a node.
    pub stopped: bool,
    /// True if its phase is final: nothing of it is started again.
    pub ended: bool,
    /// True if any of its containers was ever observed running.
    pub started: bool,
    /// What keeps a container from running, e.g. `container worker: CrashLoopBackOff, 12 restarts`.
    pub trouble: Option<Box<str>>,
    /// The `ConfigMap`s it mounts.
    pub mounts: Vec<Box<str>>,
    /// The last nudge.
    pub nudged: Option<u64>,
    /// True if its answers are signed ([`crate::acknowledgement`]): unsigned ones are not accepted.
    pub signs: bool,
}

impl From<&WorkerPod> for PodFacts {
    fn from(pod: &WorkerPod) -> Self {
        let (metadata, status) = (&pod.metadata, &pod.status);
        let label = |key: &str| metadata.labels.as_ref()?.get(key).map(|v| v.as_str().into());
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let owners = metadata.owner_references.iter().flatten();
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
        Self {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            controller: controller.map(|o| (o.kind.as_str().into(), o.name.as_str().into())),
            template: label("pod-template-hash"),
            node: pod.spec.node_name.clone(),
            ip: status.pod_ip.filter(crate::pods::is_askable),
            ready: status.conditions.iter().any(|c| &*c.type_ == "Ready" && &*c.status == "True"),
            terminating: metadata.deletion_timestamp.is_some(),
            stopped: is_stopped(pod),
            ended: is_ended(pod),
            started: status.container_statuses.iter().any(|c| {
                c.restart_count > 0 || c.state.running.is_some() || c.state.terminated.is_some()
            }),
            trouble: trouble(status),
            mounts: mounts(&pod.spec).into_iter().map(|(_, map)| map).collect(),
            nudged: annotation(NUDGE).and_then(|text| text.parse().ok()),
            signs: match annotation(ACKNOWLEDGEMENTS).map(String::as_str) {
                Some("signed") => true,
                Some("plain") => false,
                _ => signs(&pod.spec),
            },
        }
    }
}

/// Reports whether this project's worker or sidecar runs there, and knows its UID. From the API
/// server: a server that answers in its place could claim anything.
fn signs(spec: &PodSpec) -> bool {
    let ours = |container: &Container| {
        let words: Vec<&str> =
            container.command.iter().chain(&container.args).map(AsRef::as_ref).collect();
        words.windows(2).any(|pair| match pair {
            [program, "worker" | "reload"] => {
                *program == "agent" || program.ends_with("traffic-operator-agent")
            }
            _ => false,
        })
    };
    let knows = |container: &Container| {
        let mut uid = container.env.iter().filter(|variable| &*variable.name == "POD_UID");
        uid.any(|variable| {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            field.is_some_and(|field| &*field.field_path == "metadata.uid")
        })
    };
    // Sidecars may be init containers that keep running.
    spec.containers.iter().chain(&spec.init_containers).any(|one| ours(one) && knows(one))
}

fn trouble(status: &PodStatus) -> Option<Box<str>> {
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    let (container, reason) = containers.find_map(|container| {
        let reason = &*container.state.waiting.as_ref()?.reason;
        let starts = matches!(reason, "" | "ContainerCreating" | "PodInitializing");
        (!starts).then_some((container, reason))
    })?;
    let restarts = match container.restart_count {
        0 => String::new(),
        1 => ", 1 restart".into(),
        more => format!(", {more} restarts"),
    };
    Some(format!("container {}: {reason}{restarts}", container.name).into())
}

fn is_ended(pod: &WorkerPod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// A container that may be started again frees nothing, nor does one without a status. Deletion of
/// the pod is no proof: its kubelet may be restarting a crashed container.
fn is_stopped(pod: &WorkerPod) -> bool {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    if terminating && pod.spec.node_name.is_none() {
        return true;
    }
    if !is_ended(pod) {
        return false;
    }
    let statuses = &pod.status.container_statuses;
    let terminated = |name: &str| {
        statuses.iter().any(|status| &*status.name == name && status.state.terminated.is_some())
    };
    let all = pod.spec.containers.iter().all(|container| terminated(&container.name));
    // Sidecars are init containers that keep running.
    all && pod.status.init_container_statuses.iter().all(|status| status.state.running.is_none())
}

/// A `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapFacts {
    /// UID of the `ConfigMap`.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The manager that it names.
    pub managed_by: Option<String>,
    /// The name of the `Swarm` that owns it.
    pub owner: Option<String>,
    /// The name of the `Swarm` that it is given to, by its annotation [`GIVEN`].
    pub given: Option<String>,
    /// The fingerprint of the written content, from its annotation [`CONTENT`].
    pub content: Option<String>,
    /// Its contents.
    pub data: Arc<BTreeMap<String, String>>,
}

/// The annotation that assigns a `ConfigMap` to a `Swarm`: with it, an existing `ConfigMap` is
/// taken over.
pub const GIVEN: &str = "traffic.example.com/swarm";

/// The annotation with the fingerprint of our content: another content was written by someone else.
pub const CONTENT: &str = "traffic.example.com/content";

impl From<&MapObject> for MapFacts {
    fn from(map: &MapObject) -> Self {
        Self::new(&map.metadata, Arc::new(map.data.clone()))
    }
}

impl MapFacts {
    /// Reads the facts from the API server's answer to a write.
    #[must_use]
    pub fn new(metadata: &ObjectMeta, data: Arc<BTreeMap<String, String>>) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let owners = metadata.owner_references.iter().flatten();
        let mut ours = owners.filter(|owner| {
            owner.kind == "Swarm" && owner.api_version.split('/').next() == Some(GROUP)
        });
        let label = |key: &str| metadata.labels.as_ref()?.get(key).cloned();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            managed_by: label("app.kubernetes.io/managed-by"),
            owner: ours.next().map(|owner| owner.name.clone()),
            given: annotation(GIVEN),
            content: annotation(CONTENT),
            data,
        }
    }
}

/// The key of the label that a `TrafficWatch` puts on nodes.
pub(super) fn fitness_label(fitness: &Fitness) -> String {
    let name = fitness.metadata.name.clone().unwrap_or_default();
    format!("{}.{GROUP}/unfit", fitness.spec.label.clone().unwrap_or(name))
}
