//! The objects a `Swarm` depends on, reduced while they are being read.
use std::{collections::BTreeMap, marker::PhantomData, net::IpAddr};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{ConfigMap, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::Deserialize;

use crate::{api::TrafficWatch, partial_resource::partial_resource};

/// A `StatefulSet` or `Deployment`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WorkloadObject<K> {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: WorkloadSpec,
    #[serde(default)]
    pub status: WorkloadStatus,
    #[serde(skip)]
    full: PhantomData<fn() -> K>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadSpec {
    pub replicas: Option<i32>,
    #[serde(default)]
    pub selector: LabelSelector,
    pub ordinals: Option<Ordinals>,
    pub update_strategy: Option<UpdateStrategy>,
    #[serde(default)]
    pub template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Ordinals {
    #[serde(default)]
    pub start: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct UpdateStrategy {
    #[serde(default, rename = "type")]
    pub type_: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Template {
    #[serde(default)]
    pub spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadStatus {
    #[serde(default)]
    pub observed_generation: i64,
}

/// The part of a pod's spec that is read, of a template too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub node_name: Option<Box<str>>,
    #[serde(default)]
    pub containers: Vec<Container>,
    #[serde(default)]
    pub init_containers: Vec<Container>,
    #[serde(default)]
    pub volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Container {
    pub name: Box<str>,
    #[serde(default)]
    pub command: Vec<Box<str>>,
    #[serde(default)]
    pub args: Vec<Box<str>>,
    #[serde(default)]
    pub env: Vec<Variable>,
}

/// A variable, by where its value is from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Variable {
    pub name: Box<str>,
    pub value_from: Option<ValueFrom>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ValueFrom {
    pub field_ref: Option<FieldRef>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FieldRef {
    pub field_path: Box<str>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    pub name: Box<str>,
    pub config_map: Option<Source>,
    pub projected: Option<Projected>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Projected {
    #[serde(default)]
    pub sources: Vec<Projection>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Projection {
    pub config_map: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Source {
    pub name: Option<Box<str>>,
}

/// A pod of a worker.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WorkerPod {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStatus {
    pub phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<IpAddr>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub type_: Box<str>,
    pub status: Box<str>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStatus {
    pub name: Box<str>,
    #[serde(default)]
    pub restart_count: i32,
    #[serde(default)]
    pub state: State,
}

/// The state of a container: `waiting`, `running` or `terminated`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct State {
    pub waiting: Option<Waiting>,
    pub running: Option<serde::de::IgnoredAny>,
    pub terminated: Option<serde::de::IgnoredAny>,
}

/// Why a container waits, e.g. `CrashLoopBackOff`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Waiting {
    #[serde(default)]
    pub reason: Box<str>,
}

/// A `ConfigMap`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MapObject {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub data: BTreeMap<String, String>,
}

/// Keeps only the name of the node label of a `TrafficWatch`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Fitness {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: FitnessSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct FitnessSpec {
    pub label: Option<String>,
}

partial_resource!(WorkloadObject<StatefulSet> as StatefulSet, NamespaceResourceScope);
partial_resource!(WorkloadObject<Deployment> as Deployment, NamespaceResourceScope);
partial_resource!(WorkerPod as Pod, NamespaceResourceScope);
partial_resource!(MapObject as ConfigMap, NamespaceResourceScope);
partial_resource!(Fitness as TrafficWatch, NamespaceResourceScope);
