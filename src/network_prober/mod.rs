//! Serves [`NetworkProber`]: observes, applies; what is decided stands in `plan`.
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream::select};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::watch as signal;

use crate::{
    api::{NetworkProber, NetworkProberStatus},
    controller::{Error, FIELD_MANAGER, MANAGED_BY, Notice, Plan, Reconciler, error::is_refusal},
    webhook::{certificates::Bundle, configuration::Endpoint},
};

pub mod children;
pub mod constraints;
mod entries;
mod injector;
pub mod live;
pub mod measurement;
pub mod members;
mod memory;
mod metrics;
pub mod overview;
pub mod pinglists;
mod plan;
pub mod reasons;
mod refusals;
mod report;
pub mod rules;
pub mod scope;
mod serving;
pub mod settings;
pub mod snapshot;
pub mod state;
pub mod watches;

use children::{Child, ChildKey, ChildKind};
pub use entries::Entries;
pub use injector::WorldInjector;
pub use memory::Owned;
pub use metrics::Gauges;
use plan::{Desired, Observed};
use refusals::{Refusals, refused};
pub use serving::{
    AUDIENCE, Agents, LIMITS as PINGLIST_LIMITS, PATH as PINGLIST_PATH, REVIEWS,
    REVIEWS_OF_ONE_SOURCE,
};
use snapshot::{Key, Snapshot, View};
use state::World;

/// For how long it is believed which kinds the API server has.
const DISCOVERY: Duration = Duration::from_mins(1);

/// How long a pass waits for what the other watches bring: they are begun together.
const CATCH_UP: Duration = Duration::from_secs(5);

/// The kinds of the prometheus-operator that the API server has, and when that was looked up.
type Discovered = Option<(Instant, BTreeSet<ChildKind>)>;

/// What the controller works with.
pub struct NetworkProberReconciler {
    client: kube::Client,
    world: World,
    owned: Owned,
    entries: Entries,
    bundle: signal::Receiver<Option<Bundle>>,
    endpoint: Endpoint,
    discovered: Mutex<Discovered>,
    refusals: Refusals,
}

type Others = Store<DeserializeGuard<NetworkProber>>;

impl NetworkProberReconciler {
    /// A controller over what this replica knows.
    #[must_use]
    pub fn new(
        client: kube::Client,
        world: World,
        owned: Owned,
        entries: Entries,
        bundle: signal::Receiver<Option<Bundle>>,
        endpoint: Endpoint,
    ) -> Self {
        let (discovered, refusals) = (Mutex::default(), Refusals::default());
        Self { client, world, owned, entries, bundle, endpoint, discovered, refusals }
    }

    /// The objects to look at though they did not change: their pods, their children or the
    /// certificates did.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<NetworkProber>>> + Send + 'static + use<>
    {
        let world = self.world.clone();
        let all = select(happens(self.bundle.clone()), happens(self.entries.presence()));
        let all = all.flat_map(move |()| {
            let keys: Vec<_> = world.snapshot().views.keys().cloned().collect();
            futures::stream::iter(keys)
        });
        let changes = select(self.owned.changes(), self.entries.changes());
        select(select(self.world.changes(), changes), all)
            .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }

    /// Which kinds of the prometheus-operator the API server has.
    async fn monitoring(&self) -> Result<BTreeSet<ChildKind>, Error> {
        let known = self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, kinds)) = known
            && at.elapsed() < DISCOVERY
        {
            return Ok(kinds);
        }
        let kinds = match self.client.list_api_group_resources("monitoring.coreos.com/v1").await {
            Ok(list) => {
                let has = |kind: &ChildKind| list.resources.iter().any(|r| r.kind == kind.as_str());
                ChildKind::MONITORING.into_iter().filter(has).collect()
            }
            // The server says so in plain text where there is nothing of the group.
            Err(kube::Error::Api(status)) if status.code == 404 => BTreeSet::new(),
            Err(error) => return Err(Error::kube("discover monitoring.coreos.com")(error)),
        };
        let mut discovered = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        *discovered = Some((Instant::now(), BTreeSet::clone(&kinds)));
        Ok(kinds)
    }

    /// What every replica knows of this generation of the object, waiting a moment for it.
    async fn view(&self, prober: &NetworkProber, (namespace, name): &Key) -> Option<Arc<View>> {
        let find = |snapshot: &Snapshot| {
            let view = snapshot.get(namespace, name)?;
            let known = view.is_of(prober) && (view.synced || view.over.is_some());
            known.then(|| Arc::clone(view))
        };
        let mut snapshots = self.world.subscribe();
        let known = snapshots.wait_for(|snapshot| find(snapshot).is_some());
        let known = tokio::time::timeout(CATCH_UP, known).await;
        known.ok().and_then(Result::ok).and_then(|snapshot| find(&snapshot))
    }

    fn api(&self, key: &ChildKey) -> Api<DynamicObject> {
        let resource = key.kind.resource();
        match &key.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn look(
        &self,
        key: &ChildKey,
    ) -> Result<Option<PartialObjectMeta<DynamicObject>>, Error> {
        match self.api(key).get_metadata_opt(&key.name).await {
            Ok(found) => Ok(found),
            Err(error) => Err(Error::kube("get child")(error)),
        }
    }

    async fn apply_child(&self, prober: &NetworkProber, child: Child) -> Result<(), Error> {
        let uid = prober.uid().unwrap_or_default();
        let owner = key_of(prober);
        if child.key.kind == ChildKind::Webhook {
            let applied = self.entries.apply(&self.client, &owner, &child).await;
            return applied.map_err(|error| refused(&child.key, error));
        }
        if !self.owned.has(&child.key, &uid)
            && let Some(there) = self.look(&child.key).await?
            && !is_ours(&there, &owner)
        {
            return Err(Error::Taken(format!(
                "{} exists and does not belong to this NetworkProber; delete it or rename one of them",
                child.key
            )));
        }
        let api = self.api(&child.key);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let mut applied = api.patch(&child.key.name, &params, &Patch::Apply(&child.object)).await;
        if let (Err(kube::Error::Api(status)), Some(fallback)) = (&applied, &child.fallback)
            && is_refusal(status)
        {
            applied = api.patch(&child.key.name, &params, &Patch::Apply(fallback)).await;
        }
        match applied {
            Ok(object) => {
                self.owned.wrote(&child.key, &owner, child.hash, &object.metadata);
                Ok(())
            }
            Err(error) => Err(refused(&child.key, error)),
        }
    }

    async fn delete_child(&self, owner: &Key, key: &ChildKey) -> Result<(), Error> {
        if key.kind == ChildKind::Webhook {
            let removed = self.entries.remove(&self.client, owner).await;
            return removed.map_err(Error::kube("remove webhook"));
        }
        match self.api(key).delete(&key.name, &DeleteParams::background()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(Error::kube("delete child")(error)),
        }
        self.owned.deleted(key);
        Ok(())
    }

    /// Children of the prometheus-operator's kinds are not watched, because the kinds may come and go:
    /// they are looked at.
    async fn look_at_monitoring(
        &self,
        prober: &NetworkProber,
        kinds: &BTreeSet<ChildKind>,
    ) -> Result<Vec<ChildKey>, Error> {
        let (uid, owner) = (prober.uid().unwrap_or_default(), key_of(prober));
        let mut existing = Vec::new();
        for kind in kinds {
            let (namespace, name) = owner.clone();
            let key = ChildKey { kind: *kind, namespace: Some(namespace), name };
            match self.look(&key).await? {
                Some(there) if is_ours(&there, &owner) => {
                    let version = there.metadata.generation.and_then(|g| u64::try_from(g).ok());
                    if version != self.owned.applied_version(&key) {
                        self.owned.differs(&key);
                    }
                    if there.labels().get(children::OWNER_UID) == Some(&uid) {
                        existing.push(key);
                    }
                }
                _ => self.owned.differs(&key),
            }
        }
        Ok(existing)
    }
}

/// Each time that a value changes.
fn happens<T: Send + Sync + 'static>(
    value: signal::Receiver<T>,
) -> impl Stream<Item = ()> + Send + 'static {
    futures::stream::unfold(value, |mut value| async move {
        value.changed().await.ok()?;
        Some(((), value))
    })
}

fn key_of(prober: &NetworkProber) -> Key {
    (prober.namespace().unwrap_or_default(), prober.name_any())
}

/// Whether an object was made by us for this owner, or for an earlier one of the same name.
fn is_ours(there: &PartialObjectMeta<DynamicObject>, owner: &Key) -> bool {
    let managed = there.labels().get("app.kubernetes.io/managed-by");
    managed.is_some_and(|by| by == MANAGED_BY)
        && memory::owner(&there.metadata).as_ref() == Some(owner)
}

impl Reconciler for NetworkProberReconciler {
    type Kind = NetworkProber;
    type Observed = Observed;
    type Desired = Desired;
    const NAME: &'static str = "networkprober";
    const FINALIZER: &'static str = "probes.bigmikes.io/agents";

    /// Its webhook is an entry of an object that stays, and other namespaces have `ConfigMap`s:
    /// neither goes with its owner.
    fn needs_cleanup(&self, _: &NetworkProber) -> bool {
        true
    }

    async fn observe(&self, prober: &NetworkProber, _: &Others) -> Result<Observed, Error> {
        let key = key_of(prober);
        let view = self.view(prober, &key).await;
        let monitoring = self.monitoring().await?;
        let mut existing = self.owned.of(&prober.uid().unwrap_or_default());
        existing.extend(self.look_at_monitoring(prober, &monitoring).await?);
        existing.extend(self.entries.of(&key));
        let mut unchanged = self.owned.unchanged(&key);
        unchanged.extend(self.entries.unchanged(&key));
        Ok(Observed {
            view,
            setup: self.world.setup().clone(),
            bundle: self.bundle.borrow().as_ref().map(|bundle| bundle.pem.to_string()),
            endpoint: self.endpoint.clone(),
            configuration: self.entries.is_there(),
            monitoring,
            existing,
            unchanged,
            written: self.owned.written(&key),
        })
    }

    fn plan(
        prober: &NetworkProber,
        observed: &Observed,
    ) -> Result<Plan<Desired, NetworkProberStatus>, Error> {
        plan::plan(prober, observed)
    }

    async fn apply(&self, prober: &NetworkProber, desired: Desired) -> Result<Vec<Notice>, Error> {
        // One that cannot be written does not keep the others from being written.
        let mut first = None;
        for child in desired.apply {
            let (key, hash) = (child.key.clone(), child.hash);
            let known = self.refusals.of(&key, hash);
            let result = match known {
                Some(error) => Err(error),
                None => self.apply_child(prober, child).await,
            };
            match result {
                Err(error) if error.is_partial() => {
                    self.refusals.remember(key, hash, &error);
                    first = first.or(Some(error));
                }
                other => other?,
            }
        }
        for key in &desired.delete {
            self.delete_child(&key_of(prober), key).await?;
        }
        first.map_or(Ok(vec![]), Err)
    }

    async fn cleanup(&self, prober: &NetworkProber, _: &Others) -> Result<Vec<Notice>, Error> {
        let owner = key_of(prober);
        let mut ours = self.owned.of(&prober.uid().unwrap_or_default());
        ours.extend(self.entries.of(&owner));
        // What stands beside its owner goes with it.
        let beyond: Vec<_> =
            ours.into_iter().filter(|key| key.namespace.as_ref() != Some(&owner.0)).collect();
        for key in &beyond {
            self.delete_child(&owner, key).await?;
        }
        self.forget(&owner.0, &owner.1);
        let notice = (!beyond.is_empty()).then(|| Notice {
            warning: false,
            reason: "Removed",
            note: format!(
                "removed {} objects outside of this namespace; agents in running pods stay until \
                 their pods are restarted",
                beyond.len()
            ),
            node: None,
        });
        Ok(notice.into_iter().collect())
    }

    fn forget(&self, namespace: &str, name: &str) {
        let owner = (namespace.to_owned(), name.to_owned());
        self.owned.forget(&owner);
        self.entries.forget(&owner);
    }
}

#[cfg(test)]
mod tests;
