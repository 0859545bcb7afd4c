//! This starts real BGP behind a real API server; without root it says that it was left out.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::bgp::{Measure, Monitoring, Start};

const PEERS: &str = r#"
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: rrs-to-rrs}
spec: {nodeSelector: has(rr), peerSelector: has(rr)}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: peer-to-rrs-1}
spec: {nodeSelector: "!has(rr)", peerSelector: has(rr)}
"#;
const MESH_OFF: &str = "
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
";
const SESSIONS: &str = r#"sum by (node) (bird_protocol_up{proto="BGP",state="Established"})"#;

/// One test, act by act: starting it all is most of the time.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_configured_by_the_api_server_and_seen_by_prometheus() {
    if !nix::unistd::geteuid().is_root() {
        crate::left_out("nodes that are a BIRD each: they need root");
        return;
    }
    let (zones, skew) = (["a", "b", "c"], Duration::from_millis(200));
    let site = Site::start(6, &zones, &[Family::V4], skew).await.unwrap();
    let measure = Measure::start(Arc::clone(&site.ground)).unwrap();
    let monitoring = Monitoring::start(Arc::clone(&site.ground)).await.unwrap();
    measure.watch.complete(0, PATIENCE).await.unwrap();
    seen_by_prometheus(&monitoring, &[5; 6]).await;

    reflectors_take_over(&site, &measure).await;
    seen_by_prometheus(&monitoring, &[5, 5, 2, 2, 2, 2]).await;
    a_node_comes_and_another_goes(&site, &measure, &monitoring).await;
    figures_of_the_lab_are_scraped(&monitoring).await;

    site.follower.check().unwrap();
    drop((measure, monitoring));
    let (id, dir) = (site.ground.id.clone(), site.ground.dir.clone());
    site.stop().await.unwrap();
    assert!(!dir.exists());
    assert_eq!(crate::bgp::network::existing(&id), Vec::<String>::new());
}

async fn reflectors_take_over(site: &Site, measure: &Measure) {
    let client = site.plane.client().unwrap();
    let start = Start::now();
    for name in ["bgp-00", "bgp-01"] {
        let annotations = json!({crate::bgp::world::CLUSTER_ID: "224.0.0.1"});
        let patch = json!({"metadata": {"labels": {"rr": ""}, "annotations": annotations}});
        site.nodes.patch(name, &patch).await.unwrap();
    }
    apply(&client, PEERS).await.unwrap();
    settled(site, measure, 9 + 6).await;
    let on = measure.outcome(start, &site.confd, &BTreeSet::new()).await.unwrap();
    assert_eq!(on.changed.iter().collect::<Vec<_>>(), ["bgp-00", "bgp-01"]);
    assert_eq!((on.others.gaps.len(), on.others.losses()), (0, 0), "{}", on.others.examples());
    assert!(on.own().pairs().len() >= 10, "{:?}", on.own());

    let start = Start::now();
    apply(&client, MESH_OFF).await.unwrap();
    settled(site, measure, 9).await;
    // BIRDs read what is written for them, and log what they close, a moment later.
    until("both ends of six sessions of the mesh closed", PATIENCE, || async {
        let off = measure.outcome(start, &site.confd, &BTreeSet::new()).await?;
        let closed = off.resets;
        Ok(if closed == 12 { Look::Done(()) } else { Look::NotYet(format!("{closed} are")) })
    })
    .await
    .unwrap();
    let off = measure.outcome(start, &site.confd, &BTreeSet::new()).await.unwrap();
    assert_eq!((off.all.gaps.len(), off.needless.len()), (0, 0), "{}", off.all.examples());
    // Four clients with two paths to each other, one to each reflector, and three of their own.
    // The most of the step: three more for as long as the mesh was still there.
    assert!((5 * 2 + 3..=5 * 2 + 3 + 3).contains(&off.paths), "{}", off.paths);
}

async fn a_node_comes_and_another_goes(site: &Site, measure: &Measure, monitoring: &Monitoring) {
    let start = Start::now();
    let new = site.ground.add(1, &[Family::V4]).unwrap().remove(0);
    measure.watch.add(&new).unwrap();
    site.nodes.create(&new, "c").await.unwrap();
    settled(site, measure, 11).await;
    monitoring.add(&new.name).unwrap();
    let came = measure.outcome(start, &site.confd, &BTreeSet::new()).await.unwrap();
    assert_eq!(came.changed.iter().collect::<Vec<_>>(), ["bgp-06"]);
    assert_eq!((came.others.gaps.len(), came.needless.len()), (0, 0));
    assert_eq!(came.own().pairs().len(), 12);

    let start = Start::now();
    measure.watch.remove(&site.ground.machine("bgp-05").unwrap()).unwrap();
    site.ground.remove("bgp-05").unwrap();
    monitoring.follow_machines().unwrap();
    site.nodes.delete("bgp-05").await.unwrap();
    settled(site, measure, 9).await;
    let went = measure.outcome(start, &site.confd, &BTreeSet::new()).await.unwrap();
    assert_eq!(went.changed.iter().collect::<Vec<_>>(), ["bgp-05"]);
    assert_eq!((went.others.gaps.len(), went.needless.len()), (0, 0));
    seen_by_prometheus(monitoring, &[5, 5, 2, 2, 2, 2]).await;
}

async fn figures_of_the_lab_are_scraped(monitoring: &Monitoring) {
    monitoring.set_load("bgp-03", 95.0);
    until("the load scraped", PATIENCE, || async {
        let loads = monitoring.query(crate::bgp::LOAD).await?;
        let load = loads.iter().find(|(labels, _)| labels["node"] == "bgp-03");
        Ok(match load {
            Some((_, load)) if (load - 95.0).abs() < 1e-9 => Look::Done(()),
            other => Look::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    monitoring.stop().unwrap();
    assert!(monitoring.query("up").await.is_err());
    monitoring.resume().await.unwrap();
}

/// Waits until this many sessions are configured and established, and every route exists.
async fn settled(site: &Site, measure: &Measure, sessions: usize) {
    until("sessions as wanted", PATIENCE, || async {
        site.follower.check()?;
        let wanted = site.confd.last().sessions;
        let (count, down) = (
            crate::bgp::sessions::count(&wanted),
            site.ground.down_sessions(&wanted, &BTreeSet::new()).len(),
        );
        Ok(if (count, down) == (sessions, 0) {
            Look::Done(())
        } else {
            Look::NotYet(format!("{count} sessions configured, {down} ends down"))
        })
    })
    .await
    .unwrap();
    measure.watch.complete(0, PATIENCE).await.unwrap();
}

/// Waits until Prometheus counts this many sessions of each node.
async fn seen_by_prometheus(monitoring: &Monitoring, wanted: &[usize]) {
    until("sessions seen by Prometheus", PATIENCE, || async {
        let found = monitoring.query(SESSIONS).await?;
        let found: BTreeMap<_, _> =
            found.into_iter().map(|(labels, count)| (labels["node"].clone(), count)).collect();
        let counts: Vec<String> = found.values().map(f64::to_string).collect();
        let wanted: Vec<String> = wanted.iter().map(usize::to_string).collect();
        Ok(if counts == wanted { Look::Done(()) } else { Look::NotYet(format!("{found:?}")) })
    })
    .await
    .unwrap();
}
