//! The webhook's decision about a pod, from the knowledge of this replica.
use futures::future::{BoxFuture, FutureExt};

use super::{
    conflict::is_claimed,
    members,
    scope::Standing,
    snapshot::Snapshot,
    state::ClusterState,
    unseen::{Unseen, With},
};
use crate::{
    clock,
    pods::PodObject,
    webhook::{
        injection::{self, SkipReason},
        review::{Decision, Injector},
    },
};

/// Answers the webhook from the snapshot, and from what has become of earlier pods.
pub struct ClusterInjector {
    cluster: ClusterState,
    unseen: Unseen,
}

impl ClusterInjector {
    /// The injector of one replica.
    #[must_use]
    pub fn new(cluster: ClusterState) -> Self {
        Self { cluster, unseen: Unseen::default() }
    }
}

impl Injector for ClusterInjector {
    fn decide(&self, prober: (&str, &str), pod: &PodObject, dry_run: bool) -> Decision {
        let snapshot = self.cluster.snapshot();
        let (recipe, refuses) = match decide(&snapshot, prober, pod.namespace(), pod) {
            Decision::Inject(recipe) => (recipe, false),
            Decision::Mark(recipe) => (recipe, true),
            decision => return decision,
        };
        let owner = members::owner(pod);
        let view = snapshot.get(prober.0, prober.1);
        let seen = view.and_then(|view| view.members.appeared.get(&owner).copied());
        let (namespace, name) = owner;
        let uid = view.map_or("", |view| &*view.uid);
        let owner = format!("{uid} {} {namespace} {name}", recipe.mark());
        let now = clock::timestamp().as_second();
        if refuses {
            // What nobody creates again is not tried.
            let check = !name.is_empty() && self.unseen.is_check(&owner, now, dry_run);
            return if check { Decision::Inject(recipe) } else { Decision::Mark(recipe) };
        }
        match self.unseen.next(&owner, seen, now, dry_run) {
            With::Agent => Decision::Inject(recipe),
            With::Mark => Decision::Mark(recipe),
            With::Nothing => Decision::Skip(SkipReason::AgentRefused),
        }
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        let mut snapshots = self.cluster.subscribe();
        async move {
            // Nothing changes any more once no component follows the cluster.
            if snapshots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

pub(super) fn decide(
    snapshot: &Snapshot,
    (prober_namespace, prober): (&str, &str),
    namespace: &str,
    pod: &PodObject,
) -> Decision {
    if !snapshot.synced {
        return Decision::NotYet("this replica has not listed the NetworkProbers yet");
    }
    let Some(view) = snapshot.get(prober_namespace, prober) else {
        let key = (prober_namespace.to_owned(), prober.to_owned());
        if snapshot.ending.contains(&key) {
            return Decision::Unknown("the NetworkProber is being deleted or cannot be read");
        }
        return Decision::NotYet("no such NetworkProber");
    };
    let Ok(settings) = &view.settings else {
        return Decision::Unknown("the spec of the NetworkProber is invalid");
    };
    let Some(recipe) = &view.recipe else {
        return Decision::Unknown("the image of agents is unknown");
    };
    // The API server's own filter lags behind ours by the delay of a watch.
    let matches = settings.pods.matches(|key| pod.label(key));
    match view.scope.standing(namespace) {
        Some(Standing::Allowed) if matches => {}
        Some(Standing::NotConsenting) => return Decision::Skip(SkipReason::NamespaceNotConsenting),
        Some(Standing::Excluded) => return Decision::Skip(SkipReason::NamespaceExcluded),
        Some(Standing::OptedOut) => return Decision::Skip(SkipReason::OptedOut),
        Some(Standing::Allowed) => {
            return Decision::Unknown("the pod is no longer selected");
        }
        // It may be one of too many, which reach no namespace.
        None if view.over.is_some() => return Decision::Skip(SkipReason::OverBudget),
        // Its labels may be as new as the pod.
        None => return Decision::NotYet("the namespace is not selected"),
    }
    // A pod that is being created need not name its namespace.
    let mut placed = pod.clone();
    placed.metadata.namespace = Some(namespace.to_owned());
    if is_claimed(&snapshot.older(&settings.rank), &placed) {
        return Decision::Skip(SkipReason::OtherProber);
    }
    if let Some(reason) = injection::skip_reason(&placed, recipe) {
        return Decision::Skip(reason);
    }
    // It has the agent already, and waits for it for ever unless the agent is repaired.
    if injection::stripped(&placed, recipe).is_some() {
        return Decision::Inject(Box::new(recipe.clone()));
    }
    let constraints = snapshot.constraints.get(namespace);
    if constraints.is_some_and(|them| them.refusal(&placed, recipe).is_some()) {
        return Decision::Skip(SkipReason::ResourcesRefused);
    }
    if view.over.is_some() {
        return Decision::Skip(SkipReason::OverBudget);
    }
    if view.members.is_paused(namespace) {
        return Decision::Skip(SkipReason::AgentFailing);
    }
    if view.members.refusing.contains_key(namespace) {
        return Decision::Mark(Box::new(recipe.clone()));
    }
    Decision::Inject(Box::new(recipe.clone()))
}
