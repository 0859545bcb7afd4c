//! Which test is about which mistake of the first system of this kind (its planner's; those of its
//! executor, datastores and start are tested there):
//!
//! | mistake | test |
//! |---|---|
//! | ratio in 32-bit floating point: one too many at exact multiples | `counts::bug_04_…` |
//! | what a zone lacked was added to every later zone | `spreading::bug_09_…` |
//! | rounded up in each zone: more than the maximum | `spreading::bug_10_…` |
//! | the oldest reflectors were dropped first | `choosing::bug_11_…` |
//! | a value of the label broke the selectors | `peering::bug_13_…` |
//! | one with another value was a reflector for peers and none for the count | `choosing::bug_14_…` |
//! | with zones, still every client with every reflector | `peering::bug_15_…` |
//! | the second reflector always from the first other zone | `multi::bug_16_…` |
//! | a selector by host name, never compared | `peering::bug_17_…` |
//! | random among nodes created in the same second | `properties::bug_18_…` |
use super::*;
use crate::api::route_reflector_set::{IdScope, Rounding, Scope};

/// Nodes, rules, and what the status says.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub rules: Rules,
    pub members: Vec<Member>,
    pub previous: Previous,
}

pub(super) fn rules() -> Rules {
    Rules::of(&crate::api::RouteReflectorSetSpec {
        topology: Topology::Auto,
        zone_label: "zone".into(),
        node_label: "rr".into(),
        peers_per_client: 3,
        candidates: crate::api::route_reflector_set::Candidates::default(),
        ..Default::default()
    })
    .unwrap()
}

#[test]
fn smoke() {
    let members: Vec<_> = (0..12)
        .map(|i| Member {
            name: format!("n{i:02}").into(),
            zone: Some(["a", "b", "c"][i % 3].into()),
            ready: true,
            suitable: true,
            ..Member::default()
        })
        .collect();
    let mut rules = rules();
    rules.count.min = 6;
    for topology in [Topology::Auto, Topology::Simple, Topology::Multi] {
        rules.topology = topology;
        let target = target(&rules, &members, &Previous::default()).unwrap();
        println!("{target:#?}");
    }
    let _ = (IdScope::Set, Rounding::Ceil, Scope::Cluster);
}
