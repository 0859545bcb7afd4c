//! Conditions, events and status of a reservation.
use std::sync::Arc;

use super::{
    super::{judgment::Judgment, report::FewNotices},
    Figures, Leaving, Memory, Seen,
    leaving::Kept,
};
use crate::{
    api::traffic_watch::{Mode, ReservationStatus},
    controller::{Notice, Verdict, count, verdict},
};

/// Maximum number of nodes that a message names.
const NAMED: usize = 5;

/// Maximum number of resources that a status lists as leaving, as in its schema.
const LEAVING: usize = 10;

/// The condition of an object whose resource belongs to another.
pub(super) fn conflict(resource: &str, holder: &str) -> Verdict {
    let message = format!(
        "spec.reservation.resource: {resource} belongs to the older TrafficWatch {holder}; nodes \
         are judged and labeled, and offer nothing for this object: create another one with its own \
         resource, and delete this one"
    );
    verdict("Ready", Some(false), "Conflict", message)
}

/// The condition of an object whose resource a class of devices stands for.
pub(super) fn taken(resource: &str, class: &str) -> Verdict {
    let message = format!(
        "DeviceClass {class} has the extendedResourceName {resource}: a pod that requests it waits for \
         devices and never starts, whatever nodes offer; remove that field, or use another name in \
         spec.reservation.resource"
    );
    verdict("Ready", Some(false), "DeviceClass", message)
}

/// The condition while the requests of pods are not known.
pub(super) fn pods_unknown() -> Verdict {
    let message = "the requests of pods are not listed yet: what nodes offer stays as it is";
    verdict("Ready", None, "PodsUnknown", message)
}

/// The condition of an object that took a resource away, except from some nodes.
pub(super) fn kept(kept: &[Kept]) -> Option<Verdict> {
    let Kept { resource, nodes } = kept.first()?;
    let message = format!(
        "{resource} is no longer offered, but stays on {} because pods there request it; it goes \
         when they end",
        named(nodes)
    );
    Some(verdict("Ready", Some(false), "StillRequested", message))
}

/// The event of an object that is deleted, and whose resource nodes offered.
pub(super) fn ended(leaving: &[Leaving], kept: &[Kept]) -> Option<Notice> {
    let gone = leaving.iter().find(|leaving| !leaving.offers.is_empty())?;
    let still = kept.iter().find(|kept| kept.resource == gone.resource).map(|kept| {
        let nodes = named(&kept.nodes);
        format!(
            "; pods on {nodes} request it: they stay, and no other pod with that request starts"
        )
    });
    Some(Notice {
        warning: still.is_some(),
        reason: "ReservationEnded",
        note: format!("nodes no longer offer {}{}", gone.resource, still.unwrap_or_default()),
        node: None,
    })
}

/// The condition when nodes are measured, and no link speed or capacity is known.
pub(super) fn capacity_unknown(judged: &Judgment<'_>, figures: &[Figures]) -> Option<Verdict> {
    let measured = judged.gathered.first()?.with_evidence > 0;
    let any = figures.iter().any(|figures| figures.limit.is_some());
    let message = "spec.reservation: no node has a known capacity, so no node offers anything: \
                   set spec.capacity or the node annotation traffic.example.com/capacity, or use \
                   spec.maxBandwidth";
    (measured && !any).then(|| verdict("Ready", Some(false), "CapacityUnknown", message))
}

fn named(nodes: &[Arc<str>]) -> String {
    let mut text = nodes.iter().take(NAMED).map(|node| &**node).collect::<Vec<_>>().join(", ");
    if nodes.len() > NAMED {
        text.push_str(" and others");
    }
    text
}

/// The events of one pass.
pub(super) fn notices(
    judged: &Judgment<'_>,
    memory: &Memory,
    before: Option<&Memory>,
    old: Option<&ReservationStatus>,
) -> Vec<Notice> {
    let resource = &memory.resource;
    let is_new = judged.watch.spec.mode == Mode::Enforce
        && old.and_then(|old| old.resource.as_deref()) != Some(&**resource);
    let first = is_new.then(|| Notice {
        warning: false,
        reason: "ReservationBegun",
        note: format!("nodes offer their free bandwidth as {resource}"),
        node: None,
    });
    let newly = |is: fn(&Figures) -> bool| {
        let was = move |node: &str| before.and_then(|memory| memory.get(node)).is_some_and(is);
        memory.iter().filter(move |(node, figures)| is(figures) && !was(node))
    };
    let over = newly(|figures| figures.over);
    let over = over.map(|(node, figures)| Notice {
        warning: true,
        reason: "BandwidthOverPromised",
        note: format!(
            "node {node}: its pods request {} of {resource}, and with the load that no pod \
             declared it is above its limit",
            figures.requested
        ),
        node: Some(node.to_string()),
    });
    let summed = newly(|figures| figures.summed);
    let summed = summed.map(|(node, _)| Notice {
        warning: true,
        reason: "CapacityOfOneLink",
        note: format!(
            "node {node}: its links carry more together than the limit, which is that of its fastest \
             link, and it offers nothing more: set spec.capacity, or annotate the node with what they \
             carry together"
        ),
        node: Some(node.to_string()),
    });
    let (over, summed) = (over.collect::<FewNotices>(), summed.collect::<FewNotices>());
    first.into_iter().chain(over.into_notices()).chain(summed.into_notices()).collect()
}

/// The status of an object that offers a resource. Its figures change when its resource does, and
/// otherwise only at a refresh.
pub(super) fn status(
    memory: &Memory,
    old: Option<ReservationStatus>,
    seen: &Seen,
    refresh: bool,
) -> ReservationStatus {
    let resource = Some(memory.resource.to_string());
    let leaving = still_there(seen);
    match old {
        Some(old) if !refresh && old.resource == resource => ReservationStatus { leaving, ..old },
        _ => {
            let amounts = || memory.iter().filter_map(|(_, figures)| figures.amount);
            let requested = memory.iter().map(|(_, figures)| figures.requested);
            ReservationStatus {
                resource,
                offered: count(sum(amounts())),
                requested: count(sum(requested)),
                nodes: u32::try_from(amounts().count()).unwrap_or(u32::MAX),
                leaving,
            }
        }
    }
}

/// The status of an object that offers nothing: the resources that are still on nodes.
pub(super) fn left(seen: &Seen) -> Option<ReservationStatus> {
    let leaving = still_there(seen);
    (!leaving.is_empty()).then(|| ReservationStatus { leaving, ..ReservationStatus::default() })
}

/// The resources that leave and that some node still offers.
fn still_there(seen: &Seen) -> Vec<String> {
    let there = seen.leaving.iter().filter(|leaving| !leaving.offers.is_empty());
    there.take(LEAVING).map(|leaving| leaving.resource.to_string()).collect()
}

fn sum(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}
