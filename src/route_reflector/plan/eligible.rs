//! The nodes that may reflect, and why others may not: addresses, selectors, taints.
use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::api::core::v1::Toleration;

use super::Observed;
use crate::{
    api::UNFIT_SUFFIX,
    nodes::{Readiness, Speaker, Taint},
    route_reflector::{
        settings::Settings,
        topology::{BgpNode, BgpTopology},
    },
    selector::Selector,
};

/// Set by every kubelet.
const OS_LABEL: &str = "kubernetes.io/os";

/// Reports whether a node has a label that a selector of the spec asks for; `None` without one.
pub(super) fn selected(speaker: &Speaker, selector: Option<&Selector>) -> Option<bool> {
    let label = |key: &str| speaker.labels.get(key).map(|value| &**value);
    selector.map(|selector| selector.matches(label))
}

/// Returns why a node can be no reflector, whatever its state. `complete`: it has to speak all
/// address families that are covered.
pub(super) fn unsuitable(
    settings: &Settings,
    speaker: &Speaker,
    node: Option<&BgpNode>,
    complete: bool,
) -> Option<&'static str> {
    let is = |selector: &Option<Selector>| selected(speaker, selector.as_ref());
    // Calico's BGP on Windows is not BIRD's.
    if speaker.labels.get(OS_LABEL).is_some_and(|os| &**os == "windows") {
        return Some("of Windows");
    }
    if is(&settings.selector) == Some(false) {
        return Some("not selected by candidates.nodeSelector");
    }
    if is(&settings.forbidden) == Some(true) {
        return Some("forbidden by candidates.forbidden");
    }
    match node {
        Some(node) if node.other_as => Some("of another AS"),
        Some(node) if node.address.is_some() => {
            (complete && !node.complete).then_some("without an address of both families")
        }
        _ => Some("without an address in BGP"),
    }
}

/// The taint that keeps a node from being a reflector now.
pub(super) fn closed<'a>(settings: &Settings, speaker: &'a Speaker) -> Option<&'a str> {
    keeping_out(speaker.cordoned, &speaker.taints, &settings.tolerations)
}

/// Counts the nodes by the reason why they are not eligible, the most frequent one first.
pub(super) fn obstacles(settings: &Settings, observed: &Observed, bgp: &BgpTopology) -> String {
    let all = &observed.speakers;
    let suitable = |speaker: &Speaker, complete| {
        unsuitable(settings, speaker, bgp.nodes.get(&speaker.name), complete)
    };
    let complete = all.iter().any(|speaker| suitable(speaker, true).is_none());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for speaker in all {
        let reason = match (suitable(speaker, complete), closed(settings, speaker)) {
            (Some(reason), _) => reason.into(),
            (None, Some(UNSCHEDULABLE)) => "cordoned".into(),
            (None, Some(taint)) => format!("with taint {taint}"),
            (None, None) if speaker.readiness != Readiness::Ready => "NotReady".into(),
            (None, None) => "eligible, for which the topology has no place".into(),
        };
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let counts: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    match all.len() {
        0 => "there are no nodes".into(),
        nodes => format!("of {nodes} nodes {}", counts.join(", ")),
    }
}

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

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
fn keeping_out<'a>(
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
