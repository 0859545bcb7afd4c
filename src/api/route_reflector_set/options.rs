//! The nested structures of a `RouteReflectorSet` spec.
use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use traffic_operator_core::election::{IdScope, Rounding, Scope};

use crate::api::{Duration, LocalReference};

use super::defaults;

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
    /// memory-pressure, unschedulable, …) exclude a node, as in the original. A cordoned node is
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
    /// Time to wait after each step with gate Wait. From 60s to 24h. Defaults to 90s.
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
