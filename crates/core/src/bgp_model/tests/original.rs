//! The original operator's assignment of reflectors to clients (its topology "multi"), for
//! comparison with ours.
//!
//! Reflectors and clients come oldest first. A client gets one reflector of its own zone, one of
//! the first other zone by name, and the rest from all of them in turn; each list has its own
//! position, which every client advances. So if a client goes away, every later one gets different
//! reflectors.
use std::collections::{BTreeMap, BTreeSet};

/// Reflectors of each client, if there are enough.
const EACH: usize = 3;

/// A node, as far as the original reads it.
#[derive(Clone, Debug)]
pub struct Node {
    /// UID of the node.
    pub uid: String,
    /// Zone of the node.
    pub zone: String,
}

/// Returns the reflectors of each client: indices in `reflectors`, in the order of their choice.
#[must_use]
pub fn assign(reflectors: &[Node], clients: &[Node]) -> Vec<Vec<usize>> {
    let mut of_zone: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, reflector) in reflectors.iter().enumerate() {
        of_zone.entry(&reflector.zone).or_default().push(place);
    }
    // The position of a zone is advanced before it is used, so the first of two comes last.
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turn = 0;
    let mut assign = |client: &Node| {
        let mut chosen = Vec::new();
        let other = of_zone.keys().copied().find(|&zone| zone != client.zone);
        for zone in [of_zone.contains_key(&*client.zone).then_some(&*client.zone), other] {
            let Some((&zone, of)) = zone.and_then(|zone| of_zone.get_key_value(zone)) else {
                continue;
            };
            let turn = turns.entry(zone).or_default();
            *turn = (*turn + 1) % of.len();
            chosen.push(of[*turn]);
        }
        while chosen.len() < reflectors.len().min(EACH) {
            if !chosen.contains(&turn) {
                chosen.push(turn);
            }
            turn = (turn + 1) % reflectors.len();
        }
        chosen
    };
    clients.iter().map(&mut assign).collect()
}

/// The BGPPeer for a client and one of its reflectors.
#[cfg(test)]
fn peer_name(reflector_uid: &str, client_uid: &str) -> String {
    format!("peer-to-rrs-{}-{client_uid}", fnv1a32(reflector_uid))
}

/// FNV-1a of 32 bits (Fowler, Noll, Vo), by which the original names reflectors.
#[must_use]
pub fn fnv1a32(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Each client and its reflectors.
pub type Assignment = BTreeMap<String, BTreeSet<String>>;

/// The effect of a change of nodes on the clients that exist before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// Their sessions before.
    pub sessions: usize,
    /// Number of these that are gone afterwards.
    pub changed: usize,
    /// Clients that keep none.
    pub bare: usize,
}

/// Compares two assignments.
#[must_use]
pub fn disturbance(before: &Assignment, after: &Assignment) -> Disturbance {
    let mut found = Disturbance { sessions: 0, changed: 0, bare: 0 };
    for (client, had) in before {
        let Some(has) = after.get(client) else { continue };
        let gone = had.difference(has).count();
        found.sessions += had.len();
        found.changed += gone;
        found.bare += usize::from(gone == had.len() && gone > 0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, zone: &str) -> Node {
        Node { uid: uid.into(), zone: zone.into() }
    }

    /// Returns the names that the original writes, in its order.
    fn names(reflectors: &[Node], clients: &[Node]) -> Vec<String> {
        let assigned = assign(reflectors, clients);
        let of = |(client, chosen): (&Node, Vec<usize>)| {
            let name = |place: usize| peer_name(&reflectors[place].uid, &client.uid);
            chosen.into_iter().map(name).collect::<Vec<_>>()
        };
        clients.iter().zip(assigned).flat_map(of).collect()
    }

    #[test]
    fn hashes() {
        let rows = [
            ("", 2_166_136_261),
            ("uid", 1_556_604_621),
            ("rr", 1_330_931_493),
            ("rr2", 4_175_317_301),
            ("rr3", 4_158_539_682),
            ("rrid", 4_117_807_680),
            ("rrid2", 3_531_741_558),
            ("rrid3", 3_548_519_177),
            ("1", 873_244_444),
            ("2", 923_577_301),
            ("3", 906_799_682),
        ];
        for (text, hash) in rows {
            assert_eq!(fnv1a32(text), hash, "{text}");
        }
    }

    /// The original's own test, case 8: this list in this order.
    #[test]
    fn two_zones() {
        let reflectors = [node("uid", "a"), node("rr2", "b"), node("rr3", "a")];
        let clients = [node("uid", "a"), node("uid2", "b")];
        let expected = [
            "peer-to-rrs-4158539682-uid",
            "peer-to-rrs-4175317301-uid",
            "peer-to-rrs-1556604621-uid",
            "peer-to-rrs-4175317301-uid2",
            "peer-to-rrs-1556604621-uid2",
            "peer-to-rrs-4158539682-uid2",
        ];
        assert_eq!(names(&reflectors, &clients), expected);
    }

    /// Its cases 1, 6 and 7.
    #[test]
    fn few_reflectors() {
        assert!(names(&[], &[]).is_empty());
        assert!(names(&[node("uid", "a")], &[]).is_empty());
        assert_eq!(assign(&[], &[node("uid", "a")]), [[0; 0]]);
        assert_eq!(names(&[node("", "")], &[node("uid", "")]), ["peer-to-rrs-2166136261-uid"]);
    }

    /// One of its later tests: a reflector in each of three zones, and every node gets all of them.
    #[test]
    fn three_zones() {
        let reflectors = [node("rrid", "a"), node("rrid2", "b"), node("rrid3", "c")];
        let clients = [node("uid", "a"), node("uid2", "b"), node("uid3", "c")];
        for mut chosen in assign(&reflectors, &clients) {
            chosen.sort_unstable();
            assert_eq!(chosen, [0, 1, 2]);
        }
    }

    #[test]
    fn what_is_disturbed() {
        let of = |rows: &[(&str, &[&str])]| -> Assignment {
            let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            rows.iter().map(|&(client, names)| (client.to_owned(), set(names))).collect()
        };
        let before = of(&[("a", &["1", "2"]), ("b", &["1", "2"]), ("gone", &["1"]), ("none", &[])]);
        let after = of(&[("a", &["2", "3"]), ("b", &["3"]), ("new", &["1"]), ("none", &["1"])]);
        let expected = Disturbance { sessions: 4, changed: 3, bare: 1 };
        assert_eq!(disturbance(&before, &after), expected);
    }
}
