//! `RouteReflectorSet`: elects the nodes that reflect BGP routes.
use k8s_openapi::{
    api::core::v1::Toleration,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
pub use traffic_operator_core::election::{IdScope, Rounding, Scope, Topology};

pub use super::Mode;
use super::{Duration, LocalReference, Permission, kind};

/// Permissions of the controller, in addition to reading and patching `RouteReflectorSet` itself.
pub const PERMISSIONS: &[Permission] = &[
    // Labels and the cluster id, by merge patch; never update, so never a whole Node.
    Permission { group: "", resources: &["nodes"], verbs: &["list", "watch", "patch"] },
    // The workload that a loss of routes would affect, if a reflector must be chosen.
    Permission { group: "", resources: &["pods"], verbs: &["list"] },
    // candidates.fitnessRef.
    Permission { group: "traffic.example.com", resources: &["trafficwatches"], verbs: &["get"] },
    Permission {
        group: "projectcalico.org",
        resources: &["bgppeers"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Permission {
        group: "crd.projectcalico.org",
        resources: &["bgppeers"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    // mesh: Migrate and Retire, deletionPolicy: RestoreMesh.
    Permission {
        group: "projectcalico.org",
        resources: &["bgpconfigurations"],
        verbs: &["list", "watch", "create", "patch"],
    },
    Permission {
        group: "crd.projectcalico.org",
        resources: &["bgpconfigurations"],
        verbs: &["list", "watch", "create", "patch"],
    },
    // Whether Calico may be written to, and which group it uses.
    Permission { group: "projectcalico.org", resources: &["clusterinformations"], verbs: &["get"] },
    Permission {
        group: "crd.projectcalico.org",
        resources: &["clusterinformations"],
        verbs: &["get"],
    },
    // Who programs the routes: without BIRD there is nothing to reflect.
    Permission { group: "projectcalico.org", resources: &["ippools"], verbs: &["list"] },
    Permission { group: "crd.projectcalico.org", resources: &["ippools"], verbs: &["list"] },
    Permission { group: "projectcalico.org", resources: &["felixconfigurations"], verbs: &["get"] },
    Permission {
        group: "crd.projectcalico.org",
        resources: &["felixconfigurations"],
        verbs: &["get"],
    },
    Permission { group: "operator.tigera.io", resources: &["installations"], verbs: &["get"] },
    // transition.gate: NodeStatus.
    Permission {
        group: "projectcalico.org",
        resources: &["caliconodestatuses"],
        verbs: &["get", "list", "create", "delete"],
    },
    Permission {
        group: "crd.projectcalico.org",
        resources: &["caliconodestatuses"],
        verbs: &["get", "list", "create", "delete"],
    },
];

/// RouteReflectorSet elects the nodes that reflect Calico's BGP routes. It writes a constant number
/// of BGPPeers, and replaces reflectors without losing a route.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "traffic.example.com",
    version = "v1alpha1",
    kind = "RouteReflectorSet",
    status = "RouteReflectorSetStatus",
    shortname = "rrs",
    category = "traffic",
    derive = "PartialEq",
    doc = "RouteReflectorSet elects the nodes that reflect Calico's BGP routes. It writes a constant number of BGPPeers, and replaces reflectors without losing a route.",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name: at most 63 characters: it is the value of a label on BGPPeers"),
    validation = Rule::new("self.spec.topology == 'Multi' || self.spec.peersPerClient == 3")
        .message("spec.peersPerClient: applies only to topology Multi"),
    validation = Rule::new("self.spec.topology != 'Zonal' || self.spec.zoneLabel != ''")
        .message("spec.zoneLabel: required for topology Zonal"),
    validation = Rule::new("self.spec.count.scope != 'PerZone' || self.spec.zoneLabel != ''")
        .message("spec.zoneLabel: required for count.scope PerZone"),
    validation = Rule::new("!has(self.spec.clusterID.per) || self.spec.topology != 'Zonal' || self.spec.clusterID.per != 'Set'")
        .message("spec.clusterID.per: with topology Zonal and one id for all, reflectors drop the routes of other zones; use Zone"),
    validation = Rule::new("self.spec.datastore.type != 'etcd' || self.spec.transition.gate != 'NodeStatus'")
        .message("spec.transition.gate: CalicoNodeStatus does not exist with datastore etcd; use Prometheus or Wait"),
    validation = Rule::new("self.spec.mesh != 'Retire' || self.spec.deletionPolicy != 'RestoreMesh'")
        .message("spec.mesh: Retire switches the mesh off, and deletionPolicy RestoreMesh would switch it on again; use Retain"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired"),
    printcolumn(name = "Reflectors", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Topology", type_ = "string", json_path = ".status.topology", priority = "1"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.conditions[?(@.type=='Converged')].reason"),
    printcolumn(name = "Mesh", type_ = "string", json_path = ".status.mesh"),
    printcolumn(name = "RoutesSafe", type_ = "string", json_path = ".status.conditions[?(@.type=='RoutesSafe')].status", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct RouteReflectorSetSpec {
    /// Number of reflectors.
    #[serde(default)]
    pub count: Count,

    /// Peering between nodes: Auto, Simple, Zonal or Multi. Defaults to Auto.
    #[serde(default)]
    pub topology: Topology,

    /// Node label that contains the zone of a node. "" disables zones. Defaults to
    /// topology.kubernetes.io/zone.
    #[serde(default = "defaults::zone_label")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = Rule::new("self == '' || !format.qualifiedName().validate(self).hasValue()").message("zoneLabel must be a label key, e.g. \"topology.kubernetes.io/zone\", or empty"))]
    pub zone_label: String,

    /// Node label that marks reflectors: a key, or `key=value`. The admission policy
    /// traffic-operator-nodes must allow a key other than the default. Defaults to
    /// calico-route-reflector.
    #[serde(default = "defaults::node_label")]
    #[schemars(length(min = 1, max = 381))]
    #[x_kube(validation = Rule::new("!format.qualifiedName().validate(self.split('=', 2)[0]).hasValue() && (!self.contains('=') || !format.labelValue().validate(self.split('=', 2)[1]).hasValue())").message("nodeLabel must be a label key, or key=value, e.g. \"calico-route-reflector\""))]
    pub node_label: String,

    /// Nodes that are eligible as reflectors, and when a reflector is replaced.
    #[serde(default)]
    pub candidates: Candidates,

    /// Number of reflectors that each client peers with. For topology Multi only.
    #[serde(default = "defaults::peers_per_client")]
    #[schemars(range(min = 2, max = 10), extend("format" = "int32"))]
    pub peers_per_client: u32,

    /// Source of the cluster ids.
    #[serde(default, rename = "clusterID")]
    pub cluster_id: ClusterId,

    /// Rules for replacing one reflector with another.
    #[serde(default)]
    pub transition: Transition,

    /// Treatment of Calico's node-to-node mesh. Leave does not touch it. Migrate switches it off
    /// once the reflectors carry every route. Retire removes the reflectors and switches the mesh
    /// off once Felix has programmed every route for transition.wait, or if BGP is disabled.
    /// Defaults to Leave.
    #[serde(default)]
    pub mesh: Mesh,

    /// Datastore in which Calico stores its objects.
    #[serde(default)]
    pub datastore: Datastore,

    /// Effect of deleting this object: Retain leaves the network as it is, RestoreMesh
    /// switches Calico's node-to-node mesh back on first. Defaults to Retain.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// Stops deciding and writing. The network stays as it is.
    #[serde(default)]
    pub paused: bool,

    /// Enforce writes to nodes and to Calico. Observe only computes status, metrics and events.
    /// Defaults to Enforce.
    #[serde(default)]
    pub mode: Mode,
}

impl RouteReflectorSet {
    /// The key and value of the label of reflectors.
    #[must_use]
    pub fn node_label(&self) -> (&str, &str) {
        self.spec.node_label.split_once('=').unwrap_or((&self.spec.node_label, ""))
    }
}

/// Keeps each field that can be read. Where the datastore or the label is unreadable, there is no
/// place to restore the mesh and no node to demote, so everything stays as it is.
fn spec_for_cleanup(spec: &Value) -> Value {
    let readable = |(field, value): &(&String, &Value)| {
        RouteReflectorSetSpec::deserialize(json!({ (*field): value })).is_ok()
    };
    let fields = spec.as_object().into_iter().flatten();
    let mut kept: Map<String, Value> =
        fields.filter(readable).map(|(field, value)| (field.clone(), value.clone())).collect();
    let needed = ["datastore", "nodeLabel"];
    if needed.iter().any(|field| !spec[*field].is_null() && !kept.contains_key(*field)) {
        kept.remove("deletionPolicy");
    }
    kept.into()
}

kind!(cluster RouteReflectorSet, RouteReflectorSetStatus, cleanup spec_for_cleanup);

/// The number of reflectors: `ratio` times the number of ready nodes, at least `min` and at most
/// `max`.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("self.min <= self.max").message("count.min: must not be greater than count.max"))]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// Computes the number for the whole cluster (Cluster) or for each zone (`PerZone`). Defaults
    /// to Cluster.
    #[serde(default)]
    pub scope: Scope,
    /// Reflectors per ready node, a decimal greater than 0 and at most 1. "0.005" is one reflector
    /// for 200 nodes.
    #[serde(default = "defaults::ratio")]
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^(0?[.][0-9]+|0|1|1[.]0*|0[.])$') && double(self) > 0.0").message("count.ratio must be a decimal above 0 and at most 1, e.g. \"0.005\""))]
    pub ratio: String,
    /// Minimum number of reflectors, if enough nodes are ready. With fewer than 3 there is no
    /// redundancy while one is being replaced. Defaults to 3.
    #[serde(default = "defaults::min")]
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub min: u32,
    /// Maximum number of reflectors. Defaults to 25.
    #[serde(default = "defaults::max")]
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub max: u32,
    /// Rounding of a fraction: Ceil, Floor or Round. Defaults to Ceil.
    #[serde(default)]
    pub rounding: Rounding,
    /// Table that replaces the ratio. The first entry with at least the current number of ready
    /// nodes applies, or the last entry if there are more nodes. min and max still apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(validation = Rule::new("self.all(s, self.exists_one(t, t.nodes == s.nodes))").message("count.steps: each number of nodes may appear only once"))]
    pub steps: Vec<CountStep>,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            scope: Scope::Cluster,
            ratio: defaults::ratio(),
            min: defaults::min(),
            max: defaults::max(),
            rounding: Rounding::Ceil,
            steps: vec![],
        }
    }
}

/// One entry of the table.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct CountStep {
    /// Maximum number of ready nodes for which this entry applies.
    #[schemars(range(min = 1, max = 100_000), extend("format" = "int32"))]
    pub nodes: u32,
    /// Number of reflectors.
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub count: u32,
}

/// Nodes that are eligible as reflectors, and when a reflector is replaced.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidates {
    /// Selects the eligible nodes. Defaults to all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Selects nodes to prefer, for example nodes without workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<LabelSelector>,
    /// Selects nodes that are never reflectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden: Option<LabelSelector>,
    /// If set, a node with a taint NoSchedule or NoExecute is eligible only if one of these
    /// tolerates the taint. If empty, only the taints of nodes in trouble (not-ready,
    /// memory-pressure, unschedulable, …) exclude a node. A cordoned node is
    /// eligible only if one names the key node.kubernetes.io/unschedulable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// TrafficWatch whose unfit nodes are elected last, and replaced after demoteAfter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitness_ref: Option<FitnessRef>,
    /// Time for which a reflector must have been unfit before it is replaced, at most 168h. The
    /// clock restarts whenever the TrafficWatch has no measurement. Defaults to 10m.
    #[serde(default = "defaults::demote_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("candidates.demoteAfter must be a duration of at most 168h, e.g. \"10m\""))]
    pub demote_after: Duration,
    /// Time for which a reflector must have been NotReady before another node takes its slot, at
    /// most 168h. Defaults to 3m.
    #[serde(default = "defaults::replace_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("candidates.replaceAfter must be a duration of at most 168h, e.g. \"3m\""))]
    pub replace_after: Duration,
}

impl Default for Candidates {
    fn default() -> Self {
        Self {
            node_selector: None,
            preferred: None,
            forbidden: None,
            tolerations: vec![],
            fitness_ref: None,
            demote_after: defaults::demote_after(),
            replace_after: defaults::replace_after(),
        }
    }
}

/// Reference to a TrafficWatch.
#[derive(Clone, Debug, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
pub struct FitnessRef {
    /// Namespace of the TrafficWatch.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("fitnessRef.namespace must be the name of a namespace"))]
    pub namespace: String,
    /// Name of the TrafficWatch.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("fitnessRef.name must be the name of a TrafficWatch"))]
    pub name: String,
}

/// The source of the cluster ids.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterId {
    /// IPv4 addresses from which ids are taken: a range or a single address. None of them may be
    /// the address of a node. Defaults to "224.0.0.0/16".
    #[serde(default = "defaults::pool")]
    #[schemars(length(min = 7, max = 18))]
    #[x_kube(validation = Rule::new("self.contains('/') ? (isCIDR(self) && cidr(self).ip().family() == 4) : (isIP(self) && ip(self).family() == 4)").message("clusterID.pool must be an IPv4 range or address, e.g. \"224.0.0.0/16\""))]
    pub pool: String,
    /// The reflectors that share an id: Set, Zone or Slot. Defaults to Set for topology Simple, and
    /// to Zone for Zonal and Multi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<IdScope>,
}

impl Default for ClusterId {
    fn default() -> Self {
        Self { pool: defaults::pool(), per: None }
    }
}

/// Method of verifying that the sessions of a step are established.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Gate {
    /// By the number of established sessions of each node, as reported by Prometheus.
    #[default]
    Prometheus,
    /// By Calico's CalicoNodeStatus of the affected nodes, at most ten at a time.
    NodeStatus,
    /// Without verification, by a fixed time.
    Wait,
}

/// Rules for replacing one reflector with another.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("!has(self.query) || !has(self.gate) || self.gate == 'Prometheus'").message("transition.query: applies only to gate Prometheus"))]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// Method of verifying that the sessions of a step are established: Prometheus,
    /// NodeStatus or Wait. Defaults to Prometheus.
    #[serde(default)]
    pub gate: Gate,
    /// PromQL query that returns the number of established BGP sessions of each node. Defaults to
    /// counting the metrics of bird_exporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16_384))]
    pub query: Option<String>,
    /// Name of a Prometheus endpoint in the operator's configuration, never a URL. Defaults to
    /// "default".
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("transition.prometheus must be the name of an endpoint of the operator's configuration (a DNS label), not a URL"))]
    pub prometheus: String,
    /// Time to wait after each step with gate Wait. With mesh Retire, the time for which no route
    /// must have depended on BGP before the first step. From 60s to 24h. Defaults to 90s.
    #[serde(default = "defaults::wait")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('60s') && duration(self) <= duration('24h')").message("transition.wait must be a duration from 60s to 24h, e.g. \"90s\": sessions by selector need up to 30s"))]
    pub wait: Duration,
    /// Time after which the condition Converged reports GateTimeout, from 60s to 24h. No reflector
    /// is demoted and the mesh stays, while the operator keeps checking the gate. Defaults to 5m.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('60s') && duration(self) <= duration('24h')").message("transition.timeout must be a duration from 60s to 24h, e.g. \"5m\""))]
    pub timeout: Duration,
    /// Maximum number of nodes of one zone that change at the same time. The other zones wait.
    /// Defaults to 1.
    #[serde(default = "defaults::max_per_zone")]
    #[schemars(range(min = 1, max = 25), extend("format" = "int32"))]
    pub max_per_zone: u32,
}

impl Default for Transition {
    fn default() -> Self {
        Self {
            gate: Gate::Prometheus,
            query: None,
            prometheus: defaults::endpoint(),
            wait: defaults::wait(),
            timeout: defaults::timeout(),
            max_per_zone: defaults::max_per_zone(),
        }
    }
}

/// Treatment of Calico's node-to-node mesh.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mesh {
    /// Leave it as it is.
    #[default]
    Leave,
    /// Switch it off once the reflectors carry every route.
    Migrate,
    /// Remove the reflectors and switch it off, where no route depends on BGP.
    Retire,
}

/// Effect of deleting the object.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// The network as it is: the reflectors, their peers, and no mesh if it was off.
    #[default]
    Retain,
    /// The mesh: it is switched on and verified before peers and reflectors are removed.
    RestoreMesh,
}

/// The datastore of Calico.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DatastoreType {
    /// The Kubernetes API.
    #[default]
    Kubernetes,
    /// A separate etcd.
    #[serde(rename = "etcd")]
    Etcd,
}

/// Datastore in which Calico stores its objects.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("(self.type == 'etcd') == has(self.etcd)").message("datastore.etcd: required with type etcd, and allowed only then"))]
pub struct Datastore {
    /// Type of the datastore: `Kubernetes` or `etcd`. Defaults to `Kubernetes`.
    #[serde(default, rename = "type")]
    pub type_: DatastoreType,
    /// Connection to Calico's etcd. Required with type etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
}

/// Connection to an etcd.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
// Exactly one of the two fields: CEL does not see `secretRef`, which has no type, so that a policy
// (`deploy/base/fieldpolicy.yaml`) and the operator refuse both and neither.
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// URLs of the members of an etcd that requires no credentials. With secretRef, the Secret
    /// contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 20), inner(length(min = 8, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(e, isURL(e) && url(e).getScheme() in ['http', 'https'])").message("datastore.etcd.endpoints must be URLs with http or https, e.g. \"https://10.0.0.1:2379\""))]
    pub endpoints: Vec<String>,
    /// Reference to a Secret in the operator's namespace, for example {name: calico-etcd}. Its key
    /// endpoints contains the URLs, separated by commas or line breaks. Its keys etcd-ca, etcd-cert
    /// and etcd-key (as in Calico's own Secret), or username and password, contain the credentials.
    /// A plain name is deprecated.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::api::reference::secret_ref"
    )]
    #[schemars(schema_with = "crate::api::schema::local_reference")]
    pub secret_ref: Option<LocalReference>,
}

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
    /// State of the mesh before `mesh: Retire`, which is restored if routes depend on BGP again: `On`
    /// or `Off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_before: Option<String>,
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

mod defaults {
    //! What fields have that a spec leaves out.
    use std::time::Duration as Std;

    use super::Duration;

    /// The original's ratio: one reflector for 200 nodes.
    pub(super) fn ratio() -> String {
        "0.005".into()
    }
    /// Fewer reflectors leave no redundancy while one is being replaced.
    pub(super) fn min() -> u32 {
        3
    }
    /// The number that the original documents.
    pub(super) fn max() -> u32 {
        25
    }
    /// The label of cloud providers and of the scheduler.
    pub(super) fn zone_label() -> String {
        "topology.kubernetes.io/zone".into()
    }
    /// The label of the original.
    pub(super) fn node_label() -> String {
        "calico-route-reflector".into()
    }
    /// The number of the original: two reflectors may fail at once.
    pub(super) fn peers_per_client() -> u32 {
        3
    }
    /// The original's address as a range: ids need no routing, and no node has an address of class D.
    pub(super) fn pool() -> String {
        "224.0.0.0/16".into()
    }
    /// A short peak of load does not justify two interruptions of the node's routes.
    pub(super) fn demote_after() -> Duration {
        Std::from_mins(10).into()
    }
    /// Longer than BIRD's graceful restart (120 s): a node that restarts resumes its role.
    pub(super) fn replace_after() -> Duration {
        Std::from_mins(3).into()
    }
    /// New sessions of peers by selector collide: they take up to 30 s with Calico's BIRD.
    pub(super) fn wait() -> Duration {
        Std::from_secs(90).into()
    }
    /// Three times the longest setup of a session, including two scrapes.
    pub(super) fn timeout() -> Duration {
        Std::from_mins(5).into()
    }
    /// Each change interrupts the routes of its node for two seconds.
    pub(super) fn max_per_zone() -> u32 {
        1
    }
    /// The endpoint that `--prometheus-url` names.
    pub(super) fn endpoint() -> String {
        "default".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_cannot_be_read_can_be_cleaned_up_after() {
        for (spec, expected) in [
            (json!(null), json!({})),
            (
                json!({"topology": "Ring", "deletionPolicy": "RestoreMesh", "nodeLabel": "rr"}),
                json!({"deletionPolicy": "RestoreMesh", "nodeLabel": "rr"}),
            ),
            (json!({"deletionPolicy": "Burn", "mode": "Observe"}), json!({"mode": "Observe"})),
            // Not the mesh of another datastore.
            (json!({"datastore": {"type": "consul"}, "deletionPolicy": "RestoreMesh"}), json!({})),
        ] {
            let bare = spec_for_cleanup(&spec);
            assert_eq!(bare, expected, "{spec}");
            assert!(serde_json::from_value::<RouteReflectorSetSpec>(bare).is_ok());
        }
    }
}
