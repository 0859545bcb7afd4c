//! The targets of probes: one address and protocol each, with the labels of its series.
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use prometheus_client::encoding::EncodeLabelSet;

use super::{
    members::Identity,
    pinglist::{Peer, Pinglist, Protocol},
};

/// The nodes and zones of the two ends; "" if unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct Pair {
    /// Node of this agent.
    pub src_node: String,
    /// Its zone.
    pub src_zone: String,
    /// Node of the peer.
    pub dst_node: String,
    /// Its zone.
    pub dst_zone: String,
}

/// The labels of the original's metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct Original {
    /// The key of the peer.
    pub dest_pod_name: String,
    /// Its address.
    pub dest_ip: String,
}

/// One address of one peer, probed by one protocol. Two targets that differ in any field, even in a
/// label, are different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The protocol of the probe.
    pub protocol: Protocol,
    /// The address to probe.
    pub address: SocketAddr,
    /// Identifies both ends, for the phase of the schedule.
    pub identity: String,
    /// Labels of our metrics.
    pub pair: Pair,
    /// Labels of the original's metric, if enabled: HTTP only.
    pub original: Option<Original>,
}

/// Computes the targets of a list: the first address of each family that both ends have, with each
/// protocol.
#[must_use]
pub fn targets(list: &Pinglist, who: &Identity) -> BTreeSet<Target> {
    let peers = list.peers.iter().flat_map(|peer| {
        let addresses = addresses(peer, who);
        addresses.flat_map(move |ip| list.probes.iter().map(move |protocol| (peer, ip, *protocol)))
    });
    peers.map(|(peer, ip, protocol)| target(list, who, peer, ip, protocol)).collect()
}

/// Returns the number of peers of a list without an address that this agent could reach.
#[must_use]
pub fn unreachable(list: &Pinglist, who: &Identity) -> usize {
    list.peers.iter().filter(|peer| addresses(peer, who).next().is_none()).count()
}

fn addresses(peer: &Peer, who: &Identity) -> impl Iterator<Item = IpAddr> {
    let of = |v4: bool| peer.ips.iter().copied().find(|ip| ip.is_ipv4() == v4 && who.reaches(*ip));
    [of(true), of(false)].into_iter().flatten()
}

fn target(list: &Pinglist, who: &Identity, peer: &Peer, ip: IpAddr, protocol: Protocol) -> Target {
    let own = &list.own;
    let node = if own.node.is_empty() { &who.node } else { &own.node };
    let original = (list.original_metrics && protocol == Protocol::Http)
        .then(|| Original { dest_pod_name: peer.key.clone(), dest_ip: ip.to_string() });
    let identity = format!(
        "{}/{}:{}>{}/{}/{}@{ip}:{}/{}",
        who.namespace,
        who.name,
        // Without a name, the address distinguishes the agents.
        who.ips.first().map(IpAddr::to_string).unwrap_or_default(),
        peer.namespace,
        peer.name,
        peer.uid,
        peer.port,
        protocol.label(),
    );
    Target {
        protocol,
        address: SocketAddr::new(ip, peer.port),
        identity,
        pair: Pair {
            src_node: node.clone(),
            src_zone: own.zone.clone(),
            dst_node: peer.node.clone(),
            dst_zone: peer.zone.clone(),
        },
        original,
    }
}

/// The label sets that are no longer in use: their series are removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Of the metrics with a protocol.
    pub probes: BTreeSet<(Protocol, Pair)>,
    /// Of the original's metric.
    pub originals: BTreeSet<Original>,
}

/// Returns the series to remove when the targets change. Several peers of a node share their
/// labels: those stay with the last of them.
#[must_use]
pub fn stale(before: &BTreeSet<Target>, after: &BTreeSet<Target>) -> Stale {
    let (old, new) = (used(before), used(after));
    Stale {
        probes: old.probes.difference(&new.probes).cloned().collect(),
        originals: old.originals.difference(&new.originals).cloned().collect(),
    }
}

fn used(targets: &BTreeSet<Target>) -> Stale {
    Stale {
        probes: targets.iter().map(|target| (target.protocol, target.pair.clone())).collect(),
        originals: targets.iter().filter_map(|target| target.original.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::pinglist::PinglistSelf;

    fn list(peers: Vec<Peer>, original_metrics: bool) -> Pinglist {
        Pinglist {
            prober: "a/mesh".into(),
            own: PinglistSelf { zone: "z1".into(), ..PinglistSelf::default() },
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            probes: vec![Protocol::Http, Protocol::Udp],
            original_metrics,
            peers,
            targets: vec![],
        }
    }

    fn peer(name: &str, ips: &[&str], node: &str) -> Peer {
        Peer {
            key: name.into(),
            name: name.into(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            port: 9090,
            node: node.into(),
            ..Peer::default()
        }
    }

    fn dual() -> Identity {
        let ips = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec();
        Identity { node: "n1".into(), ips, port: 9090, ..Identity::default() }
    }

    #[test]
    fn each_family_that_both_have_is_probed_at_its_first_address() {
        let both = ["fd00::2", "10.0.0.2", "10.0.0.3", "fd00::3"];
        let list = list(vec![peer("b", &both, "n2"), peer("c", &["fd00::9"], "n3")], true);
        let of = |who: &Identity| -> BTreeSet<_> {
            targets(&list, who).iter().map(|target| target.address.to_string()).collect()
        };
        let all = ["10.0.0.2:9090", "[fd00::2]:9090", "[fd00::9]:9090"];
        assert_eq!(of(&dual()), all.map(String::from).into());
        let v4 = Identity { ips: vec!["10.0.0.1".parse().unwrap()], ..dual() };
        assert_eq!(of(&v4), ["10.0.0.2:9090".to_owned()].into());
        assert_eq!((unreachable(&list, &v4), unreachable(&list, &dual())), (1, 0));
    }

    #[test]
    fn labels_name_both_ends_and_the_original_only_with_http() {
        let targets = targets(&list(vec![peer("b", &["10.0.0.2"], "n2")], true), &dual());
        assert_eq!(targets.len(), 2);
        for target in &targets {
            let Pair { src_node, src_zone, dst_node, dst_zone } = &target.pair;
            assert_eq!([src_node, src_zone, dst_node, dst_zone], ["n1", "z1", "n2", ""]);
            assert_eq!(target.original.is_some(), target.protocol == Protocol::Http);
        }
    }

    #[test]
    fn labels_stay_with_the_last_peer_of_a_node() {
        let of = |peers: &[(&str, &str)]| {
            let peers = peers.iter().map(|(name, ip)| peer(name, &[ip], "n2")).collect();
            targets(&list(peers, true), &dual())
        };
        let two = of(&[("b", "10.0.0.2"), ("c", "10.0.0.3")]);
        let one = of(&[("b", "10.0.0.2")]);
        let gone = stale(&two, &one);
        assert!(gone.probes.is_empty());
        assert_eq!(gone.originals.len(), 1);
        assert_eq!(stale(&one, &of(&[])).probes.len(), 2);
    }

    fn peers() -> impl Strategy<Value = Vec<Peer>> {
        let one = (0u8..6, 0u8..3).prop_map(|(pod, node)| {
            peer(&format!("p{pod}"), &[&format!("10.0.0.{}", pod + 2)], &format!("n{node}"))
        });
        vec(one, 0..8)
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_stale_are_all_there_was(
            before in peers(), after in peers(), first: bool, second: bool,
        ) {
            let before = targets(&list(before, first), &dual());
            let after = targets(&list(after, second), &dual());
            let stale = stale(&before, &after);
            let (old, new) = (used(&before), used(&after));
            prop_assert!(stale.probes.is_disjoint(&new.probes));
            prop_assert!(stale.originals.is_disjoint(&new.originals));
            for labels in &old.probes {
                prop_assert!(stale.probes.contains(labels) != new.probes.contains(labels));
            }
            for labels in &old.originals {
                prop_assert!(stale.originals.contains(labels) != new.originals.contains(labels));
            }
            prop_assert!(stale.probes.is_subset(&old.probes));
        }
    }
}
