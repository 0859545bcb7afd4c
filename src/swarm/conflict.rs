//! The `Swarm` that may serve a workload: the workload and its `ConfigMap` belong to the oldest
//! that claims them.
use kube::ResourceExt;

use super::SwarmReconciler;
use crate::{
    api::{Mode, Swarm, has_ended},
    controller::Reconciler,
};

/// Describes the objects claimed by `swarm` that an older `Swarm` holds; `None` if there are none.
#[must_use]
pub fn held<'a>(swarm: &Swarm, others: impl IntoIterator<Item = &'a Swarm>) -> Option<String> {
    if !claims(swarm) {
        return None;
    }
    let (namespace, _) = swarm.key();
    let older = others.into_iter().filter(|other| {
        claims(other)
            && other.key() != swarm.key()
            && other.key().0 == namespace
            && rank(other) < rank(swarm)
            && (other.spec.workload == swarm.spec.workload
                || maps(other).iter().any(|map| maps(swarm).contains(map)))
    });
    let holder = older.min_by_key(|other| rank(other))?;
    let what = if holder.spec.workload == swarm.spec.workload {
        let workload = &swarm.spec.workload;
        format!("{} {}", workload.kind.as_str(), workload.name)
    } else {
        let theirs = maps(holder);
        let shared = maps(swarm).into_iter().find(|map| theirs.contains(map));
        format!("ConfigMap {}", shared.unwrap_or_default())
    };
    Some(format!("{what} is served by the older Swarm {}", holder.name_any()))
}

/// All that it writes to.
fn maps(swarm: &Swarm) -> Vec<String> {
    let mut maps = swarm.parts();
    maps.push(swarm.config_map());
    maps
}

/// With Observe, nothing is written, so no claim is needed; nor once the object is cleaned up.
fn claims(swarm: &Swarm) -> bool {
    swarm.spec.mode == Mode::Enforce && !has_ended(swarm, SwarmReconciler::FINALIZER)
}

/// Older first, ties by name.
fn rank(swarm: &Swarm) -> (Option<i64>, String) {
    let created = swarm.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, swarm.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "written where it is called")]
    fn swarm(name: &str, second: u8, spec: Value) -> Swarm {
        let mut all = json!({"workload": {"name": "w"}, "jobs": ["a"]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "n",
                "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")
            },
            "spec": all
        }))
        .unwrap()
    }

    #[test]
    fn the_oldest_holds_the_workload_and_the_map() {
        let old = swarm("z", 1, json!({}));
        let young = swarm("a", 2, json!({}));
        let all = [old.clone(), young.clone()];
        assert_eq!(held(&old, &all), None);
        let text = held(&young, &all).unwrap();
        assert_eq!(text, "StatefulSet w is served by the older Swarm z");
        // Of the same second: by name.
        let twin = swarm("b", 1, json!({}));
        assert!(held(&old, &[twin.clone(), old.clone()]).is_some());
        assert_eq!(held(&twin, &[twin.clone(), old.clone()]), None);
        let other = json!({"workload": {"name": "v"}, "configMap": {"name": "w-config"}});
        let text = held(&swarm("a", 2, other), std::slice::from_ref(&old)).unwrap();
        assert_eq!(text, "ConfigMap w-config is served by the older Swarm z");
        let parts = json!({"workload": {"name": "v"}, "configMap": {"name": "c", "files": 3}});
        let whole = json!({"workload": {"name": "u"}, "configMap": {"name": "c-part-2"}});
        let text = held(&swarm("b", 3, whole), &[swarm("a", 2, parts)]).unwrap();
        assert_eq!(text, "ConfigMap c-part-2 is served by the older Swarm a");
        let apart = json!({"workload": {"name": "v"}});
        assert_eq!(held(&swarm("a", 2, apart), std::slice::from_ref(&old)), None);
        let deployment =
            json!({"workload": {"kind": "Deployment", "name": "w"}, "configMap": {"name": "x"}});
        assert_eq!(held(&swarm("a", 2, deployment), std::slice::from_ref(&old)), None);
    }

    #[test]
    fn who_only_observes_holds_nothing() {
        let (old, young) = (swarm("z", 1, json!({"mode": "Observe"})), swarm("a", 2, json!({})));
        assert_eq!(held(&young, &[old, young.clone()]), None);
    }

    /// With foreground deletion, the object stays until its ConfigMaps are gone.
    #[test]
    fn who_is_deleted_holds_nothing() {
        let (mut old, young) = (swarm("z", 1, json!({})), swarm("a", 2, json!({})));
        old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
        old.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
        assert_eq!(held(&young, &[old, young.clone()]), None);
    }
}
