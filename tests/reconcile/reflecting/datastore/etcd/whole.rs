//! Whole passes of the operator where Calico keeps its objects in etcd and the Kubernetes API has none of
//! its kinds.
use std::{collections::BTreeMap, time::Duration};

use etcd_client::{Client, GetOptions};
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use lab::{calico::Group, etcd::Etcd};
use serde_json::{Value, json};
use traffic_operator::route_reflector::fabric::Fabric;

use super::{ROOT, SECRET, Stage, TOR, connect, node};
use crate::{
    bench::run,
    reflecting::{self, birds, datastore::installed, stage::two},
};

/// For so long nothing is to be written.
const QUIET: Duration = Duration::from_secs(10);

/// The values under a key.
async fn values(raw: &Client, kind: &str) -> Option<Vec<Value>> {
    let options = Some(GetOptions::new().with_prefix());
    let found = raw.kv_client().get(format!("{ROOT}/{kind}/"), options).await.ok()?;
    found.kvs().iter().map(|kv| serde_json::from_slice(kv.value()).ok()).collect()
}

/// As Calico's nodes see it: labels are those of Kubernetes, which its controllers copy; cluster ids are not.
async fn look(client: &kube::Client, raw: &Client) -> Option<Fabric> {
    let calico = values(raw, "nodes").await?;
    let id = |name: &str| {
        let own = calico.iter().find(|node| node["spec"]["orchRefs"][0]["nodeName"] == name)?;
        own["spec"]["bgp"]["routeReflectorClusterID"].as_str()?.parse().ok()
    };
    let mut nodes = birds::nodes(client).await?;
    for node in &mut nodes {
        node.cluster_id = id(&node.name);
    }
    let (peers, all) = (values(raw, "bgppeers").await?, values(raw, "bgpconfigurations").await?);
    Some(birds::fabric(nodes, &peers, &all))
}

#[test]
fn from_the_mesh_to_reflectors_and_back_with_every_object_in_etcd() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let etcd = Etcd::start().await.expect("etcd");
        let raw = connect(&etcd).await;
        let (client, kept) = (bench.client.clone(), raw.clone());
        let birds = birds::Birds::seeing(move || {
            let (client, raw) = (client.clone(), kept.clone());
            async move { look(&client, &raw).await }
        });
        let stage = reflecting::Stage::of(bench, Group::V1, birds);
        let store = Stage::of(&stage.bench, etcd, raw).await;
        stage.nodes(4).await;
        for number in 1..=4 {
            let bgp = json!({"ipv4Address": format!("10.0.0.{number}/16")});
            let (own, name) = (format!("calico-{number}"), format!("node-{number}"));
            store.put(&format!("nodes/{own}"), &node(&own, &name, &bgp)).await;
        }
        store.put("bgppeers/tor", TOR).await;
        let configuration = json!({
            "kind": "BGPConfiguration", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "default"}, "spec": {"logSeverityScreen": "Info", "new": [1.50]},
        });
        store.put("bgpconfigurations/default", &configuration.to_string()).await;
        let before = store.all().await;

        let _operator = stage.operator().await;
        let datastore = json!({
            "type": "etcd",
            "etcd": {"endpoints": [store.etcd.endpoint], "secretRef": SECRET},
        });
        let spec =
            json!({"mesh": "Migrate", "deletionPolicy": "RestoreMesh", "datastore": datastore});
        stage.set("main", two(spec)).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let status = stage.status("main").await;
        assert_eq!((&status["datastore"], &status["mesh"]), (&json!("etcd"), &json!("Off")));
        let peers = values(&store.raw, "bgppeers").await.expect("BGPPeers");
        let names: Vec<_> = peers.iter().map(|peer| &peer["metadata"]["name"]).collect();
        assert_eq!(names, ["peer-to-rrs-1", "rrs-to-rrs", "tor"]);
        // Calico reads the id from its own node, and not from an annotation of Kubernetes'.
        let marks = stage.marks().await;
        assert_eq!(marks["node-1"], json!(["", "0", null, null]), "{marks:?}");

        // Silence, in etcd as well.
        let (since, then) = (Timestamp::now(), store.all().await);
        tokio::time::sleep(QUIET).await;
        assert_eq!(stage.bench.writes_since(since), []);
        assert_eq!(store.all().await, then);

        // An etcd that does not answer is told, and nobody is demoted meanwhile.
        store.etcd.pause().expect("pause");
        stage.cordon("node-1", true).await;
        let text = stage.condition("main", "Ready", "Unknown", "DatastoreUnreachable").await;
        assert!(text.contains(&store.etcd.endpoint), "{text}");
        assert_eq!(stage.changes_since(since).iter().filter(|e| e.verb != "patch").count(), 0);
        assert_eq!(stage.reflectors().await.len(), 2);
        store.etcd.resume().expect("resume");
        stage.converged("main", &["node-3", "node-2"]).await;

        stage.sets().delete("main", &DeleteParams::default()).await.expect("delete");
        stage
            .wait("the set to be gone", async || {
                stage.sets().get_opt("main").await.ok()?.is_none().then_some(())
            })
            .await;
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
