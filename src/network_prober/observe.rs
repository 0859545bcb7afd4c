//! Reads the inputs of a plan: the snapshot, the existing objects, the certificates. Decides
//! nothing.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use kube::{ResourceExt, api::DynamicObject};

use super::{
    children::{self, ChildKey, ChildKind},
    context::NetworkProberReconciler,
    measurement::Traced,
    memory::{self, Contest},
    snapshot::{ProberState, Setup, Snapshot},
};
use crate::{
    api::NetworkProber,
    clock,
    controller::{Error, Key, MANAGED_BY, key},
    infra::{Api, watch::Metadata},
    webhook::configuration::Endpoint,
};

/// Maximum number of namespaces that a sentence names, to keep it short.
pub(super) const NAMED: usize = 5;

/// The facts about one object.
pub struct Observed {
    /// The object as every replica knows it; `None` until the snapshot has its generation.
    pub view: Option<Arc<ProberState>>,
    /// The settings of this replica.
    pub setup: Setup,
    /// The certificates that the API server and the agents should trust, as PEM.
    pub bundle: Option<String>,
    /// The address at which the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// True if the `MutatingWebhookConfiguration` exists that holds the entries of all.
    pub configuration: bool,
    /// The API server's words in namespaces that refuse pods with an agent, as far as known.
    pub failed_creates: BTreeMap<String, String>,
    /// The lost paths that agents have traced since the last pass.
    pub traced: Vec<Traced>,
    /// The kinds of the prometheus-operator that the API server serves.
    pub monitoring: BTreeSet<ChildKind>,
    /// Our children of this object that exist.
    pub existing: Vec<ChildKey>,
    /// The objects that were applied before and are unchanged, by fingerprint.
    pub unchanged: BTreeMap<ChildKey, u64>,
    /// The objects that another client changes again and again.
    pub contests: BTreeMap<ChildKey, Contest>,
    /// Time since each was applied.
    pub written: BTreeMap<ChildKey, Duration>,
}

/// The time for which the discovered kinds of the API server are cached.
const DISCOVERY: Duration = Duration::from_mins(1);

/// The time for which a pass waits for the other watches: they start together.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Reads everything that the plan for one object rests on.
pub(super) async fn observe(
    reconciler: &NetworkProberReconciler,
    prober: &NetworkProber,
) -> Result<Observed, Error> {
    let key = key(prober);
    let view = reconciler.view(prober, &key).await;
    let monitoring = reconciler.monitoring().await?;
    let mut existing = reconciler.owned.of(&prober.uid().unwrap_or_default());
    existing.extend(reconciler.look_at_monitoring(prober, &monitoring).await?);
    existing.extend(reconciler.entries.of(&key));
    let mut failed_creates = BTreeMap::new();
    for namespace in view.iter().flat_map(|view| view.members.refusing.keys()).take(NAMED) {
        let why = reconciler.failed_creates.why(&reconciler.client, namespace).await;
        failed_creates.extend(why.map(|why| (namespace.clone(), why)));
    }
    let traced = match view.as_ref().map(|view| view.members.injected) {
        None | Some(0) => vec![],
        Some(_) => reconciler.lost_paths.new_of(prober).await,
    };
    let memory = reconciler.memories.get(&key);
    let unchanged = memory.unchanged(|child, version| match child.kind {
        ChildKind::Webhook => reconciler.entries.stands(&key, version),
        _ => reconciler.owned.stands(child, version),
    });
    Ok(Observed {
        view,
        setup: reconciler.cluster.setup().clone(),
        bundle: reconciler.bundle.borrow().as_ref().map(|bundle| bundle.pem.to_string()),
        endpoint: reconciler.endpoint.clone(),
        configuration: reconciler.entries.is_there(),
        failed_creates,
        traced,
        monitoring,
        existing,
        unchanged,
        contests: memory.contests(),
        written: memory.written(),
    })
}

impl NetworkProberReconciler {
    /// Returns the kinds of the prometheus-operator that the API server serves.
    async fn monitoring(&self) -> Result<BTreeSet<ChildKind>, Error> {
        let known = self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, kinds)) = known
            && clock::instant().duration_since(at) < DISCOVERY
        {
            return Ok(kinds);
        }
        let kinds = match self.client.list_api_group_resources("monitoring.coreos.com/v1").await {
            Ok(list) => {
                let has = |kind: &ChildKind| list.resources.iter().any(|r| r.kind == kind.as_str());
                ChildKind::MONITORING.into_iter().filter(has).collect()
            }
            // The server reports this in plain text if it has nothing of the group.
            Err(kube::Error::Api(status)) if status.code == 404 => BTreeSet::new(),
            Err(error) => return Err(Error::kube("discover monitoring.coreos.com")(error)),
        };
        let mut discovered = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        *discovered = Some((clock::instant(), BTreeSet::clone(&kinds)));
        Ok(kinds)
    }

    /// Returns the replicas' knowledge of this generation of the object, after a short wait for it.
    async fn view(
        &self,
        prober: &NetworkProber,
        (namespace, name): &Key,
    ) -> Option<Arc<ProberState>> {
        let find = |snapshot: &Snapshot| {
            let view = snapshot.get(namespace, name)?;
            let known = view.is_of(prober) && (view.synced || view.over.is_some());
            known.then(|| Arc::clone(view))
        };
        let mut snapshots = self.cluster.subscribe();
        let known = snapshots.wait_for(|snapshot| find(snapshot).is_some());
        let known = tokio::time::timeout(CATCH_UP, known).await;
        known.ok().and_then(Result::ok).and_then(|snapshot| find(&snapshot))
    }

    /// Returns the API of a child, whose answers are its metadata: what someone else has written to
    /// one child keeps no other from being written.
    pub(super) fn api(&self, key: &ChildKey) -> Api<Metadata<DynamicObject>> {
        let resource = key.kind.resource();
        match &key.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub(super) async fn look(
        &self,
        key: &ChildKey,
    ) -> Result<Option<Metadata<DynamicObject>>, Error> {
        match self.api(key).get_opt(&key.name).await {
            Ok(found) => Ok(found),
            Err(error) => Err(Error::kube("get child")(error)),
        }
    }

    /// Reads children of prometheus-operator's kinds, which are not watched because the kinds may
    /// be installed and removed.
    async fn look_at_monitoring(
        &self,
        prober: &NetworkProber,
        kinds: &BTreeSet<ChildKind>,
    ) -> Result<Vec<ChildKey>, Error> {
        let (uid, owner) = (prober.uid().unwrap_or_default(), key(prober));
        let mut existing = Vec::new();
        for kind in kinds {
            let (namespace, name) = owner.clone();
            let key = ChildKey { kind: *kind, namespace: Some(namespace), name };
            let there = self.look(&key).await?.filter(|there| is_ours(there, &owner));
            let generation = there.as_ref().and_then(|there| there.metadata.generation);
            let version = generation.and_then(|generation| u64::try_from(generation).ok());
            self.memories.change(&owner, |memory| memory.found(&key, version));
            if there.is_some_and(|there| there.labels().get(children::OWNER_UID) == Some(&uid)) {
                existing.push(key);
            }
        }
        Ok(existing)
    }
}

/// Reports whether an object was made by us for this owner, or for an earlier one of the same name.
pub(super) fn is_ours(there: &Metadata<DynamicObject>, owner: &Key) -> bool {
    let managed = there.labels().get("app.kubernetes.io/managed-by");
    managed.is_some_and(|by| by == MANAGED_BY)
        && memory::owner(&there.metadata).as_ref() == Some(owner)
}
