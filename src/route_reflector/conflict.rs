//! The `RouteReflectorSet` that may serve the cluster: the oldest.
use kube::ResourceExt;

use super::RouteReflectorReconciler;
use crate::{
    api::{Mode, RouteReflectorSet, has_ended},
    controller::Reconciler,
};

/// Describes the older set that serves the cluster; `None` if this one does.
#[must_use]
pub fn held<'a>(
    set: &RouteReflectorSet,
    others: impl IntoIterator<Item = &'a RouteReflectorSet>,
) -> Option<String> {
    if !claims(set) {
        return None;
    }
    let older = others.into_iter().filter(|other| {
        claims(other) && other.name_any() != set.name_any() && rank(other) < rank(set)
    });
    let holder = older.min_by_key(|other| rank(other))?;
    Some(format!(
        "the cluster is served by the older RouteReflectorSet {}; only one can be active",
        holder.name_any()
    ))
}

/// Reports whether the BGPPeers of another set stay its own: it may serve the cluster before this
/// one. A set that cannot be read (`None`) might.
#[must_use]
pub fn precedes(other: Option<&RouteReflectorSet>, set: &RouteReflectorSet) -> bool {
    other.is_none_or(|other| claims(other) && rank(other) < rank(set))
}

/// With Observe, nothing is written, so no claim is needed; nor once the object is cleaned up.
fn claims(set: &RouteReflectorSet) -> bool {
    set.spec.mode == Mode::Enforce && !has_ended(set, RouteReflectorReconciler::FINALIZER)
}

/// Older first, ties by name.
fn rank(set: &RouteReflectorSet) -> (Option<i64>, String) {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, set.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, second: u8, mode: &str) -> RouteReflectorSet {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")
            },
            "spec": {"mode": mode}
        }))
        .unwrap()
    }

    #[test]
    fn the_older_set_holds_the_cluster() {
        let (old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
        let both = [old.clone(), young.clone()];
        assert_eq!(held(&old, &both), None);
        assert!(held(&young, &both).unwrap().contains("older RouteReflectorSet old"));
        // Ties by name.
        let (a, b) = (set("a", 1, "Enforce"), set("b", 1, "Enforce"));
        assert!(held(&b, [&a, &b]).is_some() && held(&a, [&a, &b]).is_none());
        // A set that only observes neither claims nor is blocked.
        let observer = set("observer", 0, "Observe");
        assert_eq!(held(&observer, [&old, &observer]), None);
        assert_eq!(held(&old, [&old, &observer]), None);
    }

    /// Its finalizer goes when it has been cleaned up; someone else's may keep it.
    #[test]
    fn a_set_holds_the_cluster_until_it_is_cleaned_up() {
        let (mut old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
        old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
        old.metadata.finalizers = Some(vec![RouteReflectorReconciler::FINALIZER.into()]);
        assert!(held(&young, [&old, &young]).is_some());
        old.metadata.finalizers = Some(vec!["example.com/other".into()]);
        assert_eq!(held(&young, [&old, &young]), None);
    }

    /// The cluster is handed from one set to another by their modes.
    #[test]
    fn a_set_that_may_not_serve_the_cluster_keeps_no_bgp_peers() {
        let (old, young) = (set("old", 1, "Enforce"), set("young", 2, "Enforce"));
        assert!(precedes(Some(&old), &young));
        assert!(!precedes(Some(&young), &old));
        assert!(!precedes(Some(&young), &young));
        assert!(!precedes(Some(&set("observer", 1, "Observe")), &young));
        assert!(precedes(None, &old), "it cannot be read");
    }
}
