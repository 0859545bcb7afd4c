//! Pairs of nodes in which one lacks the other's routes.
use std::sync::Arc;

use super::{
    Rule,
    bits::Bits,
    graph::{Graph, Seen, others},
};

/// Maximum number of examples: as many as fit into a message.
const EXAMPLES: usize = 5;

/// Routes that do not arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Ordered pairs of nodes.
    pub pairs: u64,
    /// The first five pairs (node, node whose routes it lacks), sorted.
    pub examples: Vec<(Arc<str>, Arc<str>)>,
}

impl Missing {
    /// Reports whether all routes arrive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs == 0
    }
}

/// Every node with its class, by name.
pub(super) type Roster<'n> = Vec<(&'n Arc<str>, usize)>;

/// For each class, the classes that lack the routes of its members.
pub(super) struct Absent(pub Vec<Bits>);

impl Absent {
    /// `size`: the number of nodes of each class that carry routes.
    pub fn new(graph: &Graph, size: &[u32], rule: Rule) -> Self {
        let mut seen = Seen::new(size.len());
        let absent = |origin: usize| {
            if size[origin] == 0 {
                return Bits::none(size.len());
            }
            let mut absent = others(size, origin);
            absent.and_not(&graph.reach(size, origin, rule, &mut seen));
            absent
        };
        Self((0..size.len()).map(absent).collect())
    }

    /// Removes the routes that are absent in `other`.
    pub fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(of, without)| of.and_not(without));
        self
    }

    /// `owed`: the number of nodes of each class that must have routes to and from all others.
    pub fn pairs(&self, owed: &[u32]) -> u64 {
        let of = |(origin, absent): (usize, &Bits)| {
            let misses = |class: usize| u64::from(owed[class] - u32::from(class == origin));
            let classes = absent.iter().filter(|&class| owed[class] > 0);
            u64::from(owed[origin]) * classes.map(misses).sum::<u64>()
        };
        self.0.iter().enumerate().filter(|&(origin, _)| owed[origin] > 0).map(of).sum()
    }

    /// Returns the same with examples. `victim` is in no pair.
    pub fn named(&self, owed: &[u32], roster: &Roster, victim: Option<&Arc<str>>) -> Missing {
        let pairs = self.pairs(owed);
        let mut examples = Vec::new();
        if pairs > 0 {
            let counts = |&&(name, class): &&(&Arc<str>, usize)| {
                owed[class] > 0 && victim.is_none_or(|victim| name != victim)
            };
            let mut missing_at = Bits::none(owed.len());
            self.0.iter().for_each(|absent| missing_at.or(absent));
            let at = roster.iter().filter(counts).filter(|(_, class)| missing_at.contains(*class));
            let found = at.flat_map(|&(name, class)| {
                let of = roster
                    .iter()
                    .filter(counts)
                    .filter(move |&&(origin, of)| origin != name && self.0[of].contains(class));
                of.map(move |&(origin, _)| (name.clone(), origin.clone()))
            });
            examples = found.take(EXAMPLES).collect();
        }
        Missing { pairs, examples }
    }
}

pub(super) fn missing(graph: &Graph, roster: &Roster, rule: Rule) -> Missing {
    Absent::new(graph, &graph.size, rule).named(&graph.size, roster, None)
}

/// Returns the reflector whose loss costs most. All members of a class cost the same.
pub(super) fn worst(graph: &Graph, roster: &Roster, rule: Rule) -> Option<(Arc<str>, Missing)> {
    let mut worst: Option<(&Arc<str>, u64, Absent, Vec<u32>)> = None;
    for (victim, size) in victims(graph, roster, &graph.size) {
        let absent = Absent::new(graph, &size, rule);
        let pairs = absent.pairs(&size);
        if worst.as_ref().is_none_or(|&(_, most, ..)| pairs > most) {
            worst = Some((victim, pairs, absent, size));
        }
    }
    let (victim, _, absent, size) = worst?;
    Some((victim.clone(), absent.named(&size, roster, Some(victim))))
}

/// Returns the first reflector of each class that carries routes, by name, and the number of nodes
/// of each class that are left without it.
pub(super) fn victims<'n>(
    graph: &Graph,
    roster: &Roster<'n>,
    size: &[u32],
) -> Vec<(&'n Arc<str>, Vec<u32>)> {
    let mut done = Bits::none(size.len());
    for (class, &members) in size.iter().enumerate() {
        if members == 0 || graph.reflectors.binary_search(&class).is_err() {
            done.insert(class);
        }
    }
    let mut victims = Vec::new();
    for &(name, class) in roster {
        if !done.contains(class) {
            done.insert(class);
            let mut left = size.to_vec();
            left[class] -= 1;
            victims.push((name, left));
        }
    }
    victims
}
