//! A cluster, and the events for which both choices of reflectors are compared.
use traffic_operator::route_reflector::{
    election::{Member, Previous, PreviousSlot, Target, target},
    settings,
};

use super::{
    ZONES,
    original::{self, Assignment},
};

/// An event for which both choices are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    OldestClientRemoved,
    MiddleClientRemoved,
    ClientAdded,
    ReflectorRemoved,
    ReflectorAdded,
}

/// 1,000 nodes in three zones at random, oldest first; the four oldest of each zone are reflectors.
pub struct Trial {
    pub reflectors: Vec<original::Node>,
    pub clients: Vec<original::Node>,
}

impl Trial {
    pub const NODES: usize = 1000;
    pub const PER_ZONE: usize = 4;
    pub const EVENTS: [Event; 5] = [
        Event::OldestClientRemoved,
        Event::MiddleClientRemoved,
        Event::ClientAdded,
        Event::ReflectorRemoved,
        Event::ReflectorAdded,
    ];

    /// Builds the cluster as it is, or after an event.
    pub fn new(event: Option<Event>) -> Self {
        let node = |place: usize| {
            let uid = format!("uid-{place:04}");
            // Random, but the same in each run.
            let zone = ZONES[original::fnv1a32(&format!("zone-of-{uid}")) as usize % ZONES.len()];
            original::Node { uid, zone: zone.into() }
        };
        let mut trial = Self { reflectors: Vec::new(), clients: Vec::new() };
        for node in (0..Self::NODES).map(node) {
            let of_zone = trial.reflectors.iter().filter(|of| of.zone == node.zone);
            let wanted = of_zone.count() < Self::PER_ZONE;
            if wanted { &mut trial.reflectors } else { &mut trial.clients }.push(node);
        }
        match event {
            None => {}
            Some(Event::OldestClientRemoved) => drop(trial.clients.remove(0)),
            Some(Event::MiddleClientRemoved) => {
                trial.clients.remove(trial.clients.len() / 2);
            }
            Some(Event::ClientAdded) => trial.clients.push(node(Self::NODES)),
            Some(Event::ReflectorRemoved) => {
                trial.reflectors.remove(trial.reflectors.len() / 2);
            }
            Some(Event::ReflectorAdded) => trial.reflectors.push(node(Self::NODES)),
        }
        trial
    }

    /// Returns our choice, given our previous choice.
    pub fn ours(&self, before: Option<&Target>) -> anyhow::Result<Target> {
        let count = self.reflectors.len();
        let spec = serde_json::json!({"topology": "Multi", "count": {"min": count, "max": count}});
        let rules = settings::rules(&serde_json::from_value(spec)?)?;
        let member = |node: &original::Node| {
            let slot =
                before.and_then(|before| before.slots.iter().find(|slot| *slot.node == *node.uid));
            Member {
                name: node.uid.as_str().into(),
                zone: Some(node.zone.as_str().into()),
                ready: true,
                suitable: true,
                preferred: self.reflectors.iter().any(|one| one.uid == node.uid),
                slot: slot.map(|slot| slot.id),
                cluster_id: slot.map(|slot| slot.cluster_id),
                labeled: slot.is_some(),
                group: before.and_then(|before| before.groups.get(&*node.uid).cloned()),
                ..Member::default()
            }
        };
        let mut members: Vec<_> = self.reflectors.iter().chain(&self.clients).map(member).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let previous = before.map_or_else(Previous::default, |before| Previous {
            topology: Some(before.topology),
            slots: before
                .slots
                .iter()
                .map(|slot| PreviousSlot {
                    id: slot.id,
                    node: slot.node.clone(),
                    zone: slot.zone.clone(),
                    cluster_id: Some(slot.cluster_id),
                })
                .collect(),
            groups: before.group_slots.clone(),
        });
        Ok(target(&rules, &members, &previous)?)
    }

    /// Returns the choice of the original.
    pub fn original(&self) -> Assignment {
        let names = |chosen: Vec<usize>| {
            chosen.into_iter().map(|place| self.reflectors[place].uid.clone()).collect()
        };
        let assigned = original::assign(&self.reflectors, &self.clients);
        let clients = self.clients.iter().map(|client| client.uid.clone());
        clients.zip(assigned.into_iter().map(names)).collect()
    }
}
