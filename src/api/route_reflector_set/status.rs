//! What the controller last saw and did.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Which nodes reflect routes, and what is on its way.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteReflectorSetStatus {
    /// The generation this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many reflectors there are to be.
    #[serde(default)]
    pub desired: i64,
    /// How many of the reflectors are Ready nodes.
    #[serde(default)]
    pub ready: i64,
    /// The topology that is in use, or on its way: Simple, Zonal, Multi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// What is being done: Converged, Labelling, Widening, Promoting, Renumbering, Demoting,
    /// Narrowing, SwitchingMesh, RestoringMesh, Frozen, Paused.
    #[serde(default)]
    pub phase: String,
    /// Whether Calico's node-to-node mesh is `On` or `Off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Where Calico's objects are: projectcalico.org/v3, crd.projectcalico.org/v1 or etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    /// The reflectors.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub slots: Vec<SlotStatus>,
    /// How many nodes are clients in each group.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub groups: Vec<GroupStatus>,
    /// What is to be done, in this order: the first ten steps.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub plan: Vec<PlannedStep>,
    /// When something was last written to nodes, peers or the mesh: gates and waits count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step_time: Option<Time>,
    /// Ready (the plan is sound and is being kept to), Converged (nothing is left to do) and RoutesSafe
    /// (no single reflector's loss costs a route).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// One reflector.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotStatus {
    /// The slot: what clients peer with. It stays when another node takes it.
    pub id: i64,
    /// The node that holds it.
    pub node: String,
    /// The node's zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The node's cluster id.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Since when the node holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Since when the node has been unfit, as far as that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit_since: Option<Time>,
    /// Why another node is to take the slot: NotReady, Unfit, Cordoned, NotSuitable, Surplus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<String>,
}

/// The nodes that are clients of the same reflectors.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct GroupStatus {
    /// The value of the nodes' label.
    pub name: String,
    /// How many they are.
    #[serde(default)]
    pub nodes: i64,
    /// The slots they peer with.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub slots: Vec<i64>,
}

/// One step of a plan.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// What is written: LabelClients, WritePeer, DeletePeer, Adopt, Promote, Renumber, Demote, MeshOn,
    /// MeshOff.
    pub step: String,
    /// The node it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The slot it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<i64>,
    /// The BGPPeer it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}
