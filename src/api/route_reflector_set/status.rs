//! The state that the controller last observed and wrote.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The nodes that reflect routes, and the changes that are under way.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteReflectorSetStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of reflectors that the set should have.
    #[serde(default)]
    pub desired: i64,
    /// Number of reflectors whose nodes are Ready.
    #[serde(default)]
    pub ready: i64,
    /// Topology that is in use or being introduced: Simple, Zonal or Multi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// State of Calico's node-to-node mesh: `On` or `Off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Location of Calico's objects: projectcalico.org/v3, crd.projectcalico.org/v1 or etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    /// Reflectors and the slots that they hold.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub slots: Vec<SlotStatus>,
    /// Groups of clients, with the number of nodes in each.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub groups: Vec<GroupStatus>,
    /// Steps to take, in this order. At most 10.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub plan: Vec<PlannedStep>,
    /// Time of the last write to nodes, peers or the mesh. Gates and waits count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step_time: Option<Time>,
    /// Standard conditions: Ready (the plan is sound and makes progress), Converged (no step is
    /// left; its reason is the current activity, for example Promoting or Demoting, or the reason
    /// why a step waits) and RoutesSafe (the loss of any single reflector costs no route).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::api::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// One reflector and its slot.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotStatus {
    /// Number of the slot, which clients peer with. It stays the same when another node takes the
    /// slot.
    pub id: i64,
    /// Node that holds the slot.
    pub node: String,
    /// Zone of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Cluster id of the node.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Time at which the node took the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Start of the current period in which the node has been measured as unfit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit_since: Option<Time>,
    /// Reason why another node takes over the slot: NotReady, Unfit, Cordoned, NotSuitable or
    /// Surplus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<String>,
}

/// The nodes that are clients of the same reflectors.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct GroupStatus {
    /// Value of the label of the nodes.
    pub name: String,
    /// Number of nodes in the group.
    #[serde(default)]
    pub nodes: i64,
    /// Slots that the nodes peer with.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub slots: Vec<i64>,
}

/// One step of a plan.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// Type of the step: LabelClients, WritePeer, DeletePeer, Adopt, Promote, Renumber, Demote,
    /// MeshOn or MeshOff.
    pub step: String,
    /// Node that the step concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Slot that the step concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<i64>,
    /// BGPPeer that the step concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Condition that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}
