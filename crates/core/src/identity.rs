//! Finds the node of a series.
//!
//! kube-prometheus sets `instance` to the node's name, the Helm chart leaves `IP:port`, others add
//! a separate label: every name in a series is looked up in the Node objects.
//!
//! The same Prometheus may contain other machines, some with our addresses (at another site) or our
//! short names (in another domain): a label for node names excludes our nodes if its value is none
//! of them, and a short name counts only if it is unambiguous.
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An index from every name and address of a node to its place among the names.
#[derive(Debug, Default)]
pub struct Identity {
    names: Arc<[Arc<str>]>,
    index: Index,
    /// The nodes without a known domain, by their short name.
    short: Index,
    /// The trail of the last answer.
    trail: Mutex<Trail>,
}

/// Every series of an answer is looked up twice, and the keys come from the API server: the hash
/// need not withstand an attacker.
type Index = HashMap<Arc<str>, u32, BuildHasherDefault<Words>>;

/// A hash that takes eight bytes at a time, like rustc's own.
#[derive(Default)]
struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.add(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let rest = words.remainder().iter().fold(0, |rest, byte| (rest << 8) | u64::from(*byte));
        self.add(rest);
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    fn finish(&self) -> u64 {
        // Its upper bits are of better quality, and hash tables use both ends.
        self.0.rotate_left(26)
    }
}

/// Two nodes share this address: it identifies neither.
const MANY: u32 = u32::MAX;

/// The result of resolving a series' labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// The node at this place among [`Identity::names`].
    Node(usize),
    /// Perhaps this node, which is known by its short name only; the host name has a domain.
    /// [`ShortNames`] decides.
    Short(usize, &'a str),
    /// Several nodes.
    Ambiguous,
    /// No known node.
    Unknown,
}

impl Identity {
    /// Builds the index of nodes with their addresses.
    #[must_use]
    pub fn new(mut nodes: Vec<(Arc<str>, &[Arc<str>])>) -> Self {
        nodes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut index =
            Index::with_capacity_and_hasher(nodes.len() * 2, BuildHasherDefault::default());
        // A node's own name wins over another node's address.
        for (place, (name, _)) in (0..MANY).zip(&nodes) {
            index.insert(Arc::clone(name), place);
        }
        let names: Arc<[Arc<str>]> = nodes.iter().map(|(name, _)| Arc::clone(name)).collect();
        for (place, (_, addresses)) in (0..MANY).zip(&nodes) {
            for address in *addresses {
                let key = match canonical(address) {
                    Cow::Borrowed(_) => Arc::clone(address),
                    Cow::Owned(key) => key.into(),
                };
                if names.binary_search(&key).is_ok() {
                    continue;
                }
                let entry = index.entry(key).or_insert(place);
                if *entry != place {
                    *entry = MANY;
                }
            }
        }
        let mut short = Index::default();
        for (place, (name, addresses)) in (0..MANY).zip(&nodes) {
            let all = || addresses.iter().chain([name]);
            // For a node with a known domain, every other domain is foreign.
            let has_domain = |name: &str| {
                all().any(|full| full.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
            };
            for name in all().filter(|name| !name.contains(['.', ':']) && !has_domain(name)) {
                let key = canonical(name);
                if index.get(&*key) == Some(&place) {
                    short.insert((*key).into(), place);
                }
            }
        }
        Self { names, index, short, trail: Mutex::default() }
    }

    /// Takes the trail of the last answer: the next one names the nodes in the same order.
    #[must_use]
    pub fn take_trail(&self) -> Trail {
        std::mem::take(&mut self.trail())
    }

    /// Keeps the trail of an answer that was resolved with this identity.
    pub fn keep_trail(&self, trail: Trail) {
        *self.trail() = trail;
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the nodes, sorted.
    #[must_use]
    pub fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
    }

    /// Returns the node of these labels: by the first existing label of `names`, otherwise by
    /// `instance`. If the label names no node, the machine is not a node, whatever its address.
    pub fn resolve<'a>(
        &self,
        names: &[String],
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Resolution<'a> {
        let mut ambiguous = false;
        for name in names.iter().map(String::as_str).chain(["instance"]) {
            let Some(value) = label(name) else { continue };
            match self.lookup(value) {
                // Another label may decide between them.
                Resolution::Ambiguous => ambiguous = true,
                Resolution::Unknown if ambiguous => {}
                found => return found,
            }
        }
        if ambiguous { Resolution::Ambiguous } else { Resolution::Unknown }
    }

    /// Resolves the value of one label.
    #[must_use]
    pub fn lookup<'a>(&self, value: &'a str) -> Resolution<'a> {
        let host = host(value);
        match self.index.get(value).or_else(|| self.index.get(host)) {
            Some(&MANY) => return Resolution::Ambiguous,
            Some(place) => return Resolution::Node(*place as usize),
            None => {}
        }
        let name = canonical(host);
        match self.index.get(&*name) {
            Some(&MANY) => return Resolution::Ambiguous,
            Some(place) => return Resolution::Node(*place as usize),
            None => {}
        }
        // An exporter may know the node by its full host name only.
        let short = name.split_once('.').and_then(|(name, _)| self.short.get(name));
        short.map_or(Resolution::Unknown, |place| Resolution::Short(*place as usize, host))
    }
}

/// The owners of short names in one answer.
///
/// A node that is known by its short name only also matches `web-1.example.com`, unless the answer
/// has series that name it unambiguously, or such hosts in two domains.
#[derive(Clone, Debug, Default)]
pub struct ShortNames {
    exact: HashSet<usize>,
    /// The host of each node; `None` where there are several.
    hosts: HashMap<usize, Option<Box<str>>>,
}

impl ShortNames {
    /// Records the resolution of one series of the answer.
    pub fn meet(&mut self, found: Resolution<'_>) {
        match found {
            Resolution::Node(place) => drop(self.exact.insert(place)),
            Resolution::Short(place, host) => {
                let host = canonical(host);
                let known = self.hosts.entry(place).or_insert_with(|| Some((&*host).into()));
                if known.as_deref() != Some(&*host) {
                    *known = None;
                }
            }
            Resolution::Ambiguous | Resolution::Unknown => {}
        }
    }

    /// Returns the final resolution, after all series have been recorded: never
    /// [`Resolution::Short`].
    #[must_use]
    pub fn settle<'a>(&self, found: Resolution<'a>) -> Resolution<'a> {
        match found {
            Resolution::Short(place, _) if self.exact.contains(&place) => Resolution::Unknown,
            Resolution::Short(place, _) => match self.hosts.get(&place) {
                Some(Some(_)) => Resolution::Node(place),
                _ => Resolution::Ambiguous,
            },
            found => found,
        }
    }
}

/// Returns a host in the one way to write it: in lower case, without the dot of the root, an address
/// as addresses are written.
fn canonical(host: &str) -> Cow<'_, str> {
    let rooted = host.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(host);
    if rooted.contains(':')
        && let Ok(address) = rooted.parse::<IpAddr>()
    {
        return Cow::Owned(address.to_canonical().to_string());
    }
    if rooted.contains(|c: char| c.is_ascii_uppercase()) {
        return Cow::Owned(rooted.to_ascii_lowercase());
    }
    Cow::Borrowed(rooted)
}

/// Returns the host of `host:port`, `[v6]:port`, `[v6]` or `host`.
#[must_use]
pub fn host(value: &str) -> &str {
    if let Some(rest) = value.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(host, _)| host);
    }
    match value.rsplit_once(':') {
        // More than one colon without brackets is an IPv6 address without a port.
        Some((host, _)) if !host.contains(':') => host,
        _ => value,
    }
}

/// The longest text that is kept: names and addresses of nodes are shorter, and a port follows.
const LONGEST: usize = 300;

/// Finds the nodes of one answer. Every measure of the built-in query lists the nodes in the same
/// order, so each text is first compared with the one that came next last time, and only then
/// looked up: most lookups miss the processor's cache, a comparison in this order does not.
#[derive(Debug, Default)]
pub struct Trail {
    /// The texts in their order, one after the other, and the end of each.
    texts: String,
    steps: Vec<Step>,
    /// The step of each node that has one, by place.
    of_node: Vec<Option<u32>>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    end: u32,
    node: u32,
}

impl Trail {
    /// Resolves a text like [`Identity::lookup`]; each call must pass the same identity.
    pub fn find<'a>(&mut self, identity: &Identity, text: &'a str) -> Resolution<'a> {
        // At its end it begins again.
        let next = if self.next < self.steps.len() { self.next } else { 0 };
        // Some servers list all measures of a node before those of the next one.
        for place in [Some(next), self.next.checked_sub(1)].into_iter().flatten() {
            if let Some((known, node)) = self.step(place)
                && known == text
            {
                self.next = place + 1;
                return Resolution::Node(node);
            }
        }
        let found = identity.lookup(text);
        if let Resolution::Node(node) = found {
            self.meet(text, node);
        }
        found
    }

    /// A step of the trail: its text and its node.
    fn step(&self, place: usize) -> Option<(&str, usize)> {
        let step = self.steps.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.steps[before].end);
        let text = self.texts.get(start as usize..step.end as usize)?;
        Some((text, step.node as usize))
    }

    /// Continues after a node, which becomes the last step if it is new.
    fn meet(&mut self, text: &str, node: usize) {
        if let Some(Some(step)) = self.of_node.get(node) {
            self.next = *step as usize + 1;
            return;
        }
        let end = u32::try_from(self.texts.len() + text.len());
        let (Ok(end), Ok(place)) = (end, u32::try_from(self.steps.len())) else { return };
        let Ok(number) = u32::try_from(node) else { return };
        if text.len() > LONGEST {
            return;
        }
        if self.of_node.len() <= node {
            self.of_node.resize(node + 1, None);
        }
        self.of_node[node] = Some(place);
        self.texts.push_str(text);
        self.steps.push(Step { end, node: number });
        self.next = self.steps.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index() -> Identity {
        let nodes = [
            ("node-4", vec!["10.9.9.9"]),
            ("node-2", vec!["10.0.0.2", "ip-10-0-0-2.internal"]),
            ("node-1", vec!["10.0.0.1", "node-1", "fd00::1"]),
            ("node-3", vec!["10.9.9.9", "node-1"]),
        ];
        let nodes = nodes.map(|(name, addresses)| {
            (Arc::from(name), addresses.into_iter().map(Arc::from).collect::<Vec<_>>())
        });
        Identity::new(nodes.iter().map(|(name, all)| (Arc::clone(name), &all[..])).collect())
    }

    fn resolve<'a>(labels: &[(&str, &'a str)]) -> Resolution<'a> {
        let names = ["node".to_owned(), "nodename".to_owned()];
        index().resolve(&names, |name| labels.iter().find(|(k, _)| *k == name).map(|(_, v)| *v))
    }

    /// Resolves the series of one answer.
    fn settled(identity: &Identity, instances: &[&str]) -> Vec<Option<usize>> {
        let found: Vec<_> =
            instances.iter().map(|instance| identity.resolve(&[], |_| Some(*instance))).collect();
        let mut names = ShortNames::default();
        for found in &found {
            names.meet(*found);
        }
        let each = found.into_iter().map(|found| match names.settle(found) {
            Resolution::Node(place) => Some(place),
            _ => None,
        });
        each.collect()
    }

    #[test]
    fn finds_the_node_by_everything_it_is_called() {
        for labels in [
            &[("instance", "node-1")][..],
            &[("instance", "node-1:9100")],
            &[("instance", "10.0.0.1:9100")],
            &[("instance", "10.0.0.1")],
            &[("instance", "[fd00::1]:9100")],
            &[("instance", "fd00::1")],
            &[("instance", "10.0.0.2:9100"), ("node", "node-1")],
            &[("instance", "10.0.0.2:9100"), ("node", "10.9.9.9"), ("nodename", "node-1")],
            &[("nodename", "node-1")],
        ] {
            assert_eq!(resolve(labels), Resolution::Node(0), "{labels:?}");
        }
        assert_eq!(settled(&index(), &["node-1.example.com:9100"]), [Some(0)]);
        assert_eq!(resolve(&[("instance", "ip-10-0-0-2.internal:9100")]), Resolution::Node(1));
        assert_eq!(index().names()[1], "node-2".into());
    }

    #[test]
    fn f5_a_name_is_the_same_however_it_is_written() {
        let azure: [Arc<str>; 2] = ["aks-pool-vmss00000B".into(), "FD00:0:0::00a1".into()];
        let identity =
            Identity::new(vec![("aks-pool-vmss00000b".into(), &azure), ("web-1".into(), &[])]);
        for name in [
            "aks-pool-vmss00000B",
            "AKS-POOL-VMSS00000B:9100",
            "aks-pool-vmss00000b.",
            "aks-pool-vmss00000b.:9100",
            "fd00::a1",
            "[FD00::A1]:9100",
            "fd00:0000::00A1",
        ] {
            assert_eq!(identity.lookup(name), Resolution::Node(0), "{name}");
        }
        assert_eq!(identity.lookup("aks-pool-vmss00000c"), Resolution::Unknown);
        // One host in two spellings is one host.
        let both = ["web-1.Example.com:9100", "web-1.example.com.:9101"];
        assert_eq!(settled(&identity, &both), [Some(1), Some(1)]);
    }

    #[test]
    fn an_address_of_two_nodes_is_neither() {
        assert_eq!(resolve(&[("instance", "10.9.9.9:9100")]), Resolution::Ambiguous);
        assert_eq!(resolve(&[("instance", "10.9.9.8:9100")]), Resolution::Unknown);
        assert_eq!(resolve(&[]), Resolution::Unknown);
    }

    #[test]
    fn a_label_that_names_nobody_is_no_node_of_ours_whatever_the_address() {
        for labels in [
            &[("instance", "10.0.0.1:9100"), ("node", "other-site-7")][..],
            &[("instance", "node-1"), ("nodename", "other-site-7")],
            &[("node", "other-site-7"), ("nodename", "node-1")],
        ] {
            assert_eq!(resolve(labels), Resolution::Unknown, "{labels:?}");
        }
    }

    #[test]
    fn a_short_name_is_ours_only_if_nothing_else_can_be_meant() {
        let identity = index();
        // One exporter of ours, by name or by address, and a machine of another domain.
        for ours in ["node-1", "node-1:9100", "10.0.0.1:9100"] {
            assert_eq!(settled(&identity, &[ours, "node-1.other.example"]), [Some(0), None]);
            assert_eq!(settled(&identity, &["node-1.other.example:9100", ours]), [None, Some(0)]);
        }
        // Which of the two is ours?
        let both = ["node-1.our.example", "node-1.other.example", "10.0.0.2"];
        assert_eq!(settled(&identity, &both), [None, None, Some(1)]);
        // Two ports of one host are one machine.
        let ports = ["node-1.our.example:9100", "node-1.our.example:9101"];
        assert_eq!(settled(&identity, &ports), [Some(0), Some(0)]);
    }

    #[test]
    fn a_node_whose_domain_is_known_is_found_there_only() {
        let by_address: [Arc<str>; 2] = ["web-1".into(), "web-1.our.example".into()];
        let both_ways = [
            Identity::new(vec![("web-1".into(), &by_address)]),
            Identity::new(vec![("web-1.our.example".into(), &[])]),
            Identity::new(vec![("web-1.our.example".into(), &by_address[..1])]),
        ];
        for identity in both_ways {
            assert_eq!(settled(&identity, &["web-1.our.example:9100"]), [Some(0)]);
            assert_eq!(settled(&identity, &["web-1.other.example:9100"]), [None]);
        }
        // A short name does not match a node of which only the full name is known.
        let full = Identity::new(vec![("web-1.our.example".into(), &[])]);
        assert_eq!(settled(&full, &["web-1"]), [None]);
    }

    proptest! {
        #[test]
        fn never_panics(value in ".{0,30}") {
            let _ = resolve(&[("instance", &value)]);
        }

        /// For any names of machines, no node gets the values of two hosts.
        #[test]
        fn no_node_is_two_hosts_by_short_names(
            instances in proptest::collection::vec("node-[1-4](\\.(a|b)\\.example)?", 0..8),
        ) {
            let instances: Vec<_> = instances.iter().map(String::as_str).collect();
            let settled = settled(&index(), &instances);
            for place in 0..4 {
                let mut hosts: Vec<_> = instances.iter().zip(&settled)
                    .filter(|(_, found)| **found == Some(place)).map(|(i, _)| *i).collect();
                hosts.sort_unstable();
                hosts.dedup();
                prop_assert!(hosts.len() <= 1, "{hosts:?}");
            }
        }
    }

    fn identity() -> Identity {
        let addresses: Vec<[Arc<str>; 1]> =
            (0..4).map(|node| [format!("10.0.0.{node}").into()]).collect();
        let nodes = addresses.iter().enumerate();
        let nodes = nodes.map(|(node, all)| (format!("node-{node}").into(), &all[..]));
        Identity::new(nodes.collect())
    }

    proptest! {
        #[test]
        fn finds_what_is_looked_up_whatever_the_order(
            texts in proptest::collection::vec("(node-[0-5]|10.0.0.[0-5]|node-1.a)(:9100)?", 0..60),
            rounds in 1usize..4,
        ) {
            let (identity, mut trail) = (identity(), Trail::default());
            for text in std::iter::repeat_n(&texts, rounds).flatten() {
                prop_assert_eq!(trail.find(&identity, text), identity.lookup(text), "{}", text);
            }
            prop_assert!(trail.steps.len() <= 4);
        }
    }

    #[test]
    fn a_text_without_end_is_not_kept() {
        let (identity, mut trail) = (identity(), Trail::default());
        let text = format!("node-1:{}", "9".repeat(1 << 20));
        assert_eq!(trail.find(&identity, &text), Resolution::Node(1));
        assert!(trail.texts.is_empty() && trail.steps.is_empty());
    }
}
