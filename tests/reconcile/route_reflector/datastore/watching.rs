//! Changes of Calico's objects in the Kubernetes API are noticed, whichever client makes them.
use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use lab::calico::{self, Group};
use serde_json::json;
use tokio::time::timeout;

use super::{CLIENTS, installed, kind, peers, store};
use crate::bench::run;

/// Far more than any watch takes; the operator looks for a missing Calico once a minute.
const PATIENCE: Duration = Duration::from_mins(2);

pub async fn until_notified(changes: &mut BoxStream<'static, ()>, what: &str) {
    timeout(PATIENCE, changes.next()).await.unwrap_or_else(|_| panic!("{what}")).expect("endless");
}

/// Reads items until none arrives for a moment.
pub async fn settled(changes: &mut BoxStream<'static, ()>) {
    while timeout(Duration::from_secs(1), changes.next()).await.is_ok() {}
}

#[test]
fn a_change_by_any_client_is_noticed_and_what_was_read_holds_until_then() {
    run(async |bench| {
        installed(&bench, &[Group::V1]).await;
        let store = store(&bench).await;
        assert!(!Arc::ptr_eq(
            &store.read().await.expect("read"),
            &store.read().await.expect("read")
        ));
        let mut changes = store.changes();
        until_notified(&mut changes, "the watch is open").await;
        settled(&mut changes).await;
        let read = store.read().await.expect("read");
        assert!(Arc::ptr_eq(&read, &store.read().await.expect("read")), "nothing changed");

        let spec = json!({"nodeSelector": "all()", "peerIP": "10.0.0.9", "asNumber": 65001});
        peers(&bench, Group::V1).create("BGPPeer", json!({"name": "tor"}), spec).await;
        until_notified(&mut changes, "a peer").await;
        assert_eq!(store.read().await.expect("read").peers.len(), 1);

        let all = kind(&bench.client, Group::V1, "BGPConfiguration", "bgpconfigurations");
        let off = json!({"nodeToNodeMeshEnabled": false});
        all.create("BGPConfiguration", json!({"name": "default"}), off).await;
        until_notified(&mut changes, "the configuration").await;
        assert!(!store.read().await.expect("read").mesh);

        // Our own write is known without an event.
        settled(&mut changes).await;
        store.read().await.expect("read");
        store.apply_peer(&CLIENTS).await.expect("create");
        assert_eq!(store.read().await.expect("read").peers.len(), 2);
    });
}

#[test]
fn calico_may_be_installed_and_removed_while_we_watch() {
    run(async |bench| {
        installed(&bench, &[]).await;
        let store = store(&bench).await;
        let mut changes = store.changes();
        assert!(timeout(Duration::from_secs(1), changes.next()).await.is_err(), "nothing is there");
        calico::install(&bench.client, Group::V3).await.expect("install");
        until_notified(&mut changes, "installed").await;
        assert_eq!(store.read().await.expect("read").flavor, "projectcalico.org/v3");
        settled(&mut changes).await;
        calico::remove(&bench.client, Group::V3).await.expect("remove");
        until_notified(&mut changes, "removed").await;
    });
}
