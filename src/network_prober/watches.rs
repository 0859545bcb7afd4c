//! The pods that `NetworkProber`s select, each watched and kept once.
//!
//! One watch for each namespace and selector, whatever the number of `NetworkProber`s that need it,
//! and only where they may have agents: see [`super::scope`]. An administrator's that selects
//! namespaces has one watch of all of them.
use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future::AbortHandle, stream};
use kube::{
    Client,
    runtime::watcher::{self, Event},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    scope::Scope,
    settings::{Settings, Tenancy},
};
use crate::{
    infra::{
        Api,
        watch::{self, DeserializeGuard},
    },
    pods::PodObject,
    webhook::configuration::NEVER,
};

/// The time until pods beyond the budget are read again: by then, someone may have narrowed a
/// selector or deleted something.
pub const RETRY: Duration = Duration::from_mins(5);

/// Pods on a page of a list. The usual pod is 10 kB of JSON, but one may have more than a megabyte.
pub const PAGE_SIZE: u32 = 50;

/// The number of lists that are read at a time. A page is in memory as a whole, and hundreds of
/// watches restart at the same moment when the API server restarts.
pub const LISTS: usize = 2;

/// The selector of a watch of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodQuery {
    /// The namespace; `None` is everywhere.
    pub namespace: Option<String>,
    /// The selector of their labels, as the API server reads it.
    pub labels: String,
}

/// Returns the watches that a `NetworkProber` needs: in the namespaces in which its pods may have
/// agents, and in its own, whose pods it always reports.
#[must_use]
pub fn demand(settings: &Settings, scope: &Scope, tenancy: &Tenancy) -> Demand {
    let labels = settings.pods.to_string();
    let query = |namespace: Option<&str>| {
        let namespace = namespace.map(ToOwned::to_owned);
        Arc::new(PodQuery { namespace, labels: labels.clone() })
    };
    let administrators = settings.namespace == tenancy.operator();
    let own = scope.standing(&settings.namespace).map(|_| &*settings.namespace);
    let queries = if administrators && settings.namespaces.is_some() {
        [query(None)].into()
    } else {
        scope.allowed().into_iter().chain(own).map(|namespace| query(Some(namespace))).collect()
    };
    Demand { payer: payer(&settings.namespace, tenancy), queries }
}

/// Returns the budget that pays for a `NetworkProber` of a namespace.
#[must_use]
pub fn payer(namespace: &str, tenancy: &Tenancy) -> Payer {
    if namespace == tenancy.operator() {
        Payer::Administrators
    } else {
        Payer::Namespace(namespace.to_owned())
    }
}

/// Pods and what they take.
#[derive(Default)]
struct Kept {
    pods: HashSet<ByUid>,
    weight: usize,
}

impl Kept {
    fn put(&mut self, pod: ByUid) {
        self.weight += pod.0.weight();
        let before = self.pods.replace(pod);
        self.weight -= before.map_or(0, |pod| pod.0.weight());
    }

    fn remove(&mut self, uid: &str) {
        self.weight -= self.pods.take(uid).map_or(0, |pod| pod.0.weight());
    }
}

/// An open watch. Not a [`watch::Mirror`]: pods are shared with other watches, and those of a list
/// count while it arrives.
struct Open {
    payer: Payer,
    stop: AbortHandle,
    kept: Kept,
    /// Those of a list that is not complete yet.
    listing: Option<Kept>,
    synced: bool,
}

impl Open {
    fn weight(&self) -> usize {
        self.kept.weight.max(self.listing.as_ref().map_or(0, |listing| listing.weight))
    }
}

/// All watches of pods, and the pods that they have delivered.
#[derive(Default)]
pub struct PodWatches {
    demands: Vec<Demand>,
    over: Vec<Option<Over>>,
    open: HashMap<Arc<PodQuery>, Open>,
    /// The times at which a watch was closed, and on whose account.
    refused: HashMap<Arc<PodQuery>, Vec<(Payer, Instant)>>,
    pool: Pool,
}

impl PodWatches {
    /// Closes watches that are no longer needed, and opens the needed ones by `open`, as far as the
    /// budgets allow. `demands` begin with the oldest.
    pub fn settle(
        &mut self,
        demands: Vec<Demand>,
        now: Instant,
        mut open: impl FnMut(&Arc<PodQuery>) -> AbortHandle,
    ) {
        self.demands = demands;
        for (query, payer) in self.close_what_is_over(now) {
            let stop = open(&query);
            let kept = Kept::default();
            self.open.insert(query, Open { payer, stop, kept, listing: None, synced: false });
        }
    }

    /// Returns what may be open and is not.
    fn close_what_is_over(&mut self, now: Instant) -> Vec<(Arc<PodQuery>, Payer)> {
        self.refused.retain(|_, all| {
            all.retain(|(_, since)| now.duration_since(*since) < RETRY);
            !all.is_empty()
        });
        let grants = grant(&self.demands, |query| Known {
            pods: self.open.get(query).map_or(0, Open::weight),
            refused: self.refused.get(query).into_iter().flatten().map(|r| r.0.clone()).collect(),
        });
        for (demand, over) in self.demands.iter().zip(&grants.over) {
            let Some(Over::Pods(payer)) = over else { continue };
            for query in demand.queries.iter().filter(|q| !grants.queries.contains_key(*q)) {
                let refused = self.refused.entry(Arc::clone(query)).or_default();
                if !refused.iter().any(|(known, _)| known == payer) {
                    refused.push((payer.clone(), now));
                }
            }
        }
        self.open.retain(|query, open| {
            let payer = grants.queries.get(query);
            match payer {
                Some(payer) => open.payer = payer.clone(),
                None => open.stop.abort(),
            }
            payer.is_some()
        });
        self.over = grants.over;
        let new = grants.queries.into_iter().filter(|(query, _)| !self.open.contains_key(query));
        new.collect()
    }

    /// Handles an event of a watch; returns whether anything changed.
    pub fn take(&mut self, query: &PodQuery, event: Event<PodObject>, now: Instant) -> bool {
        let Some(open) = self.open.get_mut(query) else { return false };
        let weight = open.weight();
        let mut changed = true;
        match event {
            Event::Init => {
                open.listing = Some(Kept::default());
                changed = false;
            }
            Event::InitApply(pod) => {
                open.listing.get_or_insert_default().put(self.pool.share_listed(pod));
                changed = false;
            }
            Event::InitDone => {
                open.kept = open.listing.take().unwrap_or_default();
                open.synced = true;
            }
            Event::Apply(pod) => open.kept.put(self.pool.share(pod)),
            Event::Delete(pod) => open.kept.remove(pod.uid()),
        }
        if open.weight() <= weight {
            return changed;
        }
        let payer = open.payer.clone();
        if self.is_over(&payer) {
            self.close_what_is_over(now);
            changed = true;
        }
        changed
    }

    fn is_over(&self, payer: &Payer) -> bool {
        payer.with_others().iter().any(|payer| {
            let theirs = self.open.values().filter(|open| payer.pays_for(&open.payer));
            theirs.map(Open::weight).sum::<usize>() > payer.limit().pods
        })
    }

    /// Why the `NetworkProber` at this place among the demands has no watches, if it has none.
    #[must_use]
    pub fn over(&self, place: usize) -> Option<&Over> {
        self.over.get(place)?.as_ref()
    }

    /// The pods of the `NetworkProber` at this place; `None` until all were listed. Where some were
    /// `known` before, those that are new may follow.
    #[must_use]
    pub fn pods(&self, place: usize, known: bool) -> Option<Vec<Arc<PodObject>>> {
        let mut all = Vec::new();
        for query in &self.demands.get(place)?.queries {
            match self.open.get(query).filter(|open| open.synced) {
                Some(open) => all.extend(open.kept.pods.iter().map(|pod| Arc::clone(&pod.0))),
                None if known => {}
                None => return None,
            }
        }
        Some(all)
    }

    /// Returns the number of open watches.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of stored pods; drops those that no watch contains any more.
    pub fn kept(&mut self) -> usize {
        self.pool.sweep()
    }
}

/// Watches pods; lists wait for one of `turns`.
pub fn follow(
    client: &Client,
    query: &PodQuery,
    turns: &Arc<Semaphore>,
) -> impl Stream<Item = Result<Event<DeserializeGuard<PodObject>>, watcher::Error>> + Send + use<> {
    let config = watch::config().labels(&query.labels).page_size(PAGE_SIZE);
    let (api, config) = if let Some(namespace) = &query.namespace {
        (Api::namespaced(client.clone(), namespace), config)
    } else {
        // Each node has some system pods, which are never touched.
        let others = NEVER.map(|namespace| format!("metadata.namespace!={namespace}"));
        (Api::all(client.clone()), config.fields(&others.join(",")))
    };
    in_turn(watch::follow(api, config).boxed(), Arc::clone(turns))
}

fn in_turn<S>(
    events: S,
    turns: Arc<Semaphore>,
) -> impl Stream<Item = Result<Event<DeserializeGuard<PodObject>>, watcher::Error>> + Send
where
    S: Stream<Item = Result<Event<DeserializeGuard<PodObject>>, watcher::Error>> + Send + Unpin,
{
    let state = (events, None::<OwnedSemaphorePermit>);
    stream::unfold(state, move |(mut events, mut turn)| {
        let turns = Arc::clone(&turns);
        async move {
            let event = events.next().await?;
            match &event {
                // It arrives before the request for the first page.
                Ok(Event::Init) if turn.is_none() => turn = turns.acquire_owned().await.ok(),
                Ok(Event::InitDone) | Err(_) => turn = None,
                Ok(_) => {}
            }
            Some((event, (events, turn)))
        }
    })
}

/// The common limits of some `NetworkProber`s.
///
/// A watch costs a connection and a pod memory, in every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Open watches. Each is a connection of some 40 kB, and a request every 20 s.
    pub watches: usize,
    /// Pods. The usual one takes 4 kB with all that follows from it; a larger one counts as
    /// several.
    pub pods: usize,
}

/// The budget of the `NetworkProber`s of one namespace: as many namespaces as its `ConfigMap`s are
/// made for in advance, and the 5,000 pods up to which the ring of probers is tested.
pub const OF_NAMESPACE: Limit = Limit { watches: 100, pods: 5_000 };

/// The budget of all namespaces except the operator's: three that use all of theirs, or the 80 that
/// may have a webhook with three watches each and some without. 15 requests a second; 12 MB and
/// 40 MB of memory.
pub const OF_AUTHORS: Limit = Limit { watches: 300, pods: 10_000 };

/// The budget of the operator's namespace, so that authors cannot block administrators: as many as
/// may have a webhook, and more pods than two replicas can serve with lists. 80 MB, which leave
/// room for 5,000 waiting agents within the memory limit of the Deployment.
pub const OF_ADMINISTRATORS: Limit = Limit { watches: 100, pods: 20_000 };

/// The group of `NetworkProber`s that share a budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    /// Those of a namespace.
    Namespace(String),
    /// Those of all namespaces but the operator's.
    Authors,
    /// Those of the operator's namespace.
    Administrators,
}

impl Payer {
    /// Returns their limits.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        match self {
            Self::Namespace(_) => OF_NAMESPACE,
            Self::Authors => OF_AUTHORS,
            Self::Administrators => OF_ADMINISTRATORS,
        }
    }

    /// Reports whether `other` draws on this budget.
    #[must_use]
    pub fn pays_for(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Authors, Self::Namespace(_)))
    }

    /// Returns the payers with budgets that must all have room.
    #[must_use]
    pub fn with_others(&self) -> Vec<Self> {
        match self {
            Self::Namespace(_) => vec![self.clone(), Self::Authors],
            Self::Authors | Self::Administrators => vec![self.clone()],
        }
    }
}

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "the NetworkProbers of the namespace {name}"),
            Self::Authors => f.write_str("the NetworkProbers of all namespaces but the operator's"),
            Self::Administrators => f.write_str("the NetworkProbers of the operator's namespace"),
        }
    }
}

/// The watches that one `NetworkProber` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The budget that pays.
    pub payer: Payer,
    /// Its watches.
    pub queries: BTreeSet<Arc<PodQuery>>,
}

/// The reason why a `NetworkProber` gets none of its watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// It needs more watches than the `used` ones leave.
    Watches {
        /// The owner of the budget.
        payer: Payer,
        /// The part of it that others use.
        used: usize,
        /// Number that it needs itself.
        needed: usize,
    },
    /// There are too many pods.
    Pods(Payer),
    /// There are as many older `NetworkProber`s as there may be watches.
    Probers(Payer),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watches { payer, used, needed } => {
                let most = payer.limit().watches;
                write!(
                    f,
                    "{payer} may have {most} watches of pods (one for each namespace and \
                     podSelector); this one needs {needed} and older ones have {used}: select fewer \
                     namespaces, use the same podSelector as another one, or delete one"
                )?;
            }
            Self::Pods(payer) => {
                let most = payer.limit().pods;
                write!(
                    f,
                    "{payer} may select {most} pods (large ones count as several), and with this one \
                     they select more: narrow spec.podSelector or select fewer namespaces; it is \
                     tried again every {} minutes",
                    RETRY.as_secs() / 60
                )?;
            }
            Self::Probers(payer) => {
                let most = payer.limit().watches;
                write!(
                    f,
                    "the oldest {most} of {payer} are served (each takes a watch of pods), and this \
                     is not one of them: delete one, or use one for several namespaces"
                )?;
            }
        }
        f.write_str("; until then its pods get no agents, and its agents no new lists")
    }
}

/// Counts `NetworkProber`s, the oldest first. Each takes at least one watch, so there are never
/// more of them than watches; and each costs an examination of all namespaces before its watches
/// are known.
#[derive(Debug, Default)]
pub struct Counts(HashMap<Payer, usize>);

impl Counts {
    /// Counts the next one; returns why it is not served, if there are too many.
    pub fn admit(&mut self, payer: &Payer) -> Option<Over> {
        let payers = payer.with_others();
        let count = |payer: &Payer| self.0.get(payer).copied().unwrap_or_default();
        let full = payers.iter().find(|payer| count(payer) >= payer.limit().watches);
        if let Some(payer) = full {
            return Some(Over::Probers(payer.clone()));
        }
        for payer in payers {
            *self.0.entry(payer).or_default() += 1;
        }
        None
    }
}

/// The known facts about a watch.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Number of its pods.
    pods: usize,
    /// The payers on whose account it was closed a while ago.
    refused: Vec<Payer>,
}

/// The granted watches.
#[derive(Debug, Default)]
struct Grants {
    /// The watches that may be open, each with its payer.
    queries: HashMap<Arc<PodQuery>, Payer>,
    /// For each demand, in their order, the reason why it gets nothing.
    over: Vec<Option<Over>>,
}

#[derive(Clone, Copy, Default)]
struct Used {
    watches: usize,
    pods: usize,
}

/// Distributes the budgets in the order of `demands`: the first one keeps what it has. A
/// watch that several need is paid for by the first of them.
#[must_use]
fn grant(demands: &[Demand], known: impl Fn(&PodQuery) -> Known) -> Grants {
    let mut grants = Grants::default();
    let mut used = HashMap::<Payer, Used>::new();
    for demand in demands {
        let queries = demand.queries.iter();
        let new: Vec<_> = queries.filter(|query| !grants.queries.contains_key(*query)).collect();
        let known: Vec<_> = new.iter().map(|query| known(query)).collect();
        // A demand that shares all its watches with others costs only the work for its pods.
        let watches = new.len().max(1);
        let pods = known.iter().map(|known| known.pods).sum::<usize>();
        let payers = demand.payer.with_others();
        let over = payers.iter().find_map(|payer| {
            let (limit, used) = (payer.limit(), used.get(payer).copied().unwrap_or_default());
            if used.watches + watches > limit.watches {
                let (payer, used) = (payer.clone(), used.watches);
                return Some(Over::Watches { payer, used, needed: watches });
            }
            (used.pods + pods > limit.pods).then(|| Over::Pods(payer.clone()))
        });
        // What was too much for one namespace may be little for another.
        let refused = |payer: &&Payer| known.iter().any(|known| known.refused.contains(payer));
        let over = over.or_else(|| payers.iter().find(refused).cloned().map(Over::Pods));
        if over.is_none() {
            for payer in payers {
                let used = used.entry(payer).or_default();
                used.watches += watches;
                used.pods += pods;
            }
            let paid = new.into_iter().map(|query| (Arc::clone(query), demand.payer.clone()));
            grants.queries.extend(paid);
        }
        grants.over.push(over);
    }
    grants
}

/// A pod by its UID.
#[derive(Clone, Debug)]
struct ByUid(Arc<PodObject>);

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        self.0.uid()
    }
}

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid() == other.0.uid()
    }
}

impl Eq for ByUid {}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid().hash(state);
    }
}

/// All pods of any watch.
#[derive(Debug, Default)]
struct Pool(HashSet<ByUid>);

impl Pool {
    /// The pod of an event as it is known, if this is no news of it.
    fn share(&mut self, pod: PodObject) -> ByUid {
        match self.0.get(pod.uid()) {
            Some(known) if !is_newer(&pod, &known.0) => known.clone(),
            _ => self.replace(pod),
        }
    }

    /// The pod of a list, as it is known only if it has the same version. After etcd was restored
    /// from a backup, versions begin again below the known ones: a pod that kept its known state
    /// would stay so until it is deleted.
    fn share_listed(&mut self, pod: PodObject) -> ByUid {
        match self.0.get(pod.uid()) {
            Some(known) if !is_newer(&pod, &known.0) && !is_newer(&known.0, &pod) => known.clone(),
            _ => self.replace(pod),
        }
    }

    fn replace(&mut self, pod: PodObject) -> ByUid {
        let pod = ByUid(Arc::new(pod));
        self.0.replace(pod.clone());
        pod
    }

    /// Drops the pods that no watch contains any more; returns the number of the remaining ones.
    fn sweep(&mut self) -> usize {
        self.0.retain(|pod| Arc::strong_count(&pod.0) > 1);
        self.0.len()
    }
}

/// One watch may be behind another. Versions are compared as numbers, as Kubernetes allows since
/// 1.35; one that is not a number counts as new.
fn is_newer(pod: &PodObject, known: &PodObject) -> bool {
    let number = |pod: &PodObject| pod.metadata.resource_version.as_deref()?.parse::<u64>().ok();
    match (number(pod), number(known)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
