//! The `BGPPeer`s: a constant number of them.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Topology;

/// Node label: the group that a client belongs to.
pub const GROUP_LABEL: &str = "route-reflectors.traffic.example.com/group";

/// Node label: the slot that a reflector holds.
pub const SLOT_LABEL: &str = "route-reflectors.traffic.example.com/slot";

/// Number of reflectors of a bridge, which gives clients routes while they change their group: two
/// may fail.
pub const BRIDGE: usize = 3;

/// The original's name of the peer between reflectors.
const REFLECTORS: &str = "rrs-to-rrs";

/// Prefix of the names of the clients' peers; the original's.
const CLIENTS: &str = "peer-to-rrs-";

/// Placeholder for a group in the name of the peer of all clients; the original's.
pub(super) const WIDE: &str = "1";

/// A `BGPPeer` between nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerSpec {
    /// Name of the BGPPeer.
    pub name: String,
    /// Selects the nodes …
    pub node_selector: String,
    /// … peer with which.
    pub peer_selector: String,
}

/// Returns the selector of the nodes that hold one of these slots.
#[must_use]
pub fn slot_selector(slots: &BTreeSet<u32>) -> String {
    let slots: Vec<_> = slots.iter().map(|slot| format!("'{slot}'")).collect();
    format!("{SLOT_LABEL} in {{{}}}", slots.join(", "))
}

/// Returns the peer between reflectors.
#[must_use]
pub fn reflectors(key: &str) -> PeerSpec {
    let all = format!("has({key})");
    PeerSpec { name: REFLECTORS.into(), node_selector: all.clone(), peer_selector: all }
}

/// Returns the peer of all clients with all reflectors: for topology Simple, and for every other
/// during a change.
#[must_use]
pub fn wide(key: &str) -> PeerSpec {
    PeerSpec {
        name: format!("{CLIENTS}{WIDE}"),
        node_selector: format!("!has({key})"),
        peer_selector: format!("has({key})"),
    }
}

/// Returns all peers of a topology. The first group includes the nodes that have none yet, such as
/// those that joined while the operator was down.
pub(super) fn all(
    topology: Topology,
    key: &str,
    groups: &BTreeMap<Arc<str>, BTreeSet<u32>>,
) -> Vec<PeerSpec> {
    let mut peers = vec![reflectors(key)];
    if topology == Topology::Simple {
        peers.push(wide(key));
        return peers;
    }
    for (place, (group, slots)) in groups.iter().enumerate() {
        let own = format!("{GROUP_LABEL} == '{group}'");
        let node_selector = if place == 0 {
            format!("({own}) || (!has({GROUP_LABEL}) && !has({SLOT_LABEL}) && !has({key}))")
        } else {
            own
        };
        let slots: Vec<_> = slots.iter().map(|slot| format!("'{slot}'")).collect();
        peers.push(PeerSpec {
            name: format!("{CLIENTS}{group}"),
            node_selector,
            peer_selector: format!("{SLOT_LABEL} in {{{}}}", slots.join(", ")),
        });
    }
    peers
}
