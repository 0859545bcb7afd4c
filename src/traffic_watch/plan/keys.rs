//! The keys that nodes have because of an object: the present one, and those that it had before.
use std::collections::BTreeSet;

use crate::{
    api::{TrafficWatch, traffic_watch::Mode},
    traffic_watch::{conflict::Claim, observed::Observed},
};

/// The keys on nodes that the object does not have any more. An empty selection freezes them.
pub(super) fn former(seen: &Observed, current: &str) -> BTreeSet<String> {
    if seen.nodes.is_empty() {
        return seen.memory.keys.clone();
    }
    let keys = seen.stray.iter().map(|stray| &stray.key);
    keys.filter(|key| ***key != *current).map(ToString::to_string).collect()
}

/// Returns the key in the status if some node still has it and the object does not any more.
pub(super) fn published(watch: &TrafficWatch, former: &BTreeSet<String>) -> Option<String> {
    let label = watch.status.as_ref()?.label.as_ref()?;
    former.get(label).cloned()
}

/// Returns the key to publish of a paused object that has published none: the one it waits for, as
/// [`in_conflict`], or its own if nodes have it. Their labels are those of an object that had the
/// key before and left them to this one. Nobody else removes them.
pub(super) fn inherited(watch: &TrafficWatch, seen: &Observed) -> Option<String> {
    if seen.claim != Claim::Ours {
        return in_conflict(watch);
    }
    let published = watch.status.as_ref().and_then(|status| status.label.as_ref());
    let is_there = || seen.nodes.iter().any(|facts| facts.label.is_some());
    (published.is_none() && watch.spec.mode == Mode::Enforce && is_there())
        .then(|| watch.label_key())
}

/// Returns the key to publish of an object that waits for one: the labels become its own together
/// with the key. If it takes another key then, it removes them, even if the operator was not there
/// in between. An object with labels of a former key keeps that one.
pub(in crate::traffic_watch) fn in_conflict(watch: &TrafficWatch) -> Option<String> {
    let published = watch.status.as_ref().and_then(|status| status.label.clone());
    published.or_else(|| Some(watch.label_key()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_in_conflict_publishes_the_key_it_waits_for_unless_it_has_another() {
        for (status, published) in [
            (json!(null), "a.traffic.example.com/unfit"),
            (json!({"ready": false}), "a.traffic.example.com/unfit"),
            (json!({"label": "b.traffic.example.com/unfit"}), "b.traffic.example.com/unfit"),
        ] {
            let watch = json!({
                "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
                "metadata": {"name": "a"}, "spec": {"maxBandwidthPercent": "60"}, "status": status,
            });
            let watch = serde_json::from_value(watch).unwrap();
            assert_eq!(in_conflict(&watch).as_deref(), Some(published));
        }
    }
}
