//! The nodes that may reflect, and why others may not.
use std::{cmp::Reverse, collections::BTreeMap};

use super::Observed;
use crate::{
    nodes::{Readiness, Speaker},
    route_reflector::{
        settings::Settings,
        taints,
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
    taints::keeping_out(speaker.cordoned, &speaker.taints, &settings.tolerations)
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
            (None, Some(taints::UNSCHEDULABLE)) => "cordoned".into(),
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
