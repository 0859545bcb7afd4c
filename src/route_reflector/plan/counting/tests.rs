//! The sessions that a step depends on, by name.
use super::*;
use crate::{
    api::{BGP_ADDRESS_ANNOTATIONS, CLUSTER_ID_ANNOTATION},
    nodes::{Incarnation, Readiness, Speaker, Texts},
    route_reflector::{
        bgp_model::Protocol,
        datastore::{CalicoPeer, Snapshot},
    },
};

const LABEL: &str = "calico-route-reflector";

fn texts(texts: &[(&str, &str)]) -> Texts {
    texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// Nodes n0, n1, … that speak these families; the first two reflect.
fn bgp(speaks: &[&str], change: impl FnOnce(&mut Snapshot)) -> BgpTopology {
    let speaker = |(i, speaks): (usize, &&str)| {
        let (v4, v6) = (format!("10.0.0.{i}/24"), format!("fd00::{i}/64"));
        let [of_v4, of_v6] = BGP_ADDRESS_ANNOTATIONS;
        let mut calico = vec![];
        if speaks.contains('4') {
            calico.push((of_v4, v4.as_str()));
        }
        if speaks.contains('6') {
            calico.push((of_v6, v6.as_str()));
        }
        let reflector = i < 2;
        if reflector {
            calico.push((CLUSTER_ID_ANNOTATION, "224.0.0.1"));
        }
        Speaker {
            name: format!("n{i}").into(),
            incarnation: Incarnation::default(),
            labels: texts(if reflector { &[(LABEL, "")] } else { &[] }),
            taints: [].into(),
            readiness: Readiness::Ready,
            cordoned: false,
            calico: texts(&calico),
        }
    };
    let speakers: Vec<_> = speaks.iter().enumerate().map(speaker).collect();
    let peer = |name: &str, local: String, remote: String| CalicoPeer {
        name: name.into(),
        node_selector: Some(local),
        peer_selector: Some(remote),
        reverse: true,
        ..CalicoPeer::default()
    };
    let (has, has_not) = (format!("has({LABEL})"), format!("!has({LABEL})"));
    let peers = vec![peer("a", has.clone(), has.clone()), peer("b", has_not, has)];
    let mut snapshot = Snapshot { peers, as_number: 64_512, ..Snapshot::default() };
    change(&mut snapshot);
    BgpTopology::new(&speakers, &snapshot, (LABEL, ""), "main", &BTreeSet::new())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The report in which these names are established, written at this second.
fn report(names: &[&str], second: i64) -> datastore::Report {
    let protocols = names.iter().map(|name| name.parse::<Protocol>().unwrap());
    let established = protocols.map(|protocol| (protocol.kind, protocol.address)).collect();
    datastore::Report { established, updated: at(second) }
}

/// The names that a node should have established.
fn names(wanted: &Wanted, node: &str) -> Vec<String> {
    let names = wanted.of(node).flat_map(|set| &set.names);
    let mut names: Vec<_> =
        names.filter(|(_, other)| &***other != node).map(|(name, _)| name.to_string()).collect();
    names.sort_unstable();
    let nobody = BTreeSet::new();
    assert_eq!(wanted.count(node, &nobody) as usize, names.len(), "{node}");
    names
}

#[test]
fn in_dual_stack_the_sessions_of_both_families_are_meant() {
    let nobody = BTreeSet::new();
    let bgp = bgp(&["46", "46", "46", "46"], |_| {});
    let wanted = expected(&bgp, &nobody, false);
    let both = ["Node_10_0_0_0", "Node_10_0_0_2", "Node_10_0_0_3"];
    let v6 = ["Node_fd00__", "Node_fd00__2", "Node_fd00__3"];
    let of_n1: Vec<_> = both.iter().chain(&v6).map(ToString::to_string).collect();
    assert_eq!(names(&wanted, "n1"), of_n1);
    assert_eq!(wanted.gated().map(|node| &**node).collect::<Vec<_>>(), ["n0", "n1"]);
    assert_eq!(expected(&bgp, &nobody, true).gated().count(), 4);
    assert!(bgp.families.remarks().is_empty());

    // Without those that are about to be removed.
    let leaving = BTreeSet::from(["n0".into()]);
    let wanted = expected(&bgp, &leaving, false);
    let left = ["Node_10_0_0_2", "Node_10_0_0_3", "Node_fd00__2", "Node_fd00__3"];
    assert_eq!(names(&wanted, "n1"), left);
    assert_eq!(wanted.gated().map(|node| &**node).collect::<Vec<_>>(), ["n1"]);
}

#[test]
fn one_family_alone_and_mixtures() {
    let nobody = BTreeSet::new();
    let of = |speaks: &[&str]| {
        let bgp = bgp(speaks, |_| {});
        let complete: Vec<_> =
            bgp.nodes.iter().filter(|(_, n)| n.complete).map(|(n, _)| n.to_string()).collect();
        let remarks = bgp.families.remarks().join("; ");
        (names(&expected(&bgp, &nobody, false), "n1"), complete.join(" "), remarks)
    };
    let (names, complete, remarks) = of(&["6", "6", "6"]);
    assert_eq!(names, ["Node_fd00__", "Node_fd00__2"]);
    assert_eq!((complete.as_str(), remarks.as_str()), ("n0 n1 n2", ""));
    // A node that speaks only IPv4: it has all its possible sessions, and reflects nothing.
    let (names, complete, remarks) = of(&["46", "46", "46", "4"]);
    let v4 = ["Node_10_0_0_0", "Node_10_0_0_2", "Node_10_0_0_3"];
    assert_eq!(names, [&v4[..], &["Node_fd00__", "Node_fd00__2"]].concat());
    assert_eq!(complete, "n0 n1 n2");
    assert!(remarks.ends_with("as most nodes have one: n3"), "{remarks}");
    // A node that also speaks IPv6, and one that speaks only IPv6.
    let (names, complete, remarks) = of(&["4", "4", "46", "6"]);
    assert_eq!(names, ["Node_10_0_0_0", "Node_10_0_0_2"]);
    assert_eq!(complete, "n0 n1 n2");
    assert!(remarks.contains("IPv6 is not covered"), "{remarks}");
    assert!(remarks.ends_with("are left out: n3"), "{remarks}");
}

/// Calico puts `listenPort` into the names of sessions by BGPPeers, and not into those of the mesh.
#[test]
fn where_bird_listens_is_part_of_the_name() {
    let nobody = BTreeSet::new();
    let bgp = bgp(&["4", "4", "4", "4"], |snapshot| {
        snapshot.mesh = true;
        snapshot.listen_ports.all = Some(1790);
        snapshot.listen_ports.nodes = BTreeMap::from([("n0".into(), 1179)]);
    });
    let wanted = expected(&bgp, &nobody, false);
    assert_eq!(
        names(&wanted, "n1"),
        ["Node_10_0_0_0_port_1179", "Node_10_0_0_2_port_1790", "Node_10_0_0_3_port_1790"]
    );
    assert_eq!(
        names(&wanted, "n2"),
        ["Mesh_10_0_0_3", "Node_10_0_0_0_port_1179", "Node_10_0_0_1_port_1790"]
    );
}

/// CalicoNodeStatus has no ports.
#[test]
fn where_bird_listens_is_no_part_of_a_report() {
    let nobody = BTreeSet::new();
    let bgp = bgp(&["46"; 3], |snapshot| snapshot.listen_ports.all = Some(178));
    let wanted = expected(&bgp, &nobody, false);
    let mut statuses = gate::Measured::default();
    statuses.hear(BTreeMap::new(), 1.0);
    let of_n0 = ["Node_10_0_0_1", "Node_10_0_0_2", "Node_fd00__1", "Node_fd00__2"];
    let of_n1 = ["Node_10_0_0_0", "Node_10_0_0_2", "Node_fd00__", "Node_fd00__2"];
    let reports = [("n0".to_owned(), report(&of_n0, 7)), ("n1".to_owned(), report(&of_n1, 7))];
    statuses.hear(reports.into(), 2.0);
    assert_eq!(gate::judge(&wanted, &statuses, None), Ok(()));
    // Of the other family, or by another kind of session.
    let other = ["Mesh_10_0_0_1", "Node_10_0_0_2", "Node_fd00__1", "Node_fd00__2"];
    statuses.hear(BTreeMap::from([("n0".to_owned(), report(&other, 8))]), 3.0);
    let missing = GateClosed::Missing(vec![("n0".into(), 3, 4)]);
    assert_eq!(gate::judge(&wanted, &statuses, None), Err(missing));
}

/// Prometheus answers even with this many names; only the text grows with the nodes.
#[test]
fn the_question_names_each_neighbor_once() {
    let nobody = BTreeSet::new();
    let bgp = bgp(&["4"; 200], |_| {});
    let wanted = expected(&bgp, &nobody, false);
    assert_eq!(wanted.sets().len(), 2);
    let text = gate::query(&crate::prometheus::Exporters::any(&["node"]), &wanted);
    assert_eq!(text.matches("Node_10_0_0_").count(), 200);
}

/// The own report of a client that reflectors lack is requested.
#[test]
fn a_client_without_sessions_reports_it_itself_where_calico_reports() {
    let nobody = BTreeSet::new();
    let bgp = bgp(&["4"; 5], |_| {});
    let wanted = expected(&bgp, &nobody, false);
    let unseen = |memory: &Memory| unseen(&wanted, memory, None, at(3));
    let mut memory = Memory::default();
    assert_eq!(unseen(&memory), ["n0".into(), "n1".into()]);
    memory.statuses.hear(BTreeMap::new(), 1.0);
    let of_n0 = report(&["Node_10_0_0_1", "Node_10_0_0_2", "Node_10_0_0_3"], 7);
    let of_n1 = report(&["Node_10_0_0_0", "Node_10_0_0_2", "Node_10_0_0_3"], 7);
    let reports = BTreeMap::from([("n0".to_owned(), of_n0), ("n1".to_owned(), of_n1)]);
    memory.statuses.hear(reports, 2.0);
    assert_eq!(unseen(&memory), ["n4".into(), "n0".into(), "n1".into()]);
    assert!(gate::judge(&wanted, &memory.statuses, None).is_err());
    let silent = BTreeMap::from([("n4".to_owned(), report(&[], 8))]);
    memory.statuses.hear(silent, 3.0);
    assert_eq!(gate::judge(&wanted, &memory.statuses, None), Ok(()));
    assert_eq!(unseen(&memory), [] as [Arc<str>; 0]);
}

/// It may be as old as the reports of all nodes take, by tens, and is then requested again.
#[test]
fn a_report_of_an_hour_ago_opens_no_gate() {
    let nobody = BTreeSet::new();
    let network = bgp(&["4"; 3], |_| {});
    let wanted = expected(&network, &nobody, false);
    let mut memory = Memory::default();
    let reports = || {
        let of_n0 = report(&["Node_10_0_0_1", "Node_10_0_0_2"], 7);
        let of_n1 = report(&["Node_10_0_0_0", "Node_10_0_0_2"], 7);
        BTreeMap::from([("n0".to_owned(), of_n0), ("n1".to_owned(), of_n1)])
    };
    let step = Some(at(900));
    let judged = |memory: &Memory, now: i64| {
        let since = reported_since(&wanted, step, at(now));
        gate::judge(&wanted, &memory.statuses, Some(since))
    };
    memory.statuses.hear(BTreeMap::new(), 1000.0);
    memory.statuses.hear(reports(), 1002.0);
    for now in [1002, 1115] {
        assert_eq!(judged(&memory, now), Ok(()), "{now}");
        assert_eq!(unseen(&wanted, &memory, step, at(now)), [] as [Arc<str>; 0]);
    }
    let both: Vec<Arc<str>> = vec!["n0".into(), "n1".into()];
    for now in [1116, 4602] {
        // The same reports say nothing new.
        memory.statuses.hear(reports(), seconds(at(now)));
        assert_eq!(judged(&memory, now), Err(GateClosed::Stale(both.clone())), "{now}");
        assert_eq!(unseen(&wanted, &memory, step, at(now)), both);
    }
    // Twelve nodes are two rounds.
    let all = expected(&bgp(&["4"; 12], |_| {}), &nobody, true);
    assert!((reported_since(&all, None, at(1000)) - 820.0).abs() < 0.1);
    assert!((reported_since(&all, Some(at(900)), at(1000)) - 900.0).abs() < 0.1);
}
