//! What is told: status, conditions, events.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    bgp_model::Rule,
    election::Target,
    memory::{Figures, Memory},
    plan::{self, Calico, Desired, Next, PERIOD, View},
    steps::Step,
    topology::{BgpTopology, ReflectorLabels},
};
use crate::{
    api::{
        Mode, RouteReflectorSet, RouteReflectorSetStatus,
        route_reflector_set::{GroupStatus, PlannedStep, SlotStatus},
    },
    controller::{Notice, Plan, Verdict},
};

/// How many steps the status lists.
const LISTED: usize = 10;

fn verdict(
    type_: &'static str,
    status: Option<bool>,
    reason: &'static str,
    message: impl Into<String>,
) -> Verdict {
    Verdict { type_, status, reason, message: message.into() }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The status as it was, with other conditions: nothing is decided.
fn standing(
    set: &RouteReflectorSet,
    memory: Option<Memory>,
    phase: &str,
    conditions: Vec<Verdict>,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let mut status = set.status.clone().unwrap_or_default();
    phase.clone_into(&mut status.phase);
    status.plan = vec![];
    let desired = Desired { memory, ..Desired::default() };
    Plan { desired, status, conditions, notices: vec![], period: PERIOD }
}

/// Nothing is decided.
pub(super) fn paused(
    set: &RouteReflectorSet,
    memory: &Memory,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let text = "spec.paused: nothing is decided or written";
    let conditions = vec![
        verdict("Ready", Some(true), "Paused", text),
        verdict("Converged", None, "Paused", text),
    ];
    standing(set, Some(memory.clone()), "Paused", conditions)
}

/// the state of Calico's objects is unknown.
pub(super) fn unknown(
    set: &RouteReflectorSet,
    calico: &Calico,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let known = ["CalicoNotFound", "SecretInvalid"].contains(&calico.reason);
    let conditions = vec![
        verdict("Ready", known.then_some(false), calico.reason, calico.text.clone()),
        verdict("Converged", None, calico.reason, "the state of Calico's objects is unknown"),
        verdict("RoutesSafe", None, calico.reason, "the state of Calico's objects is unknown"),
    ];
    standing(set, None, "Frozen", conditions)
}

/// What the nodes do not allow: nothing is written, and every reflector stays one.
pub(super) fn refused(
    set: &RouteReflectorSet,
    mut memory: Memory,
    text: &str,
) -> Plan<Desired, RouteReflectorSetStatus> {
    let conditions = vec![
        verdict("Ready", Some(false), "PlanRefused", text),
        verdict("Converged", Some(false), "PlanRefused", "nothing is written"),
    ];
    let news = memory.refused.as_deref() != Some(text);
    if news {
        memory.counters.refusals += 1;
        memory.refused = Some(text.to_owned());
    }
    let mut plan = standing(set, Some(memory), "Frozen", conditions);
    if news {
        let note = text.to_owned();
        plan.notices.push(Notice { warning: true, reason: "PlanRefused", note, node: None });
    }
    plan
}

/// Status, conditions and events of a pass that decided.
pub(super) fn report(
    view: &View<'_>,
    figures: &Figures,
    memory: &Memory,
    last_step: Option<Timestamp>,
) -> (RouteReflectorSetStatus, Vec<Verdict>, Vec<Notice>) {
    let ready = view
        .bgp
        .reflectors()
        .filter(|(node, _)| view.bgp.fabric.node(node).is_some_and(|node| node.up));
    let before = view.set.status.as_ref().map_or(0, |status| status.desired);
    let mut status = RouteReflectorSetStatus {
        slots: view.set.status.as_ref().map(|status| status.slots.clone()).unwrap_or_default(),
        // Nobody who could be one is no wish for none.
        desired: if view.target.freeze.is_some() { before } else { count(view.target.desired) },
        ready: count(ready.count()),
        phase: phase(view).into(),
        mesh: Some(if figures.mesh { "On" } else { "Off" }.into()),
        datastore: Some(view.snapshot.flavour.into()),
        plan: steps(view),
        last_step_time: last_step.map(Time),
        ..RouteReflectorSetStatus::default()
    };
    remember(&mut status, view.target, view.bgp, &view.unfit_since, view.observed.now);
    let conditions = vec![readiness(view), converged(view, memory), safe(view)];
    let mut notices = changes(view);
    if let Next::Wait(step, shut) = &view.next
        && timed_out(view, memory)
    {
        let known = known(view.set, "Converged");
        if known != Some("GateTimeout") {
            notices.push(Notice {
                warning: true,
                reason: "GateTimeout",
                note: format!("{step} waits for its gate: {shut}; the operator keeps checking"),
                node: None,
            });
        }
    }
    (status, conditions, notices)
}

fn known<'a>(set: &'a RouteReflectorSet, type_: &str) -> Option<&'a str> {
    let conditions = &set.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(&found.reason)
}

fn timed_out(view: &View<'_>, memory: &Memory) -> bool {
    memory.shut_since.is_some_and(|since| {
        let waited = view.observed.now.duration_since(since);
        std::time::Duration::try_from(waited).unwrap_or_default() >= view.settings.timeout
    })
}

fn phase(view: &View<'_>) -> &'static str {
    if view.target.freeze.is_some() || view.taken.is_some() || view.snapshot.locked {
        return "Frozen";
    }
    match &view.next {
        Next::Done => "Converged",
        Next::Take(step) | Next::Wait(step, _) => step.phase(),
        Next::Refuse(..) => "Frozen",
    }
}

/// Fills in what later passes go by: topology, slots and groups.
pub(super) fn remember(
    status: &mut RouteReflectorSetStatus,
    target: &Target,
    bgp: &BgpTopology,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
    now: Timestamp,
) {
    let slots = slots(&status.slots, target, bgp, unfit_since, now);
    status.topology = Some(target.topology.as_str().into());
    status.groups = groups(target, bgp);
    status.slots = slots;
}

/// The reflectors that there are, and since when; what another node is about to take is there twice.
fn slots(
    before: &[SlotStatus],
    target: &Target,
    bgp: &BgpTopology,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
    now: Timestamp,
) -> Vec<SlotStatus> {
    let before: BTreeMap<&str, &SlotStatus> =
        before.iter().map(|slot| (slot.node.as_str(), slot)).collect();
    let reflectors = bgp.reflectors().map(|(node, labels)| {
        let aim = target.slots.iter().find(|slot| slot.node == *node);
        let leaving = target.leaving.iter().find(|leaving| leaving.node == *node);
        let planned = aim.map(|slot| slot.id).or(leaving.map(|leaving| leaving.slot));
        let id = labels.slot.or(planned).map_or(-1, i64::from);
        let known = before.get(&**node).filter(|slot| slot.id == id);
        let since = known.and_then(|slot| slot.since.clone());
        let zone = bgp.zone(node);
        let trouble = aim.and_then(|slot| slot.trouble);
        SlotStatus {
            id,
            node: node.to_string(),
            zone: zone.map(ToString::to_string),
            cluster_id: labels.cluster_id.map(|id| id.to_string()),
            since: Some(since.unwrap_or(Time(now))),
            unfit_since: unfit_since.get(node).copied().map(Time),
            leaving: leaving.map(|leaving| leaving.reason).or(trouble).map(|r| r.as_str().into()),
        }
    });
    // Whose labels somebody has taken away is known only from here, until it has them again.
    let returning = target.slots.iter().filter_map(|slot| {
        let known = before.get(&*slot.node).filter(|known| known.id == i64::from(slot.id))?;
        let reflects = bgp.labels(&slot.node).is_none_or(ReflectorLabels::is_reflector);
        (!reflects).then(|| (*known).clone())
    });
    let mut slots: Vec<_> = reflectors.chain(returning).collect();
    slots.sort_by(|a, b| (a.id, &a.node).cmp(&(b.id, &b.node)));
    slots
}

fn groups(target: &Target, bgp: &BgpTopology) -> Vec<GroupStatus> {
    let mut sizes: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
    for actual in bgp.nodes.values() {
        if let Some(group) = &actual.labels.group {
            *sizes.entry(group).or_default() += 1;
        }
    }
    let groups = target.group_slots.iter().map(|(name, slots)| GroupStatus {
        name: name.to_string(),
        nodes: sizes.get(name).copied().unwrap_or_default(),
        slots: slots.iter().copied().map(i64::from).collect(),
    });
    groups.collect()
}

/// What is left to do, one line for each node.
fn steps(view: &View<'_>) -> Vec<PlannedStep> {
    let mut lines: Vec<PlannedStep> = Vec::new();
    for step in &view.left {
        let word = step.word();
        let line = |node: Option<&Arc<str>>, slot: Option<u32>, peer: Option<(&str, &String)>| {
            PlannedStep {
                step: peer.map_or(word, |(word, _)| word).into(),
                node: node.map(ToString::to_string),
                slot: slot.map(i64::from),
                peer: peer.map(|(_, name)| name.clone()),
                waiting_for: None,
            }
        };
        match step {
            // The same nodes in smaller parts.
            Step::LabelClients { joining: true, .. } => {}
            Step::LabelClients { .. } | Step::Mesh(_) => lines.push(line(None, None, None)),
            Step::Peers { write, delete, .. } => {
                let writes = write.iter().map(|peer| ("WritePeer", &peer.name));
                let deletes = delete.iter().map(|(name, _)| ("DeletePeer", name));
                let peers = writes.chain(deletes);
                lines.extend(peers.map(|peer| line(None, None, Some(peer))));
            }
            Step::Promote { slots, .. } => {
                lines.extend(slots.iter().map(|s| line(Some(&s.node), Some(s.id), None)));
            }
            Step::Demote { nodes } => {
                lines.extend(nodes.iter().map(|n| line(Some(&n.node), n.slot, None)));
            }
        }
    }
    lines.truncate(LISTED);
    let waiting = match &view.next {
        Next::Wait(step, shut) => Some((step.word(), shut.to_string())),
        Next::Refuse(Some(step), why) => Some((step.word(), why.to_string())),
        _ => None,
    };
    if let Some((word, text)) = waiting
        && let Some(line) = lines.iter_mut().find(|line| line.step == word)
    {
        line.waiting_for = Some(text);
    }
    lines
}

fn readiness(view: &View<'_>) -> Verdict {
    let no = |reason, text: String| verdict("Ready", Some(false), reason, text);
    if let Some(name) = &view.taken {
        return no(
            "Conflict",
            format!(
                "BGPPeer {name} exists and is not ours; to hand it over: kubectl label bgppeer {name} \
                 app.kubernetes.io/managed-by=traffic-operator"
            ),
        );
    }
    if view.snapshot.locked {
        let text = "Calico is migrating its datastore; nothing is written until the migration ends";
        return no("DatastoreLocked", text.into());
    }
    if let Some(stale) = &view.snapshot.stale {
        return verdict("Ready", None, "DatastoreUnreachable", stale.to_string());
    }
    if let Some(freeze) = view.target.freeze {
        let text = "no node is eligible as a reflector; everything stays as it is";
        return no(freeze.as_str(), text.into());
    }
    if let Next::Refuse(step, why) = &view.next {
        return no("PlanRefused", plan::refusal(step.as_ref(), why));
    }
    if let Some(refused) = &view.refused {
        let kept = view.target.topology.as_str();
        return no("PlanRefused", format!("{refused}; topology {kept} is kept, and repaired"));
    }
    let mut text = format!(
        "{} reflectors in topology {}",
        view.target.slots.len(),
        view.target.topology.as_str()
    );
    if view.set.spec.mode == Mode::Observe {
        text.push_str("; mode Observe: nothing is written");
    }
    if let Some(frozen) = view.observed.fitness.as_ref().and_then(|f| f.frozen.as_deref()) {
        text.push_str("; no reflector is replaced for being unfit: ");
        text.push_str(frozen);
    }
    if !view.target.guests.is_empty() {
        let guests: Vec<_> = view.target.guests.iter().map(|zone| &**zone).collect();
        text.push_str("; clients of another zone's reflectors: those of ");
        text.push_str(&guests.join(", "));
    }
    let bare = view.snapshot.without_password();
    if !bare.is_empty() {
        text.push_str("; BGPPeers without the password that the mesh has: ");
        text.push_str(&bare.join(", "));
        text.push_str(" (set spec.password of all of them at once: it resets their sessions)");
    }
    if !view.bgp.differing.is_empty() {
        text.push_str(
            "; labels that differ between Kubernetes and Calico's Nodes are written again: ",
        );
        text.push_str(&some(&view.bgp.differing));
    }
    if !view.bgp.unreadable.is_empty() {
        text.push_str("; BGPPeers that cannot be read and are ignored: ");
        text.push_str(&view.bgp.unreadable.join(", "));
    }
    for remark in plan::remarks(view.bgp, view.observed.measured.as_ref()) {
        text.push_str("; ");
        text.push_str(&remark);
    }
    for note in &view.target.notes {
        text.push_str("; ");
        text.push_str(note);
    }
    let reason = if view.target.notes.is_empty() { "Planned" } else { "Adjusted" };
    verdict("Ready", Some(true), reason, text)
}

/// Names, of which a condition has room for a few.
fn some(names: &[Arc<str>]) -> String {
    let listed: Vec<&str> = names.iter().take(LISTED).map(|name| &**name).collect();
    let more = names.len().saturating_sub(LISTED);
    let listed = listed.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

fn converged(view: &View<'_>, memory: &Memory) -> Verdict {
    let no = |reason, text: String| verdict("Converged", Some(false), reason, text);
    if phase(view) == "Frozen" && !matches!(view.next, Next::Refuse(..)) {
        return no("Frozen", "nothing is written; see Ready".into());
    }
    match &view.next {
        Next::Done => verdict("Converged", Some(true), "Converged", "all steps are done"),
        Next::Take(_) => no("InProgress", format!("{} steps are left", view.left.len())),
        Next::Wait(step, shut) if timed_out(view, memory) => no(
            "GateTimeout",
            format!(
                "{step} has waited longer than transition.timeout: {shut}; the operator keeps checking"
            ),
        ),
        Next::Wait(step, shut) => no(shut.reason(), format!("{step}: {shut}")),
        Next::Refuse(step, why) => no("PlanRefused", plan::refusal(step.as_ref(), why)),
    }
}

fn safe(view: &View<'_>) -> Verdict {
    let fabric = &view.bgp.fabric;
    let no = |reason, text: String| verdict("RoutesSafe", Some(false), reason, text);
    let missing = fabric.missing(Rule::Bird);
    if let Some((who, whose)) = missing.examples.first() {
        let text = format!("{who} has no route to {whose} ({} such pairs of nodes)", missing.pairs);
        return no("RoutesMissing", text);
    }
    if let Some((reflector, missing)) = fabric.worst_without_one(Rule::Bird)
        && let Some((who, whose)) = missing.examples.first()
    {
        let text = format!(
            "{who} would lose the routes to {whose} if {reflector} failed ({} such pairs of nodes)",
            missing.pairs
        );
        return no("NoRedundancy", text);
    }
    let letter = fabric.missing(Rule::Rfc);
    if let Some((who, whose)) = letter.examples.first() {
        let text = format!(
            "BIRD carries every route; by the letter of RFC 4456, {who} would have no route to {whose} \
             ({} such pairs of nodes)",
            letter.pairs
        );
        return verdict("RoutesSafe", Some(true), "Redundant", text);
    }
    verdict(
        "RoutesSafe",
        Some(true),
        "Redundant",
        "with the configured sessions, the loss of any single reflector costs no route",
    )
}

/// What has changed since the status was written.
fn changes(view: &View<'_>) -> Vec<Notice> {
    let mut notices = vec![];
    let condition = known(view.set, "Ready");
    if let Some(freeze) = view.target.freeze
        && condition != Some(freeze.as_str())
    {
        notices.push(Notice {
            warning: true,
            reason: freeze.as_str(),
            note: "no node is eligible as a reflector; everything stays as it is".into(),
            node: None,
        });
    }
    if let Some(name) = &view.taken
        && condition != Some("Conflict")
    {
        let note = format!("BGPPeer {name} exists and is not ours; nothing is written");
        notices.push(Notice { warning: true, reason: "Conflict", note, node: None });
    }
    let before = view.set.status.iter().flat_map(|status| &status.slots);
    for slot in before {
        if !view.bgp.nodes.contains_key(slot.node.as_str()) {
            notices.push(Notice {
                warning: true,
                reason: "ReflectorGone",
                note: format!("{}, which held slot {}, is deleted", slot.node, slot.id),
                node: Some(slot.node.clone()),
            });
        }
    }
    notices
}
