//! Stored reads, and the messages of errors.
use super::*;

#[test]
fn what_was_read_holds_only_while_somebody_watches_and_nothing_changed() {
    let news = News::default();
    let snapshot = Arc::new(Snapshot::default());
    news.keep(news.generation(), &snapshot);
    assert!(news.cached().is_none(), "nobody watches");
    news.watching(true);
    assert!(news.cached().is_some());
    assert_eq!(news.after(Ok(Written::Unchanged)).unwrap(), Written::Unchanged);
    assert!(news.cached().is_some());
    assert!(news.after(Err(Error::Locked)).is_err());
    assert!(news.cached().is_none(), "a write may have succeeded");

    // A change while it was being read.
    let generation = news.generation();
    news.bump();
    news.keep(generation, &snapshot);
    assert!(news.cached().is_none());
    news.keep(news.generation(), &snapshot);
    news.watching(false);
    assert!(news.cached().is_none());
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
