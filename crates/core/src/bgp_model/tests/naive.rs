//! A second, straightforward implementation of confd and the oracle, over every single node.
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    net::Ipv4Addr,
};

use super::{
    super::{Local, Node, Peer, Remote, Rule},
    lab::Lab,
};

/// An entry: its kind, and the cluster id if the peer is a client.
pub type Entry = (&'static str, Option<Ipv4Addr>);

/// For each node, its peers and the entries for them.
pub type Peerings = Vec<BTreeMap<usize, Vec<Entry>>>;

fn locals(nodes: &[Node], peer: &Peer) -> Vec<usize> {
    let is = |node: &Node| match &peer.local {
        Local::All => true,
        Local::Node(name) => node.name == *name,
        Local::Selected(selector) => selector.matches(&node.labels),
    };
    (0..nodes.len()).filter(|&place| is(&nodes[place])).collect()
}

fn remotes(nodes: &[Node], peer: &Peer) -> Vec<usize> {
    let is = |node: &Node| match &peer.remote {
        Remote::Selected(selector) => selector.matches(&node.labels),
        Remote::Address(address) => node.address == Some(*address),
    };
    (0..nodes.len()).filter(|&place| is(&nodes[place])).collect()
}

/// The three passes of confd. Addresses are distinct.
pub fn peerings(lab: &Lab) -> Peerings {
    let nodes = &lab.nodes;
    let mut out: Peerings = vec![BTreeMap::new(); nodes.len()];
    if lab.mesh {
        for (a, of_a) in nodes.iter().enumerate() {
            for (b, of_b) in nodes.iter().enumerate() {
                let addressed = of_a.address.is_some() && of_b.address.is_some();
                if a != b && addressed && of_a.cluster_id.or(of_b.cluster_id).is_none() {
                    out[a].entry(b).or_default().push(("mesh", None));
                }
            }
        }
    }
    let mut emit = |local: usize, remote: usize, kind, known: bool| {
        let (node, peer) = (&nodes[local], &nodes[remote]);
        if local == remote || node.address.is_none() || peer.address.is_none() {
            return;
        }
        let entries = out[local].entry(remote).or_default();
        if entries.iter().any(|&(kind, _)| kind != "mesh") {
            return;
        }
        let theirs = peer.cluster_id.filter(|_| known);
        entries.push((kind, node.cluster_id.filter(|&id| theirs != Some(id))));
    };
    // By address first: see `Classes::end`.
    let mut peers: Vec<&Peer> = lab.peers.iter().collect();
    peers.sort_by_key(|peer| matches!(peer.remote, Remote::Selected(_)));
    for global in [true, false] {
        for peer in &peers {
            if global == (peer.local == Local::All) {
                for local in locals(nodes, peer) {
                    for remote in remotes(nodes, peer) {
                        let kind = if global { "global" } else { "node" };
                        emit(local, remote, kind, matches!(peer.remote, Remote::Selected(_)));
                    }
                }
            }
        }
    }
    for peer in peers.iter().filter(|peer| peer.reverse) {
        for local in remotes(nodes, peer) {
            for remote in locals(nodes, peer) {
                emit(local, remote, "node", true);
            }
        }
    }
    for of in &mut out {
        of.retain(|_, entries| !entries.is_empty());
    }
    out
}

/// The contents of a session: entries of one end with a counterpart.
fn shared(peerings: &Peerings, a: usize, b: usize) -> Vec<Entry> {
    let is_mesh = |entry: &Entry| entry.0 == "mesh";
    let [ours, theirs] =
        [(a, b), (b, a)].map(|(a, b)| peerings[a].get(&b).map_or(&[][..], |entries| &entries[..]));
    let answered = |entry: &&Entry| theirs.iter().any(|their| is_mesh(entry) == is_mesh(their));
    ours.iter().filter(answered).copied().collect()
}

/// Counts the sessions of each node with others: all, and those with nodes that are up.
pub fn sessions(lab: &Lab) -> Vec<(usize, usize)> {
    let peerings = peerings(lab);
    let of = |a: usize| {
        let count = |up: bool| {
            let others = (0..lab.nodes.len()).filter(|&b| !up || lab.nodes[b].up);
            others.map(|b| shared(&peerings, a, b).len()).sum()
        };
        (count(false), count(true))
    };
    (0..lab.nodes.len()).map(of).collect()
}

/// The learned routes and their numbers of paths: (node, origin) -> paths.
pub type Learned = BTreeMap<(usize, usize), u64>;

/// `cut`: sessions that are down.
pub fn learned(
    lab: &Lab,
    down: &BTreeSet<usize>,
    cut: &BTreeSet<(usize, usize)>,
    rule: Rule,
) -> Learned {
    let peerings = peerings(lab);
    let runs = |place: usize| lab.nodes[place].up && !down.contains(&place);
    let mut links: Vec<BTreeMap<usize, Option<Ipv4Addr>>> = Vec::new();
    for a in 0..lab.nodes.len() {
        let open = |b: &usize| !cut.contains(&(a, *b)) && !cut.contains(&(*b, a));
        let others = (0..lab.nodes.len()).filter(|&b| runs(a) && runs(b)).filter(open);
        let client = |b: usize| {
            let shared = shared(&peerings, a, b);
            (!shared.is_empty()).then(|| (b, shared.iter().find_map(|entry| entry.1)))
        };
        links.push(others.filter_map(client).collect());
    }
    let own: Vec<Option<Ipv4Addr>> =
        peerings.iter().map(|of| of.values().flatten().find_map(|entry| entry.1)).collect();
    let mut learned = Learned::new();
    for origin in (0..lab.nodes.len()).filter(|&place| runs(place)) {
        let mut todo = VecDeque::from([(origin, None, Vec::new())]);
        while let Some((node, sender, ids)) = todo.pop_front() {
            for (&peer, &client) in &links[node] {
                if Some(peer) == sender || peer == origin {
                    continue;
                }
                let mut ids: Vec<Ipv4Addr> = ids.clone();
                if let Some(sender) = sender {
                    let Some(own) = own[node] else { continue };
                    let to_client = client.is_some();
                    if !to_client && links[node][&sender].is_none() {
                        continue;
                    }
                    if rule == Rule::Bird && to_client && ids.contains(&own) {
                        continue;
                    }
                    ids.push(own);
                }
                let looped = own[peer].is_some_and(|own| ids.contains(&own));
                if looped && (rule == Rule::Rfc || links[peer][&node].is_some()) {
                    continue;
                }
                *learned.entry((peer, origin)).or_default() += 1;
                todo.push_back((peer, Some(node), ids));
            }
        }
    }
    learned
}

/// Pairs of running nodes where the first misses the second's routes.
pub fn missing(
    lab: &Lab,
    down: &BTreeSet<usize>,
    cut: &BTreeSet<(usize, usize)>,
    rule: Rule,
) -> BTreeSet<(usize, usize)> {
    let learned = learned(lab, down, cut, rule);
    let up: Vec<usize> =
        (0..lab.nodes.len()).filter(|n| lab.nodes[*n].up && !down.contains(n)).collect();
    let pairs = up.iter().flat_map(|&node| up.iter().map(move |&origin| (node, origin)));
    pairs.filter(|pair| pair.0 != pair.1 && !learned.contains_key(pair)).collect()
}

/// Pairs of nodes with a session that is the same on both ends in the two fabrics.
pub fn surviving(before: &Lab, after: &Lab) -> HashSet<(usize, usize)> {
    let [was, is] = [before, after].map(peerings);
    let mut alike = HashSet::new();
    for a in 0..before.nodes.len() {
        for b in 0..before.nodes.len() {
            let both = |peerings: &Peerings| (shared(peerings, a, b), shared(peerings, b, a));
            let moved = [a, b].iter().any(|&n| before.nodes[n].address != after.nodes[n].address);
            if !moved && !both(&was).0.is_empty() && both(&was) == both(&is) {
                alike.insert((a, b));
            }
        }
    }
    alike
}
