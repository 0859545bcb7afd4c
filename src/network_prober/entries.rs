//! The entries of the one `MutatingWebhookConfiguration`: each `NetworkProber` has one, and writes
//! no other.
//!
//! The installation creates the object, without entries. Each entry is applied by a field manager
//! of its own, so that an apply of one removes nothing from another, and a refused one harms no
//! other. A watch of the object keeps track of its contents.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher::Event,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch as signal;

use super::{
    children::{Child, ChildKey, fingerprint},
    snapshot::Key,
    state::ClusterState,
};
use crate::{
    api::NetworkProber,
    controller::{FIELD_MANAGER, merge_params},
    infra::{
        Api,
        watch::{self, Changes, Metadata, Mirror, Reduced},
    },
    metrics::Metrics,
    webhook::configuration::{self, OBJECT},
};

/// Time between two searches for entries whose `NetworkProber` is gone. The finalizer of a prober
/// removes its entry: a leftover one belongs to a prober whose finalizer was removed manually, and
/// does no harm for some seconds. The search itself sends no request.
const SWEEP: Duration = Duration::from_secs(10);

/// Our entries as they are now.
type Live = BTreeMap<Key, Entry>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    fingerprint: u64,
    /// The same of all that is no condition on pods and namespaces.
    core: u64,
    /// The conditions on pods and namespaces, each as a fingerprint: one more only narrows.
    conditions: BTreeSet<u64>,
    /// When it was last written, in seconds since 1970, as the API server says.
    written: Option<i64>,
}

impl Entry {
    fn of(entry: &impl Serialize, written: Option<i64>) -> Option<Self> {
        let mut value = serde_json::to_value(entry).ok()?;
        let full = fingerprint(&value);
        let mut conditions = BTreeSet::new();
        let mut take = |place: &str, part: Option<Value>| match part {
            Some(Value::Array(all)) => {
                conditions.extend(all.iter().map(|one| fingerprint(&json!([place, one]))));
            }
            Some(Value::Object(all)) => {
                conditions.extend(all.iter().map(|one| fingerprint(&json!([place, one]))));
            }
            _ => {}
        };
        let object = value.as_object_mut()?;
        for selector in ["namespaceSelector", "objectSelector"] {
            let mut parts = object.remove(selector).unwrap_or_default();
            for part in ["matchExpressions", "matchLabels"] {
                take(&format!("{selector}.{part}"), parts.get_mut(part).map(Value::take));
            }
        }
        take("matchConditions", object.remove("matchConditions"));
        Some(Self { fingerprint: full, core: fingerprint(&value), conditions, written })
    }

    /// Reports whether it is like another one, or only narrower: AKS adds conditions to every
    /// webhook, and adds them again whenever they are missing.
    fn narrows(&self, other: &Self) -> bool {
        self.core == other.core && self.conditions.is_superset(&other.conditions)
    }
}

#[derive(Default)]
struct Inner {
    /// The one object.
    object: Mutex<Mirror<(), Live>>,
    /// True if the object exists; `None` before the first look-up.
    there: signal::Sender<Option<bool>>,
    /// The entries as our own writes left them.
    applied: Mutex<Live>,
    /// Owners whose entries changed.
    changes: Changes<Key>,
}

/// The known entries; clones share them.
#[derive(Clone, Default)]
pub struct Entries(Arc<Inner>);

/// Our entries, each with its fingerprint and the time at which its manager last wrote it.
fn entries(object: &MutatingWebhookConfiguration) -> Live {
    let managed = object.metadata.managed_fields.iter().flatten();
    let times: BTreeMap<_, _> = managed
        .filter_map(|managed| Some((managed.manager.as_deref()?, managed.time.as_ref()?.0)))
        .collect();
    let all = object.webhooks.iter().flatten();
    let ours = all.filter_map(|entry| {
        let owner = configuration::owner(entry)?;
        let written = times.get(&*manager(&owner)).map(|time| time.as_second());
        Some((owner, Entry::of(entry, written)?))
    });
    ours.collect()
}

/// The field manager of the entry of one `NetworkProber`. Managers have at most 128 characters, and
/// names may be longer. The digest is one that no other name can be made for: its author would take
/// this entry away.
fn manager((namespace, name): &Key) -> String {
    let key = format!("{namespace}/{name}");
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let mut manager = format!("{FIELD_MANAGER}-");
    for byte in digest.as_ref().iter().take(16) {
        // Into a string it never fails.
        let _ = write!(manager, "{byte:02x}");
    }
    manager
}

fn api(client: &Client) -> Api<MutatingWebhookConfiguration> {
    Api::all(client.clone())
}

impl Entries {
    /// Follows the object; never ends.
    pub async fn follow(self, client: Client, metrics: Metrics) {
        // RBAC treats a field selector by name like a request for that name.
        let this = watch::config().fields(&format!("metadata.name={OBJECT}"));
        let events = watch::follow_managed(api(&client), this);
        let mut events = watch::readable(events, "mutatingwebhookconfigurations", &metrics);
        while let Some(event) = events.next().await {
            self.take(event);
        }
    }

    /// Waits until the first look-up of the object.
    pub async fn synced(&self) {
        // The sender lives in `self`.
        let _ = self.presence().wait_for(Option::is_some).await;
    }

    /// Returns a receiver to wait until the object is created or deleted.
    #[must_use]
    pub fn presence(&self) -> signal::Receiver<Option<bool>> {
        self.0.there.subscribe()
    }

    /// Reports whether the object is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        *self.0.there.borrow() == Some(true)
    }

    /// Returns the owners of changed entries; never ends.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static + use<> {
        self.0.changes.stream()
    }

    /// The entry of an owner, if it is there.
    #[must_use]
    pub fn of(&self, owner: &Key) -> Option<ChildKey> {
        self.object().get(&())?.get(owner).map(|_| ChildKey::webhook(&owner.0, &owner.1))
    }

    /// Reports whether the entry of an owner has this fingerprint, or was written so and is only
    /// narrower since.
    #[must_use]
    pub fn stands(&self, owner: &Key, hash: u64) -> bool {
        let object = self.object();
        let Some(entry) = object.get(&()).and_then(|live| live.get(owner)) else { return false };
        let applied = self.applied();
        let applied = applied.get(owner).filter(|applied| applied.fingerprint == hash);
        entry.fingerprint == hash || applied.is_some_and(|applied| entry.narrows(applied))
    }

    /// Returns when the entry of an owner was last written, in seconds since 1970.
    #[must_use]
    pub fn written(&self, owner: &Key) -> Option<i64> {
        self.object().get(&())?.get(owner)?.written
    }

    /// Writes the entry of an owner; returns the fingerprint of the API server's version of it.
    ///
    /// # Errors
    /// The errors of the API server.
    pub async fn apply(
        &self,
        client: &Client,
        owner: &Key,
        child: &Child,
    ) -> kube::Result<Option<u64>> {
        let params = PatchParams::apply(&manager(owner)).force();
        let object = api(client).patch(OBJECT, &params, &Patch::Apply(&child.object)).await?;
        Ok(self.wrote(owner, &object))
    }

    /// Takes the answer to our own apply.
    fn wrote(&self, owner: &Key, object: &MutatingWebhookConfiguration) -> Option<u64> {
        self.see(object);
        let entry = entries(object).remove(owner)?;
        let fingerprint = entry.fingerprint;
        self.applied().insert(owner.clone(), entry);
        Some(fingerprint)
    }

    /// Removes the entry of an owner.
    ///
    /// # Errors
    /// The errors of the API server; a missing object has no entry.
    pub async fn remove(&self, client: &Client, owner: &Key) -> kube::Result<()> {
        let (namespace, name) = owner;
        let entry = configuration::entry_name(namespace, name);
        let patch = Patch::Strategic(configuration::removal(&entry));
        match api(client).patch(OBJECT, &merge_params(), &patch).await {
            Ok(object) => {
                self.applied().remove(owner);
                self.see(&object);
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes entries whose `NetworkProber` is gone; never ends.
    pub async fn sweep(self, client: Client, cluster: ClusterState) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let snapshot = cluster.snapshot();
            for owner in self.strays(|key| snapshot.views.contains_key(key)) {
                if let Err(error) = self.sweep_out(&client, &owner).await {
                    tracing::warn!(%error, namespace = owner.0, name = owner.1, "entry not removed");
                }
            }
        }
    }

    /// The owners of entries that are not among those that are known.
    fn strays(&self, known: impl Fn(&Key) -> bool) -> Vec<Key> {
        let object = self.object();
        let owners = object.get(&()).into_iter().flat_map(Live::keys);
        owners.filter(|owner| !known(owner)).cloned().collect()
    }

    /// Removes an entry if the API server itself has no `NetworkProber` for it: the local state may
    /// be older than the entry, and lacks unreadable and terminating ones.
    async fn sweep_out(&self, client: &Client, owner: &Key) -> kube::Result<()> {
        let (namespace, name) = owner;
        let probers = Api::<Metadata<NetworkProber>>::namespaced(client.clone(), namespace);
        // A list, because there is no right to get.
        let this = ListParams::default().fields(&format!("metadata.name={name}"));
        if !probers.list(&this).await?.items.is_empty() {
            return Ok(());
        }
        tracing::info!(namespace, name, "the NetworkProber of an entry is gone: removed it");
        self.remove(client, owner).await
    }

    /// Handles one event of the watch.
    fn take(&self, event: Event<MutatingWebhookConfiguration>) {
        self.change(|known| {
            known.apply(watch::map(event, |object| {
                Reduced::new((), &object.metadata, Some(entries(&object)))
            }));
        });
    }

    /// Stores the object as our own write left it.
    fn see(&self, object: &MutatingWebhookConfiguration) {
        self.change(|known| known.wrote((), watch::version(&object.metadata), entries(object)));
    }

    fn change(&self, change: impl FnOnce(&mut Mirror<(), Live>)) {
        let (mut object, none) = (self.object(), Live::new());
        let before = object.get(&()).cloned().unwrap_or_default();
        change(&mut object);
        let there = object.get(&()).is_some();
        let now = object.get(&()).unwrap_or(&none);
        let owners = before.keys().chain(now.keys());
        let differ = owners.filter(|owner| before.get(*owner) != now.get(*owner));
        self.0.changes.add(differ.cloned());
        if there || object.is_synced() {
            self.0.there.send_if_modified(|known| known.replace(there) != Some(there));
        }
    }

    fn applied(&self) -> MutexGuard<'_, Live> {
        self.0.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self) -> MutexGuard<'_, Mirror<(), Live>> {
        self.0.object.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_prober::memory::Memories;

    fn key(name: &str) -> Key {
        ("team".into(), name.into())
    }

    fn entry(name: &str, policy: &str) -> Value {
        json!({
            "name": format!("{name}.team.probes.bigmikes.io"), "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "ops", "name": "w",
                "path": format!("/mutate/team/{name}")}},
            "failurePolicy": policy, "sideEffects": "None",
        })
    }

    fn object(version: &str, webhooks: &[Value]) -> MutatingWebhookConfiguration {
        serde_json::from_value(json!({
            "metadata": {"name": "traffic-operator", "resourceVersion": version},
            "webhooks": webhooks,
        }))
        .unwrap()
    }

    fn known(entries: &Entries) -> Vec<String> {
        entries.strays(|_| false).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn an_edit_of_ones_own_entry_is_seen_and_that_of_another_is_none() {
        let (entries, memories) = (Entries::default(), Memories::default());
        let both = |version, a, b| object(version, &[entry("a", a), entry("b", b)]);
        let wrote = |object| {
            let (child, made) = (ChildKey::webhook("team", "a"), entries.wrote(&key("a"), &object));
            memories.change(&key("a"), |memory| memory.applied(child, 7, made.unwrap()));
        };
        wrote(both("5", "Ignore", "Ignore"));
        let stands = |_: &ChildKey, made| entries.stands(&key("a"), made);
        let unchanged = || memories.get(&key("a")).unchanged(stands).into_values().next();
        assert_eq!(unchanged(), Some(7));
        // The watch delivers our own write, and the entry of another owner changes.
        entries.take(Event::Apply(both("5", "Ignore", "Ignore")));
        entries.take(Event::Apply(both("6", "Ignore", "Fail")));
        assert_eq!(unchanged(), Some(7));
        entries.take(Event::Apply(both("9", "Fail", "Fail")));
        assert_eq!(unchanged(), None);
        // Requests from before our write are ignored.
        wrote(both("10", "Ignore", "Fail"));
        entries.take(Event::Apply(both("8", "Fail", "Fail")));
        assert_eq!(unchanged(), Some(7));
        entries.take(Event::Apply(object("11", &[entry("b", "Fail")])));
        assert_eq!((unchanged(), entries.of(&key("a"))), (None, None));
    }

    /// AKS adds two conditions to the namespaces of every webhook, for ever.
    #[test]
    fn what_others_add_that_only_narrows_stands() {
        let entries = Entries::default();
        let narrowed = |more: Value| {
            let mut entry = entry("a", "Ignore");
            entry["namespaceSelector"] = json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]}]});
            json_patch::merge(&mut entry, &more);
            entry
        };
        let made = entries.wrote(&key("a"), &object("5", &[narrowed(json!({}))])).unwrap();
        let stands = |version, more| {
            entries.take(Event::Apply(object(version, &[narrowed(more)])));
            entries.stands(&key("a"), made)
        };
        let own =
            json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]});
        let added = json!({"key": "control-plane", "operator": "DoesNotExist"});
        let both = json!({"namespaceSelector": {"matchExpressions": [own, added]}});
        assert!(stands("6", both.clone()));
        assert!(stands("7", json!({"objectSelector": {"matchLabels": {"a": "b"}}})));
        assert!(stands("8", json!({"matchConditions": [{"name": "x", "expression": "true"}]})));
        // Wider, or another one.
        assert!(!stands("9", json!({"namespaceSelector": {"matchExpressions": [added]}})));
        assert!(!stands("10", json!({"namespaceSelector": null})));
        assert!(!stands("11", json!({"failurePolicy": "Fail"})));
        assert!(stands("12", both));
    }

    #[test]
    fn the_object_itself_may_go_and_come_back() {
        let entries = Entries::default();
        let full = || {
            object(
                "5",
                &[
                    entry("a", "Ignore"),
                    json!({
                        "name": "x.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                        "clientConfig": {"url": "https://example.com/mutate/team/x"},
                    }),
                ],
            )
        };
        assert_eq!(*entries.presence().borrow(), None);
        entries.take(Event::Init);
        entries.take(Event::InitDone);
        assert_eq!(*entries.presence().borrow(), Some(false));
        entries.take(Event::Apply(full()));
        assert!(entries.is_there());
        assert_eq!(known(&entries), ["a"], "no entries of others");
        entries.take(Event::Delete(object("6", &[entry("a", "Ignore")])));
        assert!(!entries.is_there() && known(&entries).is_empty());
        // Late, from before it went.
        entries.take(Event::Apply(full()));
        assert!(!entries.is_there());
        // A list counts, regardless of its version.
        for event in [Event::Init, Event::InitApply(full()), Event::InitDone] {
            entries.take(event);
        }
        assert!(entries.is_there() && known(&entries) == ["a"]);
    }

    #[test]
    fn managers_are_short_and_each_name_has_its_own() {
        let long = ("n".repeat(63), "a".repeat(160));
        let names = [key("a"), key("b"), ("a".into(), "team".into()), long].map(|k| manager(&k));
        assert!(names.iter().all(|name| name.len() <= 128), "{names:?}");
        assert_eq!(BTreeSet::from(names.clone()).len(), names.len());
        assert_eq!(manager(&key("a")), names[0], "it keeps its manager");
    }
}
