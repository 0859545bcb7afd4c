//! The most important figures of each kind.
use serde_json::{Value, json};

use super::Object;
use crate::api::{
    Kind, NetworkProber, RouteReflectorSet, Swarm, TrafficWatch,
    network_prober::NotInjected,
    route_reflector_set::{PlannedStep, RouteReflectorSetStatus},
    swarm::SwarmStatus,
    traffic_watch::{Summary, TrafficWatchStatus},
};

/// A kind in the report.
pub(super) trait Reported: Kind {
    /// The command after `explain` that explains one object.
    const COMMAND: &'static str;
    /// True if its objects are in namespaces.
    const NAMESPACED: bool = true;
    /// Names of the figures.
    const COLUMNS: &'static [&'static str];

    /// The figures, one for each column.
    fn figures(status: &Self::Status) -> Vec<Value>;

    /// Findings that no condition reports.
    fn notes(_status: &Self::Status) -> Vec<String> {
        vec![]
    }
}

impl Reported for TrafficWatch {
    const COMMAND: &'static str = "trafficwatch";
    const COLUMNS: &'static [&'static str] =
        &["nodes", "fit", "unfit", "unknown", "suppressed", "max"];

    fn figures(status: &TrafficWatchStatus) -> Vec<Value> {
        let of = |count: fn(&Summary) -> u32| status.summary.as_ref().map(count);
        vec![
            json!(of(|summary| summary.nodes)),
            json!(of(|summary| summary.fit)),
            json!(of(|summary| summary.unfit)),
            json!(of(|summary| summary.unknown)),
            json!(of(|summary| summary.suppressed)),
            json!(status.max),
        ]
    }

    fn notes(status: &TrafficWatchStatus) -> Vec<String> {
        let unknown = status.summary.map_or(0, |summary| summary.unknown);
        match unknown {
            0 => vec![],
            1 => vec!["1 node has no evidence".into()],
            many => vec![format!("{many} nodes have no evidence")],
        }
    }
}

impl Reported for NetworkProber {
    const COMMAND: &'static str = "prober";
    const COLUMNS: &'static [&'static str] = &["selected", "injected", "failing", "restart"];

    fn figures(status: &Self::Status) -> Vec<Value> {
        vec![
            json!(status.selected),
            json!(status.injected),
            json!(status.failing),
            json!(status.need_restart),
        ]
    }

    fn notes(status: &Self::Status) -> Vec<String> {
        if status.failing == 0 {
            return vec![];
        }
        let reason = |one: &NotInjected| format!("{} {}", one.count, one.reason);
        let reasons: Vec<_> = status.failing_reasons.iter().map(reason).collect();
        vec![format!("{} agents cannot start: {}", status.failing, reasons.join(", "))]
    }
}

impl Reported for Swarm {
    const COMMAND: &'static str = "swarm";
    const COLUMNS: &'static [&'static str] =
        &["streams", "owned", "releasing", "unowned", "workers", "epoch"];

    fn figures(status: &SwarmStatus) -> Vec<Value> {
        let all = &status.summary;
        vec![
            json!(all.streams),
            json!(all.owned),
            json!(all.releasing),
            json!(all.free + all.unassigned),
            json!(format!("{}/{}", all.ready, all.workers)),
            json!(status.epoch),
        ]
    }
}

impl Reported for RouteReflectorSet {
    const COMMAND: &'static str = "routereflectorset";
    const NAMESPACED: bool = false;
    const COLUMNS: &'static [&'static str] = &["reflectors", "topology", "mesh", "step"];

    fn figures(status: &RouteReflectorSetStatus) -> Vec<Value> {
        vec![
            json!(format!("{}/{}", status.ready, status.desired)),
            json!(status.topology),
            json!(status.mesh),
            json!(status.plan.first().map(step)),
        ]
    }
}

/// Describes one step: its type and its subject.
fn step(step: &PlannedStep) -> String {
    let subject = step.node.as_ref().or(step.peer.as_ref());
    subject.map_or_else(|| step.step.clone(), |subject| format!("{} {subject}", step.step))
}

/// Reads the parts of an object that the report needs.
pub(super) fn object<K: Reported>(object: &K) -> Object {
    let meta = object.meta();
    let mut status = object.status().cloned();
    Object {
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        generation: meta.generation,
        figures: status.as_ref().map(K::figures).unwrap_or_default(),
        notes: status.as_ref().map(K::notes).unwrap_or_default(),
        observed: status.as_mut().and_then(|status| *K::observed_generation_mut(status)),
        conditions: status.as_mut().map(K::conditions_mut).cloned().unwrap_or_default(),
        unreadable: None,
    }
}
