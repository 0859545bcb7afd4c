//! The spread of routes: classes, the sessions between them, and the path of a route.
use std::{
    collections::{BTreeSet, VecDeque},
    net::Ipv4Addr,
};

use super::{Rule, bits::Bits};

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
