//! The memory of a `NetworkProber`, the objects that this process has applied; and those that we
//! own, by watches, which show whether anyone changed or deleted one.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{
    Stream, StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use kube::{
    Api, Client, Resource,
    core::{ObjectMeta, PartialObjectMeta},
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;

use super::{
    children::{ChildKey, ChildKind, OWNER, OWNER_UID},
    snapshot::Key,
};
use crate::{
    controller::{self, MANAGED_BY},
    metrics::Metrics,
    runtime::watch,
};

/// The memories of all `NetworkProber`s.
pub type Memories = controller::Memories<Memory>;

/// The memory of one object: what this process has applied for it.
#[derive(Clone, Debug, Default)]
pub struct Memory(BTreeMap<ChildKey, Applied>);

/// An object that this process has applied.
#[derive(Clone, Debug)]
struct Applied {
    hash: u64,
    /// Of a webhook, the fingerprint of its entry.
    version: u64,
    at: Instant,
}

impl Memory {
    /// Remembers an object that was applied: its fingerprint, and its version from the answer.
    pub fn applied(&mut self, key: ChildKey, hash: u64, version: u64) {
        self.0.insert(key, Applied { hash, version, at: Instant::now() });
    }

    /// Takes the version of an object, `None` if it is gone: at another version than the one
    /// applied, it is applied again.
    pub fn found(&mut self, key: &ChildKey, version: Option<u64>) {
        if self.0.get(key).map(|applied| applied.version) != version {
            self.0.remove(key);
        }
    }

    /// Returns the objects that nobody has changed since, by fingerprint: those that `stands`
    /// finds as they were applied.
    #[must_use]
    pub fn unchanged(&self, stands: impl Fn(&ChildKey, u64) -> bool) -> BTreeMap<ChildKey, u64> {
        let ours = self.0.iter().filter(|(key, applied)| stands(key, applied.version));
        ours.map(|(key, applied)| (key.clone(), applied.hash)).collect()
    }

    /// Returns the time since each object was applied.
    #[must_use]
    pub fn written(&self) -> BTreeMap<ChildKey, Duration> {
        self.0.iter().map(|(key, applied)| (key.clone(), applied.at.elapsed())).collect()
    }
}

/// The known facts about one of our objects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    owner_uid: String,
    owner: Key,
    version: u64,
}

#[derive(Default)]
struct State {
    found: BTreeMap<ChildKey, Found>,
    /// Of a list that is not complete yet, by kind.
    listing: BTreeMap<ChildKind, BTreeMap<ChildKey, Found>>,
    listed: BTreeSet<ChildKind>,
    /// Owners whose children changed since the last call.
    changed: BTreeSet<Key>,
}

/// The objects that we own; clones share them.
#[derive(Clone, Default)]
pub struct Owned(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    synced: signal::Sender<bool>,
    changed: tokio::sync::Notify,
}

/// Returns a number that identifies the version of an object: it changes with an edit. Status does
/// not count where the API server tells it apart; resource versions are compared as numbers, as
/// Kubernetes allows since
/// 1.35.
fn version(metadata: &ObjectMeta) -> u64 {
    let generation = metadata.generation.and_then(|generation| u64::try_from(generation).ok());
    let written = || metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
    generation.or_else(written).unwrap_or_default()
}

/// Returns the owner that an object names.
#[must_use]
pub fn owner(metadata: &ObjectMeta) -> Option<Key> {
    let text = metadata.annotations.as_ref()?.get(OWNER)?;
    let (namespace, name) = text.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn found(metadata: &ObjectMeta) -> Option<Found> {
    Some(Found {
        owner_uid: metadata.labels.as_ref()?.get(OWNER_UID)?.clone(),
        owner: owner(metadata)?,
        version: version(metadata),
    })
}

type Seen = (ChildKind, Result<Event<ObjectMeta>, watcher::Error>);

fn metadata<K>(client: &Client, kind: ChildKind) -> BoxStream<'static, Seen>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::<PartialObjectMeta<K>>::all(client.clone());
    let ours = format!("app.kubernetes.io/managed-by={MANAGED_BY},{OWNER_UID}");
    let events = watch::follow(api, watch::config().labels(&ours));
    let events = events.map(move |event| {
        let event = event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(object.metadata),
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(object.metadata),
            Event::Delete(object) => Event::Delete(object.metadata),
        });
        (kind, event)
    });
    events.boxed()
}

impl Owned {
    /// Follows our objects for ever.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let mut events = select_all([
            metadata::<ConfigMap>(&client, ChildKind::ConfigMap),
            metadata::<DaemonSet>(&client, ChildKind::DaemonSet),
        ]);
        while let Some((kind, event)) = events.next().await {
            match event {
                Ok(event) => self.apply(kind, event),
                Err(error) => {
                    let resource = kind.as_str();
                    tracing::warn!(%error, "watch of {resource}s failed, trying again");
                    metrics.watch_restarted(match kind {
                        ChildKind::ConfigMap => "configmaps",
                        _ => "daemonsets",
                    });
                }
            }
        }
    }

    /// Waits until the first lists are complete.
    pub async fn synced(&self) {
        let mut synced = self.0.synced.subscribe();
        // The sender lives in `self`.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// The owners whose children changed, for ever.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        let owned = self.clone();
        futures::stream::unfold(owned, |owned| async move {
            owned.0.changed.notified().await;
            let changed = std::mem::take(&mut owned.state().changed);
            Some((futures::stream::iter(changed), owned))
        })
        .flatten()
    }

    /// The children of one owner that exist.
    #[must_use]
    pub fn of(&self, uid: &str) -> Vec<ChildKey> {
        let state = self.state();
        let ours = state.found.iter().filter(|(_, found)| found.owner_uid == uid);
        ours.map(|(key, _)| key.clone()).collect()
    }

    /// Reports whether an object is known to be a child of this owner.
    #[must_use]
    pub fn has(&self, key: &ChildKey, uid: &str) -> bool {
        self.state().found.get(key).is_some_and(|found| found.owner_uid == uid)
    }

    /// Reports whether an object is as it was at this version.
    #[must_use]
    pub fn stands(&self, key: &ChildKey, version: u64) -> bool {
        // Kinds without a watch are read by the code that applies them.
        !ChildKind::WATCHED.contains(&key.kind)
            || self.state().found.get(key).is_some_and(|found| found.version <= version)
    }

    /// Takes the answer to an apply of ours; returns the version of the object.
    pub fn wrote(&self, key: &ChildKey, metadata: &ObjectMeta) -> u64 {
        let version = version(metadata);
        // What is not watched could never be forgotten.
        if let Some(new) = found(metadata).filter(|_| ChildKind::WATCHED.contains(&key.kind)) {
            let mut state = self.state();
            let old = state.found.get(key).map(|found| found.version);
            if old.is_none_or(|old| old <= version) {
                state.found.insert(key.clone(), new);
            }
        }
        version
    }

    /// Takes the answer to a deletion of ours.
    pub fn deleted(&self, key: &ChildKey) {
        self.state().found.remove(key);
    }

    /// Takes one event of a watch.
    pub fn apply(&self, kind: ChildKind, event: Event<ObjectMeta>) {
        let key = |metadata: &ObjectMeta| ChildKey {
            kind,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let mut state = self.state();
        match event {
            Event::Init => {
                state.listing.insert(kind, BTreeMap::new());
            }
            Event::InitApply(metadata) => {
                if let Some(found) = found(&metadata) {
                    state.listing.entry(kind).or_default().insert(key(&metadata), found);
                }
            }
            Event::InitDone => {
                let listed = state.listing.remove(&kind).unwrap_or_default();
                let gone: Vec<_> = state.found.iter().filter(|(k, _)| k.kind == kind).collect();
                let gone = gone.into_iter().filter(|(k, _)| !listed.contains_key(*k));
                let owners: Vec<_> = gone.map(|(_, found)| found.owner.clone()).collect();
                state.changed.extend(owners);
                state.found.retain(|k, _| k.kind != kind);
                state.found.extend(listed);
                state.listed.insert(kind);
            }
            Event::Apply(metadata) => {
                if let Some(found) = found(&metadata) {
                    state.changed.insert(found.owner.clone());
                    state.found.insert(key(&metadata), found);
                }
            }
            Event::Delete(metadata) => {
                if let Some(found) = state.found.remove(&key(&metadata)) {
                    state.changed.insert(found.owner);
                }
            }
        }
        let all = ChildKind::WATCHED.iter().all(|kind| state.listed.contains(kind));
        let changed = !state.changed.is_empty();
        drop(state);
        if all {
            self.0.synced.send_replace(true);
        }
        if changed {
            self.0.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, version: &str) -> ObjectMeta {
        serde_json::from_value(serde_json::json!({
            "name": name, "namespace": "a", "resourceVersion": version,
            "labels": {OWNER_UID: "u"}, "annotations": {OWNER: "a/np"}
        }))
        .unwrap()
    }

    fn key(name: &str) -> ChildKey {
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("a".into()), name: name.into() }
    }

    #[test]
    fn an_edit_or_deletion_by_others_is_seen_and_our_own_write_is_not_one() {
        let (owned, memories) = (Owned::default(), Memories::default());
        let owner = ("a".to_owned(), "np".to_owned());
        let wrote = |version| {
            let version = owned.wrote(&key("x"), &meta("x", version));
            memories.change(&owner, |memory| memory.applied(key("x"), 7, version));
        };
        let unchanged =
            || memories.get(&owner).unchanged(|key, version| owned.stands(key, version));
        wrote("5");
        assert_eq!(unchanged(), [(key("x"), 7)].into());
        // The watch brings our own write, and what was under way before it.
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("x", "5")));
        assert_eq!(unchanged().len(), 1);
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("x", "9")));
        assert!(unchanged().is_empty());
        wrote("10");
        assert_eq!(owned.of("u"), [key("x")]);
        owned.apply(ChildKind::ConfigMap, Event::Delete(meta("x", "11")));
        assert!(unchanged().is_empty() && owned.of("u").is_empty());
    }

    #[test]
    fn a_new_list_replaces_what_was_known_of_the_kind() {
        let owned = Owned::default();
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("gone", "1")));
        for event in [Event::Init, Event::InitApply(meta("there", "2")), Event::InitDone] {
            owned.apply(ChildKind::ConfigMap, event);
        }
        assert_eq!(owned.of("u"), [key("there")]);
        // What is not ours by its labels is no child.
        let foreign = ObjectMeta { labels: None, ..meta("foreign", "3") };
        owned.apply(ChildKind::ConfigMap, Event::Apply(foreign));
        assert_eq!(owned.of("u").len(), 1);
    }
}
