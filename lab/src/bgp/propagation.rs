//! The routes that a set of sessions carries: a walk for each origin. No IO.
//!
//! Small and slow beside the product's own, and without a look at it: what the ground measures is
//! held against this, and what the product predicts against what the ground measures.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::net::Ipv4Addr;

use super::sessions::Sessions;

/// The time when a reflector drops a route that has its own cluster id in its `CLUSTER_LIST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Always: RFC 4456.
    Rfc,
    /// On receipt only from its clients, and again when it sends to one: BIRD 1.6 and 2.0.
    Bird,
}

/// Ordered pairs: who misses whose route.
pub type Pairs = BTreeSet<(String, String)>;

/// Number of entries in a table besides those announced by peers: the node's block, its address,
/// the network of the nodes.
const OWN: usize = 3;
/// Nobody wants to know exactly how many more there are.
const MOST: usize = 1_000_000;

/// A route on its way: where it is, who sent it, through which clusters it came.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Arrival {
    node: usize,
    sender: Option<usize>,
    clusters: Vec<Ipv4Addr>,
}

struct Graph<'a> {
    names: Vec<&'a str>,
    /// For each node its neighbors, and the cluster id with which it reflects to them.
    ends: Vec<BTreeMap<usize, Option<Ipv4Addr>>>,
}

impl<'a> Graph<'a> {
    /// The sessions that have two ends, at nodes that are up.
    fn new(sessions: &'a Sessions, down: &BTreeSet<&str>) -> Self {
        let names: Vec<&str> =
            sessions.keys().map(String::as_str).filter(|name| !down.contains(name)).collect();
        let number = |name: &str| names.binary_search(&name).ok();
        let to = |name: &str| {
            let ends = sessions[name].values();
            ends.filter_map(|end| Some((number(&end.peer)?, end.reflects))).collect()
        };
        let all: Vec<BTreeMap<usize, Option<Ipv4Addr>>> = names.iter().map(|n| to(n)).collect();
        let both = |(node, ends): (usize, &BTreeMap<usize, Option<Ipv4Addr>>)| {
            let there = ends.iter().filter(|(peer, _)| all[**peer].contains_key(&node));
            there.map(|(peer, id)| (*peer, *id)).collect()
        };
        let ends = all.iter().enumerate().map(both).collect();
        Self { names, ends }
    }

    /// The id of a node that has clients.
    fn own(&self, node: usize) -> Option<Ipv4Addr> {
        self.ends[node].values().find_map(|id| *id)
    }

    /// Returns the next hops of a route of `origin`.
    fn next(&self, origin: usize, at: &Arrival, rule: Rule) -> Vec<Arrival> {
        let ends = &self.ends[at.node];
        let mut arrivals = Vec::new();
        for (&peer, to_client) in ends {
            if peer == origin || Some(peer) == at.sender {
                continue;
            }
            let mut clusters = at.clusters.clone();
            if let Some(sender) = at.sender {
                let reflected = to_client.is_some() || ends[&sender].is_some();
                let Some(own) = self.own(at.node).filter(|_| reflected) else { continue };
                if rule == Rule::Bird && to_client.is_some() && clusters.contains(&own) {
                    continue;
                }
                clusters.push(own);
            }
            let theirs = self.own(peer).filter(|own| clusters.contains(own));
            if theirs.is_some() && (rule == Rule::Rfc || self.ends[peer][&at.node].is_some()) {
                continue;
            }
            arrivals.push(Arrival { node: peer, sender: Some(at.node), clusters });
        }
        arrivals
    }
}

/// Returns who misses whose route when the nodes in `down` are.
pub fn missing(sessions: &Sessions, down: &BTreeSet<&str>, rule: Rule) -> Pairs {
    let graph = Graph::new(sessions, down);
    let mut pairs = Pairs::new();
    for origin in 0..graph.names.len() {
        let start = Arrival { node: origin, sender: None, clusters: Vec::new() };
        let (mut seen, mut todo) = (HashSet::new(), VecDeque::from([start]));
        while let Some(at) = todo.pop_front() {
            for arrival in graph.next(origin, &at, rule) {
                if seen.insert(arrival.clone()) {
                    todo.push_back(arrival);
                }
            }
        }
        let learned: BTreeSet<usize> = seen.iter().map(|arrival| arrival.node).collect();
        let without = (0..graph.names.len()).filter(|n| *n != origin && !learned.contains(n));
        pairs.extend(without.map(|n| (graph.names[n].to_owned(), graph.names[origin].to_owned())));
    }
    pairs
}

/// Returns the most routes missing, between others, when any one reflector is down.
pub fn worst_without_one(sessions: &Sessions, rule: Rule) -> usize {
    let reflects = |name: &&String| sessions[*name].values().any(|end| end.reflects.is_some());
    let reflectors = sessions.keys().filter(reflects);
    let each =
        reflectors.map(|name| missing(sessions, &BTreeSet::from([name.as_str()]), rule).len());
    each.max().unwrap_or(0)
}

/// Returns how many paths each node's table holds with `add paths on`, as BIRD counts them.
pub fn paths(sessions: &Sessions) -> BTreeMap<String, usize> {
    let mut counts = from_peers(sessions, None);
    for count in counts.values_mut() {
        *count += OWN;
    }
    counts
}

/// Returns how many more paths the fullest table may hold while the BIRD of `node` starts again
/// after a crash.
///
/// What has come through it is held twice: the paths that are kept for it (graceful restart) until
/// it has announced all, and the new ones beside them, whose path ids differ.
pub fn more_while_restarting(sessions: &Sessions, node: &str) -> usize {
    let (held, through) = (from_peers(sessions, None), from_peers(sessions, Some(node)));
    let both = held.iter().map(|(name, count)| count + through.get(name).unwrap_or(&0));
    both.max().unwrap_or(0) - held.values().max().unwrap_or(&0)
}

/// Counts what comes from peers; where a node is named, only what comes through it.
fn from_peers(sessions: &Sessions, through: Option<&str>) -> BTreeMap<String, usize> {
    let graph = Graph::new(sessions, &BTreeSet::new());
    let through = through.map(|name| graph.names.binary_search(&name).ok());
    let mut counts = vec![0; graph.names.len()];
    let mut total = 0;
    for origin in 0..graph.names.len() {
        let start = Arrival { node: origin, sender: None, clusters: Vec::new() };
        let mut todo = vec![(start, through.is_none())];
        while let Some((at, counted)) = todo.pop() {
            let counted = counted || through == Some(Some(at.node));
            for arrival in graph.next(origin, &at, Rule::Bird) {
                counts[arrival.node] += usize::from(counted);
                total += 1;
                if total < MOST {
                    todo.push((arrival, counted));
                }
            }
        }
    }
    graph.names.iter().map(|name| (*name).to_owned()).zip(counts).collect()
}
