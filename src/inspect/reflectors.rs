//! `explain routereflectorset`: the reflectors of one object, and the steps that are left.
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::{
    lines::{self, Advice, or_dash},
    remedies,
    status::conditions::{sentence, unsettled},
};
use crate::{
    api::{
        RouteReflectorSet,
        route_reflector_set::{GroupStatus, Mode, PlannedStep, SlotStatus},
    },
    text::{Tone, figures::ago, table},
};

/// One `RouteReflectorSet`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReflectorExplanation {
    /// Its name.
    pub set: String,
    /// The writes that it may make.
    pub mode: Mode,
    /// True if `spec.paused` keeps it from taking steps.
    pub paused: bool,
    /// The number of reflectors that it should have.
    pub desired: i64,
    /// The number of reflectors on Ready nodes.
    pub ready: i64,
    /// The topology that is in use or being introduced.
    pub topology: Option<String>,
    /// State of the node-to-node mesh.
    pub mesh: Option<String>,
    /// Location of Calico's objects.
    pub datastore: Option<String>,
    /// The reflectors with their slots.
    pub slots: Vec<SlotStatus>,
    /// The groups of clients.
    pub groups: Vec<GroupStatus>,
    /// The next steps.
    pub plan: Vec<PlannedStep>,
    /// The time of the last step.
    pub last_step: Option<Timestamp>,
    /// Conditions that indicate a problem.
    pub conditions: Vec<String>,
    /// The advice.
    pub next: Vec<Advice>,
}

/// Explains one `RouteReflectorSet`.
#[must_use]
pub fn explain(set: &RouteReflectorSet) -> ReflectorExplanation {
    let status = set.status.clone().unwrap_or_default();
    let conditions = unsettled(&status.conditions);
    let mut next: Vec<_> = conditions.iter().copied().filter_map(remedies::of).collect();
    for slot in &status.slots {
        if let Some(why) = &slot.leaving {
            let what = format!("{} leaves slot {}: {why}", slot.node, slot.id);
            next.push(Advice::of(what, format!("explain node {}", slot.node)));
        }
    }
    ReflectorExplanation {
        set: set.metadata.name.clone().unwrap_or_default(),
        mode: set.spec.mode,
        paused: set.spec.paused,
        desired: status.desired,
        ready: status.ready,
        conditions: conditions.into_iter().map(sentence).collect(),
        next,
        topology: status.topology,
        mesh: match (status.mesh, status.mesh_before) {
            (Some(mesh), Some(before)) => Some(format!("{mesh} (before it retired: {before})")),
            (mesh, _) => mesh,
        },
        datastore: status.datastore,
        slots: status.slots,
        groups: status.groups,
        plan: status.plan,
        last_step: status.last_step_time.map(|time| time.0),
    }
}

/// Returns the explanation as text at a moment, with a line break at its end.
#[must_use]
pub fn text(made: &ReflectorExplanation, now: Timestamp) -> String {
    let paused = if made.paused { ", paused" } else { "" };
    let ready = format!("{} of {} reflectors are ready", made.ready, made.desired);
    let ready = Tone::of_part(made.ready, made.desired).paint(&ready);
    let mut text = format!("{} (mode {:?}{paused}): {ready}\n", made.set, made.mode);
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    line("topology", &or_dash(made.topology.clone()));
    line("mesh", &or_dash(made.mesh.clone()));
    line("datastore", &or_dash(made.datastore.clone()));
    if let Some(at) = made.last_step {
        line("last step", &format!("{} ago", ago(at, now)));
    }
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    text.push_str(&slots(&made.slots, now));
    text.push_str(&groups(&made.groups));
    text.push_str(&plan(&made.plan));
    lines::advise(&mut text, &made.next);
    text.push_str("\nFrom the status of the object\n");
    text
}

fn slots(slots: &[SlotStatus], now: Timestamp) -> String {
    if slots.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = slots
        .iter()
        .map(|slot| {
            let since = slot.since.as_ref().map(|since| ago(since.0, now));
            [
                slot.id.to_string(),
                slot.node.clone(),
                or_dash(slot.zone.clone()),
                or_dash(slot.cluster_id.clone()),
                or_dash(since),
                or_dash(slot.leaving.as_ref().map(|why| Tone::Notable.paint(why))),
            ]
        })
        .collect();
    format!("\n{}", table(["SLOT", "NODE", "ZONE", "CLUSTER ID", "FOR", "LEAVING"], &rows))
}

fn groups(groups: &[GroupStatus]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = groups
        .iter()
        .map(|group| {
            let slots: Vec<_> = group.slots.iter().map(ToString::to_string).collect();
            [group.name.clone(), group.nodes.to_string(), slots.join(", ")]
        })
        .collect();
    format!("\n{}", table(["GROUP", "NODES", "SLOTS"], &rows))
}

fn plan(steps: &[PlannedStep]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = steps
        .iter()
        .map(|step| {
            [
                step.step.clone(),
                or_dash(step.node.clone().or_else(|| step.peer.clone())),
                or_dash(step.slot.map(|slot| slot.to_string())),
                or_dash(step.waiting_for.as_ref().map(|what| Tone::Notable.paint(what))),
            ]
        })
        .collect();
    format!("\n{}", table(["STEP", "OF", "SLOT", "WAITS FOR"], &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::plain;

    #[test]
    fn a_set_shows_its_slots_its_steps_and_what_they_wait_for() {
        let set: RouteReflectorSet = serde_json::from_value(json!({
            "metadata": {"name": "rrs"}, "spec": {},
            "status": {
                "desired": 3, "ready": 2, "topology": "Zonal", "mesh": "Off",
                "lastStepTime": "2026-09-21T14:13:20Z",
                "slots": [{"id": 0, "node": "node-1", "zone": "a", "clusterID": "224.0.0.0",
                    "since": "2026-09-21T13:13:20Z", "leaving": "NotReady"}],
                "groups": [{"name": "a", "nodes": 31, "slots": [0, 3]}],
                "plan": [
                    {"step": "Demote", "node": "node-1", "slot": 0, "waitingFor": "sessions"},
                    {"step": "WritePeer", "peer": "rrs-to-rrs"}
                ],
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Planned", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "RoutesSafe", "status": "False", "reason": "NoRedundancy",
                     "message": "node-1", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ]
            }
        }))
        .unwrap();
        let now = Timestamp::from_second(1_790_000_060).unwrap();
        let colored = text(&explain(&set), now);
        for (tone, word) in [
            (Tone::Notable, "2 of 3 reflectors are ready"),
            (Tone::Notable, "RoutesSafe=False NoRedundancy"),
            (Tone::Notable, "NotReady"),
        ] {
            assert!(colored.contains(&tone.paint(word)), "{word} has no color in\n{colored}");
        }
        let text = plain(&colored);
        for expected in [
            "rrs (mode Enforce): 2 of 3 reflectors are ready\n",
            "  topology     Zonal\n",
            "  datastore    -\n",
            "  last step    1m ago\n",
            "  condition    RoutesSafe=False NoRedundancy: node-1\n",
            "SLOT  NODE    ZONE  CLUSTER ID  FOR    LEAVING\n",
            "0     node-1  a     224.0.0.0   1h 1m  NotReady\n",
            "a      31     0, 3\n",
            "Demote     node-1      0     sessions\n",
            "WritePeer  rrs-to-rrs  -     -\n",
            "    try: docs/runbooks/RouteReflectorNoRedundancy.md\n",
            "  node-1 leaves slot 0: NotReady\n    try: explain node node-1\n",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
