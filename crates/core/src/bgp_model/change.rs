//! The cost of one write.
use std::{collections::BTreeSet, sync::Arc};

use super::{
    Fabric, Missing, Rule,
    classes::Groups,
    graph::{Graph, Vertex},
    missing::{Absent, Roster, victims},
};

/// A fabric before and after one write.
///
/// A session that the write leaves unchanged on both ends continues; any other is reset, and
/// carries nothing for seconds. This computes what the unchanged sessions alone carry.
pub struct Change<'a> {
    /// The nodes of both fabrics, by name.
    roster: Roster<'a>,
    /// Number of nodes of each class that are up both before and after.
    both: Vec<u32>,
    /// The same, without the nodes that the write is about.
    unchanged: Vec<u32>,
    before: Graph,
    after: Graph,
    surviving: Graph,
}

/// A node before and after a write; `None` if it does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pairing {
    before: Option<usize>,
    after: Option<usize>,
    changed: bool,
    /// True if its address changes: all its sessions are new.
    moved: bool,
}

impl<'a> Change<'a> {
    /// `changed`: the nodes that the write is about, which lose their sessions in any case. A node
    /// that is in only one of the fabrics always counts as changed.
    #[must_use]
    pub fn new(before: &'a Fabric, after: &'a Fabric, changed: &BTreeSet<Arc<str>>) -> Self {
        let mut groups = Groups::default();
        let mut sizes: Vec<u32> = Vec::new();
        let mut roster = Roster::new();
        for (name, mut pairing) in pairings(before, after) {
            pairing.changed = changed.contains(name);
            let class = groups.place(pairing);
            sizes.resize(sizes.len().max(class + 1), 0);
            sizes[class] += 1;
            roster.push((name, class));
        }
        let classes = groups.into_list();
        let here = |fabric: &Fabric, class: Option<usize>, size: u32| match class {
            Some(class) if fabric.classes.list[class].traits.up => size,
            _ => 0,
        };
        let each = || classes.iter().zip(&sizes);
        let was: Vec<u32> = each().map(|(class, &size)| here(before, class.before, size)).collect();
        let is: Vec<u32> = each().map(|(class, &size)| here(after, class.after, size)).collect();
        let both: Vec<u32> = was.iter().zip(&is).map(|(&was, &is)| was.min(is)).collect();
        let unchanged = classes.iter().zip(&both);
        let unchanged =
            unchanged.map(|(class, &size)| if class.changed { 0 } else { size }).collect();
        let graph = |fabric: &Fabric, sizes: &[u32], of: fn(&Pairing) -> Option<usize>| {
            let vertex = |class: usize| vertex(fabric, of(&classes[class]), sizes[class]);
            Graph::new(classes.len(), vertex, |a, b| {
                fabric.classes.session(of(&classes[a])?, of(&classes[b])?).link()
            })
        };
        let surviving = Graph::new(
            classes.len(),
            |class| vertex(after, classes[class].after, both[class]),
            |a, b| {
                let [a, b] = [a, b].map(|class| classes[class]);
                let was = before.classes.session(a.before?, b.before?);
                let is = after.classes.session(a.after?, b.after?);
                is.link().filter(|_| was == is && !a.moved && !b.moved)
            },
        );
        Self {
            before: graph(before, &was, |class| class.before),
            after: graph(after, &is, |class| class.after),
            surviving,
            roster,
            both,
            unchanged,
        }
    }

    /// Returns the routes that arrived before and are lost while the write takes effect, between
    /// nodes that it is not about.
    #[must_use]
    pub fn lost(&self, rule: Rule) -> Missing {
        let before = Absent::new(&self.before, &self.before.size, rule);
        let during = Absent::new(&self.surviving, &self.surviving.size, rule);
        during.without(&before).named(&self.unchanged, &self.roster, None)
    }

    /// Returns the reflector whose loss costs the most additional routes compared to before, and
    /// these routes; `None` if no single loss costs more.
    #[must_use]
    pub fn fragile(&self, rule: Rule) -> Option<(Arc<str>, Missing)> {
        let mut worst: Option<(&Arc<str>, Missing)> = None;
        for (victim, after) in victims(&self.after, &self.roster, &self.after.size) {
            let class = self.roster.binary_search_by(|(name, _)| (*name).cmp(victim)).ok()?;
            let class = self.roster[class].1;
            let without_one = |sizes: &[u32]| {
                let mut sizes = sizes.to_vec();
                sizes[class] = sizes[class].saturating_sub(1);
                sizes
            };
            let then = Absent::new(&self.after, &after, rule);
            if then.0.iter().all(super::bits::Bits::is_empty) {
                continue;
            }
            let now = Absent::new(&self.before, &without_one(&self.before.size), rule);
            let cost =
                then.without(&now).named(&without_one(&self.both), &self.roster, Some(victim));
            if cost.pairs > worst.as_ref().map_or(0, |(_, worst)| worst.pairs) {
                worst = Some((victim, cost));
            }
        }
        worst.map(|(victim, cost)| (victim.clone(), cost))
    }
}

fn vertex(fabric: &Fabric, class: Option<usize>, size: u32) -> Vertex {
    let nobody = Vertex { size: 0, reflector: false, cluster_id: None };
    class.map_or(nobody, |class| Vertex { size, ..fabric.classes.vertex(class) })
}

/// The nodes of both fabrics, by name.
fn pairings<'a>(
    before: &'a Fabric,
    after: &'a Fabric,
) -> impl Iterator<Item = (&'a Arc<str>, Pairing)> {
    let [mut was, mut is] = [before, after].map(|fabric| {
        fabric.nodes.iter().zip(&fabric.classes.of).map(|(node, &class)| (node, class)).peekable()
    });
    std::iter::from_fn(move || {
        let (first, second) = (was.peek().copied(), is.peek().copied());
        let name = match (first, second) {
            (None, None) => return None,
            (Some((node, _)), None) | (None, Some((node, _))) => &node.name,
            (Some((a, _)), Some((b, _))) => (&a.name).min(&b.name),
        };
        let first = was.next_if(|(node, _)| node.name == *name);
        let second = is.next_if(|(node, _)| node.name == *name);
        let address = |of: Option<(&super::Node, usize)>| of.map(|(node, _)| node.address);
        let pairing = Pairing {
            before: first.map(|(_, class)| class),
            after: second.map(|(_, class)| class),
            changed: false,
            moved: address(first) != address(second),
        };
        Some((name, pairing))
    })
}
