use super::*;

fn me(name: &str, ips: &[&str]) -> Identity {
    Identity {
        namespace: if name.is_empty() { String::new() } else { "a".into() },
        name: name.into(),
        node: "n1".into(),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        port: 9090,
    }
}

fn pinglist(text: &[u8], who: &Identity, prober: &str) -> anyhow::Result<Pinglist> {
    Ok(Members::read(text, who, prober)?.pinglist(Duration::ZERO).0)
}

fn keys(list: &Pinglist) -> Vec<&str> {
    list.peers.iter().map(|peer| peer.key.as_str()).collect()
}

const ORIGINAL: &str = r#"{"endpointsMap":{"p1":{"ip":"10.0.0.1","port":"9090"},"p2":{"ip":"10.0.0.2","port":"9090"},
    "p3":{"ip":"fd00::3","port":"9090"}},"pollingPeriod":2000000000}"#;

#[test]
fn the_original_file_is_the_full_mesh_without_oneself() {
    let list = pinglist(ORIGINAL.as_bytes(), &me("", &["10.0.0.1"]), "").unwrap();
    assert_eq!(keys(&list), ["p2", "p3"]);
    assert_eq!(list.period, Duration::from_secs(2));
    assert_eq!(list.timeout, Duration::from_secs(1));
    assert_eq!(list.probes, [Protocol::Http]);
    assert!(list.original_metrics);
    // Even if the pod's name is known: the file contains no namespaces.
    let list = pinglist(ORIGINAL.as_bytes(), &me("p1", &["10.0.0.1"]), "").unwrap();
    assert_eq!(keys(&list), ["p2", "p3"]);
    let list = pinglist(ORIGINAL.as_bytes(), &me("", &["10.0.0.9", "fd00::3"]), "").unwrap();
    assert_eq!(keys(&list), ["p1", "p2"]);
}

#[test]
fn a_missing_or_zero_period_is_the_default() {
    for text in [r#"{"endpointsMap":{}}"#, r#"{"endpointsMap":null,"pollingPeriod":0}"#, "{}"] {
        let list = pinglist(text.as_bytes(), &me("", &[]), "").unwrap();
        assert_eq!(list.period, Duration::from_secs(10), "{text}");
    }
    let list = pinglist(br#"{"pollingPeriod":1}"#, &me("", &[]), "").unwrap();
    assert_eq!(list.period, Duration::from_millis(100));
}

#[test]
fn the_extended_file_is_a_ring() {
    let endpoint = |i: usize| {
        format!(
            r#""pod-{i}":{{"ip":"10.0.0.{i}","port":"9090","namespace":"a","name":"pod-{i}","uid":"u{i}","node":"n{i}","zone":"z{}"}}"#,
            i % 2
        )
    };
    let file = |neighbors: &str| {
        let all: Vec<_> = (1..=20).map(endpoint).collect();
        format!(
            r#"{{"endpointsMap":{{{}}},"pollingPeriod":1000000000,"timeout":500000000,"probes":["UDP","TCP"],
            "neighbours":{neighbors},"originalMetrics":false}}"#,
            all.join(",")
        )
    };
    let text = file(r#"{"inZone":3,"perOtherZone":1}"#);
    let mut probers = BTreeMap::new();
    for i in 1..=20 {
        let list = pinglist(text.as_bytes(), &me(&format!("pod-{i}"), &[]), "a/mesh").unwrap();
        assert_eq!(list.probes, [Protocol::Tcp, Protocol::Udp]);
        assert_eq!((list.own.zone.as_str(), list.own.node.as_str()), (["z0", "z1"][i % 2], "n1"));
        assert!(!list.original_metrics);
        for peer in list.peers {
            assert_ne!(peer.name, format!("pod-{i}"));
            *probers.entry(peer.name).or_insert(0) += 1;
        }
    }
    assert_eq!(probers.len(), 20);
    assert!(probers.values().all(|count| *count == 4), "{probers:?}");
    let mesh = file(r#"{"inZone":0,"perOtherZone":0}"#);
    let list = pinglist(mesh.as_bytes(), &me("pod-1", &[]), "").unwrap();
    assert_eq!(list.peers.len(), 19);
    let stranger = pinglist(mesh.as_bytes(), &me("other", &["10.0.9.9"]), "").unwrap();
    assert!(stranger.peers.is_empty());
}

#[test]
fn a_broken_file_is_refused_with_the_place() {
    for (text, place) in [
        ("", "config.json"),
        ("{\"endpointsMap\":[]}", "config.json"),
        (
            r#"{"endpointsMap":{"p":{"ip":"10.0.0","port":"1"}}}"#,
            "endpointsMap[\"p\"]: ip: \"10.0.0\"",
        ),
        (r#"{"endpointsMap":{"p":{"ip":"","port":"1"}}}"#, "ip: \"\""),
        (r#"{"endpointsMap":{"p":{"ip":"10.0.0.1","port":"0"}}}"#, "port: \"0\""),
        (r#"{"endpointsMap":{"p":{"ip":"10.0.0.1","port":"http"}}}"#, "port: \"http\""),
        (r#"{"pollingPeriod":-1}"#, "pollingPeriod"),
        (r#"{"probes":["ICMP"]}"#, "config.json"),
        (r#"{"neighbours":{"inZone":-1,"perOtherZone":0}}"#, "config.json"),
    ] {
        let error = format!("{:#}", pinglist(text.as_bytes(), &me("", &[]), "").unwrap_err());
        assert!(error.contains(place), "{text}: {error}");
    }
}

#[test]
fn loopback_is_shared_by_port() {
    let who = me("", &[]);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(who.is_at(ip("127.0.0.1"), 9090));
    assert!(!who.is_at(ip("127.0.0.1"), 9091));
    let who = me("", &["127.0.0.2", "10.0.0.1"]);
    assert!(!who.is_at(ip("127.0.0.1"), 9090));
    assert!(who.is_at(ip("127.0.0.2"), 9090));
    assert!(who.is_at(ip("10.0.0.1"), 1));
}

#[test]
fn only_families_that_both_have_are_probed() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let v4 = me("", &["10.0.0.1", "::1", "fe80::1"]);
    assert!(v4.reaches(ip("10.0.0.2")));
    assert!(!v4.reaches(ip("fd00::2")));
    assert!(v4.reaches(ip("::1")));
    let both = me("", &["10.0.0.1", "fd00::1"]);
    assert!(both.reaches(ip("fd00::2")) && both.reaches(ip("10.9.9.9")));
    assert!(me("", &[]).reaches(ip("fd00::2")));
}

/// A file of many members, each on its own node; the first is alone in its zone.
fn crowd(count: usize, neighbors: &str) -> String {
    let endpoint = |i: usize| {
        let zone = if i == 0 { "small" } else { "large" };
        format!(
            r#""pod-{i}":{{"ip":"10.0.{}.{}","port":"9090","namespace":"a","name":"pod-{i}","uid":"u{i}","node":"n{i}","zone":"{zone}"}}"#,
            i / 250,
            i % 250 + 1
        )
    };
    let all: Vec<_> = (0..count).map(endpoint).collect();
    let probes = r#""probes":["HTTP","TCP","UDP"]"#;
    format!(r#"{{"endpointsMap":{{{}}},{probes}{neighbors}}}"#, all.join(","))
}

/// The file is the same for all agents, and each derives its bounded list from it, even from a file
/// of the original, which means a full mesh.
#[test]
fn an_agent_bounds_what_it_reads_from_a_file_and_all_have_their_turn() {
    let ring = r#","neighbours":{"inZone":8,"perOtherZone":2}"#;
    for (neighbors, who) in [
        (ring, me("pod-0", &[])),
        ("", me("pod-0", &[])),
        ("", me("", &["10.9.9.9"])),
        (r#","neighbours":{"inZone":0,"perOtherZone":0}"#, me("pod-0", &[])),
    ] {
        let text = crowd(300, neighbors);
        let members = Members::read(text.as_bytes(), &who, "").unwrap();
        let (mut seen, mut all) = (std::collections::BTreeSet::new(), 299);
        if who.name.is_empty() {
            all += 1;
        }
        for epoch in 0..64 {
            let now = budget::turn(Duration::from_secs(10)) * epoch;
            let (list, rotates) = members.pinglist(now);
            // Three protocols and the original's metric: 109 series for each peer.
            assert_eq!((list.peers.len(), rotates), (17, true), "{neighbors}");
            seen.extend(list.peers.into_iter().map(|peer| peer.key));
        }
        assert_eq!(seen.len(), all, "{neighbors}");
    }
    let members = crowd(300, ring);
    let members = Members::read(members.as_bytes(), &me("pod-7", &[]), "").unwrap();
    let (list, rotates) = members.pinglist(Duration::ZERO);
    // Eight of its own zone, and perhaps the one of the other zone.
    assert!(!rotates && (8..=9).contains(&list.peers.len()), "{}", list.peers.len());
}
