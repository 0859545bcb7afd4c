//! The expected sessions, by the names that Calico gives them.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{placement::hash, route_reflector::bgp_model::Protocol};

/// The expected sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The node-to-node mesh is on.
    pub mesh: bool,
    sets: Vec<Set>,
    nodes: BTreeMap<Arc<str>, Entry>,
}

/// Neighbors with which the same nodes should have sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Distinguishes it from every other set of names.
    pub tag: Box<str>,
    /// The node at the other end, by session.
    pub names: BTreeMap<Protocol, Arc<str>>,
    /// Number of these that each node has: a node in the set has none with itself.
    members: BTreeMap<Arc<str>, usize>,
}

/// The expected sessions of one node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    sets: Vec<usize>,
    part: Part,
}

/// The role of a node in a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The gate depends on its sessions.
    pub gated: bool,
    /// It reflects routes.
    pub reflector: bool,
}

impl Wanted {
    /// None yet.
    #[must_use]
    pub fn new(mesh: bool) -> Self {
        Self { mesh, ..Self::default() }
    }

    /// Adds a node.
    pub fn node(&mut self, name: &Arc<str>, part: Part) {
        self.nodes.entry(Arc::clone(name)).or_default().part = part;
    }

    /// Adds sessions with these neighbors, each with its name, of all nodes in `by` that have been
    /// added.
    pub fn sessions<'n>(
        &mut self,
        names: BTreeMap<Protocol, Arc<str>>,
        by: impl Iterator<Item = &'n Arc<str>>,
    ) {
        if names.is_empty() {
            return;
        }
        let all: Vec<String> = names.keys().map(ToString::to_string).collect();
        let tag = format!("{:016x}", hash::of(&all.join("|"))).into();
        let place = self.sets.len();
        for node in by {
            if let Some(entry) = self.nodes.get_mut(node) {
                entry.sets.push(place);
            }
        }
        let mut members = BTreeMap::new();
        for member in names.values() {
            *members.entry(Arc::clone(member)).or_default() += 1;
        }
        self.sets.push(Set { tag, names, members });
    }

    /// All sets.
    #[must_use]
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// The sets with which a node should have sessions.
    pub fn of(&self, node: &str) -> impl Iterator<Item = &Set> {
        let sets = self.nodes.get(node).map(|entry| entry.sets.as_slice());
        sets.unwrap_or_default().iter().map(|&place| &self.sets[place])
    }

    /// Returns the number of expected sessions of a node, without those with `silent` nodes.
    #[must_use]
    pub fn count(&self, node: &str, silent: &BTreeSet<Arc<str>>) -> u32 {
        let count = |set: &Set| {
            let of = |other: &str| set.members.get(other).copied().unwrap_or_default();
            let silent = silent.iter().filter(|other| &***other != node);
            let without = of(node) + silent.map(|other| of(other)).sum::<usize>();
            u32::try_from(set.names.len().saturating_sub(without)).unwrap_or(u32::MAX)
        };
        self.of(node).map(count).sum()
    }

    /// The nodes with sessions on which the gate depends.
    pub fn gated(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| entry.part.gated).map(|(name, _)| name)
    }

    /// The nodes that reflect routes.
    pub fn reflectors(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| entry.part.reflector).map(|(name, _)| name)
    }

    /// The nodes that reflect none.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().filter(|(_, entry)| !entry.part.reflector).map(|(name, _)| name)
    }

    /// Reports whether the gate depends on no session at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let nobody = BTreeSet::new();
        self.gated().all(|node| self.count(node, &nobody) == 0)
    }
}
