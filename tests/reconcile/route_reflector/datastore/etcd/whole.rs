//! Whole passes of the operator where Calico stores its objects in etcd and the Kubernetes API has
//! none of Calico's kinds.
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{Api, ResourceExt, api::ListParams};
use lab::{calico::Group, etcd::Etcd};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ROOT, SECRET, Stage, TOR, connect, node};
use crate::{
    bench::run,
    route_reflector::{
        self,
        bgp_daemons::{self, Scene},
        datastore::installed,
        stage::{ID, SLOT, two},
    },
};

/// The values under a key.
async fn values<T: DeserializeOwned>(raw: &Client, kind: &str) -> Option<Vec<T>> {
    let options = Some(GetOptions::new().with_prefix());
    let found = raw.kv_client().get(format!("{ROOT}/{kind}/"), options).await.ok()?;
    found.kvs().iter().map(|kv| serde_json::from_slice(kv.value()).ok()).collect()
}

/// Reads the objects as Calico's confd does: labels and cluster ids come from Calico's own Nodes,
/// and those of Kubernetes do not count.
async fn look(client: &kube::Client, raw: &Client) -> Option<Scene> {
    let calico: Vec<Value> = values(raw, "nodes").await?;
    let mut nodes = bgp_daemons::nodes(client).await?;
    for node in &mut nodes {
        let of = |own: &&Value| own["spec"]["orchRefs"][0]["nodeName"] == node.name_any();
        let own = calico.iter().find(of).cloned().unwrap_or_default();
        node.metadata.labels = serde_json::from_value(own["metadata"]["labels"].clone()).ok();
        let id = own["spec"]["bgp"]["routeReflectorClusterID"].as_str();
        node.annotations_mut().remove(ID);
        node.annotations_mut().extend(id.map(|id| (ID.to_owned(), id.to_owned())));
    }
    let objects = (values(raw, "bgppeers").await?, values(raw, "bgpconfigurations").await?);
    Some(Scene::new(&nodes, objects))
}

/// Returns BIRDs that the objects in etcd configure.
pub(super) fn birds(client: &kube::Client, raw: &Client) -> bgp_daemons::Birds {
    let (client, raw) = (client.clone(), raw.clone());
    bgp_daemons::Birds::seeing(move || {
        let (client, raw) = (client.clone(), raw.clone());
        async move { look(&client, &raw).await }
    })
}

/// Creates four nodes, and Calico's Nodes for them under other names.
pub(super) async fn nodes(stage: &route_reflector::Stage, store: &Stage<'_>) {
    stage.nodes(4).await;
    for number in 1..=4 {
        let bgp = json!({"ipv4Address": format!("10.0.0.{number}/16")});
        let (own, name) = (format!("calico-{number}"), format!("node-{number}"));
        store.put(&format!("nodes/{own}"), &node(&own, &name, &bgp)).await;
    }
}

/// Acts as calico-kube-controllers in etcd mode, after a delay: copies the labels of Kubernetes'
/// Nodes, and removes those that it copied before and that are gone.
async fn copy_labels(client: kube::Client, raw: Client, later: Duration) {
    const REMEMBERED: &str = "projectcalico.org/kube-labels";
    let mut seen: BTreeMap<String, (BTreeMap<String, String>, Instant)> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let api = Api::<Node>::all(client.clone());
        let Ok(all) = api.list(&ListParams::default()).await else { continue };
        for node in all {
            let (name, labels) = (node.name_any(), node.labels().clone());
            let known = seen.entry(name.clone()).or_insert((labels.clone(), Instant::now()));
            if known.0 != labels {
                *known = (labels.clone(), Instant::now());
            }
            let key = format!("{ROOT}/nodes/calico-{}", &name["node-".len()..]);
            let found = raw.kv_client().get(key.as_str(), None).await;
            let Some(kv) = found.ok().and_then(|mut found| found.take_kvs().pop()) else {
                continue;
            };
            let mut own: Value = serde_json::from_slice(kv.value()).expect("JSON");
            let text = own["metadata"]["annotations"][REMEMBERED].as_str().unwrap_or("{}");
            let old: BTreeMap<String, String> = serde_json::from_str(text).expect("labels");
            if old == labels || known.1.elapsed() < later {
                continue;
            }
            let own_labels = own["metadata"]["labels"].as_object_mut().expect("labels");
            own_labels.retain(|key, _| !old.contains_key(key) || labels.contains_key(key));
            own_labels.extend(labels.iter().map(|(k, v)| (k.clone(), json!(v))));
            let remembered = serde_json::to_string(&labels).expect("JSON");
            own["metadata"]["annotations"] = json!({REMEMBERED: remembered});
            let same = Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision());
            let put = TxnOp::put(key.as_str(), own.to_string(), None);
            // A write that comes too late is tried again.
            let _ = raw.kv_client().txn(Txn::new().when([same]).and_then([put])).await;
        }
    }
}

#[test]
fn labels_that_are_copied_late_neither_hold_up_nor_undo_a_step() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let etcd = Etcd::start().await.expect("etcd");
        let raw = connect(&etcd).await;
        let birds = birds(&bench.client, &raw);
        let stage = route_reflector::Stage::of(bench, Group::V1, birds);
        let store = Stage::of(&stage.bench, etcd, raw.clone()).await;
        nodes(&stage, &store).await;
        let late = Duration::from_secs(8);
        let copier = tokio::spawn(copy_labels(stage.bench.client.clone(), raw, late));
        let _operator = stage.operator().await;
        // In the form that older objects have.
        let datastore = json!({"type": "etcd", "etcd": {"secretRef": SECRET}});
        stage.set("main", two(json!({"mesh": "Migrate", "datastore": datastore}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        stage.cordon("node-1", true).await;
        stage.converged("main", &["node-3", "node-2"]).await;
        // Once all labels are copied, the same nodes hold slots in Kubernetes and in Calico.
        stage
            .wait("the copies", async || {
                let own: Vec<Value> = values(&store.raw, "nodes").await?;
                let copied = |node: &Value| {
                    let text = &node["metadata"]["annotations"]["projectcalico.org/kube-labels"];
                    let labels: Value = serde_json::from_str(text.as_str()?).ok()?;
                    (labels[SLOT] == node["metadata"]["labels"][SLOT])
                        .then_some(labels[SLOT] != Value::Null)
                };
                let held: Option<Vec<bool>> = own.iter().map(copied).collect();
                (held? == [false, true, true, false]).then_some(())
            })
            .await;
        stage.converged("main", &["node-3", "node-2"]).await;
        copier.abort();
        stage.routes_were_kept();
    });
}

/// Runs without a controller that copies labels.
#[test]
fn from_the_mesh_to_reflectors_and_back_with_every_object_in_etcd() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let etcd = Etcd::start().await.expect("etcd");
        let raw = connect(&etcd).await;
        let birds = birds(&bench.client, &raw);
        let stage = route_reflector::Stage::of(bench, Group::V1, birds);
        let store = Stage::of(&stage.bench, etcd, raw).await;
        nodes(&stage, &store).await;
        store.put("bgppeers/tor", TOR).await;
        let configuration = json!({
            "kind": "BGPConfiguration", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "default"}, "spec": {"logSeverityScreen": "Info", "new": [1.50]},
        });
        store.put("bgpconfigurations/default", &configuration.to_string()).await;
        let before = store.all().await;

        let operator = stage.operator().await;
        let datastore = json!({"type": "etcd", "etcd": {"secretRef": {"name": SECRET}}});
        let spec =
            json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh", "datastore": datastore});
        stage.set("main", two(spec)).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let status = stage.status("main").await;
        assert_eq!((&status["datastore"], &status["mesh"]), (&json!("etcd"), &json!("Off")));
        let peers: Vec<Value> = values(&store.raw, "bgppeers").await.expect("BGPPeers");
        let names: Vec<_> = peers.iter().map(|peer| &peer["metadata"]["name"]).collect();
        assert_eq!(names, ["peer-to-rrs-1", "rrs-to-rrs", "tor"]);
        // Calico reads the id from its own node, and not from an annotation of Kubernetes.
        let marks = stage.marks().await;
        assert_eq!(marks["node-1"], json!(["", "0", null, null]), "{marks:?}");

        // Nothing is written, in etcd as well.
        let (since, then) = (Timestamp::now(), store.all().await);
        stage.looks(&operator, "main", 3).await;
        assert_eq!(stage.bench.writes_since(since).await, []);
        assert_eq!(store.all().await, then);

        // An etcd that does not answer is reported, and no reflector is demoted meanwhile.
        store.etcd.pause().expect("pause");
        stage.cordon("node-1", true).await;
        let text = stage.condition("main", "Ready", "Unknown", "DatastoreUnreachable").await;
        assert!(text.contains(&store.etcd.endpoint), "{text}");
        assert_eq!(
            stage.changes_since(since).await.iter().filter(|e| e.verb != "patch").count(),
            0
        );
        assert_eq!(stage.reflectors().await.len(), 2);
        store.etcd.resume().expect("resume");
        stage.converged("main", &["node-3", "node-2"]).await;

        stage.delete("main").await;
        assert_eq!(json!(stage.marks().await), json!({}));
        let mut configuration = configuration;
        configuration["spec"]["nodeToNodeMeshEnabled"] = true.into();
        let now = store.get("bgpconfigurations/default").await;
        assert_eq!(now, Some(configuration), "one field");
        let texts = |all: &BTreeMap<String, (String, i64)>| {
            let all = all.iter().filter(|(key, _)| !key.ends_with("bgpconfigurations/default"));
            let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
            all.map(|(key, (text, _))| (key.clone(), value(text))).collect::<BTreeMap<_, _>>()
        };
        let after = store.all().await;
        assert_eq!(texts(&after), texts(&before));
        let tor = format!("{ROOT}/bgppeers/tor");
        assert_eq!(after[&tor], before[&tor], "byte by byte, never written");
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.routes_were_kept();
    });
}
