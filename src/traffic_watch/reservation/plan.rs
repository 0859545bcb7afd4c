//! Decides what each node offers. Pure.
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use super::{
    super::{evidence::Unit, judgment::Judgment, requests::Requested, retries::FailedWrites},
    Figures, Leaving, Memory, OfferWrite, Outcome, Seen, Terms,
    amount::{Load, Standing},
    leaving, report,
};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState},
    },
    controller::{Notice, Verdict},
    nodes::{NodeFacts, Offer},
};

/// The most nodes that one object writes in a pass: one that begins on 5,000 nodes does so in ten
/// passes, each of which takes the API server some seconds.
const WRITES: usize = 500;

/// Decides what each node offers.
pub(in super::super) fn plan(judged: &Judgment<'_>, refresh: bool) -> Outcome {
    let seen = &judged.seen.reservation;
    let old = judged.watch.status.as_ref().and_then(|status| status.reservation.clone());
    let (removals, kept) = leaving::plan(&seen.leaving);
    let mut verdicts = report::kept(&kept).into_iter().collect::<Vec<_>>();
    let enforces = judged.watch.spec.mode == Mode::Enforce;
    let Some(terms) = &judged.settings.reservation else {
        let (writes, failed, waiting) = due(seen, removals, judged.seen.now);
        verdicts.extend(waiting);
        let status = if enforces { report::left(seen) } else { old };
        return Outcome { writes, failed, status, verdicts, ..Outcome::default() };
    };
    if let Some(holder) = &seen.holder {
        verdicts.insert(0, report::conflict(&terms.resource, holder));
        let (writes, failed, waiting) = due(seen, removals, judged.seen.now);
        verdicts.extend(waiting);
        let status = report::left(seen);
        return Outcome { writes, failed, status, verdicts, ..Outcome::default() };
    }
    let before = judged.seen.memory.reservation.clone();
    let before = before.filter(|memory| memory.resource == terms.resource);
    let Some(requested) = &seen.requested else {
        // Nothing moves before it is known what running pods need.
        verdicts.push(report::pods_unknown());
        let failed = Arc::clone(&seen.failed);
        return Outcome { failed, memory: before, status: old, verdicts, ..Outcome::default() };
    };
    let figures = figures(judged, terms, requested, before.as_deref());
    // The name is in the status before it is on any node: a later reader of the object knows
    // what to take away.
    let recorded = old.as_ref().and_then(|old| old.resource.as_deref()) == Some(&*terms.resource);
    let all = if enforces && recorded {
        writes(judged, terms, &figures, requested, removals)
    } else {
        removals
    };
    let (writes, failed, waiting) = due(seen, all, judged.seen.now);
    verdicts.extend(seen.device_class.as_ref().map(|class| report::taken(&terms.resource, class)));
    verdicts.extend(report::capacity_unknown(judged, &figures));
    verdicts.extend(waiting);
    let names = judged.seen.nodes.iter().map(|facts| Arc::clone(&facts.name));
    let memory = Memory::new(terms, names.zip(figures).collect(), &seen.waiting);
    let notices = report::notices(judged, &memory, before.as_deref(), old.as_ref());
    let status = if enforces { Some(report::status(&memory, old, seen, refresh)) } else { old };
    Outcome { writes, failed, memory: Some(Arc::new(memory)), status, verdicts, notices }
}

/// Takes the resources away of an object that is paused.
pub(in super::super) fn paused(watch: &TrafficWatch, seen: &Seen, now: Timestamp) -> Outcome {
    let old = watch.status.as_ref().and_then(|status| status.reservation.clone());
    let (removals, kept) = leaving::plan(&seen.leaving);
    let (writes, failed, waiting) = due(seen, removals, now);
    let verdicts = report::kept(&kept).into_iter().chain(waiting).collect();
    let status = if watch.spec.mode == Mode::Enforce { report::left(seen) } else { old };
    Outcome { writes, failed, status, verdicts, ..Outcome::default() }
}

/// Takes the resources away of an object that is deleted: the writes, and the event about them.
///
/// From all nodes, those with pods that request one included. A kubelet does not check a resource
/// that its node lacks, so that these pods stay. To wait for them would take for ever where they
/// are those of the object's own Deployment, which ends with the object.
pub(in super::super) fn removed(leaving: &[Leaving]) -> (Vec<OfferWrite>, Option<Notice>) {
    let all = leaving.iter().flat_map(|Leaving { resource, offers, .. }| {
        offers.iter().map(move |(node, _)| OfferWrite {
            node: Arc::clone(node),
            incarnation: None,
            resource: Arc::clone(resource),
            amount: None,
        })
    });
    let (_, kept) = leaving::plan(leaving);
    (all.collect(), report::ended(leaving, &kept))
}

/// The figures of each judged node, in their order.
fn figures(
    judged: &Judgment<'_>,
    terms: &Terms,
    requested: &Requested,
    before: Option<&Memory>,
) -> Vec<Figures> {
    let now = judged.seen.now;
    let offers: BTreeMap<&str, Offer> =
        judged.seen.reservation.offers.iter().map(|(node, offer)| (&**node, *offer)).collect();
    let of = |(place, facts): (usize, &NodeFacts)| {
        let load = load(judged, terms, place);
        let requested = requested.get(&*facts.name).copied().unwrap_or_default();
        let known = before.and_then(|memory| memory.get(&facts.name));
        let rose = match known {
            _ if requested == 0 => None,
            // A process that has just started cannot know it: the last one may have seen it rise.
            None => Some(now),
            Some(known) if requested > known.requested => Some(now),
            Some(known) => known.rose,
        };
        let settled = rose.is_none_or(|at| now.duration_since(at).unsigned_abs() >= terms.settle);
        let offer = offers.get(&*facts.name).copied();
        let amount = terms.amount(&Standing { load, requested, offer, settled });
        let (limit, measured) = match load {
            Load::Measured { limit, measured } => (Some(limit), Some(measured)),
            Load::Unfit | Load::Unknown => measures(judged, terms, place),
        };
        let over = match limit.zip(measured) {
            Some((limit, measured)) => {
                let already = known.is_some_and(|known| known.over);
                terms.is_over(limit, measured, requested, already)
            }
            // Without evidence it is what it was.
            None => known.is_some_and(|known| known.over),
        };
        let summed = is_summed(judged, terms, place);
        Figures { limit, measured, requested, amount, offer, over, summed, rose }
    };
    judged.seen.nodes.iter().enumerate().map(of).collect()
}

/// The load of a node, by its state and the evidence about its bandwidth.
fn load(judged: &Judgment<'_>, terms: &Terms, place: usize) -> Load {
    let node = &judged.nodes[place];
    if node.state == NodeState::Unknown {
        return Load::Unknown;
    }
    if node.marked == Some(true) {
        return Load::Unfit;
    }
    match measures(judged, terms, place) {
        (Some(limit), Some(measured)) => Load::Measured { limit, measured },
        _ => Load::Unknown,
    }
}

/// The limit and the load of a node in bits per second, as far as there is evidence.
fn measures(judged: &Judgment<'_>, terms: &Terms, place: usize) -> (Option<f64>, Option<f64>) {
    // The bandwidth is the first measure, and terms exist only with it.
    let bandwidth = judged.settings.criteria.first().zip(judged.gathered.first());
    let Some((criterion, measure)) = bandwidth else { return (None, None) };
    match &measure.findings[place] {
        Ok(evidence) => (terms.limit(criterion, evidence.capacity.get()), evidence.bits.get()),
        Err(_) => (None, None),
    }
}

/// Reports whether the links of a node carry more together than one of them may, each less than it
/// may: without a configured capacity, the limit is that of the fastest link.
fn is_summed(judged: &Judgment<'_>, terms: &Terms, place: usize) -> bool {
    let bandwidth = judged.settings.criteria.first().zip(judged.gathered.first());
    let Some((criterion, measure)) = bandwidth else { return false };
    let Ok(evidence) = &measure.findings[place] else { return false };
    let (Some(capacity), Some(bits)) = (evidence.capacity.get(), evidence.bits.get()) else {
        return false;
    };
    // Of one link, the two are the same but for rounding.
    let several = bits / capacity * 100.0 > evidence.value * 1.01;
    let above = terms.limit(criterion, Some(capacity)).is_some_and(|limit| bits > limit);
    criterion.rules.unit == Unit::Percent && several && above && evidence.value <= criterion.max
}

/// Everything that differs from what was decided.
fn writes(
    judged: &Judgment<'_>,
    terms: &Terms,
    figures: &[Figures],
    requested: &Requested,
    removals: Vec<OfferWrite>,
) -> Vec<OfferWrite> {
    let (seen, selected) = (judged.seen, &judged.seen.nodes);
    // A selection that is empty is more likely a mistake than a wish: freeze.
    if selected.is_empty() {
        return vec![];
    }
    let mut writes: Vec<_> = selected
        .iter()
        .zip(figures)
        .filter(|(_, figures)| figures.differs())
        .map(|(facts, figures)| {
            let (node, resource) = (Arc::clone(&facts.name), Arc::clone(&terms.resource));
            let (incarnation, amount) = (Some(facts.incarnation), figures.amount);
            (figures.urgency(), OfferWrite { node, incarnation, resource, amount })
        })
        .collect();
    // Offers that pods need come first, then offers that must shrink.
    writes.sort_by_key(|(urgency, _)| Reverse(*urgency));
    let is_selected =
        |node: &str| selected.binary_search_by(|facts| (*facts.name).cmp(node)).is_ok();
    let strays = seen.reservation.offers.iter().filter(|(node, _)| !is_selected(node)).cloned();
    let strays = Leaving {
        resource: Arc::clone(&terms.resource),
        offers: strays.collect(),
        requested: Some(requested.clone()),
    };
    let (strays, _) = leaving::plan(&[strays]);
    writes.into_iter().map(|(_, write)| write).chain(strays).chain(removals).collect()
}

/// The writes that are due, the failed ones that are still needed, and what those failed with that
/// wait for their turn.
fn due(
    seen: &Seen,
    mut writes: Vec<OfferWrite>,
    now: Timestamp,
) -> (Vec<OfferWrite>, Arc<FailedWrites>, Option<Verdict>) {
    let all = writes.len();
    let failed = seen.failed.needed(writes.iter().map(|write| &*write.node));
    {
        let is_due = failed.due(now);
        writes.retain(|write| is_due(&write.node));
    }
    let waiting = (writes.len() < all).then(|| failed.why().cloned()).flatten();
    writes.truncate(WRITES);
    (writes, failed, waiting)
}
