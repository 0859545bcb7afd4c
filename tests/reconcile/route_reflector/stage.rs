//! A cluster with Calico's kinds, live nodes, and their BIRDs.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lab::{
    AuditEvent,
    calico::{self, Group},
};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use traffic_operator::api::RouteReflectorSet;

use super::{
    bgp_daemons::Birds,
    datastore::{Kind, kind},
};
use crate::{
    bench::{Bench, Operator, STRICT, eventually_or, pauses},
    network_prober::with,
};

pub const LABEL: &str = "calico-route-reflector";
pub const SLOT: &str = "route-reflectors.traffic.example.com/slot";
pub const GROUP: &str = "route-reflectors.traffic.example.com/group";
pub const ID: &str = "projectcalico.org/RouteReflectorClusterID";

/// Two reflectors for all nodes: each takes six seconds, because samples must be younger than a
/// step.
#[expect(clippy::needless_pass_by_value, reason = "written in place")]
pub fn two(more: Value) -> Value {
    with(json!({"count": {"min": 2, "max": 2}, "topology": "Simple"}), &more)
}

pub struct Stage {
    pub bench: Bench,
    pub birds: Birds,
    pub group: Group,
    alive: Arc<Mutex<Vec<String>>>,
    heart: AbortHandle,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

impl Stage {
    pub async fn new(bench: Bench) -> Self {
        Self::with(bench, Group::V1).await
    }

    /// Sets up nodes, an operator, and a set whose two reflectors are node-1 and node-2.
    pub async fn served(bench: Bench, nodes: u8, more: Value) -> (Self, Operator) {
        let stage = Self::new(bench).await;
        stage.nodes(nodes).await;
        let operator = stage.operator().await;
        stage.set("main", two(more)).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        (stage, operator)
    }

    /// Sets up Calico's kinds in this group, without objects, and a mesh.
    pub async fn with(bench: Bench, group: Group) -> Self {
        let other = if group == Group::V1 { Group::V3 } else { Group::V1 };
        calico::remove(&bench.client, other).await.expect("remove");
        calico::install(&bench.client, group).await.expect("install");
        for (one, plural) in [
            ("BGPPeer", "bgppeers"),
            ("BGPConfiguration", "bgpconfigurations"),
            ("CalicoNodeStatus", "caliconodestatuses"),
            ("ClusterInformation", "clusterinformations"),
            ("IPPool", "ippools"),
            ("FelixConfiguration", "felixconfigurations"),
        ] {
            kind(&bench.client, group, one, plural).clear().await;
        }
        Self::bare(bench, group)
    }

    /// Uses the installed kinds, whichever they are.
    pub fn bare(bench: Bench, group: Group) -> Self {
        let birds = Birds::start(bench.client.clone(), group);
        Self::of(bench, group, birds)
    }

    /// Uses these BIRDs.
    pub fn of(bench: Bench, group: Group, birds: Birds) -> Self {
        bench.prometheus.script("bird_protocol_up", birds.answer());
        let alive = Arc::new(Mutex::new(vec![]));
        let heart = tokio::spawn(beat(bench.client.clone(), Arc::clone(&alive))).abort_handle();
        Self { bench, birds, group, alive, heart }
    }

    /// Starts the operator with a lease that a busy machine renews in time.
    pub async fn operator(&self) -> Operator {
        let operator = self.bench.operator_with("operator-1", "15s");
        operator.ready().await;
        operator
    }

    /// A Ready node that speaks BGP.
    pub async fn node(&self, number: u8, zone: &str) {
        self.odd_node(&format!("node-{number}"), number, zone, json!({})).await;
    }

    pub async fn odd_node(&self, name: &str, number: u8, zone: &str, change: Value) {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "labels": {"kubernetes.io/os": "linux"},
                "annotations": {"projectcalico.org/IPv4Address": format!("10.0.0.{number}/16")},
            },
            "spec": {"podCIDR": format!("10.1.{number}.0/24")},
        });
        if !zone.is_empty() {
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone.into();
        }
        let node = serde_json::from_value(with(node, &change)).expect("node");
        self.bench.nodes().create(&PostParams::default(), &node).await.expect("create node");
        self.alive.lock().expect("lock").push(name.to_owned());
        self.set_ready(name, true, Timestamp::now()).await;
    }

    /// `node-1` and so on; zones a and b take turns.
    pub async fn nodes(&self, count: u8) {
        for number in 1..=count {
            self.node(number, if number % 2 == 1 { "a" } else { "b" }).await;
        }
    }

    /// Sets the condition Ready of a node as its kubelet does, with the time of its change.
    pub async fn set_ready(&self, name: &str, ready: bool, since: Timestamp) {
        let status = if ready { "True" } else { "False" };
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": since,
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let params = PatchParams::default();
        self.bench.nodes().patch_status(name, &params, &patch).await.expect("patch status");
    }

    pub async fn patch_node(&self, name: &str, patch: Value) {
        let (api, params) = (self.bench.nodes(), PatchParams::default());
        api.patch(name, &params, &Patch::Merge(patch)).await.expect("patch node");
    }

    pub async fn cordon(&self, name: &str, cordoned: bool) {
        self.patch_node(name, json!({"spec": {"unschedulable": cordoned}})).await;
    }

    pub async fn delete_node(&self, name: &str) {
        self.bench.nodes().delete(name, &DeleteParams::default()).await.expect("delete node");
    }

    pub fn peers(&self) -> Kind {
        kind(&self.bench.client, self.group, "BGPPeer", "bgppeers")
    }

    pub fn configurations(&self) -> Kind {
        kind(&self.bench.client, self.group, "BGPConfiguration", "bgpconfigurations")
    }

    /// Returns the setting of the mesh in the configuration; `None` if it is not set.
    pub async fn mesh(&self) -> Option<bool> {
        let object = self.configurations().get("default").await?;
        object["spec"]["nodeToNodeMeshEnabled"].as_bool()
    }

    pub fn sets(&self) -> Api<RouteReflectorSet> {
        Api::all(self.bench.client.clone())
    }

    pub async fn try_set(&self, name: &str, spec: Value) -> kube::Result<RouteReflectorSet> {
        let object = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
            "metadata": {"name": name}, "spec": spec,
        });
        let path = "/apis/traffic.example.com/v1alpha1/routereflectorsets";
        self.bench.post(&format!("{path}{STRICT}"), &object).await
    }

    pub async fn set(&self, name: &str, spec: Value) {
        self.try_set(name, spec).await.expect("create RouteReflectorSet");
    }

    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let params = PatchParams::default();
        self.sets().patch(name, &params, &patch).await.expect("patch RouteReflectorSet");
    }

    /// Deletes the set, and waits until it is gone.
    pub async fn delete(&self, name: &str) {
        self.sets().delete(name, &DeleteParams::default()).await.expect("delete");
        self.until_gone(name).await;
    }

    pub async fn until_gone(&self, name: &str) {
        self.wait("the set to be gone", async || {
            self.sets().get_opt(name).await.ok()?.is_none().then_some(())
        })
        .await;
    }

    pub async fn status(&self, name: &str) -> Value {
        let set = self.sets().get(name).await.expect("RouteReflectorSet");
        serde_json::to_value(set.status).expect("status")
    }

    /// Like `eventually`, twice as patient; a failure shows the state of the cluster.
    pub async fn wait<T>(&self, what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        let mut pauses = pauses();
        while std::time::Instant::now() < end {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
        eventually_or(what, check, async || self.state().await).await
    }

    /// Waits until a condition has a status and reason; returns its message.
    pub async fn condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let what = format!("{name}: {type_}={status} {reason}");
        self.wait(&what, async || {
            let set = self.sets().get_opt(name).await.ok()??;
            let c = set.status?.conditions.into_iter().find(|c| c.type_ == type_)?;
            let right = c.status == status && c.reason == reason;
            (right && c.observed_generation == set.metadata.generation).then_some(c.message)
        })
        .await
    }

    /// Waits until exactly these nodes hold the slots, in this order, and the status agrees.
    ///
    /// Reads the status before the nodes and compares the two: a condition that still describes the
    /// former reflectors, while two nodes hold one slot in mid-handover, is not convergence.
    pub async fn converged(&self, name: &str, reflectors: &[&str]) {
        let what = format!("{name} converged with {reflectors:?}");
        self.wait(&what, async || {
            let set = self.sets().get_opt(name).await.ok()??;
            let generation = set.metadata.generation;
            let status = set.status?;
            let c = status.conditions.iter().find(|c| c.type_ == "Converged")?;
            let converged = c.status == "True" && c.observed_generation == generation;
            let reported: BTreeSet<_> =
                status.slots.iter().map(|slot| slot.node.as_str()).collect();
            let expected: BTreeSet<_> = reflectors.iter().copied().collect();
            let holders = self.holders().await;
            let held = holders.iter().map(|(_, node)| node.as_str());
            (converged && reported == expected && held.eq(reflectors.iter().copied())).then_some(())
        })
        .await;
    }

    /// The nodes that hold slots, by slot; one of them where two hold the same.
    pub async fn reflectors(&self) -> BTreeMap<String, String> {
        self.holders().await.into_iter().collect()
    }

    /// Every node that holds a slot, with it, ordered by slot.
    async fn holders(&self) -> Vec<(String, String)> {
        let nodes = self.bench.nodes().list(&ListParams::default()).await.expect("nodes");
        let slot = |node: &Node| Some((node.labels().get(SLOT)?.clone(), node.name_any()));
        let mut holders: Vec<_> = nodes.iter().filter_map(slot).collect();
        holders.sort();
        holders
    }

    /// Our labels and annotations of each node.
    pub async fn marks(&self) -> BTreeMap<String, Value> {
        let nodes = self.bench.nodes().list(&ListParams::default()).await.expect("nodes");
        let marks = nodes.into_iter().map(|node| {
            let (labels, annotations) = (node.labels(), node.annotations());
            let label = |key| labels.get(key).cloned();
            let mark = json!([label(LABEL), label(SLOT), label(GROUP), annotations.get(ID)]);
            (node.name_any(), mark)
        });
        marks.filter(|(_, mark)| *mark != json!([null, null, null, null])).collect()
    }

    /// Makes the operator look this many times at a set, which would take minutes at rest.
    pub async fn looks(&self, operator: &Operator, name: &str, times: u32) {
        for time in 0..times {
            let annotations = json!({"metadata": {"annotations": {"touched": time.to_string()}}});
            let touch = Patch::Merge(annotations);
            let (before, params) =
                (operator.made("routereflectorset").await, PatchParams::default());
            self.sets().patch(name, &params, &touch).await.expect("touch");
            let looked = async || (operator.made("routereflectorset").await > before).then_some(());
            self.wait("a pass", looked).await;
        }
    }

    /// Returns the writes except for those to the set's own status, finalizers and events, and to the
    /// Secret that the webhook makes when it starts.
    pub async fn changes_since(&self, since: Timestamp) -> Vec<AuditEvent> {
        let all = self.bench.writes_since(since).await.into_iter();
        let own = |event: &AuditEvent| {
            ["events", "routereflectorsets", "secrets"]
                .iter()
                .any(|own| event.resource.starts_with(own))
        };
        all.filter(|event| !own(event) && event.code < 300).collect()
    }

    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        self.bench.events(name).await
    }

    /// Waits for an event; returns its note.
    pub async fn until_event(&self, name: &str, reason: &str) -> String {
        self.wait(&format!("event {reason} of {name}"), async || {
            let mut events = self.events(name).await.into_iter();
            events.find(|(r, _)| r == reason).map(|(_, note)| note)
        })
        .await
    }

    /// Asserts that no node ever missed a route, nor lost a reflector before the next one was
    /// established.
    pub fn routes_were_kept(&self) {
        let complaints = self.birds.complaints();
        assert!(complaints.is_empty(), "{:#?}", &complaints[..complaints.len().min(5)]);
    }

    /// Returns the whole state, for a test that fails.
    pub async fn state(&self) -> String {
        let sets = self.sets().list(&ListParams::default()).await.expect("sets");
        let sets: Vec<_> =
            sets.iter().map(|set| format!("{}: {:#}", set.name_any(), json!(set.status))).collect();
        format!(
            "{}\nmarks: {:#?}\npeers: {:?}\nmesh: {:?}\nsessions: {:?}\ncomplaints: {:?}",
            sets.join("\n"),
            self.marks().await,
            self.peers().names().await,
            self.mesh().await,
            self.birds.sessions(),
            self.birds.complaints()
        )
    }
}

/// Reports whether a status has no step left.
pub fn is_converged(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Converged" && c["status"] == "True")
}

/// Kubelets renew a Lease: without it a node is NotReady after ten seconds.
async fn beat(client: kube::Client, alive: Arc<Mutex<Vec<String>>>) {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases = Api::<Lease>::namespaced(client, "kube-node-lease");
    loop {
        let names = alive.lock().expect("lock").clone();
        for name in names {
            let now = format!("{:.6}", Timestamp::now());
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
            });
            let params = PatchParams::apply("kubelet").force();
            // The next renewal may be in time.
            let _ = leases.patch(&name, &params, &Patch::Apply(lease)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

impl Bench {
    /// Removes sets of earlier tests.
    pub async fn clean_reflectors(&self) {
        let sets = Api::<RouteReflectorSet>::all(self.client.clone());
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        for set in sets.list(&ListParams::default()).await.expect("list") {
            // Each may be gone already.
            let _ = sets.patch(&set.name_any(), &PatchParams::default(), &strip).await;
            let _ = sets.delete(&set.name_any(), &DeleteParams::default()).await;
        }
    }
}
