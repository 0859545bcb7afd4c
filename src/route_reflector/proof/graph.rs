//! The lab's rules of propagation, on sets of nodes as bits: thousands of networks in a second.
//!
//! It computes the results of `lab::bgp::missing` and `lab::bgp::paths` from the lab's sessions.
//! Tests compare the two, and [`super::network`] compares them for every failure and for a sample
//! of the rest.
use std::collections::{BTreeMap, BTreeSet};

use lab::bgp::{Session, Sessions};

pub type Nodes = u128;

/// Paths of one prefix where counting is given up: far above every limit.
const MOST: u64 = 1_000_000;

/// The sessions between living nodes that have two ends.
#[derive(Clone, Debug)]
pub struct Graph {
    pub living: Nodes,
    to: Vec<Nodes>,
    clients: Vec<Nodes>,
    reflectors: Vec<Nodes>,
    /// The number of the cluster id with which it reflects.
    own: Vec<Option<u32>>,
    /// The reflectors with a cluster id, by the id's number.
    with: Vec<Nodes>,
}

pub fn each(mut nodes: Nodes) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (nodes != 0).then(|| {
            let first = nodes.trailing_zeros() as usize;
            nodes &= nodes - 1;
            first
        })
    })
}

/// The equivalence class of a route on its way: the clusters that it has passed, and whether it
/// came from a client.
type Kind = (u32, bool);

impl Graph {
    /// The sessions that `keeps`, between the nodes that are `living`; nodes are numbered by name.
    pub fn new(
        sessions: &Sessions,
        living: Nodes,
        keeps: impl Fn(&str, &str, &Session) -> bool,
    ) -> Self {
        let number: BTreeMap<&str, usize> =
            sessions.keys().enumerate().map(|(number, name)| (name.as_str(), number)).collect();
        assert!(number.len() <= Nodes::BITS as usize, "a set of nodes has no room for all");
        let all = number.len();
        let mut to = vec![0; all];
        let mut reflects = vec![vec![]; all];
        for (node, (name, ends)) in sessions.iter().enumerate().filter(|(n, _)| living >> n & 1 > 0)
        {
            for (protocol, end) in ends {
                let Some(&peer) = number.get(end.peer.as_str()) else { continue };
                if living >> peer & 1 > 0 && keeps(name, protocol, end) {
                    to[node] |= 1 << peer;
                    if let Some(id) = end.reflects {
                        reflects[node].push((peer, id));
                    }
                }
            }
        }
        let both: Vec<Nodes> = (0..all)
            .map(|node| each(to[node]).filter(|peer| to[*peer] >> node & 1 > 0).fold(0, with))
            .collect();
        let mut ids = BTreeMap::new();
        let (mut clients, mut mine, mut own) = (vec![0; all], vec![0; all], vec![None; all]);
        for (node, ends) in reflects.iter().enumerate() {
            for &(peer, id) in ends.iter().filter(|(peer, _)| both[node] >> peer & 1 > 0) {
                clients[node] |= 1 << peer;
                mine[peer] |= 1 << node;
                let next = u32::try_from(ids.len()).expect("few ids");
                own[node] = Some(*ids.entry(id).or_insert(next));
            }
        }
        let mut by_id = vec![0; ids.len()];
        for (node, id) in own.iter().enumerate() {
            if let Some(id) = id {
                by_id[*id as usize] |= 1 << node;
            }
        }
        Self { living, to: both, clients, reflectors: mine, own, with: by_id }
    }

    /// Returns the next hops of a node's route: as one from a client, and as one from others; with
    /// its clusters afterwards.
    fn passes(&self, node: usize, (clusters, from_client): Kind) -> Option<(u32, Nodes, Nodes)> {
        let id = self.own[node]?;
        let mut to = if from_client { self.to[node] } else { self.clients[node] };
        if clusters >> id & 1 > 0 {
            to &= !self.clients[node];
        }
        let clusters = clusters | 1 << id;
        let listed = (0..self.with.len()).filter(|id| clusters >> id & 1 > 0);
        let listed = listed.fold(0, |nodes, id| nodes | self.with[id]);
        let to = to & !(self.reflectors[node] & listed);
        Some((clusters, to & self.reflectors[node], to & !self.reflectors[node]))
    }

    pub fn learns(&self, origin: usize) -> Nodes {
        let mut seen: BTreeMap<Kind, Nodes> = BTreeMap::new();
        let mut todo: BTreeMap<Kind, Nodes> = BTreeMap::new();
        let first = self.to[origin];
        todo.insert((0, true), first & self.reflectors[origin]);
        todo.insert((0, false), first & !self.reflectors[origin]);
        let mut learned = 0;
        while let Some((kind, nodes)) = todo.pop_first() {
            let known = seen.entry(kind).or_default();
            let new = nodes & !*known & !(1 << origin);
            *known |= new;
            learned |= new;
            for node in each(new) {
                if let Some((clusters, as_client, as_other)) = self.passes(node, kind) {
                    *todo.entry((clusters, true)).or_default() |= as_client;
                    *todo.entry((clusters, false)).or_default() |= as_other;
                }
            }
        }
        learned
    }

    /// For each node, the nodes that get its routes.
    pub fn all(&self) -> Vec<Nodes> {
        (0..self.to.len()).map(|origin| self.learns(origin)).collect()
    }

    pub fn without(&self, node: usize) -> Self {
        let rest = !(1 << node);
        let less = |all: &[Nodes]| {
            let each = all.iter().enumerate();
            each.map(|(at, nodes)| if at == node { 0 } else { nodes & rest }).collect::<Vec<_>>()
        };
        let clients = less(&self.clients);
        let own: Vec<_> =
            (0..self.own.len()).map(|at| self.own[at].filter(|_| clients[at] != 0)).collect();
        let by = |id: usize| {
            let has = |at: &usize| own[*at].is_some_and(|own| own as usize == id);
            (0..own.len()).filter(has).fold(0, with)
        };
        Self {
            living: self.living & rest,
            to: less(&self.to),
            reflectors: less(&self.reflectors),
            with: (0..self.with.len()).map(by).collect(),
            clients,
            own,
        }
    }

    /// Returns the number of paths of each other node to a node's prefix.
    pub fn paths(&self, origin: usize) -> Vec<u64> {
        let mut counts = vec![0_u64; self.to.len()];
        let mut level: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        let none = || vec![0_u64; self.to.len()];
        for peer in each(self.to[origin]) {
            let from_client = self.reflectors[origin] >> peer & 1 > 0;
            level.entry((0, from_client)).or_insert_with(none)[peer] += 1;
        }
        while !level.is_empty() && counts.iter().all(|count| *count < MOST) {
            let mut next: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
            for (kind, at) in level {
                for (node, count) in at.into_iter().enumerate().filter(|(_, count)| *count > 0) {
                    counts[node] += count;
                    let Some((clusters, as_client, as_other)) = self.passes(node, kind) else {
                        continue;
                    };
                    for (from_client, to) in [(true, as_client), (false, as_other)] {
                        for peer in each(to & !(1 << origin)) {
                            let kind = (clusters, from_client);
                            next.entry(kind).or_insert_with(none)[peer] += count;
                        }
                    }
                }
            }
            level = next;
        }
        counts
    }

    /// The most paths to one prefix at a reflector, and at another node.
    pub fn most_paths(&self) -> (u64, u64) {
        let mut most = (0, 0);
        let mut counted: BTreeSet<(Nodes, Nodes)> = BTreeSet::new();
        for origin in each(self.living) {
            // Clients of the same reflectors are alike.
            let alike = (self.to[origin], self.reflectors[origin]);
            if self.own[origin].is_none() && !counted.insert(alike) {
                continue;
            }
            for (node, count) in self.paths(origin).into_iter().enumerate() {
                let at = if self.own[node].is_some() { &mut most.0 } else { &mut most.1 };
                *at = count.max(*at);
            }
        }
        most
    }

    /// Nodes that reflect to at least one client.
    pub fn reflecting(&self) -> impl Iterator<Item = usize> {
        (0..self.own.len()).filter(|node| self.own[*node].is_some())
    }
}

fn with(nodes: Nodes, node: usize) -> Nodes {
    nodes | 1 << node
}
