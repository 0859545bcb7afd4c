//! The marks of nodes: which labels and taints are written and removed, and how many there are.
use std::sync::Arc;

use super::{Edit, NodeWrite};
use crate::traffic_watch::judgment::Judgment;

/// Returns the labels and taints to write, and those to remove.
pub(super) fn writes(judged: &Judgment<'_>) -> Vec<NodeWrite> {
    let (key, effect) = (Arc::<str>::from(judged.watch.label_key()), judged.watch.spec.taint);
    let flips = judged.seen.nodes.iter().enumerate().filter_map(|(i, facts)| {
        let marked = judged.nodes[i].marked;
        let drops = drops(judged, i);
        let label = match (marked, facts.label.as_deref()) {
            (None, Some(_)) if drops => Edit::Remove,
            (Some(value), there) if there != Some(if value { "true" } else { "false" }) => {
                Edit::Set(value)
            }
            _ => Edit::Keep,
        };
        // A node that is not judged yet keeps its label.
        let wanted = effect.filter(|_| marked == Some(true));
        let taint = match (wanted, facts.taint.as_deref()) {
            _ if marked.is_none() && !drops => Edit::Keep,
            (Some(effect), there) if there != Some(effect.as_str()) => Edit::Set(effect),
            (None, Some(_)) => Edit::Remove,
            _ => Edit::Keep,
        };
        // Most nodes end here, before their texts are touched: those are cold memory.
        if label == Edit::Keep && taint == Edit::Keep {
            return None;
        }
        let releases = facts.label.as_deref() == Some("true") && label != Edit::Keep;
        // The limit already counts the label of one that failed before.
        let frees = releases && !judged.seen.memory.failed.has(&facts.name);
        let (node, key) = (Arc::clone(&facts.name), Arc::clone(&key));
        Some(NodeWrite { node, incarnation: facts.incarnation, key, label, taint, frees })
    });
    flips.chain(judged.seen.strays.iter().cloned().map(NodeWrite::removal)).collect()
}

/// Reports whether the label of a node goes, because there is no evidence about it.
fn drops(judged: &Judgment<'_>, node: usize) -> bool {
    judged.drops_label(node) && judged.nodes[node].marked.is_none()
}

/// Returns the number of nodes that can take the pods and have no mark.
pub(super) fn unmarked_room(judged: &Judgment<'_>) -> usize {
    let nodes = judged.takes_pods.iter().zip(&judged.nodes);
    nodes.filter(|(takes_pods, node)| **takes_pods && node.marked != Some(true)).count()
}
