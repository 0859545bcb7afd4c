//! Removes the labels and taints of an object that is deleted, and the resource that nodes offer.
use std::sync::Arc;

use super::{
    Others, TrafficWatchReconciler, conflict,
    memory::{Entry, Memory},
    plan::NodeWrite,
    reservation,
};
use crate::{
    api::TrafficWatch,
    controller::{Error, Key, Notice, key},
};

/// Removes its marks from all nodes, except those whose key another object waits for, and then the
/// resource that it offers.
pub(super) async fn cleanup(
    reconciler: &TrafficWatchReconciler,
    watch: &TrafficWatch,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    let all = others.state();
    let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
    let memory = reconciler.remembered(&key(watch));
    let mut removals = vec![];
    for label in conflict::keys(watch, &memory.keys) {
        // An object that lost its claim never wrote; if another object waits for the key, the
        // labels stay, so that no node is without a label in between.
        if let Some(heir) = conflict::heir(watch, &label, all()) {
            reconciler.leave_to(heir, &label);
            continue;
        }
        let carriers = reconciler.nodes.carriers(&label).into_iter();
        let label: Arc<str> = label.into();
        removals.extend(carriers.map(|carrier| NodeWrite::removal(carrier, Arc::clone(&label))));
    }
    let count = removals.len();
    let results = reconciler.write_nodes(&key(watch).0, removals, None).await;
    results.into_iter().try_for_each(|(_, result)| result)?;
    let labels = (count > 0).then(|| Notice {
        warning: false,
        reason: "LabelsRemoved",
        note: format!("removed the label of {count} nodes"),
        node: None,
    });
    let leaving = reconciler.leaving(watch, None, &all().collect::<Vec<_>>());
    let (writes, resource) = reservation::removed(&leaving);
    let results = reconciler.write_offers(writes, None).await;
    results.into_iter().try_for_each(|(_, result)| result)?;
    Ok(labels.into_iter().chain(resource).collect())
}

impl TrafficWatchReconciler {
    /// Returns the memory of an object at the beginning of a pass. No other pass over it changes it
    /// meanwhile.
    pub(super) fn remembered(&self, key: &Key) -> Arc<Memory> {
        if self.memories.read(key, |entry| !entry.inherited.is_empty()) {
            self.memories.change(key, Entry::inherit);
        }
        self.memories.read(key, |entry| Arc::clone(&entry.memory))
    }

    /// Leaves the labels of a key to the object that gets it. That one may take another key before
    /// its first judgment, and has to know then that it must remove them.
    pub(super) fn leave_to(&self, heir: &TrafficWatch, label: &str) {
        self.memories.change(&key(heir), |entry| entry.inherited.insert(label.to_owned()));
    }
}
