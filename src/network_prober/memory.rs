//! The memory of a `NetworkProber`, the objects that this process has applied; and those that we
//! own, by watches, which show whether anyone changed or deleted one.
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{
    Stream, StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use kube::{Client, Resource, core::ObjectMeta, runtime::watcher::Event};
use serde::de::DeserializeOwned;

use super::{
    children::{ChildKey, ChildKind, OWNER, OWNER_UID},
    snapshot::Key,
};
use crate::{
    clock,
    controller::{self, Error, MANAGED_BY, contest::Rounds},
    infra::{
        Api,
        watch::{self, Changes, Metadata, Mirror, Reduced, Synced},
    },
    metrics::Metrics,
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
    /// For a webhook, the fingerprint of its entry. `None` if another client has changed the object.
    version: Option<u64>,
    at: Instant,
    rounds: Rounds,
}

/// An object that another client changes again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contest {
    /// The content that is restored each time.
    pub hash: u64,
    /// The time for which it is not restored.
    pub left: Duration,
}

impl Memory {
    /// Remembers an object that was applied: its fingerprint, and its version from the answer.
    pub fn applied(&mut self, key: ChildKey, hash: u64, version: u64) {
        let at = clock::instant();
        let last = self.0.get(&key).filter(|last| last.hash == hash);
        let again = |last: &Applied| last.rounds.again(at.saturating_duration_since(last.at));
        let rounds = last.map(again).unwrap_or_default();
        self.0.insert(key, Applied { hash, version: Some(version), at, rounds });
    }

    /// Stores the version of an object, `None` if it is gone: if it differs from the applied
    /// version, the object is applied again.
    pub fn found(&mut self, key: &ChildKey, version: Option<u64>) {
        if let Some(applied) = self.0.get_mut(key)
            && applied.version != version
        {
            applied.version = None;
        }
    }

    /// Forgets an object that we have deleted.
    pub fn deleted(&mut self, key: &ChildKey) {
        self.0.remove(key);
    }

    /// Reports whether an object was applied with this content before.
    #[must_use]
    pub fn restores(&self, key: &ChildKey, hash: u64) -> bool {
        self.0.get(key).is_some_and(|applied| applied.hash == hash)
    }

    /// Returns the objects that another client has changed again and again, until none has for some
    /// time.
    #[must_use]
    pub fn contests(&self) -> BTreeMap<ChildKey, Contest> {
        let now = clock::instant();
        let contested = self.0.iter().filter_map(|(key, applied)| {
            let since = now.saturating_duration_since(applied.at);
            let left = applied.rounds.left(since)?;
            Some((key.clone(), Contest { hash: applied.hash, left }))
        });
        contested.collect()
    }

    /// Returns the fingerprints of the objects that no other client has changed since: those that
    /// `stands` finds as they were applied.
    #[must_use]
    pub fn unchanged(&self, stands: impl Fn(&ChildKey, u64) -> bool) -> BTreeMap<ChildKey, u64> {
        let stands = |key: &ChildKey, version: Option<u64>| version.is_some_and(|v| stands(key, v));
        let ours = self.0.iter().filter(|(key, applied)| stands(key, applied.version));
        ours.map(|(key, applied)| (key.clone(), applied.hash)).collect()
    }

    /// Returns the time since each object was applied.
    #[must_use]
    pub fn written(&self) -> BTreeMap<ChildKey, Duration> {
        self.0
            .iter()
            .map(|(key, applied)| (key.clone(), clock::instant().duration_since(applied.at)))
            .collect()
    }
}

/// The known facts about one of our objects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    owner_uid: String,
    /// The owner to reconcile; an edit may have removed its name.
    owner: Option<Key>,
    version: u64,
}

/// The known objects of each kind that is watched.
type Kinds = BTreeMap<ChildKind, Mirror<ChildKey, Found>>;

/// The objects that we own; clones share them.
#[derive(Clone, Default)]
pub struct Owned(Arc<Inner>);

#[derive(Default)]
struct Inner {
    kinds: Mutex<Kinds>,
    synced: Synced,
    /// Owners whose children changed.
    changes: Changes<Key>,
}

/// Returns a number that identifies the version of an object: it changes with an edit. Status
/// changes do not count where the API server distinguishes them; resource versions are compared as
/// numbers, as Kubernetes allows since 1.35.
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
        owner: owner(metadata),
        version: version(metadata),
    })
}

fn metadata<K>(
    client: &Client,
    kind: ChildKind,
    resource: &'static str,
    metrics: &Metrics,
) -> BoxStream<'static, (ChildKind, Event<ObjectMeta>)>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::<Metadata<K>>::all(client.clone());
    let ours = format!("app.kubernetes.io/managed-by={MANAGED_BY},{OWNER_UID}");
    let events = watch::follow(api, watch::config().labels(&ours));
    let events = watch::readable(events, resource, metrics);
    events.map(move |event| (kind, watch::map(event, |object| object.metadata))).boxed()
}

impl Owned {
    /// Follows our objects; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        let mut events = select_all([
            metadata::<ConfigMap>(&client, ChildKind::ConfigMap, "configmaps", &metrics),
            metadata::<DaemonSet>(&client, ChildKind::DaemonSet, "daemonsets", &metrics),
        ]);
        while let Some((kind, event)) = events.next().await {
            self.apply(kind, event);
        }
    }

    /// Waits until the first lists are complete.
    pub async fn synced(&self) {
        self.0.synced.wait().await;
    }

    /// Returns the owners whose children changed; never ends.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        self.0.changes.stream()
    }

    /// The children of one owner that exist.
    #[must_use]
    pub fn of(&self, uid: &str) -> Vec<ChildKey> {
        let kinds = self.kinds();
        let all = kinds.values().flat_map(Mirror::iter);
        let ours = all.filter(|(_, found)| found.owner_uid == uid);
        ours.map(|(key, _)| key.clone()).collect()
    }

    /// Reports whether an object is known to be a child of this owner.
    #[must_use]
    pub fn has(&self, key: &ChildKey, uid: &str) -> bool {
        self.is(key, |found| found.owner_uid == uid)
    }

    /// Reports whether an object is as it was at this version.
    #[must_use]
    pub fn stands(&self, key: &ChildKey, version: u64) -> bool {
        // Kinds without a watch are read by the code that applies them.
        !ChildKind::WATCHED.contains(&key.kind) || self.is(key, |found| found.version <= version)
    }

    fn is(&self, key: &ChildKey, test: impl FnOnce(&Found) -> bool) -> bool {
        self.kinds().get(&key.kind).and_then(|known| known.get(key)).is_some_and(test)
    }

    /// Takes the answer to our own apply; returns the version of the object.
    #[must_use]
    pub fn wrote(&self, key: &ChildKey, metadata: &ObjectMeta) -> u64 {
        // An object that is not watched could never be forgotten.
        if let Some(new) = found(metadata).filter(|_| ChildKind::WATCHED.contains(&key.kind)) {
            let mut kinds = self.kinds();
            let known = kinds.entry(key.kind).or_default();
            known.wrote(key.clone(), watch::version(metadata), new);
        }
        version(metadata)
    }

    /// Takes the answer to our own deletion.
    pub fn deleted(&self, key: &ChildKey) {
        if let Some(known) = self.kinds().get_mut(&key.kind) {
            known.remove(key);
        }
    }

    /// Handles one event of a watch.
    pub fn apply(&self, kind: ChildKind, event: Event<ObjectMeta>) {
        let mut event = watch::map(event, |metadata| {
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            let key = ChildKey { kind, namespace, name: name.unwrap_or_default() };
            Reduced::new(key, &metadata, found(&metadata))
        });
        let mut kinds = self.kinds();
        let known = kinds.entry(kind).or_default();
        let mut owners = Vec::new();
        if let Event::Apply(Reduced { key, facts: Some(new), .. }) = &mut event {
            // An edit that removes or replaces the name of the owner must be reverted by the last
            // known one.
            let last = known.get(&*key).and_then(|found| found.owner.clone());
            new.owner = new.owner.take().or_else(|| last.clone());
            owners.extend(last);
            owners.extend(new.owner.clone());
        }
        owners.extend(known.apply(event).into_iter().filter_map(|found| found.owner));
        let is_synced = |kind: &ChildKind| kinds.get(kind).is_some_and(Mirror::is_synced);
        if ChildKind::WATCHED.iter().all(is_synced) {
            self.0.synced.reached();
        }
        drop(kinds);
        self.0.changes.add(owners);
    }

    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time after a refusal until the same object is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Why an object could not be applied: its fingerprint, and when that was.
struct Refusal {
    hash: u64,
    at: Instant,
    taken: bool,
    text: String,
}

impl Refusal {
    fn is_recent(&self) -> bool {
        clock::instant().duration_since(self.at) < TRY_AGAIN
    }

    fn error(&self) -> Error {
        if self.taken { Error::Taken(self.text.clone()) } else { Error::Refused(self.text.clone()) }
    }
}

/// The last refusal of each object: the same is not tried at every pass.
#[derive(Default)]
pub struct Refusals(Mutex<HashMap<ChildKey, Refusal>>);

impl Refusals {
    /// Returns the recent error of the same object.
    pub fn of(&self, key: &ChildKey, hash: u64) -> Option<Error> {
        let all = self.all();
        let known = all.get(key).filter(|r| r.hash == hash && r.is_recent());
        known.map(Refusal::error)
    }

    /// Stores an object's error, with the time at which it first occurred.
    pub fn remember(&self, key: ChildKey, hash: u64, error: &Error) {
        let mut all = self.all();
        all.retain(|_, refusal| refusal.is_recent());
        let known = all.get(&key).is_some_and(|refusal| refusal.hash == hash);
        if !known {
            let (at, taken) = (clock::instant(), matches!(error, Error::Taken(_)));
            all.insert(key, Refusal { hash, at, taken, text: error.to_string() });
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ChildKey, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

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
        // The watch delivers our own write, and earlier events.
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("x", "5")));
        assert_eq!(unchanged().len(), 1);
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("x", "9")));
        assert!(unchanged().is_empty());
        wrote("10");
        assert_eq!(owned.of("u"), [key("x")]);
        owned.apply(ChildKind::ConfigMap, Event::Delete(meta("x", "11")));
        assert!(unchanged().is_empty() && owned.of("u").is_empty());
    }

    /// Two writers that undo each other's work would do so as fast as they can.
    #[test]
    fn what_another_client_changes_again_and_again_is_restored_ever_less_often() {
        let mut memory = Memory::default();
        let left = |memory: &Memory| memory.contests().get(&key("x")).map(|contest| contest.left);
        for round in 0..3 {
            assert_eq!(left(&memory), None, "{round}");
            memory.applied(key("x"), 7, round);
            memory.found(&key("x"), Some(99));
            assert!(memory.unchanged(|_, _| true).is_empty());
        }
        assert!(left(&memory).is_some_and(|left| left > Duration::from_secs(8)));
        for round in 0..9 {
            memory.applied(key("x"), 7, round);
        }
        let longest = left(&memory).unwrap();
        assert!(
            longest > Duration::from_secs(280) && longest <= Duration::from_mins(5),
            "{longest:?}"
        );
        // Another content is no further round, and a deletion of ours is no change by others.
        memory.applied(key("x"), 8, 1);
        assert_eq!(left(&memory), None);
        memory.deleted(&key("x"));
        memory.applied(key("x"), 8, 1);
        assert!(!memory.restores(&key("x"), 7) && left(&memory).is_none());
    }

    #[test]
    fn an_edit_that_removes_the_name_of_the_owner_is_seen_and_wakes_it() {
        let owned = Owned::default();
        let mut woken = Box::pin(owned.changes());
        let mut next = || woken.next().now_or_never().flatten();
        let np = || Some(("a".to_owned(), "np".to_owned()));
        let mut memory = Memory::default();
        memory.applied(key("x"), 7, owned.wrote(&key("x"), &meta("x", "5")));
        let edit = |version, annotations| {
            let edited = ObjectMeta { annotations, ..meta("x", version) };
            owned.apply(ChildKind::ConfigMap, Event::Apply(edited));
        };
        edit("9", None);
        assert!(memory.unchanged(|key, version| owned.stands(key, version)).is_empty());
        assert_eq!(next(), np());
        // It is still a child, by its label: it can be applied, and is deleted with its owner.
        assert!(owned.has(&key("x"), "u"));
        assert_eq!(owned.of("u"), [key("x")]);
        // A further edit before it is applied again, to the name of another one.
        edit("10", Some([(OWNER.to_owned(), "a/other".to_owned())].into()));
        assert_eq!(next(), np());
    }

    #[test]
    fn a_new_list_replaces_what_was_known_of_the_kind() {
        let owned = Owned::default();
        owned.apply(ChildKind::ConfigMap, Event::Apply(meta("gone", "1")));
        for event in [Event::Init, Event::InitApply(meta("there", "2")), Event::InitDone] {
            owned.apply(ChildKind::ConfigMap, event);
        }
        assert_eq!(owned.of("u"), [key("there")]);
        // An object without our labels is not a child.
        let foreign = ObjectMeta { labels: None, ..meta("foreign", "3") };
        owned.apply(ChildKind::ConfigMap, Event::Apply(foreign));
        assert_eq!(owned.of("u").len(), 1);
    }
}
