//! Confd's rules: the entries of a node, the resulting number of sessions, and the classes of nodes
//! that the rules cannot tell apart.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use super::{
    Local, Node, Peer, Remote, Selector,
    graph::{Bits, Graph, Link, Vertex},
    selector::Key,
};

/// Number of sessions that each node should have, between nodes and to the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions(BTreeMap<Arc<str>, Expected>);

/// Number of sessions that one node should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// With nodes that are up.
    pub up: u32,
    /// With all nodes.
    pub all: u32,
    /// With peers outside. A count of Established sessions includes these too.
    pub outside: u32,
}

impl Sessions {
    pub(super) fn new(nodes: &[Node], classes: &Classes) -> Self {
        let of_class: Vec<Expected> =
            (0..classes.list.len()).map(|class| classes.expected(class)).collect();
        let of_node = |(place, node): (usize, &Node)| {
            let inside = of_class[classes.of[place]];
            (node.name.clone(), Expected { outside: classes.outside[place], ..inside })
        };
        Self(nodes.iter().enumerate().map(of_node).collect())
    }

    /// Returns the numbers of one node; `None` if it does not exist.
    #[must_use]
    pub fn of(&self, node: &str) -> Option<Expected> {
        self.0.get(node).copied()
    }

    /// Iterates over all nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Expected)> {
        self.0.iter().map(|(name, &expected)| (name, expected))
    }

    /// Returns the number of sessions between nodes, each counted once.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().map(|expected| u64::from(expected.all)).sum::<u64>() / 2
    }
}

/// The connection between two nodes. If it is equal before and after a write, none of its sessions
/// is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// A session of the mesh.
    pub mesh: bool,
    /// A session by BGPPeers: this end and the other.
    pub chosen: Option<(End, End)>,
}

/// One end of a session, as it is written into BIRD's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The protocol's name begins with `Global_` and not with `Node_`.
    pub global: bool,
    /// `rr client`, with this `rr cluster id`.
    pub client: Option<Ipv4Addr>,
}

impl Session {
    /// Counts the sessions between the two: with the mesh and a BGPPeer, there are two.
    fn count(self) -> u32 {
        u32::from(self.mesh) + u32::from(self.chosen.is_some())
    }

    pub fn link(self) -> Option<Link> {
        let client = |end: End| end.client.is_some();
        let plain = Link { clients: (false, false) };
        let chosen = self.chosen.map(|(a, b)| Link { clients: (client(a), client(b)) });
        chosen.or(self.mesh.then_some(plain))
    }
}

impl Classes {
    /// Returns the connection between a node of one class and another node of the other.
    pub fn session(&self, a: usize, b: usize) -> Session {
        let [of_a, of_b] = [a, b].map(|class| &self.list[class].traits);
        if !(of_a.connected && of_b.connected) {
            return Session::default();
        }
        let plain = of_a.cluster_id.is_none() && of_b.cluster_id.is_none();
        let chosen = self.end(a, b).and_then(|end| Some((end, self.end(b, a)?)));
        Session { mesh: self.mesh && plain, chosen }
    }

    /// Returns the entry of a node for a peer. Within a pass, confd processes the BGPPeers in the
    /// undefined order of a Go map: here an entry by address wins, which can only turn peers into
    /// clients.
    fn end(&self, node: usize, peer: usize) -> Option<End> {
        let [of_node, of_peer] = [node, peer].map(|class| &self.list[class].traits);
        let (local, remote) = (&of_node.local, &of_peer.remote);
        let known = |known| {
            let peers = of_peer.cluster_id.filter(|_| known);
            of_node.cluster_id.filter(|&own| peers != Some(own))
        };
        // A global BGPPeer configures every node, even one in no selector's kind.
        if remote.meets(&self.global, &self.global) {
            let client = known(!remote.meets(&self.global, &self.by_address));
            return Some(End { global: true, client });
        }
        if local.meets(remote, &self.specific) {
            let client = known(!local.meets(remote, &self.by_address));
            return Some(End { global: false, client });
        }
        let reverse = of_node.remote.meets(&of_peer.local, &self.reverse);
        reverse.then(|| End { global: false, client: known(true) })
    }

    fn expected(&self, class: usize) -> Expected {
        let mut expected = Expected::default();
        for (other, of) in self.list.iter().enumerate() {
            let others = of.size - u32::from(other == class);
            let sessions = self.session(class, other).count() * others;
            expected.all += sessions;
            expected.up += if of.traits.up { sessions } else { 0 };
        }
        expected
    }

    /// Returns the vertex of all nodes of a class, with the cluster id in their BIRD configuration:
    /// confd does not write the id of a node without any client.
    pub fn vertex(&self, class: usize) -> Vertex {
        let Class { size, traits } = &self.list[class];
        let client = |other: usize| {
            let others = self.list[other].size - u32::from(other == class);
            others > 0 && self.end(class, other).is_some_and(|end| end.client.is_some())
        };
        let connected = |other: &usize| self.list[*other].traits.connected;
        let knows = traits.connected
            && traits.cluster_id.is_some()
            && (0..self.list.len()).filter(connected).any(client);
        let reflector = traits.cluster_id.is_some();
        Vertex { size: *size, reflector, cluster_id: traits.cluster_id.filter(|_| knows) }
    }
}

/// Nodes by class, and the configuration of each class by the BGPPeers.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    /// The class of each node.
    pub of: Vec<usize>,
    /// Number of sessions to peers outside that each node should have.
    pub outside: Vec<u32>,
    pub list: Vec<Class>,
    pub mesh: bool,
    /// The bundles that are global, name their remote by address, and add entries to the other end.
    pub global: Bits,
    pub by_address: Bits,
    pub reverse: Bits,
    /// All that are not global.
    pub specific: Bits,
}

/// Nodes with one cluster id, in the same state, to which the same bundles apply.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub size: u32,
    pub traits: Traits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traits {
    pub cluster_id: Option<Ipv4Addr>,
    pub up: bool,
    /// True if its nodes have BGP addresses.
    pub connected: bool,
    /// The bundles that configure it, and those that configure others to peer with it.
    pub local: Bits,
    pub remote: Bits,
}

/// BGPPeers that differ only in the nodes that they configure: the original operator makes three
/// per client.
struct Bundle {
    key: BundleKey,
    local: BTreeSet<usize>,
}

#[derive(PartialEq, Eq, Hash)]
struct BundleKey {
    global: bool,
    reverse: bool,
    remote: Target,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Target {
    /// Kinds that a selector selects.
    Kinds(Vec<usize>),
    /// The kind of the one node with that address.
    Address(usize),
    Outside(IpAddr),
}

/// A kind: nodes with the same values of all labels that any selector requires. A node that a
/// BGPPeer names is a separate kind.
#[derive(PartialEq, Eq, Hash)]
struct Kind<'n> {
    values: Vec<Option<&'n str>>,
    named: Option<usize>,
    cluster_id: Option<Ipv4Addr>,
    up: bool,
    connected: bool,
}

impl Classes {
    /// Builds the classes of nodes that are sorted by name.
    pub fn new(nodes: &[Node], peers: &[Peer], mesh: bool) -> Self {
        let mut by_address: HashMap<IpAddr, usize> = HashMap::with_capacity(nodes.len());
        for (place, node) in nodes.iter().enumerate() {
            if let Some(address) = node.address {
                by_address.entry(address).or_insert(place);
            }
        }
        let keys = keys(peers);
        let named = named(nodes, peers, &by_address);
        let hashed: Vec<Key> = keys.iter().copied().map(Key::new).collect();
        let mut kinds = Groups::default();
        let kind_of: Vec<usize> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| {
                let holder = node.address.and_then(|address| by_address.get(&address));
                kinds.place(Kind {
                    values: hashed.iter().map(|&key| node.labels.value(key)).collect(),
                    named: named.contains(&place).then_some(place),
                    cluster_id: node.cluster_id,
                    up: node.up,
                    connected: holder == Some(&place),
                })
            })
            .collect();
        let kinds = kinds.into_list();
        let mut selecting = Selecting { keys: &keys, kinds: &kinds, known: HashMap::new() };
        let target = |selecting: &mut Selecting<'_, '_>, remote: &Remote| match remote {
            Remote::Selected(selector) => Target::Kinds(selecting.kinds(selector)),
            Remote::Address(address) => match by_address.get(address) {
                Some(&place) => Target::Address(kind_of[place]),
                None => Target::Outside(*address),
            },
        };
        let bundles = bundles(peers, &mut selecting, target, |name| {
            let place = nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
            Some(kind_of[place])
        });
        Self::assemble(&kind_of, &kinds, bundles, mesh)
    }

    fn assemble(kind_of: &[usize], kinds: &[Kind], bundles: Vec<Bundle>, mesh: bool) -> Self {
        let mut outside = vec![0; kinds.len()];
        let (away, bundles): (Vec<_>, Vec<_>) =
            bundles.into_iter().partition(|bundle| matches!(bundle.key.remote, Target::Outside(_)));
        for bundle in away {
            for kind in bundle.local {
                outside[kind] += 1;
            }
        }
        let none = Bits::none(bundles.len());
        let [mut global, mut by_address, mut reverse, mut specific] =
            [(); 4].map(|()| none.clone());
        let mut local = vec![none.clone(); kinds.len()];
        let mut remote = vec![none.clone(); kinds.len()];
        for (place, Bundle { key, local: configured }) in bundles.into_iter().enumerate() {
            if key.global { &mut global } else { &mut specific }.insert(place);
            if key.reverse {
                reverse.insert(place);
            }
            for kind in configured {
                local[kind].insert(place);
            }
            match key.remote {
                Target::Kinds(kinds) => {
                    for kind in kinds {
                        remote[kind].insert(place);
                    }
                }
                Target::Address(kind) => {
                    by_address.insert(place);
                    remote[kind].insert(place);
                }
                Target::Outside(_) => {}
            }
        }
        let mut groups = Groups::default();
        let class_of: Vec<usize> = kinds
            .iter()
            .zip(local.into_iter().zip(remote))
            .map(|(kind, (local, remote))| {
                let &Kind { cluster_id, up, connected, .. } = kind;
                groups.place(Traits { cluster_id, up, connected, local, remote })
            })
            .collect();
        let mut list: Vec<Class> =
            groups.into_list().into_iter().map(|traits| Class { size: 0, traits }).collect();
        let of: Vec<usize> = kind_of.iter().map(|&kind| class_of[kind]).collect();
        for &class in &of {
            list[class].size += 1;
        }
        let outside = kind_of
            .iter()
            .map(|&kind| if kinds[kind].connected { outside[kind] } else { 0 })
            .collect();
        Self { of, outside, list, mesh, global, by_address, reverse, specific }
    }

    /// Builds the graph that carries routes: the classes whose nodes are up.
    pub fn graph(&self) -> Graph {
        self.graph_of(|traits| traits.up)
    }

    /// Builds the graph that may carry routes: a node that is not Ready may still speak BGP.
    pub fn whole(&self) -> Graph {
        self.graph_of(|_| true)
    }

    fn graph_of(&self, counts: impl Fn(&Traits) -> bool) -> Graph {
        let vertex = |class: usize| {
            let Class { size, traits } = &self.list[class];
            Vertex { size: if counts(traits) { *size } else { 0 }, ..self.vertex(class) }
        };
        Graph::new(self.list.len(), vertex, |a, b| self.session(a, b).link())
    }
}

/// Every label key in any selector.
fn keys(peers: &[Peer]) -> Vec<&str> {
    peers.iter().flat_map(Peer::keys).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The nodes that some BGPPeer singles out.
fn named(nodes: &[Node], peers: &[Peer], by_address: &HashMap<IpAddr, usize>) -> BTreeSet<usize> {
    let local = peers.iter().filter_map(|peer| match &peer.local {
        Local::Node(name) => nodes.binary_search_by(|node| node.name.cmp(name)).ok(),
        _ => None,
    });
    let remote = peers.iter().filter_map(|peer| match &peer.remote {
        Remote::Address(address) => by_address.get(address).copied(),
        Remote::Selected(_) => None,
    });
    local.chain(remote).collect()
}

/// Combines BGPPeers with the same remote.
fn bundles<'s, 'k>(
    peers: &[Peer],
    selecting: &mut Selecting<'s, 'k>,
    target: impl Fn(&mut Selecting<'s, 'k>, &Remote) -> Target,
    kind_of: impl Fn(&Arc<str>) -> Option<usize>,
) -> Vec<Bundle> {
    let mut places = Groups::default();
    let mut locals: Vec<BTreeSet<usize>> = Vec::new();
    for peer in peers {
        let remote = target(selecting, &peer.remote);
        // For peers outside this makes no difference: one session with each address.
        let inside = !matches!(remote, Target::Outside(_));
        let global = inside && peer.local == Local::All;
        let reverse = inside && peer.reverse;
        let place = places.place(BundleKey { global, reverse, remote });
        if place == locals.len() {
            locals.push(BTreeSet::new());
        }
        match &peer.local {
            Local::All => locals[place].extend(0..selecting.kinds.len()),
            Local::Node(name) => locals[place].extend(kind_of(name)),
            Local::Selected(selector) => locals[place].extend(selecting.kinds(selector)),
        }
    }
    places.into_list().into_iter().zip(locals).map(|(key, local)| Bundle { key, local }).collect()
}

/// The kinds that a selector selects.
struct Selecting<'s, 'k> {
    keys: &'s [&'s str],
    kinds: &'s [Kind<'k>],
    /// The kinds with each value of each key that some selector requires.
    known: HashMap<usize, HashMap<&'k str, Vec<usize>>>,
}

impl Selecting<'_, '_> {
    fn kinds(&mut self, selector: &Selector) -> Vec<usize> {
        let keys = self.keys;
        let place = |key: &str| keys.binary_search(&key).ok();
        let holds = |&kind: &usize| {
            let values = &self.kinds[kind].values;
            selector.holds(&|key| values[place(key)?])
        };
        let required = selector.required();
        let Some((key, values)) = required.and_then(|(key, values)| Some((place(key)?, values)))
        else {
            return (0..self.kinds.len()).filter(holds).collect();
        };
        // There may be thousands of BGPPeers for one hostname each: comparing every kind with each
        // would take seconds.
        let index = self.known.entry(key).or_insert_with(|| {
            let mut index: HashMap<&str, Vec<usize>> = HashMap::new();
            for (kind, of) in self.kinds.iter().enumerate() {
                if let Some(value) = of.values[key] {
                    index.entry(value).or_default().push(kind);
                }
            }
            index
        });
        let candidates = values.iter().filter_map(|value| index.get(&**value)).flatten();
        let mut kinds: Vec<usize> = candidates.copied().filter(holds).collect();
        kinds.sort_unstable();
        kinds
    }
}

/// Assigns numbers to values; equal values have the same number.
pub(super) struct Groups<T>(HashMap<T, usize>);

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Groups<T> {
    /// Returns the number of this value: the next number if it is new.
    pub fn place(&mut self, thing: T) -> usize {
        let next = self.0.len();
        *self.0.entry(thing).or_insert(next)
    }

    /// Returns the values by number.
    pub fn into_list(self) -> Vec<T> {
        let mut list: Vec<_> = self.0.into_iter().collect();
        list.sort_unstable_by_key(|&(_, place)| place);
        list.into_iter().map(|(thing, _)| thing).collect()
    }
}
