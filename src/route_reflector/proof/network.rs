//! The routes of a stage's network, by the lab's model and never by the operator's own.
use std::collections::{BTreeMap, BTreeSet};

use lab::bgp::{
    Family, Labels, Local, Node, Pairs, Peer, Remote, Rule, Selector, Sessions, World, missing,
    sessions,
};

use super::graph::{Graph, Nodes, each};
use crate::{
    api::CLUSTER_ID_ANNOTATION,
    nodes::{Readiness, Speaker},
    route_reflector::{
        bgp_model::{LIMIT_AT_CLIENT, LIMIT_AT_REFLECTOR},
        datastore::CalicoPeer,
        dry_run::Stage,
    },
};

/// The lab walks this many nodes in some milliseconds.
const SMALL: usize = 24;

/// Sessions by confd's rules, and routes by BIRD's.
pub struct Network {
    /// By name, as sets of nodes count them.
    pub names: Vec<String>,
    sessions: Sessions,
    graph: Graph,
    /// For each node, the nodes that get its routes.
    learned: Vec<Nodes>,
    /// The most paths to one prefix at a reflector, and at another node.
    paths: (u64, u64),
}

/// The same for a step: the routes that it costs.
pub struct Harm {
    /// The kind of loss, in words.
    pub what: String,
    /// The first pair: a node, and the node to which it loses the route.
    pub pair: Option<(String, String)>,
    pub pairs: u32,
}

fn node(speaker: &Speaker) -> Option<Node> {
    let annotation = |key: &str| speaker.calico.get(key).map(|value| &**value);
    let address = annotation("projectcalico.org/IPv4Address")?.split('/').next()?.parse().ok()?;
    let labels: Labels =
        speaker.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let cluster_id = annotation(CLUSTER_ID_ANNOTATION).and_then(|id| id.parse().ok());
    let speakers = [(Family::V4, lab::bgp::Speaker { address, pods: String::new() })].into();
    Some(Node { speakers, labels, cluster_id })
}

fn peer(peer: &CalicoPeer) -> Option<Peer> {
    let read = |text: &str| Selector::parse(text).expect("a selector that Calico can read");
    let local = match (&peer.node, &peer.node_selector) {
        (Some(node), _) => Local::Node(node.clone()),
        (None, Some(text)) => Local::Selected(read(text)),
        (None, None) => Local::All,
    };
    let remote = match (&peer.peer_selector, &peer.peer_ip) {
        (Some(text), _) => Remote::Selected(read(text)),
        (None, Some(address)) => Remote::Address(address.parse().ok()?),
        (None, None) => return None,
    };
    Some(Peer { local, remote, reverse: peer.reverse, restart: None })
}

/// Returns the input of confd.
fn world(stage: &Stage) -> World {
    let nodes = stage.speakers.iter();
    let nodes = nodes.filter_map(|speaker| Some((speaker.name.to_string(), node(speaker)?)));
    let peers = stage.snapshot.peers.iter();
    let peers = peers.filter_map(|there| Some((there.name.clone(), peer(there)?)));
    World {
        mesh: stage.snapshot.mesh,
        nodes: nodes.collect(),
        peers: peers.collect(),
        ..World::default()
    }
}

impl Network {
    pub fn of(stage: &Stage) -> Self {
        Self::new(stage, sessions(&world(stage)))
    }

    fn new(stage: &Stage, sessions: Sessions) -> Self {
        let names: Vec<String> = sessions.keys().cloned().collect();
        let up: BTreeSet<&str> = stage
            .speakers
            .iter()
            .filter(|speaker| speaker.readiness == Readiness::Ready)
            .map(|speaker| &*speaker.name)
            .collect();
        let is_up = |(at, name): (usize, &String)| up.contains(name.as_str()).then_some(1 << at);
        let living = names.iter().enumerate().filter_map(is_up).sum();
        let graph = Graph::new(&sessions, living, |_, _, _| true);
        Self { names, learned: graph.all(), paths: graph.most_paths(), graph, sessions }
    }

    fn living(&self) -> Nodes {
        self.graph.living
    }

    fn set(&self, names: &BTreeSet<String>) -> Nodes {
        let is_in = |(at, name): (usize, &String)| names.contains(name).then_some(1 << at);
        self.names.iter().enumerate().filter_map(is_in).sum()
    }

    fn pair(&self, who: usize, whose: usize) -> (String, String) {
        (self.names[who].clone(), self.names[whose].clone())
    }

    /// Returns the number of pairs of living nodes in which one misses the other's route.
    pub fn missing(&self) -> u32 {
        missing_in(&self.graph, &self.learned)
    }

    /// Returns the reflector with the most costly loss, by the number of pairs of other nodes that
    /// lose a route, and that number.
    pub fn worst_without_one(&self) -> Option<(String, u32)> {
        let each = self.graph.reflecting().map(|reflector| {
            let rest = self.graph.without(reflector);
            let learned = rest.all();
            (reflector, missing_in(&rest, &learned))
        });
        let worst = each.max_by_key(|(_, missing)| *missing)?;
        (worst.1 > 0).then(|| (self.names[worst.0].clone(), worst.1))
    }

    /// Returns the harm of a step to `after`: the routes that the living nodes not in `changed`
    /// lose while the touched sessions are reset, the routes that anyone loses for good, and paths
    /// beyond the limits of BIRD.
    pub fn harm(&self, after: &Self, changed: &BTreeSet<String>) -> Vec<Harm> {
        let before = &self.sessions;
        let surviving = Graph::new(&after.sessions, after.living(), |node, protocol, end| {
            before.get(node).and_then(|ends| ends.get(protocol)) == Some(end)
        });
        let changed = self.set(changed);
        let bystanders = self.living() & after.living() & !changed;
        let during = self.taken(&surviving.all(), bystanders, "routes lost during a step");
        let then =
            self.taken(&after.learned, self.living() & after.living(), "routes lost by a step");
        let (now, was) = (after.paths, self.paths);
        let grows = |now: u64, was: u64, limit: u64| now > limit && now > was;
        let too_many =
            grows(now.0, was.0, LIMIT_AT_REFLECTOR) || grows(now.1, was.1, LIMIT_AT_CLIENT);
        let paths = too_many.then(|| Harm {
            what: format!("paths to one prefix: {} at a reflector, {} at a client", now.0, now.1),
            pair: None,
            pairs: 0,
        });
        during.into_iter().chain(then).chain(paths).collect()
    }

    fn taken(&self, learned: &[Nodes], among: Nodes, what: &str) -> Option<Harm> {
        let mut harm = Harm { what: what.into(), pair: None, pairs: 0 };
        for origin in each(among) {
            let lost = self.learned[origin] & !learned[origin] & among;
            if lost != 0 {
                harm.pairs += lost.count_ones();
                harm.pair = Some(self.pair(lost.trailing_zeros() as usize, origin));
            }
        }
        harm.pair.is_some().then_some(harm)
    }

    /// Reports whether the lab's own walk takes no longer than the quick one's thousandfold.
    pub fn is_small(&self) -> bool {
        self.names.len() <= SMALL
    }

    /// Compares with the lab's own walk, node by node; returns the first pair that differs.
    pub fn disagreement(&self) -> Option<String> {
        let living = self.living();
        let down: BTreeSet<&str> = (0..self.names.len())
            .filter(|at| living >> at & 1 == 0)
            .map(|at| self.names[at].as_str())
            .collect();
        let theirs = missing(&self.sessions, &down, Rule::Bird);
        let mut ours = Pairs::new();
        for origin in each(living) {
            let lacking = living & !self.learned[origin] & !(1 << origin);
            ours.extend(each(lacking).map(|who| self.pair(who, origin)));
        }
        let differs = theirs.symmetric_difference(&ours).next()?;
        Some(format!("the lab says otherwise of {differs:?}"))
    }

    /// Returns the number of paths in each node's table, without its own.
    pub fn tables(&self) -> BTreeMap<String, u64> {
        let mut tables = vec![0; self.names.len()];
        for origin in each(self.living()) {
            let paths = self.graph.paths(origin);
            tables.iter_mut().zip(paths).for_each(|(table, paths)| *table += paths);
        }
        self.names.iter().cloned().zip(tables).collect()
    }

    /// The same, as the lab counts them.
    pub fn tables_of_the_lab(&self) -> BTreeMap<String, usize> {
        lab::bgp::paths(&self.sessions)
    }
}

fn missing_in(graph: &Graph, learned: &[Nodes]) -> u32 {
    let lacking = |origin: usize| graph.living & !learned[origin] & !(1 << origin);
    each(graph.living).map(|origin| lacking(origin).count_ones()).sum()
}
