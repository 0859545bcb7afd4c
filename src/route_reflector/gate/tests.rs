//! The evidence that opens the gate.
use super::*;

mod limits;

/// `a` at 10.0.0.1 and so on.
const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn identity() -> Identity {
    let address: [Arc<str>; 1] = ["10.0.0.1".into()];
    let others = NODES[1..].iter().map(|name| ((*name).into(), &[] as &[Arc<str>]));
    Identity::new([("a".into(), &address as &[Arc<str>])].into_iter().chain(others).collect())
}

fn name(kind: &str, node: &str) -> String {
    let place = NODES.iter().position(|known| *known == node).unwrap() + 1;
    format!("{kind}_10_0_0_{place}")
}

/// The sessions with these names, as Calico reports them.
fn reported(names: &[&str]) -> BTreeSet<(Kind, IpAddr)> {
    let protocols = names.iter().map(|name| name.parse::<Protocol>().unwrap());
    protocols.map(|protocol| (protocol.kind, protocol.address)).collect()
}

/// `reflectors` have sessions with all nodes, by BGPPeers.
fn wanted(nodes: &[&str], reflectors: &[&str]) -> Wanted {
    let mut wanted = Wanted::default();
    let all: Vec<Arc<str>> = nodes.iter().map(|node| (*node).into()).collect();
    let reflects = |node: &Arc<str>| reflectors.contains(&&**node);
    for node in &all {
        let reflector = reflects(node);
        wanted.node(node, Part { gated: reflector, reflector });
    }
    let named = |node: &Arc<str>| (name("Node", node).parse().unwrap(), Arc::clone(node));
    let clients = all.iter().filter(|node| !reflects(node)).map(named).collect();
    wanted.sessions(clients, all.iter().filter(|node| reflects(node)));
    wanted.sessions(all.iter().filter(|node| reflects(node)).map(named).collect(), all.iter());
    wanted
}

/// The elements of an answer in which these names are established, scraped `age` seconds ago.
fn established(wanted: &Wanted, age: f64, nodes: &[(&str, &[String])]) -> Vec<(String, String)> {
    let mut all = vec![];
    for (node, names) in nodes {
        let of = |measure: &str| format!(r#""instance":"{node}","measure":"{measure}""#);
        for set in wanted.sets() {
            let count =
                names.iter().filter(|name| set.names.contains_key(&name.parse().unwrap())).count();
            if count > 0 {
                all.push((of(&format!("set_{}", set.tag)), count.to_string()));
            }
        }
        all.push((of("age"), age.to_string()));
        let named = names.iter().map(|name| format!(r#""name":"{name}","measure":"name""#));
        all.extend(named.map(|labels| (labels, "1".into())));
    }
    all
}

fn read_as(elements: &[(String, String)], asked: &Asked) -> Measured {
    let elements: Vec<_> = elements
        .iter()
        .map(|(labels, value)| format!(r#"{{"metric":{{{labels}}},"value":[1,"{value}"]}}"#))
        .collect();
    let result = elements.join(",");
    let body =
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#);
    let answer = (200, "application/json", body.as_bytes());
    Measured::read(answer, &identity(), &["node".into()], asked).unwrap()
}

/// The answer to the built-in query, asked at second 1000 by our clock.
fn read(wanted: &Wanted, elements: &[(String, String)]) -> Measured {
    read_as(elements, &Asked { wanted: Some(Arc::new(wanted.clone())), at: 1000.0 })
}

/// The answer to a query of an author's.
fn numbers(elements: &[(&str, &str)]) -> Measured {
    let elements: Vec<_> =
        elements.iter().map(|(labels, value)| ((*labels).into(), (*value).into())).collect();
    read_as(&elements, &Asked::default())
}

/// Returns the sessions of all nodes in a healthy network.
fn healthy(nodes: &[&str], reflectors: &[&str]) -> Vec<(String, Vec<String>)> {
    let names = |node: &str| {
        let others = nodes.iter().filter(|other| {
            **other != node && (reflectors.contains(other) || reflectors.contains(&node))
        });
        others.map(|other| name("Node", other)).collect()
    };
    nodes.iter().map(|node| ((*node).to_owned(), names(node))).collect()
}

fn measured(wanted: &Wanted, age: f64, network: &[(String, Vec<String>)]) -> Measured {
    let nodes: Vec<_> = network.iter().map(|(node, all)| (node.as_str(), all.as_slice())).collect();
    read(wanted, &established(wanted, age, &nodes))
}

/// Removes this node's sessions, also from the reports of all others.
fn without(node: &str, network: &mut Vec<(String, Vec<String>)>) {
    network.retain(|(name, _)| name != node);
    for (_, names) in network {
        names.retain(|session| *session != name("Node", node));
    }
}

#[test]
fn the_query_asks_for_the_names_of_expected_sessions() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let text = query(&Exporters::any(&["node"]), &wanted);
    let tag = |place: usize| &wanted.sets()[place].tag;
    assert_eq!(
        text,
        format!(
            "label_replace(count by (instance, node) (group by (instance, node, name) \
             (bird_protocol_up{{proto=\"BGP\",state=\"Established\",name=~\"Node_10_0_0_2|Node_10_0_0_3\"}} == 1)), \
             \"measure\", \"set_{}\", \"\", \"\") or label_replace(count by (instance, node) (group by \
             (instance, node, name) (bird_protocol_up{{proto=\"BGP\",state=\"Established\",\
             name=~\"Node_10_0_0_1\"}} == 1)), \"measure\", \"set_{}\", \"\", \"\") or \
             label_replace(time() - min by (instance, node) (timestamp(bird_protocol_up{{proto=\"BGP\"}})), \
             \"measure\", \"age\", \"\", \"\") or label_replace(group by (name) \
             (bird_protocol_up{{proto=\"BGP\",state=\"Established\"}}), \"measure\", \"name\", \"\", \"\")",
            tag(0),
            tag(1)
        )
    );
}

#[test]
fn the_gate_counts_sessions_of_the_job_that_is_believed_and_names_the_others() {
    let exporters = Exporters {
        bird_exporter: crate::prometheus::exporters::BIRD_EXPORTER.parse().unwrap(),
        ..Exporters::any(&["node"])
    };
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let text = query(&exporters, &wanted);
    let (asked, other) = text.split_once(" or label_replace(topk(").unwrap();
    for selector in asked.split("bird_protocol_up{").skip(1) {
        let labels = selector.split_once('}').unwrap().0;
        assert!(labels.ends_with(r#"job="bird-exporter""#), "{selector}");
    }
    assert!(other.contains("unless on () count("), "{other}");

    let forged = (r#""job":"team-a/forged","measure":"other_job""#.to_owned(), "12".to_owned());
    let shut = judge(&wanted, &read(&wanted, std::slice::from_ref(&forged)), None).unwrap_err();
    assert!(shut.is_blind() && shut.reason() == "GateUnavailable", "{shut:?}");
    let said = shut.to_string();
    assert!(said.contains("--bird-exporter-selector"), "{said}");
    assert!(said.ends_with("jobs that have such series: team-a/forged"), "{said}");
    // If some series are accepted, the others do not matter.
    let a = [name("Node", "b"), name("Node", "c")];
    let mut elements = established(&wanted, 1.0, &[("a", &a)]);
    elements.push(forged);
    assert_eq!(judge(&wanted, &read(&wanted, &elements), None), Ok(()));
}

#[test]
fn only_what_is_one_number_of_one_node_is_evidence() {
    let measured = numbers(&[
        (r#""instance":"10.0.0.1:9324""#, "5"),
        (r#""node":"b""#, "2"),
        (r#""instance":"b:1""#, "3"),
        (r#""instance":"x""#, "1"),
        (r#""instance":"c""#, "NaN"),
        (r#""instance":"c""#, "-1"),
    ]);
    assert_eq!(measured.rejected, 4);
    let a = Counted { established: Some(5), sampled: None };
    assert_eq!(measured.nodes.into_iter().collect::<Vec<_>>(), [("a".into(), a)]);

    // Two exporters for one node contradict each other.
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let set = format!(r#""measure":"set_{}""#, wanted.sets()[0].tag);
    let twice: Vec<_> = ["10.0.0.1:9324", "10.0.0.1:9325"]
        .iter()
        .map(|instance| (format!(r#""instance":"{instance}",{set}"#), "1".to_owned()))
        .collect();
    let read = read(&wanted, &twice);
    assert_eq!((read.rejected, read.nodes.len(), read.sets.len()), (1, 0, 0));
}

/// Half an answer is no reason to go on, nor one to go back.
#[test]
fn sessions_of_a_partial_answer_are_not_counted() {
    let one = r#"{"metric":{"node":"a"},"value":[1,"2"]}"#;
    let read = |sign: &str| {
        let body = format!(
            r#"{{"status":"success"{sign},"data":{{"resultType":"vector","result":[{one}]}}}}"#
        );
        let answer = (200, "application/json", body.as_bytes());
        Measured::read(answer, &identity(), &["node".into()], &Asked::default())
    };
    assert_eq!(read("").unwrap().nodes.len(), 1);
    for sign in [r#","warnings":["store-2 did not answer"]"#, r#","isPartial":true"#] {
        let error = read(sign).unwrap_err().to_string();
        assert!(error.contains("warns of its own answer"), "{error}");
    }
}

#[test]
fn the_sessions_of_a_machine_of_another_domain_are_not_our_nodes() {
    let ours = (r#""instance":"10.0.0.1:9324""#, "2");
    let foreign = (r#""instance":"a.other.example:9324""#, "9");
    for answer in [[ours, foreign], [foreign, ours]] {
        let measured = numbers(&answer);
        assert_eq!(measured.nodes["a"].established, Some(2));
        assert_eq!(measured.rejected, 1);
    }
    assert_eq!(
        numbers(&[foreign]).nodes["a"].established,
        Some(9),
        "a.our.example, for all we know"
    );
}

/// Rule 1: a BIRD that is dead has no series at all.
#[test]
fn absence_never_opens_the_gate() {
    let wanted = wanted(&["a", "b", "c"], &["a", "b"]);
    let both = [name("Node", "b"), name("Node", "c")];
    let shut = judge(&wanted, &Measured::default(), None).unwrap_err();
    assert_eq!(shut.to_string(), "no sessions are measured on a, b");
    let nothing = read(&wanted, &[]);
    assert!(judge(&wanted, &nothing, None).unwrap_err().is_blind());
    let one = read(&wanted, &established(&wanted, 1.0, &[("a", &both)]));
    let shut = judge(&wanted, &one, None).unwrap_err();
    assert_eq!(shut.to_string(), "no sessions are measured on b");
    assert!(shut.is_blind());
    let none = read(&wanted, &established(&wanted, 1.0, &[("a", &both), ("b", &[])]));
    let shut = judge(&wanted, &none, None).unwrap_err();
    assert_eq!(shut.to_string(), "sessions are not established: b has 0 of 2");
    assert!(!shut.is_blind());
    let all = measured(&wanted, 1.0, &healthy(&["a", "b", "c"], &["a", "b"]));
    assert_eq!(judge(&wanted, &all, None), Ok(()));
    // Nothing is expected of a node without expected sessions.
    let mut alone = Wanted::default();
    alone.node(&"z".into(), Part { gated: true, reflector: true });
    assert!(alone.is_empty());
    assert_eq!(judge(&alone, &Measured::default(), None), Ok(()));
    let forged = Measured { other_jobs: vec!["team-a/forged".into()], ..Measured::default() };
    assert_eq!(judge(&alone, &forged, None), Ok(()));
}

#[test]
fn sessions_of_other_sets_than_those_that_are_judged_are_not_known() {
    let asked = wanted(&["a", "b", "c"], &["a"]);
    let now = wanted(&["a", "b", "c", "d"], &["a"]);
    let measured = measured(&asked, 1.0, &healthy(&["a", "b", "c"], &["a"]));
    assert_eq!(judge(&asked, &measured, None), Ok(()));
    assert_eq!(judge(&now, &measured, None), Err(GateClosed::Stale(vec!["a".into()])));
}

#[test]
fn a_number_of_an_authors_is_compared_with_how_many_are_desired() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let of = |number| judge(&wanted, &numbers(&[(r#""instance":"a""#, number)]), None);
    assert_eq!(of("2"), Ok(()));
    assert_eq!(of("1"), Err(GateClosed::Missing(vec![("a".into(), 1, 2)])));
}

#[test]
fn samples_from_before_the_step_say_nothing_of_it() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let network = healthy(&["a", "b", "c"], &["a"]);
    // Asked at second 1000.
    for (age, open) in [(96.0, false), (95.0, true), (1.0, true), (-0.5, true)] {
        let measured = measured(&wanted, age, &network);
        assert_eq!(judge(&wanted, &measured, Some(900.0)).is_ok(), open, "{age}");
    }
    let shut = judge(&wanted, &measured(&wanted, 500.0, &network), Some(900.0)).unwrap_err();
    assert_eq!(shut.reason(), "WaitingForSamples");
    assert_eq!(shut.to_string(), "not measured since the last step: a");
}

/// At 5,000 nodes some BIRD is always down.
#[test]
fn a_client_without_any_session_is_not_waited_for() {
    let (nodes, reflectors) = (&NODES, &["a", "b"]);
    let wanted = wanted(nodes, reflectors);
    let mut network = healthy(nodes, reflectors);
    // No series at all.
    without("f", &mut network);
    let silent = measured(&wanted, 1.0, &network);
    assert_eq!(silent.silent(&wanted), ["f".into()].into());
    assert_eq!(judge(&wanted, &silent, None), Ok(()));
    // Its BIRD runs, and has no session.
    network.push(("f".into(), vec![]));
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Ok(()));
    // All other nodes are still waited for.
    network[0].1.retain(|session| *session != name("Node", "c"));
    let missing = GateClosed::Missing(vec![("a".into(), 3, 4)]);
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Err(missing));
}

#[test]
fn who_has_any_session_or_reflects_is_waited_for_and_an_empty_measurement_is_none() {
    let (nodes, reflectors) = (&NODES, &["a", "b"]);
    let wanted = wanted(nodes, reflectors);
    let shut = |network: &[(String, Vec<String>)]| {
        judge(&wanted, &measured(&wanted, 1.0, network), None).unwrap_err()
    };
    let missing = GateClosed::Missing(vec![("a".into(), 4, 5), ("b".into(), 4, 5)]);
    let healthy = healthy(nodes, reflectors);
    // Its own report: a session that no other node reports.
    let mut network = healthy.clone();
    without("f", &mut network);
    network.push(("f".into(), vec![name("Node", "a")]));
    assert_eq!(shut(&network), missing);
    // A forged report of a session of the mesh.
    network.pop();
    network[2].1.push(name("Mesh", "f"));
    assert_eq!(shut(&network), missing);
    // A reflector that was just promoted: no node has a session with it.
    let mut network = healthy.clone();
    without("b", &mut network);
    assert!(matches!(shut(&network), GateClosed::Missing(nodes) if *nodes[0].0 == *"a"));
    // More than half of the clients at once: the measurement is broken.
    let mut network = healthy.clone();
    for node in ["d", "e", "f"] {
        without(node, &mut network);
    }
    assert!(matches!(shut(&network), GateClosed::Missing(nodes) if nodes[0].1 == 2));
    // With the mesh on, and no exporters on clients, the sessions of the mesh are unknown.
    let mut meshed = wanted.clone();
    meshed.mesh = true;
    let mut network = healthy.clone();
    without("f", &mut network);
    assert_eq!(judge(&meshed, &measured(&meshed, 1.0, &network), None), Ok(()));
    network.retain(|(node, _)| ["a", "b", "c"].contains(&node.as_str()));
    assert_eq!(judge(&meshed, &measured(&meshed, 1.0, &network), None), Err(missing.clone()));
    assert_eq!(judge(&wanted, &measured(&wanted, 1.0, &network), None), Ok(()));
    // A reflector on its way out is not waited for, but as long as others see it, it may be the
    // only one that has a session with a client.
    let mut leaving = wanted.clone();
    leaving.node(&"b".into(), Part { gated: false, reflector: true });
    let mut network = healthy;
    without("f", &mut network);
    network.retain(|(node, _)| node != "b");
    let measured = measured(&leaving, 1.0, &network);
    let missing = GateClosed::Missing(vec![("a".into(), 4, 5)]);
    assert_eq!(judge(&leaving, &measured, None), Err(missing));
}

#[test]
fn a_clock_that_is_an_hour_off_changes_nothing() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let network = healthy(&["a", "b", "c"], &["a"]);
    let nodes: Vec<_> = network.iter().map(|(node, all)| (node.as_str(), all.as_slice())).collect();
    // Prometheus computes ages by its own clock, regardless of ours.
    for ours in [1_000_000.0, 1_003_600.0, 996_400.0] {
        let asked = Asked { wanted: Some(Arc::new(wanted.clone())), at: ours };
        for (age, open) in [(10.0, true), (40.0, false)] {
            let measured = read_as(&established(&wanted, age, &nodes), &asked);
            assert_eq!(judge(&wanted, &measured, Some(ours - 30.0)).is_ok(), open, "{ours} {age}");
        }
    }
    // A node's clock only distinguishes its reports.
    for skew in [-3600, 0, 3600] {
        let report = |second: i64| {
            let established = reported(&[&name("Node", "b"), &name("Node", "c")]);
            let updated = Timestamp::from_second(1_000_000 + skew + second).unwrap();
            BTreeMap::from([("a".to_owned(), Report { established, updated })])
        };
        let mut measured = Measured::default();
        let open = |measured: &Measured| judge(&wanted, measured, Some(1_000_000.0)).is_ok();
        measured.hear(report(-3), 1_000_004.0);
        assert!(!open(&measured), "{skew}: the report is from before");
        measured.hear(report(-3), 1_000_006.0);
        assert!(!open(&measured), "{skew}: the same");
        measured.hear(report(7), 1_000_008.0);
        assert!(open(&measured), "{skew}: a new one");
    }
}

#[test]
fn reports_are_compared_session_by_session() {
    let wanted = wanted(&["a", "b", "c"], &["a"]);
    let judged = |names: &[&str]| {
        let established = reported(names);
        let updated = Timestamp::from_second(7).unwrap();
        let mut measured = Measured::default();
        measured.hear(BTreeMap::new(), 1.0);
        measured.hear(BTreeMap::from([("a".into(), Report { established, updated })]), 2.0);
        judge(&wanted, &measured, None)
    };
    assert_eq!(judged(&["Node_10_0_0_2", "Node_10_0_0_3"]), Ok(()));
    // Four sessions, one of which is the expected one.
    let others = ["Node_10_0_0_2", "Node_fd00__2", "Mesh_10_0_0_3", "Global_10_0_0_3"];
    assert_eq!(judged(&others), Err(GateClosed::Missing(vec![("a".into(), 1, 2)])));
}
