//! Removes the labels and taints of an object that is deleted, and the resource that nodes offer.
use super::{Others, TrafficWatchReconciler, conflict, plan::NodeWrite, reservation};
use crate::{
    api::TrafficWatch,
    controller::{Error, Notice, key},
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
    // An object in Conflict never wrote; and no node is without a label while the key goes to one
    // that waits for it.
    let removals = [Some(watch.label_key()), conflict::former_key(watch).map(str::to_owned)]
        .into_iter()
        .flatten()
        .filter(|key| !conflict::is_claimed_by_other(watch, key, all()))
        .flat_map(|key| reconciler.nodes.carriers(&key))
        .map(NodeWrite::removal)
        .collect::<Vec<_>>();
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
