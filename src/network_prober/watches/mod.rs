//! The pods that `NetworkProber`s select, each watched and kept once.
//!
//! One watch for each namespace and selector, whatever the number of `NetworkProber`s that need it,
//! and only where they may have agents: see [`super::scope`]. An administrator's that selects
//! namespaces has one watch of all of them.
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future::AbortHandle, stream};
use kube::{
    Client,
    runtime::watcher::{self, Event},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{scope::Scope, settings::Settings, tenancy::Tenancy};
use crate::{
    infra::{
        Api,
        watch::{self, DeserializeGuard},
    },
    pods::PodObject,
    webhook::configuration::NEVER,
};

pub(crate) mod budget;
mod pool;
#[cfg(test)]
mod tests;

use budget::{Demand, Known, Over, Payer, grant};
use pool::{ByUid, Pool};

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
