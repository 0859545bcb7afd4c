//! Starts the controller of `NetworkProber`s, once this replica knows them.
use std::{sync::Mutex, time::Duration};

use anyhow::Context;
use futures::{FutureExt, Stream};
use kube::runtime::reflector::ObjectRef;

use super::{Controller, Definition, Leader, Needs, Schedule, Start, Tasks, follow};
use crate::{
    api::NetworkProber,
    infra::watch::DeserializeGuard,
    network_prober::{
        Entries, FailedCreates, Gauges, Memories, NetworkProberReconciler, Owned, Refusals,
        state::ClusterState,
    },
    webhook::certificates::CertificateKeeper,
};

/// The time for which the controller waits for the webhook's certificate: a deadline of the API
/// server's calls.
const CERTIFICATE: Duration = Duration::from_secs(10);

/// The cluster as the webhook of this replica knows it.
impl Needs for ClusterState {
    fn now(leader: &Leader, _: &Definition) -> Option<Self> {
        leader.prober.borrow().clone()
    }

    async fn later(leader: &Leader, _: &Definition) -> anyhow::Result<Self> {
        let mut prober = leader.prober.clone();
        let known = prober.wait_for(Option::is_some).await.context("webhook")?.clone();
        known.context("webhook")
    }
}

impl Start for NetworkProberReconciler {
    type Needs = ClusterState;
    const TASK: &'static str = "controller of networkprobers";

    fn build(leader: &Leader, state: ClusterState, tasks: &mut Tasks) -> Controller<Self> {
        let (client, metrics) = (leader.client.clone(), leader.metrics.clone());
        let keeper = CertificateKeeper::new(
            client.clone(),
            &leader.namespace,
            leader.webhook.lifetimes,
            leader.webhook.names(&leader.namespace),
            &leader.certificates,
        );
        tasks.spawn(async move { match keeper.keep().await {} });
        metrics.register(Box::new(Gauges(state.clone())));
        let owned = Owned::default();
        let watch = owned.clone().follow(client.clone(), metrics.clone());
        follow(tasks, "watch of agents' objects", watch);
        let entries = Entries::default();
        state.has(entries.clone());
        let watch = entries.clone().follow(client.clone(), metrics);
        follow(tasks, "watch of webhooks", watch);
        let sweep = entries.clone().sweep(client.clone(), state.clone());
        let (known, listed) = (state.clone(), entries.clone());
        follow(tasks, "sweep of webhooks", async move {
            // Without them, every entry would seem to have no owner.
            known.synced().await;
            listed.synced().await;
            sweep.await;
        });
        let mut bundle = leader.certificates.bundle();
        let reconciler = Self {
            client,
            cluster: state.clone(),
            memories: Memories::default(),
            owned: owned.clone(),
            entries: entries.clone(),
            bundle: bundle.clone(),
            endpoint: leader.webhook.endpoint(),
            discovered: Mutex::default(),
            refusals: Refusals::default(),
            failed_creates: FailedCreates::default(),
            metrics: leader.metrics.clone(),
        };
        let listed = async move {
            // Without them, every object would seem to be missing.
            state.synced().await;
            owned.synced().await;
            entries.synced().await;
            // Reports a missing CA on every object; a CA that is still being issued is not an
            // error.
            let _ = tokio::time::timeout(CERTIFICATE, bundle.wait_for(Option::is_some)).await;
        };
        let (schedule, synced) = (Schedule::default(), Box::new(|| ()));
        Controller { reconciler, schedule, listed: listed.boxed(), synced }
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<NetworkProber>>> + Send + 'static {
        self.triggers()
    }
}
