//! Changes in etcd, as the operator receives them.
use std::{collections::BTreeSet, sync::Arc};

use futures::StreamExt;
use lab::calico::Group;
use serde_json::{Value, json};
use traffic_operator::{api::route_reflector_set, route_reflector::stores::Stores};

use super::{
    super::{
        installed, peers, store,
        watching::{settled, until_notified},
    },
    SECRET, Stage, TOR, node,
};
use crate::bench::run;

#[test]
fn a_change_in_etcd_is_noticed_also_after_an_outage() {
    run(async |bench| {
        let stage = Stage::new(&bench).await;
        let store = stage.store().await;
        let mut changes = store.changes();
        until_notified(&mut changes, "the watch is open").await;
        settled(&mut changes).await;
        let read = store.read().await.expect("read");
        assert!(Arc::ptr_eq(&read, &store.read().await.expect("read")));
        stage.put("bgppeers/tor", TOR).await;
        until_notified(&mut changes, "a peer").await;
        assert_eq!(store.read().await.expect("read").peers.len(), 1);
        let bgp = json!({"routeReflectorClusterID": "224.0.0.9"});
        stage.put("nodes/calico-1", &node("calico-1", "node-1", &bgp)).await;
        until_notified(&mut changes, "a node").await;
        assert_eq!(store.read().await.expect("read").cluster_ids.len(), 1);
        settled(&mut changes).await;

        stage.etcd.kill().expect("kill");
        stage.etcd.restart().expect("restart");
        until_notified(&mut changes, "the watch is open again").await;
        stage.put("bgppeers/tor-2", TOR).await;
        until_notified(&mut changes, "a peer").await;
        assert_eq!(store.read().await.expect("read").peers.len(), 2);
    });
}

/// The watch had no caller: changes in an etcd were seen only in the next due pass.
#[test]
fn a_datastore_in_use_is_watched_once_and_as_long_as_a_set_uses_it() {
    run(async |bench| {
        installed(&bench, &[Group::V1]).await;
        let stage = Stage::new(&bench).await;
        let (etcd, kubernetes) = (stage.store().await, store(&bench).await);
        let stores = Stores::default();
        let spec = |etcd: Value| -> route_reflector_set::Datastore {
            serde_json::from_value(json!({"type": "etcd", "etcd": etcd})).expect("spec")
        };
        let (in_etcd, plain) = (
            spec(json!({"secretRef": {"name": SECRET}})),
            route_reflector_set::Datastore::default(),
        );
        let mut changes = stores.changes().boxed();
        for set in ["b", "c"] {
            stores.of(set, &plain, || Ok(kubernetes.clone())).expect("open");
        }
        let opened = stores.of("a", &in_etcd, || Ok(etcd.clone())).expect("open");
        let again = stores.of("a", &in_etcd, || panic!("it is already open")).expect("open");
        assert!(opened.is_same(&again) && !opened.is_same(&kubernetes));
        let both = ["b".to_owned(), "c".to_owned()].into();
        let one: BTreeSet<String> = ["a".to_owned()].into();
        let mut missing = vec![&one, &both];
        while !missing.is_empty() {
            let sets = changes.next().await.expect("endless");
            missing.retain(|wanted| **wanted != sets);
        }
        stage.put("bgppeers/tor", TOR).await;
        while changes.next().await.expect("endless") != one {}

        stores.forget("a");
        stores.forget("b");
        stage.put("bgppeers/tor-2", TOR).await;
        let spec = json!({"nodeSelector": "all()", "peerIP": "10.0.0.9", "asNumber": 65_001});
        peers(&bench, Group::V1).create("BGPPeer", json!({"name": "tor"}), spec).await;
        let last: BTreeSet<String> = ["c".to_owned()].into();
        loop {
            let sets = changes.next().await.expect("endless");
            assert!(!sets.contains("a"), "no set uses it");
            if sets == last {
                break;
            }
        }
        let other = stores.of("a", &in_etcd, || Ok(etcd.clone())).expect("open");
        let changed = stores.of("a", &plain, || Ok(kubernetes.clone())).expect("open");
        assert!(!other.is_same(&changed), "the spec has changed");
    });
}
