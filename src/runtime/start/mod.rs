//! Runs the leader: waits for the lease, and starts each kind. One file per kind builds its
//! reconciler from the parts of the process.
use std::sync::Arc;

use futures::{FutureExt, Stream, future::BoxFuture, stream};
use kube::{core::DeserializeGuard, runtime::reflector::ObjectRef};
use tokio::task::JoinSet;

use super::{Tasks, admin::Readiness, first_ended, kinds::Definition, leader::Leader};
use crate::{
    controller::{self, Reconciler, schedule::Schedule},
    infra::lease::Candidate,
    network_prober::NetworkProberReconciler,
    nodes::NodeStore,
    route_reflector::RouteReflectorReconciler,
    swarm::SwarmReconciler,
    traffic_watch::TrafficWatchReconciler,
};

mod network_prober;
mod route_reflector;
mod swarm;
mod traffic_watch;

impl Leader {
    /// Waits for the lease, and runs the controllers while it is held; returns the reason for its
    /// end.
    pub(super) async fn run(
        self,
        candidate: &mut Candidate,
        readiness: Readiness,
    ) -> anyhow::Error {
        tokio::select! {
            () = candidate.acquire(|| readiness.reached("lease")) => {}
            () = self.shutdown.begun() => return anyhow::anyhow!("stopped while following"),
        }
        tracing::info!("leading");
        self.metrics.set_leader(true);
        self.live.lead();
        let metrics = self.metrics.clone();
        let mut tasks = JoinSet::new();
        self.start(&mut tasks);
        readiness.reached("lease");
        let why = tokio::select! {
            lost = candidate.renew() => anyhow::Error::new(lost),
            ended = first_ended(&mut tasks) => ended,
        };
        metrics.set_leader(false);
        why
    }

    /// Starts the configured kinds; a kind is one more line here.
    fn start(self, tasks: &mut Tasks) {
        self.metrics.register(self.disruptions.gauges());
        let leader = Arc::new(self);
        leader.spawn::<NetworkProberReconciler>(tasks);
        leader.spawn::<SwarmReconciler>(tasks);
        leader.spawn::<RouteReflectorReconciler>(tasks);
        leader.spawn::<TrafficWatchReconciler>(tasks);
    }

    /// Starts a configured kind: now, or as soon as its dependencies exist.
    fn spawn<R: Start>(self: &Arc<Self>, tasks: &mut Tasks) {
        let Some(definition) = self.definitions.of::<R::Kind>() else { return };
        if let Some(needs) = R::Needs::now(self, &definition) {
            R::expect(&self.readiness);
            return self.control(R::build(self, needs, tasks), tasks);
        }
        let leader = Arc::clone(self);
        tasks.spawn(async move {
            let needs = R::Needs::later(&leader, &definition).await?;
            let mut tasks = Tasks::new();
            let controller = R::build(&leader, needs, &mut tasks);
            leader.control(controller, &mut tasks);
            Err(first_ended(&mut tasks).await)
        });
    }

    /// Runs the controller of one kind, once the objects that it follows have been listed.
    fn control<R: Start>(&self, controller: Controller<R>, tasks: &mut Tasks) {
        let Controller { reconciler, schedule, listed, synced } = controller;
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let stop = self.shutdown.begun();
        tasks.spawn(async move {
            listed.await;
            let triggers = reconciler.changes();
            controller::run(client, reconciler, schedule, metrics, triggers, synced, stop).await;
            Ok(R::TASK)
        });
    }
}

/// Facts that a kind needs before it starts.
pub(super) trait Needs: Sized + Send + 'static {
    /// Facts that already exist; `None` if the kind must wait for them.
    fn now(leader: &Leader, definition: &Definition) -> Option<Self>;
    /// Waits for them.
    fn later(
        leader: &Leader,
        definition: &Definition,
    ) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// The definition is enough.
impl Needs for () {
    fn now(_: &Leader, definition: &Definition) -> Option<Self> {
        definition.is_served().then_some(())
    }

    async fn later(_: &Leader, definition: &Definition) -> anyhow::Result<Self> {
        definition.served().await;
        Ok(())
    }
}

/// A kind that the leader can start.
pub(super) trait Start: Reconciler + Sized {
    /// Facts that must exist first; `()` if the definition is enough.
    type Needs: Needs;
    /// The name of the controller's task, for the error with which the process ends if the task
    /// does.
    const TASK: &'static str;

    /// Registers conditions for the process's readiness, if the kind starts at once.
    fn expect(_: &Readiness) {}
    /// Builds the reconciler, registers its metrics, and starts the watches that it follows.
    fn build(leader: &Leader, needs: Self::Needs, tasks: &mut Tasks) -> Controller<Self>;
    /// Returns objects to reconcile although they did not change: none if the kind's own ticks are
    /// enough.
    fn changes(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<Self::Kind>>> + Send + 'static {
        stream::pending()
    }
}

/// A reconciler that is ready to run.
pub(super) struct Controller<R> {
    pub(super) reconciler: R,
    pub(super) schedule: Schedule,
    /// Resolves when everything that passes need has been listed.
    pub(super) listed: BoxFuture<'static, ()>,
    /// Called when the objects have been listed.
    pub(super) synced: Box<dyn FnOnce() + Send>,
}

impl<R> Controller<R> {
    /// A controller that starts once the nodes are known.
    fn after_nodes(reconciler: R, schedule: Schedule, nodes: NodeStore) -> Self {
        let listed = async move { nodes.synced().await }.boxed();
        Self { reconciler, schedule, listed, synced: Box::new(|| ()) }
    }
}

/// Runs a watch that never ends.
fn follow(tasks: &mut Tasks, name: &'static str, watch: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        watch.await;
        Ok(name)
    });
}
