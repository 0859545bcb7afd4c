//! The webhook's decision about a pod, from the knowledge of this replica.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};

use super::{
    members,
    scope::{Standing, is_claimed},
    snapshot::Snapshot,
    state::ClusterState,
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

/// Number of pods with an agent of which none appears.
const TRIES: u32 = 3;

/// Seconds for which a pod may take to appear. Controllers double the time between attempts, from
/// 5 ms: the 13th is after 20 s, the next ones are after 41 and 82 s.
const PATIENCE: i64 = 20;

/// The longest first pause of a controller, in seconds: that of Jobs, and some more.
const PAUSE: i64 = 15;

/// A pod may have been created earlier than this clock says.
const SKEW: i64 = 30;

/// Seconds for which nothing is tried with an owner whose pods do not appear without an agent.
const PEACE: i64 = 10 * 60;

/// Seconds after the first mark of an owner until one of its pods gets an agent again. What creates
/// its first pods must not fail once more: it would wait for twice as long as before.
const CALM: i64 = 2 * 60;

/// Seconds after which an owner that creates no pods is forgotten: shorter than pods are remembered
/// that have appeared.
const FORGOTTEN: i64 = 10 * 60;

/// Maximum number of owners; beyond it, further ones get agents.
const MOST: usize = 10_000;

/// What a pod is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    /// The agent.
    Agent,
    /// The annotation [`crate::pods::REFUSED_ANNOTATION`] in its place.
    Mark,
    /// Neither of them.
    Nothing,
}

/// The owners whose pods have not appeared.
///
/// Pods that were created with an agent and never came to be: something refuses them because of
/// it, such as a policy that allows certain images only.
///
/// What creates pods (a `ReplicaSet`, a `Job`, …) tries again and again. Once several pods of one
/// owner got an agent and none of its pods appeared, the next ones get a mark in its place, and
/// with the first marked pod that appears it is known that the agent was the cause: until the mark
/// is an hour old, the namespace gets no agents ([`super::members::Members::refusing`]). If they do
/// not appear with the mark either, not even without it, then something else keeps them away (a
/// quota of pods, another webhook), and they get agents again.
///
/// Something else may end just when the first pod gets a mark. So in such a namespace the first pod
/// of each owner, and the first after some minutes, still gets an agent: if it appears, the agent
/// was not the cause.
#[derive(Debug, Default)]
struct Unseen(Mutex<HashMap<String, Tries>>);

#[derive(Clone, Copy, Debug)]
struct Tries {
    /// What its pods are created with; `None`: they appear with nothing, and get agents.
    with: Option<With>,
    count: u32,
    since: i64,
    last: i64,
    /// True if a pod got an agent although the namespace refuses them.
    checked: bool,
}

impl Tries {
    const fn new(with: Option<With>, now: i64) -> Self {
        Self { with, count: 0, since: now, last: now, checked: false }
    }

    /// The state before one more pod is created.
    fn next(self, seen: Option<i64>, now: i64) -> Self {
        let (waited, quiet) = (now.saturating_sub(self.since), now.saturating_sub(self.last));
        let appeared = seen.is_some_and(|seen| seen >= self.since.saturating_sub(SKEW));
        // What fails is tried again after twice the time at most: this has nothing to do with it.
        let another = self.with == Some(With::Agent) && quiet > waited * 3 / 4 + PAUSE;
        // Once the pause of a namespace is over, its owners are tried again however busy they are.
        let over = matches!(self.with, Some(With::Mark | With::Nothing)) && waited > FORGOTTEN;
        if appeared || another || over || quiet > FORGOTTEN {
            return Self::new(Some(With::Agent), now);
        }
        let (enough, patience, next) = match self.with {
            Some(With::Agent) => (TRIES, PATIENCE, Some(With::Mark)),
            Some(With::Mark) => (1, PATIENCE, Some(With::Nothing)),
            Some(With::Nothing) => (1, PATIENCE, None),
            None => (0, PEACE, Some(With::Agent)),
        };
        if self.count >= enough && waited >= patience { Self::new(next, now) } else { self }
    }
}

impl Unseen {
    /// Reports whether the next pod of an owner gets an agent although its namespace refuses them.
    /// `now` is the time in seconds since 1970.
    fn is_check(&self, owner: &str, now: i64, dry_run: bool) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(owner).copied();
        let known = known.filter(|tries| now.saturating_sub(tries.last) <= FORGOTTEN);
        let due = |tries: Tries| !tries.checked && now.saturating_sub(tries.since) >= CALM;
        let check = known.is_none_or(due);
        if !dry_run {
            let known = known.unwrap_or(Tries::new(Some(With::Mark), now));
            let checked = known.checked || check;
            Self::keep(&mut all, owner, Tries { checked, last: now, ..known });
        }
        check
    }

    fn keep(all: &mut HashMap<String, Tries>, owner: &str, tries: Tries) {
        if all.len() >= MOST {
            let now = tries.last;
            all.retain(|_, other| now.saturating_sub(other.last) <= FORGOTTEN);
        }
        if all.len() < MOST || all.contains_key(owner) {
            all.insert(owner.to_owned(), tries);
        }
    }

    /// Returns what the next pod of an owner is created with. `seen` is when the youngest of its
    /// pods with an agent was created, and `now` the time, in seconds since 1970. A dry
    /// run creates no pod.
    fn next(&self, owner: &str, seen: Option<i64>, now: i64, dry_run: bool) -> With {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(owner).copied().unwrap_or(Tries::new(Some(With::Agent), now));
        let next = known.next(seen, now);
        if !dry_run {
            let tries = Tries { count: next.count.saturating_add(1), last: now, ..next };
            Self::keep(&mut all, owner, tries);
        }
        next.with.unwrap_or(With::Agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What pods get at these times, and `seen` by then.
    fn pods(times: &[(i64, Option<i64>)]) -> Vec<With> {
        let unseen = Unseen::default();
        times.iter().map(|(now, seen)| unseen.next("o", *seen, *now, false)).collect()
    }

    #[test]
    fn pods_that_appear_have_agents_however_many_there_are() {
        let times: Vec<_> = (0..500).map(|n| (1000 + n, Some(999 + n))).collect();
        assert!(pods(&times).iter().all(|with| *with == With::Agent));
        // As many at once, and seen a little later.
        let mut unseen = vec![(1000, None); 500];
        unseen.push((1019, None));
        unseen.push((1031, Some(1000)));
        assert!(pods(&unseen).iter().all(|with| *with == With::Agent));
    }

    /// The attempts of a `ReplicaSet`, each after twice the time.
    #[test]
    fn an_agent_that_is_refused_is_left_out_after_twenty_seconds() {
        let attempts = [1000, 1000, 1001, 1002, 1005, 1010, 1020, 1041];
        let none: Vec<_> = attempts.iter().map(|now| (*now, None)).collect();
        let with = pods(&none);
        assert_eq!(with[..6], [With::Agent; 6]);
        assert_eq!(with[6..], [With::Mark, With::Nothing]);
    }

    /// Its pods had appeared, and were gone before anyone looked.
    #[test]
    fn an_owner_that_creates_pods_again_after_minutes_is_not_accused() {
        let first = (0..4).map(|n| (1000 + n / 2, None));
        let again = (0..4).map(|n| (1300 + n / 2, None));
        let all: Vec<_> = first.chain(again).collect();
        assert!(pods(&all)[..5].iter().all(|with| *with == With::Agent));
        assert!(pods(&all).iter().all(|with| *with == With::Agent), "{:?}", pods(&all));
    }

    #[test]
    fn what_does_not_appear_without_an_agent_either_gets_one_again() {
        let times: Vec<_> = (0..19).map(|n| (1000 + n * 40, None)).collect();
        let with = pods(&times);
        assert_eq!(with[..5], [With::Agent, With::Agent, With::Agent, With::Mark, With::Nothing]);
        assert!(with[5..].iter().all(|with| *with == With::Agent), "{with:?}");
    }

    #[test]
    fn few_attempts_and_dry_runs_accuse_nobody() {
        assert_eq!(pods(&[(1000, None), (1100, None), (1200, None)])[2], With::Agent);
        let seldom: Vec<_> = (0..9).map(|n| (1000 + n * 1000, None)).collect();
        assert!(pods(&seldom).iter().all(|with| *with == With::Agent));
        let unseen = Unseen::default();
        let dry = (0..100).map(|n| unseen.next("o", None, 1000 + n, true));
        assert!(dry.into_iter().all(|with| with == With::Agent));
    }

    #[test]
    fn in_a_namespace_that_refuses_agents_one_pod_of_an_owner_is_a_check() {
        let unseen = Unseen::default();
        // The owner whose pods were refused: not at once.
        for now in [1000, 1001, 1005, 1020] {
            unseen.next("web", None, now, false);
        }
        let checks: Vec<_> =
            [1021, 1041, 1100, 1141, 1142].map(|now| unseen.is_check("web", now, false)).into();
        assert_eq!(checks, [false, false, false, true, false]);
        // Another one, and one that is forgotten; not by a dry run.
        assert!(unseen.is_check("api", 1021, true) && unseen.is_check("api", 1022, false));
        assert!(!unseen.is_check("api", 1023, false) && !unseen.is_check("api", 1300, false));
        assert!(unseen.is_check("web", 1143 + FORGOTTEN, false));
    }

    #[test]
    fn after_the_pause_an_owner_that_creates_pods_all_the_time_gets_agents_again() {
        let unseen = Unseen::default();
        for now in [1000, 1001, 1005, 1020] {
            unseen.next("web", None, now, false);
        }
        for minute in 1..60 {
            unseen.is_check("web", 1020 + minute * 60, false);
        }
        assert_eq!(unseen.next("web", None, 1020 + 60 * 60, false), With::Agent);
    }

    #[test]
    fn the_number_of_owners_is_limited() {
        let unseen = Unseen::default();
        for n in 0..MOST + 10 {
            unseen.next(&n.to_string(), None, 1000, false);
        }
        assert_eq!(unseen.0.lock().unwrap().len(), MOST);
        unseen.next("late", None, 1001 + FORGOTTEN, false);
        assert_eq!(unseen.0.lock().unwrap().len(), 1);
    }
}
