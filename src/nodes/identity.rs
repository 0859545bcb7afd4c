//! Which node is a series about?
//!
//! kube-prometheus sets `instance` to the node's name, the Helm chart leaves `IP:port`, others add a
//! label of their own: everything a series may carry is looked up in what the Node objects say.
use std::{collections::HashMap, sync::Arc};

/// An index from everything a node is called to its place among the names.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    names: Arc<[Arc<str>]>,
    index: HashMap<Arc<str>, u32>,
}

/// Two nodes share this address: it identifies neither.
const MANY: u32 = u32::MAX;

/// What a series' labels lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The node at this place among [`Identity::names`].
    Node(usize),
    /// Several nodes.
    Ambiguous,
    /// None that we know.
    Unknown,
}

impl Identity {
    /// The index of some nodes, each with its addresses.
    #[must_use]
    pub fn new(mut nodes: Vec<(Arc<str>, &[Arc<str>])>) -> Self {
        nodes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut index = HashMap::with_capacity(nodes.len() * 2);
        // A node's own name wins over another node's address.
        for (place, (name, _)) in (0..MANY).zip(&nodes) {
            index.insert(Arc::clone(name), place);
        }
        let names: Arc<[Arc<str>]> = nodes.iter().map(|(name, _)| Arc::clone(name)).collect();
        for (place, (_, addresses)) in (0..MANY).zip(&nodes) {
            for address in *addresses {
                if names.binary_search(address).is_ok() {
                    continue;
                }
                let entry = index.entry(Arc::clone(address)).or_insert(place);
                if *entry != place {
                    *entry = MANY;
                }
            }
        }
        Self { names, index }
    }

    /// The names of the nodes, sorted.
    #[must_use]
    pub fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
    }

    /// The node whose labels these are: the first of `names` that leads to a node, else `instance`.
    pub fn resolve<'a>(
        &self,
        names: &[String],
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Resolution {
        let mut ambiguous = false;
        for name in names.iter().map(String::as_str).chain(["instance"]) {
            let Some(value) = label(name) else { continue };
            match self.lookup(value) {
                Some(MANY) => ambiguous = true,
                Some(place) => return Resolution::Node(place as usize),
                None => {}
            }
        }
        if ambiguous { Resolution::Ambiguous } else { Resolution::Unknown }
    }

    fn lookup(&self, value: &str) -> Option<u32> {
        self.index
            .get(value)
            .or_else(|| self.index.get(host(value)))
            // An exporter may know the node by its full host name only.
            .or_else(|| self.index.get(host(value).split_once('.')?.0))
            .copied()
    }
}

/// The host of `host:port`, `[v6]:port`, `[v6]` or `host`.
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

    fn resolve(labels: &[(&str, &str)]) -> Resolution {
        let names = ["node".to_owned(), "nodename".to_owned()];
        index().resolve(&names, |name| labels.iter().find(|(k, _)| *k == name).map(|(_, v)| *v))
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
            &[("instance", "node-1.example.com:9100")],
            &[("instance", "10.0.0.2:9100"), ("node", "node-1")],
            &[("instance", "10.0.0.1:9100"), ("node", "no-such-node")],
            &[("nodename", "node-1")],
        ] {
            assert_eq!(resolve(labels), Resolution::Node(0), "{labels:?}");
        }
        assert_eq!(resolve(&[("instance", "ip-10-0-0-2.internal:9100")]), Resolution::Node(1));
        assert_eq!(index().names()[1], "node-2".into());
    }

    #[test]
    fn an_address_of_two_nodes_is_neither() {
        assert_eq!(resolve(&[("instance", "10.9.9.9:9100")]), Resolution::Ambiguous);
        assert_eq!(resolve(&[("instance", "10.9.9.8:9100")]), Resolution::Unknown);
        assert_eq!(resolve(&[]), Resolution::Unknown);
    }

    proptest! {
        #[test]
        fn never_panics(value in ".{0,30}") {
            let _ = resolve(&[("instance", &value)]);
        }
    }
}
