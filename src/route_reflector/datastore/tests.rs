//! Stored reads, and the messages of errors.
use super::*;

#[test]
fn what_was_read_holds_only_while_someone_watches_and_nothing_changed() {
    let cache = ReadCache::default();
    let snapshot = Arc::new(Snapshot::default());
    cache.keep(cache.generation(), &snapshot);
    assert!(cache.get().is_none(), "nobody watches");
    cache.watching(true);
    assert!(cache.get().is_some());
    assert_eq!(cache.after(Ok(Written::Unchanged)).unwrap(), Written::Unchanged);
    assert!(cache.get().is_some());
    assert!(cache.after(Err(Error::Locked)).is_err());
    assert!(cache.get().is_none(), "a write may have succeeded");

    // A change while it was being read.
    let generation = cache.generation();
    cache.bump();
    cache.keep(generation, &snapshot);
    assert!(cache.get().is_none());
    cache.keep(cache.generation(), &snapshot);
    cache.watching(false);
    assert!(cache.get().is_none());
}

/// Reconcilers move between threads.
#[test]
fn every_call_is_a_future_that_can_be_sent() {
    fn is_send<T: Send>(_: impl FnOnce(&'static Datastore) -> T) {}
    let wanted: &WantedPeer =
        &WantedPeer { name: "", node_selector: "", peer_selector: "", set: "", session: None };
    is_send(Datastore::read);
    is_send(|store| store.apply_peer(wanted));
    is_send(|store| store.delete_peer("", ""));
    is_send(|store| store.set_mesh(true));
    is_send(|store| store.mark("", &serde_json::Value::Null, IdChange::Keep));
    is_send(|store| store.node_status().map(|status| status.start_reports(&[], "")));
}

#[test]
fn a_conflict_says_how_to_hand_the_object_over() {
    let error = Error::Taken { kind: "BGPPeer", name: "rrs-to-rrs".into() };
    let text = error.to_string();
    assert!(
        text.ends_with(
            "kubectl label bgppeer rrs-to-rrs app.kubernetes.io/managed-by=traffic-operator"
        ),
        "{text}"
    );
    assert_eq!((error.reason(), error.is_transient()), ("Conflict", false));
    let fields = Error::MeshFields { fields: vec!["nodeMeshPassword"], refusal: "x".into() };
    let text = fields.to_string();
    assert!(
        text.ends_with(
            "kubectl patch bgpconfiguration default --type merge -p \
             '{\"spec\":{\"nodeMeshPassword\":null,\"nodeToNodeMeshEnabled\":false}}'"
        ),
        "{text}"
    );
    assert!(Error::Locked.is_transient());
}
