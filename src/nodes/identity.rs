//! Which node is a series about?
//!
//! kube-prometheus sets `instance` to the node's name, the Helm chart leaves `IP:port`, others add a
//! label of their own: everything a series may carry is looked up in what the Node objects say.
use std::{collections::HashMap, sync::Arc};

/// An index from everything a node is called to its name.
#[derive(Clone, Debug, Default)]
pub struct Identity(HashMap<Arc<str>, Name>);

#[derive(Clone, Debug)]
enum Name {
    One(Arc<str>),
    /// Two nodes share this address: it identifies neither.
    Many,
}

/// What a series' labels lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// This node.
    Node(Arc<str>),
    /// Several nodes.
    Ambiguous,
    /// None that we know.
    Unknown,
}

impl Identity {
    /// Adds one node with its addresses.
    pub fn insert<'a>(&mut self, name: &Arc<str>, addresses: impl Iterator<Item = &'a str>) {
        // A node's own name wins over another node's address.
        self.0.insert(Arc::clone(name), Name::One(Arc::clone(name)));
        for address in addresses {
            match self.0.get_mut(address) {
                Some(Name::One(other)) if other == name => {}
                Some(Name::One(other)) if **other == *address => {}
                Some(entry) => *entry = Name::Many,
                None => {
                    self.0.insert(address.into(), Name::One(Arc::clone(name)));
                }
            }
        }
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
                Some(Name::One(node)) => return Resolution::Node(Arc::clone(node)),
                Some(Name::Many) => ambiguous = true,
                None => {}
            }
        }
        if ambiguous { Resolution::Ambiguous } else { Resolution::Unknown }
    }

    fn lookup(&self, value: &str) -> Option<&Name> {
        self.0
            .get(value)
            .or_else(|| self.0.get(host(value)))
            // An exporter may know the node by its full host name only.
            .or_else(|| self.0.get(host(value).split_once('.')?.0))
    }
}

/// The host of `host:port`, `[v6]:port`, `[v6]` or `host`.
fn host(value: &str) -> &str {
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
        let mut index = Identity::default();
        index.insert(&"node-1".into(), ["10.0.0.1", "node-1", "fd00::1"].into_iter());
        index.insert(&"node-2".into(), ["10.0.0.2", "ip-10-0-0-2.internal"].into_iter());
        index.insert(&"node-3".into(), ["10.9.9.9"].into_iter());
        index.insert(&"node-4".into(), ["10.9.9.9"].into_iter());
        index
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
            assert_eq!(resolve(labels), Resolution::Node("node-1".into()), "{labels:?}");
        }
        let node_2 = Resolution::Node("node-2".into());
        assert_eq!(resolve(&[("instance", "ip-10-0-0-2.internal:9100")]), node_2);
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
