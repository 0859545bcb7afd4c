//! The taints that prevent a node from reflecting routes.
use k8s_openapi::api::core::v1::Toleration;

use crate::{api::UNFIT_SUFFIX, nodes::Taint};

/// The taint of a cordoned node.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints of nodes in trouble, with which Kubernetes itself keeps new pods away: the original's
/// list.
const TROUBLE: [&str; 8] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-disk",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/network-unavailable",
    UNSCHEDULABLE,
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// Taints that only repeat the condition Ready: `replaceAfter` sets the tolerated time.
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The first taint that keeps a node out, if one does. A cordoned node has that of the scheduler,
/// whether it is there already or not.
///
/// Without tolerations only those of nodes in trouble do; with some, each of effect `NoSchedule` or
/// `NoExecute` that none of them tolerates. The marks of `TrafficWatch`es keep no node out: a busy
/// reflector would leave at once, and `demoteAfter` would not count.
///
/// Only a toleration that names the taint of cordoned nodes keeps their reflectors: one for all
/// taints is not meant to end the way by which nodes are emptied.
#[must_use]
pub fn keeping_out<'a>(
    cordoned: bool,
    taints: &'a [Taint],
    tolerations: &[Toleration],
) -> Option<&'a str> {
    let (key, effect) = (UNSCHEDULABLE.into(), "NoSchedule".into());
    let cordon = Taint { key, value: "".into(), effect };
    let named = |toleration: &Toleration| {
        toleration.key.as_deref() == Some(UNSCHEDULABLE) && cordon.is_tolerated_by(toleration)
    };
    let unschedulable = cordoned || taints.iter().any(|taint| taint.key.as_ref() == UNSCHEDULABLE);
    if unschedulable && !tolerations.iter().any(named) {
        return Some(UNSCHEDULABLE);
    }
    let keeps_out = |taint: &&Taint| {
        if NOT_READY.contains(&&*taint.key) || taint.key.ends_with(UNFIT_SUFFIX) {
            return false;
        }
        if tolerations.is_empty() {
            return TROUBLE.contains(&&*taint.key);
        }
        taint.effect.as_ref() != "PreferNoSchedule"
            && !tolerations.iter().any(|toleration| taint.is_tolerated_by(toleration))
    };
    taints.iter().find(keeps_out).map(|taint| &*taint.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    fn toleration(json: &str) -> Toleration {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn without_tolerations_only_trouble_keeps_a_node_out() {
        for (key, out) in [
            ("node-role.kubernetes.io/control-plane", false),
            ("node.kubernetes.io/memory-pressure", true),
            ("node.kubernetes.io/unschedulable", true),
            ("node.cloudprovider.kubernetes.io/uninitialized", true),
            ("mine", false),
            // The condition Ready covers that, and it can wait.
            ("node.kubernetes.io/unreachable", false),
            ("node.kubernetes.io/not-ready", false),
        ] {
            let taints = [taint(key, "", "NoSchedule")];
            assert_eq!(keeping_out(false, &taints, &[]).is_some(), out, "{key}");
        }
    }

    #[test]
    fn with_tolerations_each_taint_needs_one() {
        let mine = taint("mine", "x", "NoSchedule");
        for (json, out) in [
            (r#"{"key":"mine","operator":"Exists"}"#, false),
            (r#"{"key":"mine","value":"x"}"#, false),
            (r#"{"key":"mine","operator":"Equal","value":"y"}"#, true),
            (r#"{"key":"mine","operator":"Exists","effect":"NoExecute"}"#, true),
            (r#"{"operator":"Exists"}"#, false),
            (r#"{"key":"other","operator":"Exists"}"#, true),
            ("{}", true),
        ] {
            let kept_out = keeping_out(false, std::slice::from_ref(&mine), &[toleration(json)]);
            assert_eq!(kept_out.is_some(), out, "{json}");
        }
        let soft = [taint("mine", "x", "PreferNoSchedule")];
        assert_eq!(keeping_out(false, &soft, &[toleration(r#"{"key":"other"}"#)]), None);
    }

    /// With tolerations for anything at all, a reflector that is busy for a moment would otherwise
    /// be replaced at once, `demoteAfter` or not.
    #[test]
    fn the_mark_of_a_traffic_watch_keeps_no_node_out() {
        for effect in ["NoSchedule", "NoExecute"] {
            let marked = [taint("web.traffic.example.com/unfit", "true", effect)];
            for tolerations in [vec![], vec![toleration(r#"{"key":"mine","operator":"Exists"}"#)]] {
                assert_eq!(
                    keeping_out(false, &marked, &tolerations),
                    None,
                    "{effect} {tolerations:?}"
                );
            }
            let other = [taint("web.traffic.example.com/unfit-x", "true", effect)];
            assert!(keeping_out(false, &other, &[toleration(r#"{"key":"mine"}"#)]).is_some());
        }
    }

    #[test]
    fn a_cordoned_node_is_kept_by_a_toleration_that_names_its_taint() {
        let cordon = [taint(UNSCHEDULABLE, "", "NoSchedule")];
        for (json, out) in [
            (r#"{"key":"node.kubernetes.io/unschedulable","operator":"Exists"}"#, false),
            (
                r#"{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoExecute"}"#,
                true,
            ),
            // Otherwise no node could be emptied where every taint is tolerated.
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"key":"mine","operator":"Exists"}"#, true),
        ] {
            // The controller that adds the taint may be late.
            for (cordoned, taints) in [(true, &cordon[..]), (true, &[]), (false, &cordon[..])] {
                let kept_out = keeping_out(cordoned, taints, &[toleration(json)]);
                assert_eq!(kept_out.is_some(), out, "{json} {cordoned} {taints:?}");
            }
        }
        assert_eq!(keeping_out(true, &[], &[]), Some(UNSCHEDULABLE));
    }
}
