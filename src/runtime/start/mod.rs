//! Starts each kind on the leader: one file per kind builds its reconciler from the parts of the
//! process.
use futures::{Stream, future::BoxFuture, stream};
use kube::{core::DeserializeGuard, runtime::reflector::ObjectRef};

use super::{Tasks, admin::Readiness, kinds::Definition, leader::Leader};
use crate::controller::{Reconciler, schedule::Schedule};

mod network_prober;
mod route_reflector;
mod swarm;
mod traffic_watch;

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

/// Runs a watch that never ends.
fn follow(tasks: &mut Tasks, name: &'static str, watch: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        watch.await;
        Ok(name)
    });
}
