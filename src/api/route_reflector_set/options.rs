//! The parts of a spec that have fields of their own.
use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Duration;

use super::defaults;

/// Among which nodes reflectors are counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Scope {
    /// One number for the cluster, spread over the zones.
    #[default]
    Cluster,
    /// The number is computed in each zone.
    PerZone,
}

/// How a number of reflectors that is not whole is rounded.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Rounding {
    /// Up, as the original does.
    #[default]
    Ceil,
    /// Down.
    Floor,
    /// To the nearest, halves up.
    Round,
}

/// How many reflectors there are to be: `ratio` of the ready nodes, at least `min`, at most `max`.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("self.min <= self.max").message("count.min: must not be greater than count.max"))]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// Whether the number is for the cluster or for each zone.
    #[serde(default)]
    pub scope: Scope,
    /// Reflectors per ready node, a decimal above 0 and at most 1: "0.005" is one for 200.
    #[serde(default = "defaults::ratio")]
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^(0?[.][0-9]+|0|1|1[.]0*|0[.])$') && double(self) > 0.0").message("count.ratio must be a decimal above 0 and at most 1, e.g. \"0.005\""))]
    pub ratio: String,
    /// At least so many, if there are so many ready nodes. Below 3 there is no redundancy while one
    /// is replaced.
    #[serde(default = "defaults::min")]
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub min: u32,
    /// At most so many.
    #[serde(default = "defaults::max")]
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub max: u32,
    /// How a fraction is rounded.
    #[serde(default)]
    pub rounding: Rounding,
    /// A table in place of the ratio: the number of the first step whose nodes are not exceeded,
    /// that of the last one above it. min and max hold for it too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(validation = Rule::new("self.all(s, self.exists_one(t, t.nodes == s.nodes))").message("count.steps: each number of nodes may stand once"))]
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

/// One line of a table of numbers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
pub struct CountStep {
    /// Up to so many ready nodes …
    #[schemars(range(min = 1, max = 100_000), extend("format" = "int32"))]
    pub nodes: u32,
    /// … so many reflectors.
    #[schemars(range(min = 1, max = 50), extend("format" = "int32"))]
    pub count: u32,
}

/// Who peers with whom.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Topology {
    /// Zonal where two to four zones get two reflectors each and tables have room to replace one; Simple
    /// otherwise.
    #[default]
    Auto,
    /// Every client to every reflector, one cluster id: the original's two peers.
    Simple,
    /// Every client to the reflectors of its zone, one cluster id for each zone.
    Zonal,
    /// Every client to `peersPerClient` reflectors, one of its own zone first. Where that would not survive
    /// the loss of a reflector, Simple is used, and the condition Ready says so.
    Multi,
}

impl Topology {
    /// The word of the spec.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Simple => "Simple",
            Self::Zonal => "Zonal",
            Self::Multi => "Multi",
        }
    }
}

/// Which nodes may be reflectors, and when one is replaced.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidates {
    /// Only these nodes; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// These before others, e.g. nodes without workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<LabelSelector>,
    /// Never these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden: Option<LabelSelector>,
    /// If there are any, a node with a taint NoSchedule or NoExecute needs one that tolerates it. If
    /// there are none, only the taints of nodes in trouble (not-ready, memory-pressure,
    /// unschedulable, …) keep a node out, as in the original.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// A TrafficWatch whose unfit nodes are chosen last and replaced after demoteAfter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitness_ref: Option<FitnessRef>,
    /// How long a reflector must have been unfit. The clock starts anew when the TrafficWatch had
    /// no measurement.
    #[serde(default = "defaults::demote_after")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('168h')").message("candidates.demoteAfter must be a duration of at most 168h, e.g. \"10m\""))]
    pub demote_after: Duration,
    /// How long a reflector must have been NotReady until another node takes its slot.
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

/// A TrafficWatch.
#[derive(Clone, Debug, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
pub struct FitnessRef {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("fitnessRef.namespace must be the name of a namespace"))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("fitnessRef.name must be the name of a TrafficWatch"))]
    pub name: String,
}

/// Whose reflectors share a cluster id.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum IdScope {
    /// All.
    Set,
    /// Those of a zone.
    Zone,
    /// None: at most four reflectors.
    Slot,
}

/// Where cluster ids come from.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterId {
    /// IPv4 addresses to take ids from: a range ("224.0.0.0/16") or one address. None may be the
    /// address of a node.
    #[serde(default = "defaults::pool")]
    #[schemars(length(min = 7, max = 18))]
    #[x_kube(validation = Rule::new("self.contains('/') ? (isCIDR(self) && cidr(self).ip().family() == 4) : (isIP(self) && ip(self).family() == 4)").message("clusterID.pool must be an IPv4 range or address, e.g. \"224.0.0.0/16\""))]
    pub pool: String,
    /// Whose reflectors share an id; if absent Set for Simple, Zone for Zonal and Multi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<IdScope>,
}

impl Default for ClusterId {
    fn default() -> Self {
        Self { pool: defaults::pool(), per: None }
    }
}

/// What says that the sessions of a step are up.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Gate {
    /// The number of established sessions of each node, asked of Prometheus.
    #[default]
    Prometheus,
    /// Calico's own CalicoNodeStatus of the nodes that matter, at most ten at a time.
    NodeStatus,
    /// Nothing: a fixed time.
    Wait,
}

/// How one reflector takes the place of another.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("!has(self.query) || !has(self.gate) || self.gate == 'Prometheus'").message("transition.query: belongs to gate Prometheus"))]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// What says that the sessions of a step are up.
    #[serde(default)]
    pub gate: Gate,
    /// PromQL that gives the number of established BGP sessions of each node. If absent, what
    /// bird_exporter exports is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16_384))]
    pub query: Option<String>,
    /// The endpoint in the operator's configuration that is asked.
    #[serde(default = "defaults::endpoint")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("transition.prometheus must be the name of an endpoint of the operator's configuration (a DNS label), not a URL"))]
    pub prometheus: String,
    /// The time of gate Wait, and the time between the replacements of dead reflectors while the gate
    /// cannot be asked.
    #[serde(default = "defaults::wait")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('60s') && duration(self) <= duration('24h')").message("transition.wait must be a duration from 60s to 24h, e.g. \"90s\": sessions by selector need up to 30s"))]
    pub wait: Duration,
    /// After this long the condition Converged says GateTimeout. Nothing is demoted and the mesh
    /// stays; the gate is tried on.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('60s') && duration(self) <= duration('24h')").message("transition.timeout must be a duration from 60s to 24h, e.g. \"5m\""))]
    pub timeout: Duration,
    /// How many nodes of one zone may change at once; the other zones wait.
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

/// What is done about Calico's node-to-node mesh.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mesh {
    /// Nothing.
    #[default]
    Leave,
    /// It is switched off once the reflectors carry every route.
    Migrate,
}

/// What is left when the object is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// The network as it is: reflectors, peers, and no mesh if there was none.
    #[default]
    Retain,
    /// The mesh: switched on, verified, and only then are peers and reflectors removed.
    RestoreMesh,
}

/// Where Calico keeps its objects.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DatastoreType {
    /// In the Kubernetes API.
    #[default]
    Kubernetes,
    /// In an etcd of its own.
    #[serde(rename = "etcd")]
    Etcd,
}

/// Where Calico keeps its objects.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("(self.type == 'etcd') == has(self.etcd)").message("datastore.etcd: needed with, and only with, type etcd"))]
pub struct Datastore {
    /// `Kubernetes` or `etcd`.
    #[serde(default, rename = "type")]
    pub type_: DatastoreType,
    /// How Calico's etcd is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
}

/// An etcd.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("!has(self.secretRef) || !has(self.endpoints)").message("datastore.etcd.endpoints: with secretRef the endpoints belong into the Secret too, as its key endpoints: credentials are sent nowhere else"))]
#[x_kube(validation = Rule::new("has(self.secretRef) || has(self.endpoints)").message("datastore.etcd: needs a secretRef, or the endpoints of an etcd that requires no credentials"))]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// The members of an etcd that requires no credentials, each a URL. With secretRef the Secret
    /// names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 20), inner(length(min = 8, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(e, isURL(e) && url(e).getScheme() in ['http', 'https'])").message("datastore.etcd.endpoints must be URLs with http or https, e.g. \"https://10.0.0.1:2379\""))]
    pub endpoints: Vec<String>,
    /// The name of a Secret in the operator's namespace with the key endpoints (URLs, divided by
    /// commas or lines), and etcd-ca, etcd-cert and etcd-key (as Calico's own) or username and
    /// password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("datastore.etcd.secretRef must be the name of a Secret in the operator's namespace"))]
    pub secret_ref: Option<String>,
}
