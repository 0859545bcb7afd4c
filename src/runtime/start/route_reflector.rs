//! Starts the controller of `RouteReflectorSet`s.
use std::sync::Arc;

use futures::Stream;
use kube::runtime::reflector::ObjectRef;

use super::{Controller, Leader, Schedule, Start, Tasks};
use crate::{
    api::RouteReflectorSet,
    infra::watch::DeserializeGuard,
    prometheus::Shared,
    route_reflector::{
        Gauges, RouteReflectorReconciler,
        datastore::{Datastore, Kubernetes},
        memory::Memories,
        stores::Stores,
    },
};

impl Start for RouteReflectorReconciler {
    type Needs = ();
    const TASK: &'static str = "controller of routereflectorsets";

    fn build(leader: &Leader, (): (), _: &mut Tasks) -> Controller<Self> {
        let memories = Memories::default();
        leader.metrics.register(Box::new(Gauges(memories.clone())));
        let schedule = Schedule::default();
        let reconciler = Self {
            client: leader.client.clone(),
            nodes: leader.nodes.clone(),
            kubernetes: Datastore::Kubernetes(Arc::new(Kubernetes::new(leader.client.clone()))),
            namespace: leader.namespace.clone(),
            fence: leader.fence.clone(),
            stores: Stores::default(),
            prometheus: leader.endpoints.clone(),
            own_queries: leader.own_queries,
            exporters: leader.exporters.clone(),
            memories,
            schedule,
            metrics: leader.metrics.clone(),
            disruptions: leader.disruptions.clone(),
            measurements: Shared::default(),
        };
        // Without the nodes, every reflector would seem to be gone.
        Controller::after_nodes(reconciler, schedule, leader.nodes.clone())
    }

    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<RouteReflectorSet>>> + Send + 'static {
        self.triggers()
    }
}
