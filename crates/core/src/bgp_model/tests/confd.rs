//! What the properties do not say about the rules of confd.
use std::net::Ipv4Addr;

use super::{
    super::{self as bgp_model, Expected, Fabric, Local, Node, Peer, Remote, Rule},
    lab::{Ids, Kind, Lab, name, node, peer, simple},
};

const X: Option<Ipv4Addr> = Some(Ipv4Addr::new(224, 0, 0, 1));

/// Nodes with these cluster ids, each with the label `n` for its place, and `rr` if it has an id.
fn nodes(ids: &[Option<Ipv4Addr>]) -> Vec<Node> {
    let node = |(place, &id): (usize, &Option<Ipv4Addr>)| {
        let n = place.to_string();
        let labels = [("n", &*n), ("rr", "")];
        Node { cluster_id: id, ..node(place, &labels[..=usize::from(id.is_some())]) }
    };
    ids.iter().enumerate().map(node).collect()
}

fn all(fabric: &Fabric) -> Vec<u32> {
    fabric.sessions().iter().map(|(_, expected)| expected.all).collect()
}

#[test]
fn sessions_with_the_outside_are_counted_apart_and_once_for_each_address() {
    let tor = |name: &str, local: Local, last| Peer {
        name: name.into(),
        local,
        remote: Remote::Address([10, 1, 1, last].into()),
        reverse: true,
    };
    let peers = vec![
        tor("all", Local::All, 1),
        tor("one", Local::Node(name(1).into()), 1),
        tor("other", Local::Node(name(1).into()), 2),
        tor("nobody", Local::Node("gone".into()), 3),
    ];
    let fabric = Fabric::new(nodes(&[None, None]), peers, true);
    let expected = |outside| Some(Expected { up: 1, all: 1, outside });
    assert_eq!(fabric.sessions().of(&name(0)), expected(1));
    assert_eq!(fabric.sessions().of(&name(1)), expected(2));
    assert_eq!(fabric.sessions().of("gone"), None);
    assert_eq!(fabric.sessions().total(), 1);
}

#[test]
fn a_node_without_an_address_of_its_own_has_no_sessions() {
    let mut some = nodes(&[None, None, None, X]);
    some[1].address = None;
    some[2].address = some[0].address;
    let fabric = Fabric::new(some, vec![peer("p", "all()", "all()")], true);
    // Over the mesh and the BGPPeer: none for the first, and one with the reflector.
    assert_eq!(all(&fabric), [1, 0, 0, 1]);
}

#[test]
fn sessions_to_nodes_that_are_down_are_configured() {
    let mut lab = Lab::build(Kind::Zonal, Ids::PerZone, 2);
    lab.nodes[1].up = false;
    lab.nodes[2].up = false;
    let sessions = lab.fabric().sessions();
    // A reflector: five others, four clients. A client: two reflectors.
    assert_eq!(sessions.of(&name(0)), Some(Expected { up: 7, all: 9, outside: 0 }));
    assert_eq!(sessions.of(&name(3)), Some(Expected { up: 1, all: 2, outside: 0 }));
    assert!(lab.fabric().missing(Rule::Rfc).is_empty());
}

#[test]
fn labels_gone_and_ids_left_is_everything_lost() {
    let mut lab = Lab::build(Kind::Grouped(3), Ids::PerZone, 2);
    for place in [0, 1, 6, 7, 12, 13] {
        lab.label(place, &[("rr", None), ("rr-slot", None)]);
    }
    let missing = lab.fabric().missing(Rule::Bird);
    assert_eq!(missing.pairs, 306);
    let first = |other: usize| (name(0).into(), name(other).into());
    assert_eq!(missing.examples, [1, 2, 3, 4, 5].map(first));
}

/// A label that hundreds of BGPPeers select by value: the original operator has three for each
/// client.
#[test]
fn a_bgppeer_for_each_node_is_as_one_for_all() {
    let mut lab = Lab::build(Kind::Simple, Ids::One, 2);
    let expected = (lab.fabric().sessions(), lab.fabric().paths(Rule::Bird));
    for place in 0..lab.nodes.len() {
        lab.label(place, &[("host", Some(&name(place)))]);
    }
    let slots = 0..6;
    lab.peers.truncate(1);
    for place in (0..18).filter(|place| place % 6 > 1) {
        for slot in slots.clone() {
            let local = format!("host == '{}'", name(place));
            lab.peers.push(peer(
                &format!("{place}-{slot}"),
                &local,
                &format!("rr-slot == '{slot}'"),
            ));
        }
    }
    let fabric = lab.fabric();
    assert_eq!((fabric.sessions(), fabric.paths(Rule::Bird)), expected);
    assert!(fabric.classes.list.len() <= 7, "{}", fabric.classes.list.len());
}

#[test]
fn the_order_of_nodes_and_bgppeers_does_not_matter() {
    let lab = Lab::build(Kind::Grouped(3), Ids::One, 2);
    let mut turned = lab.clone();
    turned.nodes.reverse();
    turned.peers.reverse();
    let [lab, turned] = [lab, turned].map(|lab| lab.fabric());
    assert_eq!(lab.sessions(), turned.sessions());
    assert_eq!(lab.missing(Rule::Rfc), turned.missing(Rule::Rfc));
    assert_eq!(lab.worst_without_one(Rule::Rfc), turned.worst_without_one(Rule::Rfc));
    assert_eq!(lab.nodes(), turned.nodes());
    assert_eq!(turned.node(&name(3)).unwrap().name, name(3).into());
    assert_eq!((lab.peers().len(), lab.mesh()), (turned.peers().len(), false));
    assert!(turned.node("bgp").is_none());
}

#[test]
fn nothing_at_all() {
    let fabric = Fabric::new(vec![], simple(), true);
    assert!(fabric.missing(Rule::Rfc).is_empty());
    assert!(fabric.paths(Rule::Rfc).bearable());
    assert_eq!(fabric.sessions().total(), 0);
    assert_eq!(fabric.worst_without_one(Rule::Bird), None);
}

/// Returns the expected sessions, by the names of their ends.
fn names(fabric: &Fabric) -> Vec<Vec<String>> {
    let mut all = vec![vec![]; fabric.nodes().len()];
    for neighbors in fabric.neighbors() {
        for by in &neighbors.by {
            let place = fabric.nodes().iter().position(|node| node.name == by.name).unwrap();
            let of = neighbors.of.iter().filter(|of| of.name != by.name);
            let named = of.map(|of| neighbors.kind.protocol(of.address.unwrap(), None).to_string());
            all[place].extend(named);
        }
    }
    for names in &mut all {
        names.sort_unstable();
    }
    all
}

#[test]
fn every_session_has_the_name_of_its_kind() {
    let mesh = Fabric::new(nodes(&[None, X, None]), simple(), true);
    assert_eq!(
        names(&mesh),
        [
            vec!["Mesh_10_90_0_12", "Node_10_90_0_11"],
            vec!["Node_10_90_0_10", "Node_10_90_0_12"],
            vec!["Mesh_10_90_0_10", "Node_10_90_0_11"],
        ]
    );
    let global = Peer { local: Local::All, ..peer("p", "all()", "has(rr)") };
    let global = Fabric::new(nodes(&[None, X]), vec![global], false);
    assert_eq!(names(&global), [vec!["Global_10_90_0_11"], vec!["Node_10_90_0_10"]]);
    let v6 = "fd00::1";
    for (kind, address, port, name) in [
        (bgp_model::Kind::Node, v6, None, "Node_fd00__1"),
        (bgp_model::Kind::Node, v6, Some(1790), "Node_fd00__1_port_1790"),
        (bgp_model::Kind::Mesh, v6, Some(1790), "Mesh_fd00__1"),
        (bgp_model::Kind::Global, "10.0.0.1", Some(178), "Global_10_0_0_1_port_178"),
    ] {
        let protocol = kind.protocol(address.parse().unwrap(), port);
        assert_eq!((protocol.to_string().as_str(), name.parse()), (name, Ok(protocol)));
    }
    for other in ["Local_Workload_10_0_0_1", "Node_x", "Node_10_0_0_1_port_x", "kernel1", ""] {
        assert_eq!(other.parse::<bgp_model::Protocol>(), Err(()), "{other}");
    }
}

/// Indistinguishable nodes are listed once for all nodes that expect them.
#[test]
fn there_are_few_sets_of_neighbors_however_many_nodes_there_are() {
    for (kind, sets) in [(Kind::Simple, 2), (Kind::Zonal, 6)] {
        let fabric = Lab::sized(600, kind, Ids::PerZone, 3);
        let fabric = Fabric::new(fabric.nodes, fabric.peers, fabric.mesh);
        assert_eq!(fabric.neighbors().len(), sets, "{kind:?}");
        let all: Vec<_> = names(&fabric).iter().map(Vec::len).collect();
        let counted = fabric.sessions();
        let counted: Vec<_> = counted.iter().map(|(_, expected)| expected.all as usize).collect();
        assert_eq!(all, counted, "{kind:?}");
    }
}
