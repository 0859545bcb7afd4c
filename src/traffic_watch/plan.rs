//! The decision: what must be written for the cluster to be as it was judged.
use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{
    children::{self, Child, Outcome},
    conflict::Claim,
    deployments::DeploymentFacts,
    evictions::{self, PodFacts, Replicas},
    evidence::Evaluation,
    judgment::Judgment,
    memory::{Facts, Memory, NodeMemory, NodeTable, Transition},
    observed::Observed,
    report,
    reservation::{self, OfferWrite},
    retries::FailedWrites,
    settings::Settings,
};
use crate::{
    api::{
        TrafficWatch, TrafficWatchStatus,
        traffic_watch::{Mode, NodeState, TaintEffect},
    },
    controller::{Error, Notice, Plan, Verdict},
    nodes::{Carrier, Incarnation, NodeFacts},
};

/// The time for which a refused eviction is not tried again, or `spec.eviction.after` if that is
/// shorter: a budget that refuses may do so for hours, and each try is a request and an event.
const REFUSAL_PAUSE: Duration = Duration::from_mins(1);

/// The state that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Node labels and taints to write.
    pub nodes: Vec<NodeWrite>,
    /// The Deployment to apply.
    pub deployment: Option<Child>,
    /// Pods to evict.
    pub evictions: Vec<PodFacts>,
    /// Extended resources of nodes to write.
    pub offers: Vec<OfferWrite>,
    /// The failed writes of them that are still needed.
    pub failed_offers: Arc<FailedWrites>,
    /// The settings and the replicas, for the metrics and the status page.
    pub(super) facts: Facts,
    /// The memory for the next pass; `None` if nothing is decided, and then nothing must look
    /// decided.
    pub memory: Option<Memory>,
    /// State changes, to be counted.
    pub transitions: Vec<Transition>,
    /// The result of this tick's measurement, for the counters; `None` if it was already counted.
    pub evaluation: Option<Evaluation>,
}

/// The change of one key of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWrite {
    /// Name of the node.
    pub node: Arc<str>,
    /// The one of this name that was judged: its successor is judged by itself.
    pub incarnation: Incarnation,
    /// The key of label and taint.
    pub key: Arc<str>,
    /// The label: whether the node is unfit.
    pub label: Edit<bool>,
    /// The change of the taint.
    pub taint: Edit<TaintEffect>,
    /// True if marks of the same plan may take its place: they are written after it.
    pub frees: bool,
}

/// The change of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// It stays as it is, or away.
    Keep,
    /// It becomes this.
    Set(T),
    /// It is removed.
    Remove,
}

impl NodeWrite {
    /// Removes the key of a node.
    #[must_use]
    pub fn removal(carrier: Carrier) -> Self {
        fn edit<T>(there: bool) -> Edit<T> {
            if there { Edit::Remove } else { Edit::Keep }
        }
        let (label, taint) = (edit(carrier.label), edit(carrier.taint));
        let Carrier { node, key, incarnation, .. } = carrier;
        Self { node, incarnation, key, label, taint, frees: false }
    }
}

type TrafficWatchPlan = Plan<Desired, TrafficWatchStatus>;

pub(super) fn plan(watch: &TrafficWatch, seen: &Observed) -> Result<TrafficWatchPlan, Error> {
    let settings = Settings::of(watch)?;
    let child = children::deployment(watch)?;
    if watch.spec.paused {
        return Ok(paused(watch, seen, settings.interval));
    }
    match &seen.claim {
        Claim::Ours => {}
        Claim::HeldBy(holder) => {
            let key = watch.label_key();
            return Err(Error::Conflict(format!(
                "node label {key} belongs to the older TrafficWatch {holder}; create another one with its own spec.label, and delete this one"
            )));
        }
        Claim::TooMany(text) => return Err(Error::TooMany(text.clone())),
    }
    Ok(finish(Judgment::of(watch, seen, &settings), child))
}

/// A pass over a paused object: no queries, and no writes except this condition and the removal of
/// its resource.
fn paused(watch: &TrafficWatch, seen: &Observed, period: Duration) -> TrafficWatchPlan {
    let outcome = reservation::paused(watch, &seen.reservation, seen.now);
    let status = watch.status.clone().unwrap_or_default();
    let mut message = "spec.paused is true: labels and Deployment stay as they are".to_owned();
    if let Some(first) = outcome.verdicts.first() {
        message = format!("{message}; {}", first.message);
    }
    Plan {
        desired: Desired {
            nodes: vec![],
            deployment: None,
            evictions: vec![],
            offers: outcome.writes,
            failed_offers: outcome.failed,
            facts: facts(watch, seen),
            memory: None,
            transitions: vec![],
            evaluation: None,
        },
        status: TrafficWatchStatus { reservation: outcome.status, ..status },
        conditions: vec![Verdict {
            type_: "Ready",
            status: Some(false),
            reason: "Paused",
            message,
        }],
        notices: vec![],
        period,
    }
}

fn finish(mut judged: Judgment<'_>, child: Option<Child>) -> TrafficWatchPlan {
    let seen = judged.seen;
    let ready = is_ready(&judged);
    let enforce = judged.watch.spec.mode == Mode::Enforce;
    let nodes = if enforce { mark_writes(&judged) } else { vec![] };
    let (nodes, failed, waiting) = due(seen, nodes);
    let evictions = if enforce { evictions(&judged) } else { Ok(vec![]) };
    let child = child.filter(|_| enforce && ready);
    let short_window = short_window(&judged);
    let evaluation = judged.evaluation();
    let blind = judged.without_evidence().is_some() || evaluation != Evaluation::Ok;
    let blind_since = blind.then(|| seen.memory.blind_since.unwrap_or(seen.now));
    let refused_child = report::refused(child.as_ref(), &seen.memory);
    let mut conditions = report::conditions(&judged, ready, blind_since, refused_child);
    let refresh = report::is_due(seen);
    let reserved = reservation::plan(&judged, refresh);
    let contested = report::contested(child.as_ref(), seen);
    for why in waiting.into_iter().chain(reserved.verdicts).chain(contested) {
        report::lower(&mut conditions, why);
    }
    let mut notices = report::changes(&judged);
    notices.extend(reserved.notices);
    notices.extend(report::news(&judged, &conditions));
    notices.extend(report::window_too_short(&judged, short_window));
    let unlisted = evictions.as_ref().err().map(|error| Notice {
        warning: true,
        reason: "EvictionFailed",
        note: format!("no pod is evicted: {error}"),
        node: None,
    });
    let refused = if unlisted.is_some() { Some(seen.now) } else { seen.memory.refused };
    notices.extend(unlisted);
    // Without a node there is nothing to evaluate.
    let evaluated = !blind && !seen.nodes.is_empty();
    let mut status = report::status(&judged, ready, refresh, evaluated);
    status.reservation = reserved.status;
    let (conditions, reworded) = report::settled(&judged, conditions);
    let names = seen.nodes.iter().map(|facts| &facts.name);
    let memory = Memory {
        tick: Some(seen.tick),
        criteria: judged.settings.criteria.clone().into(),
        problems: report::problems(&judged),
        limit: judged.limit,
        room: judged.room,
        unmarked_room: unmarked_room(&judged),
        above_ceiling: judged.above_ceiling.len(),
        above_ceiling_open: judged.above_ceiling.iter().filter(|&&i| seen.nodes[i].open).count(),
        failed,
        short_window,
        summary: judged.summary,
        last_success: match evaluation {
            Evaluation::Ok => Some(seen.now),
            _ => seen.memory.last_success,
        },
        blind_since,
        applied: seen.memory.applied.clone(),
        refreshed: if refresh || judged.watch.status.as_ref() != Some(&status) {
            Some(seen.now)
        } else {
            seen.memory.refreshed
        },
        reworded: if reworded { Some(seen.now) } else { seen.memory.reworded },
        refused,
        reservation: reserved.memory,
        observes: !enforce,
        nodes: NodeTable::next(&seen.memory.nodes, names, std::mem::take(&mut judged.nodes)),
    };
    let measured = seen.readings.is_some();
    let evaluation = (measured && judged.is_new()).then_some(evaluation);
    Plan {
        desired: Desired {
            nodes,
            deployment: child.filter(|child| must_apply(seen, child)),
            evictions: evictions.unwrap_or_default(),
            offers: reserved.writes,
            failed_offers: reserved.failed,
            facts: facts(judged.watch, seen),
            memory: Some(memory),
            transitions: judged.changes.into_iter().filter_map(|c| c.transition).collect(),
            evaluation,
        },
        status,
        conditions,
        notices,
        period: judged.settings.interval,
    }
}

/// Every node with data was judged once, now or ever before.
fn is_ready(judged: &Judgment<'_>) -> bool {
    let was = judged.watch.status.as_ref().is_some_and(|status| status.ready);
    let with_data = || (0..judged.nodes.len()).filter(|&i| judged.has_evidence(i));
    was || (with_data().next().is_some() && with_data().all(|i| judged.nodes[i].judged().is_some()))
}

/// The writes that are due, and the failed ones that are still needed. One that failed waits for
/// its turn; then what it failed with is returned, because the nodes are not as they should be
/// meanwhile.
fn due(
    seen: &Observed,
    mut writes: Vec<NodeWrite>,
) -> (Vec<NodeWrite>, Arc<FailedWrites>, Option<Verdict>) {
    let all = writes.len();
    let failed = seen.memory.failed.needed(writes.iter().map(|write| &*write.node));
    {
        let is_due = failed.due(seen.now);
        writes.retain(|write| is_due(&write.node));
    }
    let waiting = (writes.len() < all).then(|| failed.why().cloned()).flatten();
    (writes, failed, waiting)
}

/// The pods that leave nodes that stayed unfit, while there is a fit node to go to.
fn evictions(judged: &Judgment<'_>) -> Result<Vec<PodFacts>, String> {
    let Some((after, most)) = judged.settings.eviction else { return Ok(vec![]) };
    if !judged.is_new() || waits(judged.seen.memory.refused, after, judged.seen.now) {
        return Ok(vec![]);
    }
    let nodes = || judged.seen.nodes.iter().zip(&judged.nodes);
    let mut able = judged.takes_pods.iter().zip(&judged.nodes);
    let room = able.any(|(takes_pods, node)| *takes_pods && node.state == NodeState::Fit);
    let Some(deployment) = judged.seen.deployment.as_ref().filter(|_| room) else {
        return Ok(vec![]);
    };
    // Without the label on the node, the replacement could start there again.
    let labeled = |facts: &NodeFacts| facts.label.as_deref() == Some("true");
    let mut unfit: Vec<_> = nodes()
        .filter(|(facts, node)| labeled(facts) && stayed_unfit(node, after, judged.seen.now))
        .collect();
    unfit.sort_by_key(|(_, node)| node.since);
    let names: Vec<_> = unfit.into_iter().map(|(facts, _)| Arc::clone(&facts.name)).collect();
    let before = judged.seen.now.as_second() - i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
    let pods = judged.seen.pods.as_ref().map_err(Clone::clone)?;
    let replicas = Replicas { wanted: deployment.wanted, available: deployment.available };
    Ok(evictions::choose(pods, replicas, &names, before, most).into_iter().cloned().collect())
}

/// Reports whether pods may have to leave a node: only then are they read.
pub(super) fn may_leave(settings: &Settings, memory: &Memory, now: Timestamp) -> bool {
    let Some((after, _)) = settings.eviction else { return false };
    let unfit = || memory.nodes.iter().any(|(_, node)| stayed_unfit(node, after, now));
    !waits(memory.refused, after, now) && unfit()
}

/// Reports whether evictions rest after one that was refused then.
fn waits(refused: Option<Timestamp>, after: Duration, now: Timestamp) -> bool {
    let pause = after.min(REFUSAL_PAUSE);
    refused.is_some_and(|at| now.duration_since(at).unsigned_abs() < pause)
}

fn facts(watch: &TrafficWatch, seen: &Observed) -> Facts {
    let replicas = seen.deployment.as_ref();
    Facts {
        label: watch.label_key(),
        mode: watch.spec.mode,
        paused: watch.spec.paused,
        interval: watch.spec.interval.into(),
        consecutive: watch.spec.consecutive,
        replicas: replicas.map(|deployment| (deployment.wanted, deployment.available)),
    }
}

/// Reports whether a node has been unfit for at least `after`.
fn stayed_unfit(node: &NodeMemory, after: Duration, now: Timestamp) -> bool {
    let unfit_for = now.duration_since(node.since);
    node.state == NodeState::Unfit && Duration::try_from(unfit_for).is_ok_and(|long| long >= after)
}

/// For how many judgments in a row the window has held too few scrapes.
fn short_window(judged: &Judgment<'_>) -> u32 {
    let before = judged.seen.memory.short_window;
    if !judged.is_new() {
        return before;
    }
    match report::scrapes(judged) {
        Some(scrapes) if scrapes < report::SCRAPES_NEEDED => before.saturating_add(1),
        Some(_) => 0,
        None => before,
    }
}

/// The time for which a Deployment that the API server refused is not applied again while nothing
/// changes: what refuses it may be mended elsewhere (a quota, a webhook), and each try is a
/// request.
const REFUSED_PAUSE: Duration = Duration::from_mins(3);

/// Applying the existing state costs the API server as much as a change.
fn must_apply(seen: &Observed, child: &Child) -> bool {
    let Some(applied) = seen.memory.applied.as_ref().filter(|a| a.hash == child.hash) else {
        return true;
    };
    if applied.contest(seen.now).is_some_and(|(left, _)| !left.is_zero()) {
        return false;
    }
    match (&applied.outcome, &seen.deployment) {
        // Deleted, recreated or edited since: it may be accepted now.
        (Outcome::Refused { at, there, .. }, now) => {
            *there != now.as_ref().map(DeploymentFacts::version)
                || seen.now.duration_since(*at).unsigned_abs() >= REFUSED_PAUSE
        }
        (Outcome::Accepted { uid, generation, .. }, Some(now)) => {
            // The store may lag behind our own apply: an older generation is no edit.
            *uid != now.uid || now.generation > *generation
        }
        // No event reports the removal of another owner's object.
        (Outcome::Accepted { .. }, None) | (Outcome::Taken(_), _) => true,
    }
}

/// Returns the labels and taints to write, and those to remove.
fn mark_writes(judged: &Judgment<'_>) -> Vec<NodeWrite> {
    let (key, effect) = (Arc::<str>::from(judged.watch.label_key()), judged.watch.spec.taint);
    let flips = judged.seen.nodes.iter().enumerate().filter_map(|(i, facts)| {
        let marked = judged.nodes[i].marked;
        let drops = drops(judged, i);
        let label = match (marked, facts.label.as_deref()) {
            (None, Some(_)) if drops => Edit::Remove,
            (Some(value), there) if there != Some(if value { "true" } else { "false" }) => {
                Edit::Set(value)
            }
            _ => Edit::Keep,
        };
        // A node that is not judged yet keeps its label.
        let wanted = effect.filter(|_| marked == Some(true));
        let taint = match (wanted, facts.taint.as_deref()) {
            _ if marked.is_none() && !drops => Edit::Keep,
            (Some(effect), there) if there != Some(effect.as_str()) => Edit::Set(effect),
            (None, Some(_)) => Edit::Remove,
            _ => Edit::Keep,
        };
        // Most nodes end here, before their texts are touched: those are cold memory.
        if label == Edit::Keep && taint == Edit::Keep {
            return None;
        }
        let releases = facts.label.as_deref() == Some("true") && label != Edit::Keep;
        // The limit already counts the label of one that failed before.
        let frees = releases && !judged.seen.memory.failed.has(&facts.name);
        let (node, key) = (Arc::clone(&facts.name), Arc::clone(&key));
        Some(NodeWrite { node, incarnation: facts.incarnation, key, label, taint, frees })
    });
    flips.chain(judged.seen.strays.iter().cloned().map(NodeWrite::removal)).collect()
}

/// Reports whether the label of a node goes, because there is no evidence about it.
fn drops(judged: &Judgment<'_>, node: usize) -> bool {
    judged.drops_label(node) && judged.nodes[node].marked.is_none()
}

/// Returns the number of nodes that can take the pods and have no mark.
fn unmarked_room(judged: &Judgment<'_>) -> usize {
    let nodes = judged.takes_pods.iter().zip(&judged.nodes);
    nodes.filter(|(takes_pods, node)| **takes_pods && node.marked != Some(true)).count()
}

#[cfg(test)]
mod tests;
