//! `RouteReflectorSet`: elects the nodes that reflect BGP routes.
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Permission, kind};

mod defaults;
mod options;
mod status;

pub use super::Mode;
pub use options::{
    Candidates, ClusterId, Count, CountStep, Datastore, DatastoreType, DeletionPolicy, Etcd,
    FitnessRef, Gate, Mesh, Transition,
};
pub use status::{GroupStatus, PlannedStep, RouteReflectorSetStatus, SlotStatus};
pub use traffic_operator_core::election::{IdScope, Rounding, Scope, Topology};

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
    // mesh: Migrate, deletionPolicy: RestoreMesh.
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
    /// once the reflectors carry every route. Defaults to Leave.
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
