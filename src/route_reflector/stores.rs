//! The open datastores of the served sets, and their changes.
//!
//! A datastore is opened at the first pass of a set, watched as long as the set stays with the same
//! spec, and dropped with its watch when the set is deleted. Sets that share one share its watch.
//! Without a set no requests are made.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{
    Stream, StreamExt,
    future::select_all,
    stream::{self, BoxStream},
};
use tokio::sync::watch;

use super::datastore::{Datastore, Error};
use crate::api::route_reflector_set::Datastore as Spec;

type Used = BTreeMap<String, (Spec, Datastore)>;

/// The datastores in use, by set; clones share them.
#[derive(Clone)]
pub struct Stores(Arc<watch::Sender<Used>>);

impl Default for Stores {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Used::new())))
    }
}

impl Stores {
    /// The datastore of a set: the open one, or the result of `open` if there is none or the spec
    /// has changed.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn of(
        &self,
        set: &str,
        spec: &Spec,
        open: impl FnOnce() -> Result<Datastore, Error>,
    ) -> Result<Datastore, Error> {
        let known = self.0.borrow().get(set).filter(|(known, _)| known == spec).cloned();
        if let Some((_, datastore)) = known {
            return Ok(datastore);
        }
        let datastore = open()?;
        self.0.send_modify(|used| {
            used.insert(set.to_owned(), (spec.clone(), datastore.clone()));
        });
        Ok(datastore)
    }

    /// Closes the datastore of a set.
    pub fn forget(&self, set: &str) {
        self.0.send_if_modified(|used| used.remove(set).is_some());
    }

    /// Yields the affected sets at each change of a datastore.
    pub fn changes(&self) -> impl Stream<Item = BTreeSet<String>> + Send + 'static + use<> {
        let mut used = self.0.subscribe();
        used.mark_changed();
        stream::unfold((used, Watches::default()), |(mut used, mut watches)| async move {
            loop {
                tokio::select! {
                    changed = used.changed() => {
                        // The sender lives as long as the reconciler.
                        changed.ok()?;
                        let now = used.borrow_and_update().clone();
                        watches.follow(&now);
                    }
                    sets = watches.next() => return Some((sets, (used, watches))),
                }
            }
        })
    }
}

/// One watch for each datastore.
#[derive(Default)]
struct Watches(Vec<Watch>);

struct Watch {
    datastore: Datastore,
    sets: BTreeSet<String>,
    events: BoxStream<'static, ()>,
}

impl Watches {
    /// Keeps the watches of datastores in use, ends the others, and opens the missing ones.
    fn follow(&mut self, used: &Used) {
        for watch in &mut self.0 {
            watch.sets.clear();
        }
        for (set, (_, datastore)) in used {
            let set = set.clone();
            if let Some(watch) = self.0.iter_mut().find(|w| w.datastore.is_same(datastore)) {
                watch.sets.insert(set);
            } else {
                let (datastore, events) = (datastore.clone(), datastore.changes());
                self.0.push(Watch { datastore, sets: BTreeSet::from([set]), events });
            }
        }
        self.0.retain(|watch| !watch.sets.is_empty());
    }

    /// Waits for the next change of any.
    async fn next(&mut self) -> BTreeSet<String> {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        // Dropping the losers loses nothing: a stream keeps what it has begun.
        let (_, place, _) = select_all(self.0.iter_mut().map(|watch| watch.events.next())).await;
        self.0[place].sets.clone()
    }
}
