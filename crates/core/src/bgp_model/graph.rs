//! The spread of routes: classes, the sessions between them, the path of a route, and the pairs of
//! nodes in which one lacks the other's routes.
use std::{
    collections::{BTreeSet, VecDeque},
    net::Ipv4Addr,
    sync::Arc,
};

use super::Rule;

/// Maximum number of distinct cluster ids. Any more (an id for every node) share the last place,
/// where a route ends earlier than in reality: the model reports too many missing routes, never too
/// few.
const IDS: usize = 64;

/// Maximum number of lists kept of one route at one class. Sound fabrics have one or two; further
/// ones are forgotten, which again reports too many missing routes and never too few.
const LISTS: usize = 64;

/// A class in a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vertex {
    /// Nodes that carry routes.
    pub size: u32,
    /// True if they have a cluster id.
    pub reflector: bool,
    /// The cluster id in their BIRD configuration; with one, they pass routes on.
    pub cluster_id: Option<Ipv4Addr>,
}

/// A session between two classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// True if the second is a client of the first, and true if the first is one of the second.
    pub clients: (bool, bool),
}

/// Classes and the sessions between their members.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub size: Vec<u32>,
    /// Those with a cluster id, in their BIRD configuration or not.
    pub reflectors: Vec<usize>,
    /// The place of its cluster id in a list; `None`: it passes nothing on.
    pub own: Vec<Option<u32>>,
    /// The classes with such a place.
    pub passing: Bits,
    /// The classes with which each class has sessions.
    pub adjacent: Vec<Bits>,
    /// The clients among them.
    pub clients: Vec<Bits>,
}

/// A list of cluster ids, as a set: the order does not matter for what passes.
pub(super) type List = u64;

impl Graph {
    /// Builds the graph of this many classes. `link` is called once for each pair, and for each
    /// class with itself.
    pub fn new(
        classes: usize,
        vertex: impl Fn(usize) -> Vertex,
        link: impl Fn(usize, usize) -> Option<Link>,
    ) -> Self {
        let vertices: Vec<Vertex> = (0..classes).map(vertex).collect();
        let ids: BTreeSet<Ipv4Addr> = vertices.iter().filter_map(|of| of.cluster_id).collect();
        let place = |id: Ipv4Addr| ids.range(..id).take(IDS - 1).count();
        let own: Vec<Option<u32>> = vertices
            .iter()
            .map(|of| of.cluster_id.and_then(|id| u32::try_from(place(id)).ok()))
            .collect();
        let mut passing = Bits::none(classes);
        let mut adjacent = vec![Bits::none(classes); classes];
        let mut clients = adjacent.clone();
        for a in 0..classes {
            if own[a].is_some() {
                passing.insert(a);
            }
            for b in a..classes {
                let Some(Link { clients: (b_of_a, a_of_b) }) = link(a, b) else { continue };
                adjacent[a].insert(b);
                adjacent[b].insert(a);
                if b_of_a {
                    clients[a].insert(b);
                }
                if a_of_b {
                    clients[b].insert(a);
                }
            }
        }
        let reflectors = (0..classes).filter(|&class| vertices[class].reflector).collect();
        let size = vertices.into_iter().map(|of| of.size).collect();
        Self { size, reflectors, own, passing, adjacent, clients }
    }

    /// Returns the classes to which a class passes a route, and the list that they get. They have
    /// not accepted it yet.
    pub fn passes(
        &self,
        class: usize,
        from_client: bool,
        list: List,
        rule: Rule,
    ) -> Option<(Bits, List)> {
        let own = 1 << self.own[class]?;
        let mut to = if from_client { &self.adjacent } else { &self.clients }[class].clone();
        if rule == Rule::Bird && list & own != 0 {
            to.and_not(&self.clients[class]);
        }
        Some((to, list | own))
    }

    /// Reports whether a class takes a route with this list from another.
    pub fn accepts(&self, class: usize, from: usize, list: List, rule: Rule) -> bool {
        let looped = self.own[class].is_some_and(|own| list >> own & 1 == 1);
        !looped || (rule == Rule::Bird && !self.clients[class].contains(from))
    }

    /// Returns the classes that learn the route of a node of `origin`; for the class of the node
    /// itself, whether its other members learn it.
    ///
    /// `size` may be smaller than the graph's own: some nodes are down.
    pub fn reach(&self, size: &[u32], origin: usize, rule: Rule, seen: &mut Seen) -> Bits {
        let others = others(size, origin);
        let mut learned = self.adjacent[origin].clone();
        learned.and(&others);
        seen.clear();
        let mut first = learned.clone();
        first.and(&self.passing);
        for class in first.iter() {
            seen.add(class, self.clients[class].contains(origin), 0);
        }
        while let Some((class, from_client, list)) = seen.next() {
            if learned.covers(&others) {
                break;
            }
            let Some((mut to, list)) = self.passes(class, from_client, list, rule) else {
                continue;
            };
            to.and(&others);
            if size[class] - u32::from(class == origin) < 2 {
                to.remove(class);
            }
            let mut on = to.clone();
            on.and(&self.passing);
            to.and_not(&self.passing);
            learned.or(&to);
            for next in on.iter() {
                if self.accepts(next, class, list, rule) {
                    learned.insert(next);
                    seen.add(next, self.clients[next].contains(class), list);
                }
            }
        }
        learned
    }
}

/// Classes with a member besides the origin.
pub(super) fn others(size: &[u32], origin: usize) -> Bits {
    let mut others = Bits::none(size.len());
    for (class, &members) in size.iter().enumerate() {
        if members > u32::from(class == origin) {
            others.insert(class);
        }
    }
    others
}

/// The states of one route: where it is, whether it is from a client there, and its list.
pub(super) struct Seen {
    of: Vec<Vec<(bool, List)>>,
    used: Vec<usize>,
    todo: VecDeque<(usize, bool, List)>,
}

impl Seen {
    pub fn new(classes: usize) -> Self {
        Self { of: vec![Vec::new(); classes], used: Vec::new(), todo: VecDeque::new() }
    }

    fn clear(&mut self) {
        self.todo.clear();
        for class in self.used.drain(..) {
            self.of[class].clear();
        }
    }

    /// A state is redundant if another at the same class has a list within its list, and is from a
    /// client if this one is: the other reaches everything that this one does.
    fn add(&mut self, class: usize, from_client: bool, list: List) {
        let known = &mut self.of[class];
        let less =
            |&(client, shorter): &(bool, List)| client >= from_client && shorter & !list == 0;
        if known.len() < LISTS && !known.iter().any(less) {
            known.push((from_client, list));
            self.used.push(class);
            self.todo.push_back((class, from_client, list));
        }
    }

    fn next(&mut self) -> Option<(usize, bool, List)> {
        self.todo.pop_front()
    }
}

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

/// Bits of one word.
const WIDTH: usize = u64::BITS as usize;

/// A set of numbers below a fixed size; only sets of the same size are combined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Returns an empty set with room for this many elements.
    pub fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(WIDTH)])
    }

    pub fn insert(&mut self, place: usize) {
        self.0[place / WIDTH] |= 1 << (place % WIDTH);
    }

    pub fn remove(&mut self, place: usize) {
        self.0[place / WIDTH] &= !(1 << (place % WIDTH));
    }

    pub fn contains(&self, place: usize) -> bool {
        self.0[place / WIDTH] >> (place % WIDTH) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Reports whether this set contains all of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }

    /// Reports whether any number is in all three sets.
    pub fn meets(&self, other: &Self, third: &Self) -> bool {
        self.0.iter().zip(&other.0).zip(&third.0).any(|((a, b), c)| a & b & c != 0)
    }

    pub fn or(&mut self, other: &Self) {
        self.combine(other, |a, b| a | b);
    }

    pub fn and(&mut self, other: &Self) {
        self.combine(other, |a, b| a & b);
    }

    pub fn and_not(&mut self, other: &Self) {
        self.combine(other, |a, b| a & !b);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(u64, u64) -> u64) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a = with(*a, *b);
        }
    }

    /// Iterates in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| word * WIDTH + rest.trailing_zeros() as usize)
        })
    }
}
