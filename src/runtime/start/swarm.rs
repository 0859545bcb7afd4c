//! Starts the controller of `Swarm`s.
use futures::Stream;
use kube::runtime::reflector::ObjectRef;

use super::{Controller, Leader, Schedule, Start, Tasks, follow};
use crate::{
    api::Swarm,
    infra::watch::DeserializeGuard,
    prometheus::Shared,
    swarm::{Gauges, SwarmReconciler, watches::WorkloadCache},
};

impl Start for SwarmReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of swarms";

    fn build(leader: &Leader, (): (), tasks: &mut Tasks) -> Controller<Self> {
        leader.metrics.register(Box::new(Gauges(leader.swarms.clone())));
        let cache = WorkloadCache::default();
        let watch = cache.clone().follow(leader.client.clone(), leader.metrics.clone());
        follow(tasks, "watch of workers", watch);
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            cache,
            nodes: leader.nodes.clone(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            workers: leader.workers.clone(),
            memories: leader.swarms.clone(),
            schedule,
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            measurements: Shared::default(),
        };
        // Without the nodes, every node would seem fit.
        Controller::after_nodes(reconciler, schedule, leader.nodes.clone())
    }

    fn changes(&self) -> impl Stream<Item = ObjectRef<DeserializeGuard<Swarm>>> + Send + 'static {
        self.triggers()
    }
}
