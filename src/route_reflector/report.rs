//! Status, conditions and events of a decision.
use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    bgp_model::Rule,
    datastore::{Idle, Snapshot},
    election::Target,
    gate::GateClosed,
    memory::{Figures, Memory},
    names,
    plan::retire,
    steps::{Next, Step, refusal},
    topology::{BgpTopology, ReflectorLabels},
};
use crate::{
    api::{
        Mode, RouteReflectorSet, RouteReflectorSetStatus,
        route_reflector_set::{GroupStatus, Mesh, PlannedStep, SlotStatus, Topology},
    },
    controller::{Notice, Verdict, count, verdict},
};

/// Maximum number of steps in the status.
const LISTED: usize = 10;

/// A pass that has a target.
pub(super) struct Decided<'a> {
    pub set: &'a RouteReflectorSet,
    /// The time.
    pub now: Timestamp,
    /// The time for which a gate may stay shut.
    pub timeout: Duration,
    /// Why no node is replaced for being unfit.
    pub frozen: Option<&'a str>,
    pub snapshot: &'a Snapshot,
    pub bgp: &'a BgpTopology,
    pub target: &'a Target,
    pub left: Vec<Step>,
    pub next: Next,
    /// The mistake in the fields of the gate, with which only repairs are done.
    pub misconfigured: Option<&'a str>,
    /// Another owner's BGPPeer with one of our names.
    pub taken: Option<String>,
    /// BGPPeers of other owners contradict ours; only repairs are done.
    pub contested: Option<String>,
    /// Why the topology of the spec, or the retirement, is refused; what is in use is kept up.
    pub refused: Option<String>,
    /// With `mesh: Retire`: why no route depends on BGP, or why that is not known.
    pub retires: Option<Result<Idle, String>>,
    /// Why no node is eligible, if none is.
    pub obstacles: Option<String>,
    /// The time since which reflectors have been unfit.
    pub unfit_since: BTreeMap<Arc<str>, Timestamp>,
    /// Findings beside the plan.
    pub remarks: Vec<String>,
}

/// Status, conditions and events of a pass that decided.
pub(super) fn report(
    decided: &Decided<'_>,
    figures: &Figures,
    memory: &Memory,
    last_step: Option<Timestamp>,
) -> (RouteReflectorSetStatus, Vec<Verdict>, Vec<Notice>) {
    let ready = decided
        .bgp
        .reflectors()
        .filter(|(node, _)| decided.bgp.fabric.node(node).is_some_and(|node| node.up));
    let before = decided.set.status.as_ref().map_or(0, |status| status.desired);
    let mut status = RouteReflectorSetStatus {
        slots: decided.set.status.as_ref().map(|status| status.slots.clone()).unwrap_or_default(),
        // No candidate does not mean that none is desired.
        desired: if decided.target.freeze.is_some() {
            before
        } else {
            count(decided.target.desired)
        },
        ready: count(ready.count()),
        mesh: Some(if figures.mesh { "On" } else { "Off" }.into()),
        datastore: Some(decided.snapshot.flavor.into()),
        plan: steps(decided),
        last_step_time: last_step.map(Time),
        ..RouteReflectorSetStatus::default()
    };
    remember(&mut status, decided.target, decided.bgp, &decided.unfit_since, decided.now);
    status.mesh_before = retire::mesh_before(decided.set, decided.bgp, decided.retires.is_some());
    let conditions = vec![readiness(decided, memory), converged(decided, memory), safe(decided)];
    let mut notices = changes(decided);
    if let Next::Wait(step, shut) = &decided.next
        && timed_out(decided, memory)
    {
        let known = known(decided.set, "Converged");
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

fn timed_out(decided: &Decided<'_>, memory: &Memory) -> bool {
    memory.shut_since.is_some_and(|since| {
        let waited = decided.now.duration_since(since);
        Duration::try_from(waited).unwrap_or_default() >= decided.timeout
    })
}

/// Reports whether nothing is written, for a reason that Ready names.
fn frozen(decided: &Decided<'_>) -> bool {
    decided.target.freeze.is_some() || decided.taken.is_some() || decided.snapshot.locked
}

/// The mistake in the fields of the gate, unless Ready names a reason to write nothing at all.
fn misconfigured<'a>(decided: &Decided<'a>) -> Option<&'a str> {
    decided.misconfigured.filter(|_| !frozen(decided))
}

/// The event of an invalid spec, unless the condition already reports it.
pub(super) fn invalid(set: &RouteReflectorSet, text: &str) -> Option<Notice> {
    let reason = "InvalidSpec";
    let mut known = set.status.iter().flat_map(|status| &status.conditions);
    let reported = known.any(|c| c.type_ == "Ready" && c.reason == reason && c.message == text);
    (!reported).then(|| Notice { warning: true, reason, note: text.into(), node: None })
}

/// Returns the remaining steps, one line for each node.
fn steps(decided: &Decided<'_>) -> Vec<PlannedStep> {
    let mut lines: Vec<PlannedStep> = Vec::new();
    for step in &decided.left {
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
    let waiting = match &decided.next {
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

fn ineligible(decided: &Decided<'_>) -> String {
    let why = decided.obstacles.as_deref().unwrap_or_default();
    format!("no node is eligible as a reflector ({why}); everything stays as it is")
}

fn readiness(decided: &Decided<'_>, memory: &Memory) -> Verdict {
    let no = |reason, text: String| verdict("Ready", Some(false), reason, text);
    if let Some(name) = &decided.taken {
        return no(
            "Conflict",
            format!(
                "BGPPeer {name} exists and is not ours; to hand it over: kubectl label bgppeer {name} \
                 app.kubernetes.io/managed-by=traffic-operator"
            ),
        );
    }
    if decided.snapshot.locked {
        let text = "Calico is migrating its datastore; nothing is written until the migration ends";
        return no("DatastoreLocked", text.into());
    }
    if let Some(text) = misconfigured(decided) {
        return no("InvalidSpec", text.into());
    }
    if let Some(text) = &decided.contested {
        return no("Conflict", text.clone());
    }
    if let Some(stale) = &decided.snapshot.stale {
        return verdict("Ready", None, "DatastoreUnreachable", stale.to_string());
    }
    if let Some(freeze) = decided.target.freeze {
        return no(freeze.as_str(), ineligible(decided));
    }
    if let Next::Refuse(step, why) = &decided.next {
        return no("PlanRefused", refusal(step.as_ref(), why));
    }
    if let Next::Wait(step, shut @ GateClosed::Contested) = &decided.next {
        return verdict("Ready", None, shut.reason(), format!("{step}: {shut}"));
    }
    if let Some(blocked) = &memory.blocked {
        let mut verdict = blocked.verdict.clone();
        if let Next::Wait(step, shut @ GateClosed::Missing(_)) = &decided.next
            && *step == blocked.step
        {
            verdict.message.push_str("; not now: ");
            verdict.message.push_str(&shut.to_string());
        }
        return verdict;
    }
    if let Some(refused) = &decided.refused {
        return no("PlanRefused", refused.clone());
    }
    if let Some(witness) = &decided.retires {
        return retiring(decided, witness);
    }
    let mut text = format!(
        "{} reflectors in topology {}",
        decided.target.slots.len(),
        decided.target.topology.as_str()
    );
    if decided.set.spec.mode == Mode::Observe {
        text.push_str("; mode Observe: nothing is written");
    }
    if let Some(frozen) = decided.frozen {
        text.push_str("; no reflector is replaced for being unfit: ");
        text.push_str(frozen);
    }
    if !decided.target.guests.is_empty() {
        let guests: Vec<_> = decided.target.guests.iter().map(|zone| &**zone).collect();
        text.push_str("; zones whose clients use the reflectors of another zone: ");
        text.push_str(&guests.join(", "));
    }
    let bare = decided.snapshot.without_password();
    if !bare.is_empty() {
        text.push_str("; BGPPeers without the password that the mesh has: ");
        text.push_str(&bare.join(", "));
        text.push_str(" (set spec.password of all of them at once: it resets their sessions)");
    }
    let differing: Vec<_> = decided.bgp.differing().collect();
    if !differing.is_empty() {
        text.push_str(
            "; labels that differ between Kubernetes and Calico's Nodes are written again: ",
        );
        text.push_str(&names::first(differing.into_iter(), LISTED));
    }
    if !decided.bgp.unreadable.is_empty() {
        text.push_str("; not readable, so that the routes that they carry are unknown: ");
        text.push_str(&names::few(decided.bgp.unreadable.iter()));
    }
    for remark in &decided.remarks {
        text.push_str("; ");
        text.push_str(remark);
    }
    for note in &decided.target.notes {
        text.push_str("; ");
        text.push_str(note);
    }
    let reason = if decided.target.notes.is_empty() { "Planned" } else { "Adjusted" };
    verdict("Ready", Some(true), reason, text)
}

fn retiring(decided: &Decided<'_>, witness: &Result<Idle, String>) -> Verdict {
    let idle = match witness {
        Ok(idle) => idle,
        Err(why) => return verdict("Ready", None, "RoutesUnknown", why.clone()),
    };
    let (reason, what) = if decided.left.is_empty() {
        ("Retired", "the mesh is off, and no reflector of ours is left")
    } else {
        ("Retiring", "reflectors and mesh go")
    };
    let mut text = format!("{what}: {}", idle.text);
    if decided.set.spec.mode == Mode::Observe {
        text.push_str("; mode Observe: nothing is written");
    }
    let by_hand = decided.bgp.reflectors().filter(|(_, labels)| labels.slot.is_none());
    let by_hand: Vec<&str> = by_hand.map(|(node, _)| &**node).collect();
    let peers: Vec<&str> = decided.bgp.taken.iter().map(String::as_str).collect();
    for (what, names) in [("BGPPeers", peers), ("reflectors", by_hand)] {
        if !names.is_empty() {
            let names = names::few(names.iter());
            let _ = write!(text, "; {what} of other owners stay: {names}");
        }
    }
    verdict("Ready", Some(true), reason, text)
}

/// The reason is what the set does now: a client sees progress without a field beside the
/// conditions, which `kubectl wait` could not watch.
fn converged(decided: &Decided<'_>, memory: &Memory) -> Verdict {
    let no = |reason, text: String| verdict("Converged", Some(false), reason, text);
    if frozen(decided) && !matches!(decided.next, Next::Refuse(..)) {
        return no("Frozen", "nothing is written; see Ready".into());
    }
    match &decided.next {
        Next::Done if decided.misconfigured.is_some() || decided.contested.is_some() => {
            no("Frozen", "only dead reflectors are replaced; see Ready".into())
        }
        Next::Done if decided.refused.is_some() && decided.set.spec.mesh == Mesh::Retire => {
            no("PlanRefused", "reflectors and mesh stay; see Ready".into())
        }
        Next::Done => verdict("Converged", Some(true), "Converged", "all steps are done"),
        Next::Take(step) => {
            no(step.activity(), format!("{step}; {} steps are left", decided.left.len()))
        }
        Next::Wait(step, shut) if timed_out(decided, memory) => no(
            "GateTimeout",
            format!(
                "{step} has waited longer than transition.timeout: {shut}; the operator keeps checking"
            ),
        ),
        Next::Wait(step, _) if memory.blocked.as_ref().is_some_and(|b| b.step == *step) => {
            no("Refused", format!("{step}: the write is refused; see Ready"))
        }
        Next::Wait(step, shut) => no(shut.reason(), format!("{step}: {shut}")),
        Next::Refuse(step, why) => no("PlanRefused", refusal(step.as_ref(), why)),
    }
}

fn safe(decided: &Decided<'_>) -> Verdict {
    if let Some(witness) = &decided.retires {
        return match witness {
            Ok(idle) => {
                let text = "by Calico's configuration, no route depends on a session of BGP";
                verdict("RoutesSafe", Some(true), idle.reason, text)
            }
            Err(why) => verdict("RoutesSafe", None, "RoutesUnknown", why.clone()),
        };
    }
    let fabric = &decided.bgp.fabric;
    let unreadable = &decided.bgp.unreadable;
    let no = |reason, text: String| {
        if unreadable.is_empty() {
            return verdict("RoutesSafe", Some(false), reason, text);
        }
        let text =
            format!("{text}, unless by what cannot be read: {}", names::few(unreadable.iter()));
        verdict("RoutesSafe", None, "CalicoUnreadable", text)
    };
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

/// Returns the changes since the status was written.
fn changes(decided: &Decided<'_>) -> Vec<Notice> {
    let mut notices = vec![];
    let condition = known(decided.set, "Ready");
    if let Some(freeze) = decided.target.freeze
        && condition != Some(freeze.as_str())
    {
        notices.push(Notice {
            warning: true,
            reason: freeze.as_str(),
            note: ineligible(decided),
            node: None,
        });
    }
    let taken = decided.taken.as_ref();
    let taken =
        taken.map(|name| format!("BGPPeer {name} exists and is not ours; nothing is written"));
    if let Some(note) = taken.or_else(|| decided.contested.clone())
        && condition != Some("Conflict")
    {
        notices.push(Notice { warning: true, reason: "Conflict", note, node: None });
    }
    if matches!(decided.retires, Some(Ok(_)))
        && decided.left.is_empty()
        && !frozen(decided)
        && condition != Some("Retired")
    {
        let note = "the mesh is off, and no reflector is left".into();
        notices.push(Notice { warning: false, reason: "Retired", note, node: None });
    }
    notices.extend(misconfigured(decided).and_then(|text| invalid(decided.set, text)));
    let before = decided.set.status.iter().flat_map(|status| &status.slots);
    for slot in before {
        if !decided.bgp.nodes.contains_key(slot.node.as_str()) {
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

/// Fills in what later passes go by: topology, slots and groups.
pub(super) fn remember(
    status: &mut RouteReflectorSetStatus,
    target: &Target,
    bgp: &BgpTopology,
    unfit_since: &BTreeMap<Arc<str>, Timestamp>,
    now: Timestamp,
) {
    let slots = slots(&status.slots, target, bgp, unfit_since, now);
    // Auto is of no election.
    let elected = target.topology != Topology::Auto;
    status.topology = elected.then(|| target.topology.as_str().into());
    status.groups = groups(target, bgp);
    status.slots = slots;
}

/// The existing reflectors, and their times; what another node is about to take is there twice.
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
    // A reflector with labels that were removed by hand is known only from here, until it has them
    // again.
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
