//! The state that later passes use: topology, slots and groups.
use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::super::{
    election::Target,
    topology::{BgpTopology, ReflectorLabels},
};
use crate::api::{
    RouteReflectorSetStatus,
    route_reflector_set::{GroupStatus, SlotStatus},
};

/// Fills in what later passes go by: topology, slots and groups.
pub(in super::super) fn remember(
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
