//! The number of paths in the tables.
//!
//! With `add paths on`, which is fixed in Calico's template, a reflector passes on every path that
//! it has, not only the best, and each path returns from every reflector that may pass it on. Only
//! the lists of cluster ids end this: with an id per reflector, the paths of one prefix are all
//! routes through the mesh of reflectors, and their number grows factorially.
use std::net::Ipv4Addr;

use super::{
    Rule,
    graph::{Graph, Link, List, Vertex, others},
};

/// Maximum number of paths of one prefix at one reflector. Measured with BIRD 2.0 on 24 nodes: 92,
/// 158, 205, 237 and 250 converge with exactly the computed number of paths, 4 to 13 s after a cold
/// start, on a busy machine within a minute, at 60 to 170 µs of processor time for each path at
/// each node. Six ids (326, one for each reflector) have not converged after a minute and a half.
pub const LIMIT_AT_REFLECTOR: u64 = 250;

/// The same at a client, which passes nothing on: 462 converge.
pub const LIMIT_AT_CLIENT: u64 = 500;

/// Maximum number of paths in one table. BIRD needs 100 to 200 bytes for each, so this is at most
/// 200 MB, which a calico-node can be expected to have available.
pub const LIMIT_PER_TABLE: u64 = 1_000_000;

/// Number of paths of one prefix above which counting stops: far above the limit; nine reflectors
/// with an id each reach it.
const COUNTED: u64 = 200_000;

/// Maximum number of counting steps for all prefixes together: some 20 ms. A fabric that needs more
/// has more cluster ids than any sound one.
const STEPS: u64 = 4_000_000;

/// The number of paths in the tables, if each node announces one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// At the reflectors.
    pub reflector: Load,
    /// At all other nodes.
    pub client: Load,
    /// Counting was abandoned: there are at least this many.
    pub exceeded: bool,
}

/// The highest number of paths of any node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Of one prefix.
    pub per_prefix: u64,
    /// Of all prefixes, including its own.
    pub table: u64,
}

/// Reflectors of one cluster id, for [`Paths::of_clusters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The number of reflectors that have the id.
    pub reflectors: usize,
    /// Number of these with which every client peers, not only the clients of this cluster.
    pub shared: usize,
}

impl Paths {
    /// Counts the paths if each client peers with the reflectors of one cluster and the shared ones
    /// of all, and all reflectors peer with each other. Applies BIRD's rule.
    #[must_use]
    pub fn of_clusters(clusters: &[Cluster]) -> Self {
        // For each cluster: the reflectors for its own clients, those for all, and two clients.
        let place = |class: usize| (class / 3, class % 3);
        let vertex = |class: usize| {
            let (cluster, kind) = place(class);
            let Cluster { reflectors, shared } = clusters[cluster];
            let size = [reflectors.saturating_sub(shared), shared.min(reflectors), 2][kind];
            let id = u32::try_from(cluster).unwrap_or(u32::MAX);
            let cluster_id = (kind < 2).then(|| Ipv4Addr::from_bits(id));
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            Vertex { size, reflector: kind < 2, cluster_id }
        };
        let link = |a: usize, b: usize| {
            let ((cluster_a, a), (cluster_b, b)) = (place(a), place(b));
            let same = cluster_a == cluster_b;
            match (a < 2, b < 2) {
                (true, true) => Some(Link { clients: (!same, !same) }),
                (true, false) => (same || a == 1).then_some(Link { clients: (true, false) }),
                (false, true) => (same || b == 1).then_some(Link { clients: (false, true) }),
                (false, false) => None,
            }
        };
        Self::new(&Graph::new(3 * clusters.len(), vertex, link), Rule::Bird)
    }

    /// Reports whether BIRD can be expected to handle it.
    #[must_use]
    pub fn bearable(&self) -> bool {
        let fits = |load: Load, limit| load.per_prefix <= limit && load.table <= LIMIT_PER_TABLE;
        !self.exceeded
            && fits(self.reflector, LIMIT_AT_REFLECTOR)
            && fits(self.client, LIMIT_AT_CLIENT)
    }

    /// Reports the same for this many nodes that announce a prefix each, regardless of the fabric's
    /// own number.
    #[must_use]
    pub fn bearable_with(&self, nodes: usize) -> bool {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        let table = |load: Load| load.per_prefix.saturating_mul(nodes) <= LIMIT_PER_TABLE;
        self.bearable() && table(self.reflector) && table(self.client)
    }

    pub(super) fn new(graph: &Graph, rule: Rule) -> Self {
        let mut counter = Counter { graph, rule, steps: STEPS, exceeded: false };
        let mut paths = Self::default();
        // Its own prefix, once.
        let mut tables = vec![1_u64; graph.size.len()];
        for (origin, &members) in graph.size.iter().enumerate() {
            if members == 0 {
                continue;
            }
            for (class, count) in counter.count(origin).into_iter().enumerate() {
                let others = u64::from(members - u32::from(class == origin));
                if graph.size[class] == 0 || others == 0 {
                    continue;
                }
                tables[class] = tables[class].saturating_add(count.saturating_mul(others));
                let load = paths.at(graph, class);
                load.per_prefix = load.per_prefix.max(count);
            }
            if counter.exceeded {
                break;
            }
        }
        for (class, &table) in tables.iter().enumerate() {
            if graph.size[class] > 0 {
                let load = paths.at(graph, class);
                load.table = load.table.max(table);
            }
        }
        Self { exceeded: counter.exceeded, ..paths }
    }

    fn at(&mut self, graph: &Graph, class: usize) -> &mut Load {
        let reflector = graph.reflectors.binary_search(&class).is_ok();
        if reflector { &mut self.reflector } else { &mut self.client }
    }
}

struct Counter<'g> {
    graph: &'g Graph,
    rule: Rule,
    steps: u64,
    exceeded: bool,
}

/// Equivalent paths: from a client or not, with these cluster ids; and their number. The ids are a
/// set: their order distinguishes paths, but does not affect where they go.
type Alike = (bool, List, u64);

impl Counter<'_> {
    /// Counts the paths of each member of each class to a prefix of a node of `origin`; for the
    /// class of the node itself, those of its other members.
    fn count(&mut self, origin: usize) -> Vec<u64> {
        let graph = self.graph;
        let others = others(&graph.size, origin);
        let members = |class: usize| u64::from(graph.size[class] - u32::from(class == origin));
        let mut at = vec![0_u64; graph.size.len()];
        let mut level: Vec<Vec<Alike>> = vec![Vec::new(); graph.size.len()];
        let mut first = graph.adjacent[origin].clone();
        first.and(&others);
        for class in first.iter() {
            at[class] = 1;
            level[class].push((graph.clients[class].contains(origin), 0, 1));
        }
        // The lists of each level are one longer than those of the previous one, so the loop ends.
        while level.iter().any(|alike| !alike.is_empty()) && !self.exceeded {
            let mut next: Vec<Vec<Alike>> = vec![Vec::new(); graph.size.len()];
            for (class, alike) in level.iter().enumerate() {
                for &(from_client, list, count) in alike {
                    let passed = graph.passes(class, from_client, list, self.rule);
                    let Some((mut to, list)) = passed else { continue };
                    to.and(&others);
                    for receiver in to.iter() {
                        let senders = members(class) - u64::from(class == receiver);
                        self.steps = self.steps.saturating_sub(1);
                        if senders == 0 || !graph.accepts(receiver, class, list, self.rule) {
                            continue;
                        }
                        let count = count.saturating_mul(senders);
                        at[receiver] = at[receiver].saturating_add(count);
                        if graph.passing.contains(receiver) {
                            let client = graph.clients[receiver].contains(class);
                            next[receiver].push((client, list, count));
                        }
                        self.exceeded |= self.steps == 0 || at[receiver] > COUNTED;
                    }
                    if self.exceeded {
                        return at;
                    }
                }
            }
            next.iter_mut().for_each(merge);
            level = next;
        }
        at
    }
}

/// Adds up equivalent paths.
fn merge(alike: &mut Vec<Alike>) {
    alike.sort_unstable_by_key(|&(client, list, _)| (client, list));
    alike.dedup_by(|later, first| {
        let same = (later.0, later.1) == (first.0, first.1);
        if same {
            first.2 = first.2.saturating_add(later.2);
        }
        same
    });
}
