//! Starts the controller of `TrafficWatch`es.
use futures::{FutureExt, Stream, StreamExt};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Semaphore;

use super::{Controller, Leader, Readiness, Schedule, Start, Tasks, follow};
use crate::{
    api::TrafficWatch,
    infra::watch::DeserializeGuard,
    prometheus::Shared,
    traffic_watch::{
        Ceiling, DeploymentStore, DeviceClasses, Gauges, LABEL_CONCURRENCY, Pace, RequestStore,
        TrafficWatchReconciler,
    },
};

impl Start for TrafficWatchReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of trafficwatches";

    fn expect(readiness: &Readiness) {
        for what in ["nodes", "deployments", "trafficwatches"] {
            readiness.expect(what);
        }
    }

    fn build(leader: &Leader, (): (), tasks: &mut Tasks) -> Controller<Self> {
        let deployments = DeploymentStore::default();
        leader.metrics.register_streaming(Box::new(Gauges(leader.watches.clone())));
        let (memories, own) = (leader.watches.clone(), leader.quota.own.clone());
        let ceiling = Ceiling::new(leader.nodes.clone(), leader.max_unfit, memories, own);
        leader.metrics.register(Box::new(ceiling.clone()));
        let watch = deployments.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of deployments", watch);
        let requests = RequestStore::default();
        let watch = requests.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of requesting pods", watch);
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            nodes: leader.nodes.clone(),
            deployments: deployments.clone(),
            requests,
            device_classes: DeviceClasses::default(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            exporters: leader.exporters.clone(),
            schedule,
            memories: leader.watches.clone(),
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            label_writes: Semaphore::new(LABEL_CONCURRENCY),
            ceiling,
            quota: leader.quota.clone(),
            pace: Pace::new(leader.quota.clone()),
            readings: Shared::default(),
        };
        let (nodes, readiness) = (leader.nodes.clone(), leader.readiness.clone());
        let listed = async move {
            // Without the nodes, every node would seem deleted.
            nodes.synced().await;
            readiness.reached("nodes");
            deployments.synced().await;
            readiness.reached("deployments");
        };
        let readiness = leader.readiness.clone();
        let synced = Box::new(move || readiness.reached("trafficwatches"));
        Controller { reconciler, schedule, listed: listed.boxed(), synced }
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<TrafficWatch>>> + Send + 'static {
        self.ceiling.debtors().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }
}
