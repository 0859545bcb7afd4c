//! Peers that each agent probes, and the file that lists them.
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::{
    agent::{members::Identity, pinglist::Pinglist},
    network_prober::{
        children::LARGEST_FILE,
        members::{Member, Members},
        pinglists::{Pinglists, config_json},
    },
};

fn member(i: usize) -> Member {
    Member {
        namespace: if i.is_multiple_of(7) { "other" } else { "team" }.into(),
        name: format!("pod-{i}"),
        uid: format!("uid-{i}"),
        ips: vec![format!("10.0.{}.{}", i / 250, i % 250 + 1).parse().unwrap()],
        port: 9090,
        node: format!("node-{}", i % 11),
        zone: format!("zone-{}", i % 3),
    }
}

fn settings(spec: &Value) -> Settings {
    Settings::of(&prober("np", "2026-01-01T00:00:00Z", spec), &Tenancy::of("ops")).unwrap()
}

/// The original's file: its agents read these three fields and nothing else.
#[test]
fn the_file_has_the_shape_of_the_original() {
    let settings = settings(&json!({"agentImage": "x", "httpPort": "9090"}));
    let file: Value =
        serde_json::from_slice(&config_json(&settings, &[member(0), member(1)])).unwrap();
    assert_eq!(file["pollingPeriod"], json!(10_000_000_000_u64));
    let endpoints = file["endpointsMap"].as_object().unwrap();
    assert_eq!(endpoints.keys().collect::<Vec<_>>(), ["other/pod-0", "pod-1"]);
    let endpoint = &endpoints["pod-1"];
    assert_eq!((&endpoint["ip"], &endpoint["port"]), (&json!("10.0.0.2"), &json!("9090")));
}

proptest! {
    /// Every pod is probed by as many as the spec requires, none by itself, and there are as many
    /// lists as agents, in whatever order pods are seen; by fewer only where a list is cut.
    #[test]
    fn lists_follow_the_neighbors(count in 1_usize..60, in_zone in 0_u32..6, other in 0_u32..4, turn in 0_usize..60) {
        let settings = settings(&json!({"neighbors": {"inZone": in_zone, "perOtherZone": other}}));
        let mut members = Members { members: (0..count).map(member).collect(), ..Default::default() };
        let lists = Pinglists::of_members(&settings, &members, Duration::ZERO);
        members.members.rotate_left(turn % count);
        let turned = Pinglists::of_members(&settings, &members, Duration::ZERO);
        prop_assert_eq!(&lists.version, &turned.version);
        prop_assert_eq!(lists.len(), count);
        let mut probed = BTreeMap::<String, usize>::new();
        for one in &members.members {
            let served = lists.of(&one.uid).unwrap();
            let list: Pinglist = serde_json::from_slice(&served.body()).unwrap();
            prop_assert_eq!(&list.own.uid, &one.uid);
            prop_assert!(list.peers.iter().all(|peer| peer.uid != one.uid));
            for peer in list.peers {
                *probed.entry(peer.uid).or_default() += 1;
            }
        }
        let zone = |z: &str| members.members.iter().filter(|m| m.zone == z).count();
        let (in_zone, other) = (in_zone as usize, other as usize);
        for one in &members.members {
            let expected = if in_zone == 0 && other == 0 {
                count - 1
            } else {
                let others: BTreeSet<_> = members.members.iter().map(|m| &m.zone).filter(|z| **z != one.zone).collect();
                in_zone.min(zone(&one.zone) - 1) + others.iter().map(|z| other.min(zone(z))).sum::<usize>()
            };
            let found = probed.get(&one.uid).copied().unwrap_or_default();
            if lists.rotation.members == 0 {
                prop_assert_eq!(found, expected);
            } else {
                prop_assert!(found <= expected);
            }
        }
    }
}

/// A full mesh beyond its limit is refused: no agent gets a list with all pods.
#[test]
fn a_refused_mesh_has_no_edges_and_keeps_its_webhook() {
    let spec = json!({"neighbors": {"inZone": 0, "perOtherZone": 0}});
    let lists = |count: usize| {
        let members = (0..count).map(member).collect();
        let all = Members { members, ..Default::default() };
        Pinglists::of_members(&settings(&spec), &all, Duration::ZERO)
    };
    assert_eq!((lists(100).refused, lists(100).len()), (false, 100));
    assert_eq!((lists(101).refused, lists(101).len()), (true, 0));
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let pods: Vec<_> =
        (0..101).map(|i| pod(&format!("p{i}"), Some("team/np"), &json!({}))).collect();
    let view = view_among(&prober, &Snapshot::default(), &pods, &setup(Some("operator")));
    let decided = plan(&prober, &observed(view)).unwrap();
    let ready = &decided.conditions[0];
    assert_eq!((ready.status, ready.reason), (Some(false), "InvalidSpec"));
    assert!(ready.message.starts_with("spec.neighbors: a full mesh of 101 pods"), "{ready:?}");
    assert_eq!(decided.status.pods.len(), 100, "the first hundred");
    let kinds: Vec<_> = decided.desired.apply.iter().map(|child| child.key.kind).collect();
    assert_eq!(kinds, [ChildKind::ConfigMap, ChildKind::Webhook], "certificates are still renewed");
}

/// The file of many pods is not written at each of their changes.
#[test]
fn a_large_file_is_written_less_often() {
    let spec = json!({"agentImage": "x"});
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let pods: Vec<_> =
        (0..500).map(|i| pod(&format!("p{i}"), Some("team/np"), &json!({}))).collect();
    let view = Arc::new(view_among(&prober, &Snapshot::default(), &pods, &setup(None)));
    let key =
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("team".into()), name: "np".into() };
    let maps = |seconds: Option<u64>| {
        let mut world = observed(view_among(&prober, &Snapshot::default(), &[], &setup(None)));
        world.view = Some(Arc::clone(&view));
        let ago = seconds.map(std::time::Duration::from_secs);
        world.written = ago.into_iter().map(|ago| (key.clone(), ago)).collect();
        let decided = plan(&prober, &world).unwrap();
        let written = decided.desired.apply.iter().any(|child| child.key == key);
        (written, decided.period)
    };
    assert!(maps(None).0, "the first is written at once");
    let (written, again) = maps(Some(0));
    assert!(!written && again.as_secs() < 10, "checked again soon: {again:?}");
    assert!(maps(Some(30)).0);
}

/// Agents that ask the operator would lose their lists at the next change of its certificates.
#[test]
fn a_file_that_is_too_large_keeps_no_certificate_from_agents_nor_an_old_file_from_its_readers() {
    let spec = json!({"agentImage": "x"});
    let prober = prober("np", "2026-01-01T00:00:00Z", &spec);
    let long = "x".repeat(200);
    let pods: Vec<_> =
        (0..1_200).map(|i| pod(&format!("p{i}-{long}"), Some("team/np"), &json!({}))).collect();
    let mut world = observed(view_among(&prober, &Snapshot::default(), &pods, &setup(None)));
    let file = config_json(&settings(&spec), &world.view.as_ref().unwrap().members.members);
    assert!(file.len() > LARGEST_FILE, "{}", file.len());
    let key =
        ChildKey { kind: ChildKind::ConfigMap, namespace: Some("team".into()), name: "np".into() };
    let map = |world: &Observed| {
        let decided = plan(&prober, world).unwrap();
        assert!(decided.conditions[0].message.contains("more than a ConfigMap holds"));
        assert!(!decided.desired.delete.contains(&key));
        decided.desired.apply.into_iter().find(|child| child.key == key)
    };
    // A new one has no file.
    let new = map(&world).unwrap();
    assert_eq!((new.is_part, &new.object["data"]), (false, &json!({"ca.crt": "PEM"})));
    assert_eq!(new.object.get("binaryData"), None);
    // An existing one keeps its own, and is written again only for other authorities.
    world.existing = vec![key.clone()];
    let part = map(&world).unwrap();
    assert_eq!((part.is_part, &part.object), (true, &json!({"data": {"ca.crt": "PEM"}})));
    world.unchanged = [(key.clone(), part.hash)].into();
    assert_eq!(map(&world), None);
    world.bundle = Some("NEXT".into());
    assert_eq!(map(&world).unwrap().object, json!({"data": {"ca.crt": "NEXT"}}));
    world.bundle = None;
    assert_eq!(map(&world), None);
}

/// A pod that is alone in its zone cannot probe a hundred others at a time: the condition reports
/// this, and the duration.
#[test]
fn what_takes_turns_is_said() {
    let text = |spec: &Value, all: Range<usize>| {
        let prober = prober("np", "2026-01-01T00:00:00Z", spec);
        let pods: Vec<_> = all
            .map(|i| {
                let mut pod = pod(&format!("p{i}"), Some("team/np"), &json!({}));
                pod["spec"]["nodeName"] = json!(if i == 0 { "alone" } else { "shared" });
                pod
            })
            .collect();
        let view = view_among(&prober, &Snapshot::default(), &pods, &setup(Some("operator")));
        let decided = plan(&prober, &observed(view)).unwrap();
        let ready = decided.conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = ready.unwrap();
        assert_eq!(ready.status, Some(true));
        ready.message.clone()
    };
    let turns = "; 1 lists would have up to 100 peers by zones and spec.neighbors: their agents \
                 probe 23 at a time (2000 series each), in turns of 15m, all within 2h";
    let all = json!({"probes": ["HTTP", "TCP", "UDP"]});
    let said = text(&all, 0..101);
    assert!(said.ends_with(turns), "{said}");
    for (spec, all) in [(all, 0..24), (json!({}), 1..101)] {
        let said = text(&spec, all);
        assert!(said.ends_with("and agents their peers"), "{said}");
    }
}

/// Agents that were not restarted continue: those that ask need `ca.crt`, those that read need
/// `config.json`, whatever the current spec.
#[test]
fn a_changed_delivery_stops_nobody() {
    let with_env = |name: &str, env: Value| {
        let change = json!({"spec": {"initContainers": [{
            "name": "net-prober", "image": "x", "restartPolicy": "Always", "env": env,
            "ports": [{"name": "np-ping", "containerPort": 8080}]}]}});
        pod(name, Some("team/np"), &change)
    };
    let says = |how: &str| json!([{"name": "NET_PROBER_DELIVERY", "value": how}]);
    let (asks, reads) = (with_env("asks", says("Pull")), with_env("reads", says("ConfigMap")));
    let original = with_env("original", Value::Null);
    let keys = |spec: &Value, pods: &[Value]| {
        let prober = prober("np", "2026-01-01T00:00:00Z", spec);
        let decided = plan(&prober, &observed(view(spec, pods))).unwrap().desired;
        let map = decided.apply.iter().find(|child| child.key.kind == ChildKind::ConfigMap);
        let map = map.expect("a ConfigMap").object.clone();
        (map["data"].get("ca.crt").is_some(), map["binaryData"].get("config.json").is_some())
    };
    let (pull, file) = (json!({"delivery": "Pull"}), json!({"delivery": "ConfigMap"}));
    // A change from the file to requests, and back; the spec no longer has the original's image.
    assert_eq!(keys(&pull, &[asks.clone(), reads]), (true, true));
    assert_eq!(keys(&pull, &[original]), (true, true));
    assert_eq!(keys(&file, std::slice::from_ref(&asks)), (true, true));
    // Once the last of them was restarted, its file is removed.
    assert_eq!(keys(&pull, &[asks]), (true, false));
    assert_eq!(keys(&pull, &[]), (true, false));
}

/// Consent of a namespace is to agents, and not to requests from its pods to where another author says.
#[test]
fn only_agents_of_the_own_namespace_probe_targets() {
    let spec = json!({"targets": [{"name": "api", "apiServer": true}]});
    let members = Members { members: (0..10).map(member).collect(), ..Default::default() };
    let of = |settings: &Settings, members: &Members| {
        let lists = Pinglists::of_members(settings, members, Duration::ZERO);
        let read = |member: &Member| -> Pinglist {
            serde_json::from_slice(&lists.of(&member.uid).unwrap().body()).unwrap()
        };
        let found = members.members.iter().map(|member| (member.namespace.clone(), read(member)));
        (found.collect::<Vec<_>>(), lists.version.clone(), lists.estimated_series)
    };
    let mut settings = settings(&spec);
    let (lists, version, series) = of(&settings, &members);
    assert_eq!(lists.len(), 10);
    for (namespace, list) in &lists {
        let expected = if namespace == "team" { settings.targets.clone() } else { vec![] };
        assert_eq!(list.targets, expected, "{namespace}");
        assert!(!list.peers.is_empty());
    }
    // An administrator's may.
    settings.targets_in = None;
    let (lists, ..) = of(&settings, &members);
    assert!(lists.iter().all(|(_, list)| list.targets == settings.targets));
    // An agent hears of a change.
    settings.targets.clear();
    settings.targets_in = Some("team".into());
    let (_, without, fewer) = of(&settings, &members);
    assert_ne!(version, without);
    // Of ten members, 0 and 7 are in the other namespace.
    assert_eq!(series - fewer, 8 * crate::agent::budget::TARGET_SERIES);
}

/// The file of delivery `ConfigMap` leads to the same.
#[test]
fn agents_that_read_the_file_probe_the_same_targets() {
    let settings = settings(&json!({"targets": [{"name": "api", "apiServer": true}]}));
    let all = [member(0), member(1)];
    let file = config_json(&settings, &all);
    for one in &all {
        let who = Identity {
            namespace: one.namespace.clone(),
            name: one.name.clone(),
            ips: one.ips.clone(),
            ..Identity::default()
        };
        let members = crate::agent::members::Members::read(&file, &who, "team/np").unwrap();
        let expected = if one.namespace == "team" { settings.targets.clone() } else { vec![] };
        assert_eq!(members.pinglist(Duration::ZERO).0.targets, expected, "{}", one.namespace);
    }
}
