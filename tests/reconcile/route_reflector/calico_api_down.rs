//! Calico's own API server is away: its pods may need the very route that a repair restores.
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{jiff::Timestamp, kube_aggregator::pkg::apis::apiregistration::v1::APIService};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::calico::{self, Group};
use serde_json::json;
use tokio::time::timeout;

use super::{
    Stage, bgp_daemons,
    datastore::{installed, kind, store},
    stage::two,
};
use crate::bench::{Bench, eventually, run};

/// The name under which Calico's API server registers itself.
const SERVICE: &str = "v3.projectcalico.org";

fn services(bench: &Bench) -> Api<APIService> {
    Api::all(bench.client.clone())
}

/// Redirects the group to a Service without endpoints.
async fn take_away(bench: &Bench) {
    // Without the label the API server does not put its own back.
    let label = json!({"kube-aggregator.kubernetes.io/automanaged": null});
    let spec = json!({
        "service": {"name": "calico-api", "namespace": "calico-system", "port": 443},
        "insecureSkipTLSVerify": true,
    });
    let patch = Patch::Merge(json!({"metadata": {"labels": label}, "spec": spec}));
    services(bench).patch(SERVICE, &PatchParams::default(), &patch).await.expect("patch");
    eventually("Calico's API to be away", async || {
        let service = services(bench).get(SERVICE).await.ok()?;
        let conditions = service.status?.conditions?;
        conditions.iter().any(|c| c.type_ == "Available" && c.status == "False").then_some(())
    })
    .await;
}

/// The API server registers the definitions again.
async fn bring_back(bench: &Bench) {
    services(bench).delete(SERVICE, &DeleteParams::default()).await.expect("delete");
    calico::install(&bench.client, Group::V3).await.expect("served");
}

#[test]
fn a_reflector_that_dies_while_calicos_api_is_down_is_replaced() {
    run(async |bench| {
        installed(&bench, &[Group::V3]).await;
        // Calico's nodes, too, continue with what they have read before.
        let (client, known) = (bench.client.clone(), Arc::new(Mutex::new(None)));
        let birds = bgp_daemons::Birds::seeing(move || {
            let (client, known) = (client.clone(), Arc::clone(&known));
            async move {
                let nodes = bgp_daemons::nodes(&client).await?;
                // The client library retries for minutes.
                let objects = bgp_daemons::objects(&client, Group::V3);
                if let Ok(Ok(objects)) = timeout(Duration::from_secs(1), objects).await {
                    *known.lock().expect("lock") = Some(objects);
                }
                let objects = known.lock().expect("lock").clone()?;
                Some(bgp_daemons::Scene::new(&nodes, objects))
            }
        });
        let stage = Stage::of(bench, Group::V3, birds);
        stage.nodes(4).await;
        let operator = stage.operator().await;
        stage.set("main", two(json!({"mesh": "Migrate"}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;

        take_away(&stage.bench).await;
        let since = Timestamp::now();
        stage.delete_node("node-1").await;
        stage
            .wait("the slot to be filled", async || {
                (stage.reflectors().await.get("0")? == "node-3").then_some(())
            })
            .await;
        let text = stage.condition("main", "Ready", "Unknown", "DatastoreUnreachable").await;
        assert!(
            text.contains("only Nodes are written until it does, by what was read at"),
            "{text}"
        );
        let others = stage.changes_since(since).await.into_iter().filter(|e| e.resource != "nodes");
        assert_eq!(others.count(), 0);

        bring_back(&stage.bench).await;
        stage.converged("main", &["node-3", "node-2"]).await;
        stage.condition("main", "Ready", "True", "Planned").await;
        stage.routes_were_kept();
        drop(operator);
    });
}

#[test]
fn after_a_restart_what_lies_behind_calicos_api_is_read_and_not_written() {
    run(async |bench| {
        installed(&bench, &[Group::V1, Group::V3]).await;
        // Calico's API server keeps all metadata of an object in one annotation.
        let labels = json!({
            "app.kubernetes.io/managed-by": "traffic-operator",
            "route-reflectors.traffic.example.com/set": "main",
        });
        let metadata = json!({
            "name": "rrs-to-rrs",
            "annotations": {"projectcalico.org/metadata": json!({"labels": labels}).to_string()},
        });
        let spec = json!({"nodeSelector": "has(rr)", "peerSelector": "has(rr)"});
        let peers = kind(&bench.client, Group::V1, "BGPPeer", "bgppeers");
        peers.create("BGPPeer", metadata, spec).await;
        take_away(&bench).await;
        let store = store(&bench).await;
        let read = store.read().await.expect("what lies behind it");
        let stale = read.stale.as_ref().expect("stale").to_string();
        assert!(stale.contains("by what crd.projectcalico.org has"), "{stale}");
        assert!(read.peers[0].ours && read.peers[0].set.as_deref() == Some("main"));
        store.set_mesh(false).await.expect_err("nothing is gone round");
        bring_back(&bench).await;
        let again = async || store.read().await.ok().filter(|read| read.stale.is_none());
        let read = eventually("Calico's API", again).await;
        assert_eq!(read.flavor, "projectcalico.org/v3");
        installed(&bench, &[Group::V1]).await;
    });
}
