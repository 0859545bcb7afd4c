//! Calico's objects in the Kubernetes API, under the operator's own RBAC.
use k8s_openapi::jiff::Timestamp;
use lab::calico::{self, Group};
use serde_json::json;
use traffic_operator::route_reflector::{
    bgp_model::Kind,
    datastore::{Datastore, Error, WantedPeer, Written},
};

use super::{CLIENTS, installed, kind, peers, store};
use crate::bench::{Bench, run};

/// Runs a test with each of Calico's two groups installed.
fn in_each_group(test: impl AsyncFn(&Bench, Group, &Datastore)) {
    run(async move |bench| {
        for group in [Group::V1, Group::V3] {
            installed(&bench, &[group]).await;
            test(&bench, group, &store(&bench).await).await;
        }
    });
}

/// Foreign objects: a router, a peer with one of our names, and an unreadable one.
async fn others(bench: &Bench, group: Group) {
    let all = peers(bench, group);
    let spec = json!({"nodeSelector": "all()", "peerIP": "10.0.0.9", "asNumber": 65001, "x": [1]});
    all.create("BGPPeer", json!({"name": "tor", "labels": {"team": "net"}}), spec).await;
    let spec = json!({"nodeSelector": "has(rr)", "peerSelector": "has(rr)"});
    all.create("BGPPeer", json!({"name": "rrs-to-rrs"}), spec).await;
}

#[test]
fn a_peer_that_is_not_ours_stays_byte_by_byte_and_keeps_its_name() {
    in_each_group(async |bench, group, store| {
        others(bench, group).await;
        let all = peers(bench, group);
        let before = (all.get("tor").await, all.get("rrs-to-rrs").await);

        let read = store.read().await.expect("read");
        assert_eq!(read.flavor, group.api_version());
        assert_eq!((read.mesh, read.as_number, read.locked), (true, 64_512, false));
        let names: Vec<_> = read.peers.iter().map(|p| (&*p.name, p.ours)).collect();
        assert_eq!(names, [("rrs-to-rrs", false), ("tor", false)]);
        assert_eq!(read.peers[1].peer_ip.as_deref(), Some("10.0.0.9"));

        // Even if it is exactly the desired one.
        let same = WantedPeer {
            name: "rrs-to-rrs",
            node_selector: "has(rr)",
            peer_selector: "has(rr)",
            set: "main",
            session: None,
        };
        let refused = store.apply_peer(&same).await;
        assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");
        let version = &read.peers[0].version;
        let refused = store.delete_peer("rrs-to-rrs", version).await;
        assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");

        assert_eq!(store.apply_peer(&CLIENTS).await.expect("apply"), Written::Changed);
        let read = store.read().await.expect("read");
        let ours = read.peers.iter().find(|peer| peer.ours).expect("ours");
        assert_eq!((&*ours.name, ours.set.as_deref()), ("peer-to-rrs-1", Some("main")));
        store.delete_peer(&ours.name, &ours.version).await.expect("delete");
        assert_eq!((all.get("tor").await, all.get("rrs-to-rrs").await), before);

        // Handed over, as the message of the error describes.
        let label = json!({"app.kubernetes.io/managed-by": "traffic-operator"});
        all.patch("rrs-to-rrs", json!({"metadata": {"labels": label}})).await;
        assert_eq!(store.apply_peer(&same).await.expect("ours now"), Written::Changed);
        assert_eq!(store.apply_peer(&same).await.expect("ours now"), Written::Unchanged);
    });
}

#[test]
fn what_is_so_already_is_not_written_and_what_a_user_added_stays() {
    in_each_group(async |bench, group, store| {
        assert_eq!(store.apply_peer(&CLIENTS).await.expect("create"), Written::Changed);
        let since = Timestamp::now();
        assert_eq!(store.apply_peer(&CLIENTS).await.expect("same"), Written::Unchanged);
        let writes = bench.writes_since(since).await;
        assert!(writes.is_empty(), "{writes:?}");

        let all = peers(bench, group);
        let secret = json!({"secretKeyRef": {"name": "bgp", "key": "rr"}});
        let drift = json!({"spec": {"password": secret, "nodeSelector": "all()"}});
        all.patch(CLIENTS.name, drift).await;
        assert_eq!(store.apply_peer(&CLIENTS).await.expect("repair"), Written::Changed);
        let spec = all.get(CLIENTS.name).await.expect("peer")["spec"].clone();
        let expected = json!({
            "nodeSelector": CLIENTS.node_selector, "peerSelector": CLIENTS.peer_selector,
            "password": secret,
        });
        assert_eq!(spec, expected);
    });
}

#[test]
fn only_the_version_that_was_decided_upon_is_deleted() {
    in_each_group(async |bench, group, store| {
        store.apply_peer(&CLIENTS).await.expect("create");
        let old = store.read().await.expect("read").peers[0].version.clone();
        peers(bench, group).patch(CLIENTS.name, json!({"metadata": {"labels": {"a": "b"}}})).await;
        let refused = store.delete_peer(CLIENTS.name, &old).await;
        assert!(matches!(refused, Err(Error::Changed(_))), "{refused:?}");
        let new = store.read().await.expect("read").peers[0].version.clone();
        assert_eq!(store.delete_peer(CLIENTS.name, &new).await.expect("delete"), Written::Changed);
        assert_eq!(store.delete_peer(CLIENTS.name, &new).await.expect("gone"), Written::Unchanged);
        assert_eq!(peers(bench, group).names().await, <[&str; 0]>::default());
    });
}

#[test]
fn the_mesh_is_one_field_and_is_written_once() {
    in_each_group(async |bench, group, store| {
        let all = kind(&bench.client, group, "BGPConfiguration", "bgpconfigurations");
        assert_eq!(store.set_mesh(true).await.expect("on"), Written::Unchanged);
        assert_eq!(all.get("default").await, None, "the mesh is on without one");
        assert_eq!(store.set_mesh(false).await.expect("off"), Written::Changed);
        assert!(!store.read().await.expect("read").mesh);
        let user =
            json!({"spec": {"asNumber": 65000, "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}});
        all.patch("default", user.clone()).await;
        let since = Timestamp::now();
        assert_eq!(store.set_mesh(false).await.expect("off"), Written::Unchanged);
        assert!(bench.writes_since(since).await.is_empty());
        assert_eq!(store.set_mesh(true).await.expect("on"), Written::Changed);
        let mut expected = user["spec"].clone();
        expected["nodeToNodeMeshEnabled"] = json!(true);
        assert_eq!(all.get("default").await.expect("configuration")["spec"], expected);
        let read = store.read().await.expect("read");
        assert_eq!((read.mesh, read.as_number), (true, 65_000));
    });
}

#[test]
fn a_locked_datastore_is_read_and_not_written() {
    in_each_group(async |bench, group, store| {
        store.apply_peer(&CLIENTS).await.expect("create");
        let all = kind(&bench.client, group, "ClusterInformation", "clusterinformations");
        let name = json!({"name": "default"});
        all.create("ClusterInformation", name, json!({"datastoreReady": false})).await;

        let read = store.read().await.expect("read");
        assert!(read.locked);
        let version = &read.peers[0].version;
        let since = Timestamp::now();
        let other = WantedPeer { node_selector: "all()", ..CLIENTS };
        for refused in [
            store.apply_peer(&other).await,
            store.apply_peer(&WantedPeer { name: "new", ..CLIENTS }).await,
            store.delete_peer(CLIENTS.name, version).await,
            store.set_mesh(false).await,
        ] {
            let error = refused.expect_err("locked");
            assert!(matches!(error, Error::Locked) && error.is_transient(), "{error}");
        }
        assert!(bench.writes_since(since).await.is_empty());
        all.patch("default", json!({"spec": {"datastoreReady": true}})).await;
        assert_eq!(store.apply_peer(&other).await.expect("unlocked"), Written::Changed);
    });
}

#[test]
fn the_group_that_calico_uses_is_found_and_found_again() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let absent = store(&bench).await;
        for result in [absent.set_mesh(false).await.map(drop), absent.read().await.map(drop)] {
            let error = result.expect_err("nothing is installed");
            assert!(matches!(error, Error::NotInstalled), "{error}");
            assert_eq!(error.reason(), "CalicoNotFound");
        }

        // That answer is cached for a minute.
        calico::install(&bench.client, Group::V1).await.expect("install");
        let first = store(&bench).await;
        let flavor = async |store: &Datastore| store.read().await.expect("read").flavor;
        assert_eq!(flavor(&first).await, "crd.projectcalico.org/v1");
        first.apply_peer(&CLIENTS).await.expect("create");
        let information =
            |group| kind(&bench.client, group, "ClusterInformation", "clusterinformations");
        let ready = json!({"datastoreReady": true});
        let default = json!({"name": "default"});
        information(Group::V1).create("ClusterInformation", default.clone(), ready.clone()).await;

        // Definitions without objects are not yet in use.
        calico::install(&bench.client, Group::V3).await.expect("install");
        assert_eq!(flavor(&store(&bench).await).await, "crd.projectcalico.org/v1");
        // After a migration both groups exist.
        information(Group::V3).create("ClusterInformation", default, ready).await;
        assert_eq!(flavor(&store(&bench).await).await, "projectcalico.org/v3");

        // The version in use is gone: the next call finds the other one.
        assert_eq!(flavor(&first).await, "crd.projectcalico.org/v1");
        calico::remove(&bench.client, Group::V1).await.expect("remove");
        assert_eq!(flavor(&first).await, "projectcalico.org/v3");
        assert_eq!(first.read().await.expect("read").peers, []);
        assert_eq!(first.apply_peer(&CLIENTS).await.expect("create"), Written::Changed);
    });
}

#[test]
fn calicos_reports_are_asked_for_few_nodes_and_no_longer_than_needed() {
    in_each_group(async |bench, group, store| {
        let reports = store.node_status().expect("in the Kubernetes API");
        let all = kind(&bench.client, group, "CalicoNodeStatus", "caliconodestatuses");
        let spec = json!({"node": "a", "classes": ["Routes"], "updatePeriodSeconds": 60});
        all.create("CalicoNodeStatus", json!({"name": "theirs"}), spec).await;
        let theirs = all.get("theirs").await;

        let nodes: Vec<_> = (10..22).map(|n| format!("node-{n}")).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        assert_eq!(reports.start_reports(&nodes, "main").await.expect("start"), Written::Changed);
        assert_eq!(all.names().await.len(), 11, "ten of ours and the foreign one");
        let again = reports.start_reports(&nodes, "main").await;
        assert_eq!(again.expect("start"), Written::Unchanged);
        let report = all.get("traffic-operator-node-10").await.expect("report");
        let expected = json!({"node": "node-10", "classes": ["BGP"], "updatePeriodSeconds": 10});
        assert_eq!(report["spec"], expected);
        assert_eq!(reports.read_reports().await.expect("read").len(), 0, "nothing reported");

        let status = json!({"status": {
            "lastUpdated": "2026-01-02T03:04:05Z",
            "bgp": {
                "numberEstablishedV4": 1, "numberNotEstablishedV4": 1,
                "numberEstablishedV6": 1, "numberNotEstablishedV6": 0,
                "peersV4": [
                    {"peerIP": "10.0.0.1", "type": "NodePeer", "state": "Established"},
                    {"peerIP": "10.0.0.2", "type": "NodePeer", "state": "Active"},
                ],
                "peersV6": [{"peerIP": "fd00::1", "type": "NodeMesh", "state": "Established"}],
            },
        }});
        all.patch("traffic-operator-node-10", status).await;
        let read = reports.read_reports().await.expect("read");
        let report = &read["node-10"];
        let sessions = [(Kind::Mesh, "fd00::1"), (Kind::Node, "10.0.0.1")];
        let sessions = sessions.map(|(kind, address)| (kind, address.parse().expect("IP")));
        assert_eq!((read.len(), &report.established), (1, &sessions.into()));
        assert_eq!(report.updated.to_string(), "2026-01-02T03:04:05Z");

        reports.start_reports(&["node-10"], "main").await.expect("fewer");
        assert_eq!(all.names().await, ["theirs", "traffic-operator-node-10"]);
        reports.stop_reports().await.expect("stop");
        assert_eq!(reports.stop_reports().await.expect("stop"), Written::Unchanged);

        let taken = json!({"name": "traffic-operator-node-1"});
        all.create("CalicoNodeStatus", taken, json!({"node": "node-1"})).await;
        let refused = reports.start_reports(&["node-1"], "main").await;
        assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");
        reports.stop_reports().await.expect("stop");
        assert_eq!(all.names().await, ["theirs", "traffic-operator-node-1"]);
        assert_eq!(all.get("theirs").await, theirs);
    });
}
