//! Removes the labels and taints of an object that goes.
use std::sync::Arc;

use super::{Others, TrafficWatchReconciler, conflict, plan::NodeWrite};
use crate::{
    api::TrafficWatch,
    controller::{Error, Notice, key},
};

/// Removes its marks from all nodes, except those whose key another object waits for.
pub(super) async fn cleanup(
    reconciler: &TrafficWatchReconciler,
    watch: &TrafficWatch,
    others: &Others,
) -> Result<Vec<Notice>, Error> {
    let all = others.state();
    let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
    // A loser of the claim never wrote; a holder whose key has a waiting heir leaves the labels as
    // they are, so that no node is without a verdict in between.
    let memory = reconciler.memories.read(&key(watch), |entry| Arc::clone(&entry.memory));
    let keys = conflict::keys(watch, memory.key.as_deref()).into_iter();
    let keys = keys.filter(|key| !conflict::has_heir(watch, key, all()));
    let removals: Vec<_> = keys
        .flat_map(|key| {
            let carriers = reconciler.nodes.carriers(&key);
            carriers.into_iter().map(move |carrier| NodeWrite::removal(carrier, key.clone()))
        })
        .collect();
    let count = removals.len();
    let results = reconciler.write_nodes(removals).await;
    results.into_iter().try_for_each(|(_, result)| result)?;
    let notice = (count > 0).then(|| Notice {
        warning: false,
        reason: "LabelsRemoved",
        note: format!("removed the label of {count} nodes"),
        node: None,
    });
    Ok(notice.into_iter().collect())
}
