use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    agent::budget::{ORIGINAL_SERIES, OTHER_SERIES, RTT_SERIES, SERIES},
    network_prober::settings::Tenancy,
};

fn settings(spec: &Value) -> Settings {
    let mut full = json!({"podSelector": {"matchLabels": {"app": "a"}}});
    json_patch::merge(&mut full, spec);
    let prober = serde_json::from_value(json!({
        "metadata": {"name": "np", "namespace": "team"}, "spec": full,
    }));
    Settings::of(&prober.unwrap(), &Tenancy::of("ops")).unwrap()
}

fn of_members(settings: &Settings, members: &Members) -> Pinglists {
    Pinglists::of_members(settings, members, Duration::ZERO)
}

fn member(i: usize) -> Member {
    Member {
        namespace: "team".into(),
        name: format!("pod-{i}"),
        uid: format!("uid-{i}"),
        ips: vec![format!("10.0.{}.{}", i / 250, i % 250 + 1).parse().unwrap()],
        port: 9090,
        node: format!("node-{}", i % 7),
        zone: format!("zone-{}", i % 7 % 3),
    }
}

fn members(count: usize) -> Members {
    Members { members: (0..count).map(member).collect(), ..Members::default() }
}

/// For each UID, the fingerprint, and the list as its agent reads it.
fn read(lists: &Pinglists, members: &Members) -> BTreeMap<String, (u64, Pinglist)> {
    let all = members.members.iter().chain(members.guests.values());
    all.map(|member| {
        let served = lists.of(&member.uid).unwrap();
        let list: Pinglist = serde_json::from_slice(&served.body()).unwrap();
        // Assembled from parts, it equals the list written in one piece.
        assert_eq!(served.body(), json(&list));
        (member.uid.clone(), (served.print(), list))
    })
    .collect()
}

/// The earlier implementation, from the lists.
fn series(settings: &Settings, peers: &[&Member]) -> usize {
    let nodes: BTreeSet<_> = peers.iter().map(|peer| (&peer.node, &peer.zone)).collect();
    let addresses: usize = peers.iter().map(|peer| peer.ips.len().min(2)).sum();
    AGENT_SERIES
        + nodes.len() * settings.probes.len() * (RTT_SERIES + OTHER_SERIES)
        + if settings.original_metrics { addresses * ORIGINAL_SERIES } else { 0 }
}

#[test]
fn a_fingerprint_is_read_as_it_was_written() {
    for print in [0, 1, u64::MAX] {
        assert_eq!(read_etag(&etag(print)), Some(print));
    }
    let others = ["", "\"", "\"\"", "\"1\"", "0000000000000001", "W/\"0000000000000001\"", "*"];
    for other in others.into_iter().chain(["\"+00000000000000a\"", "\"000000000000000A\""]) {
        assert_eq!(read_etag(other), None, "{other}");
    }
}

/// Every difference between two lists changes the fingerprint.
#[test]
fn fingerprints_tell_lists_apart() {
    let few = members(1);
    let base = settings(&json!({}));
    let mut prints = BTreeSet::new();
    for spec in [
        json!({}),
        json!({"pollingPeriod": "5s"}),
        json!({"timeout": "500ms"}),
        json!({"probes": ["TCP"]}),
        json!({"originalMetrics": true}),
    ] {
        let lists = of_members(&settings(&spec), &few);
        assert!(prints.insert(lists.of("uid-0").unwrap().print()), "{spec}");
    }
    let two = of_members(&base, &members(2));
    assert!(prints.insert(two.of("uid-0").unwrap().print()));
    let changes: [fn(&mut Member); 6] = [
        |member| member.name = "other".into(),
        |member| member.namespace = "other".into(),
        |member| member.ips.push("fd00::1".parse().unwrap()),
        |member| member.port = 1,
        |member| member.node = "other".into(),
        |member| member.zone = "other".into(),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut changed = members(2);
        change(&mut changed.members[1]);
        let lists = of_members(&base, &changed);
        assert!(prints.insert(lists.of("uid-0").unwrap().print()), "change {i}");
        assert_ne!(lists.version, two.version, "change {i}");
    }
}

/// Two thousand pods in a full mesh would be four million entries: nearly 1 GB of lists.
#[test]
fn a_full_mesh_that_is_refused_has_no_lists() {
    let mesh =
        settings(&json!({"neighbors": {"inZone": 0, "perOtherZone": 0}, "originalMetrics": true}));
    assert_eq!(of_members(&mesh, &members(LARGEST_MESH)).len(), LARGEST_MESH);
    let (many, more) = (members(2000), members(2001));
    let lists = of_members(&mesh, &many);
    assert!(lists.refused && lists.is_empty());
    assert!(lists.estimated_series > 2000 * 1999 * ORIGINAL_SERIES);
    assert_ne!(lists.version, of_members(&mesh, &more).version);
}

/// They read the file, and probe all that it lists: no list of ours grows by that.
#[test]
fn agents_of_the_original_probe_everybody_without_lists_that_grow() {
    let original = settings(&json!({"agentImage": "x"}));
    let mut all = members(300);
    all.members[3].ips.push("fd00::1".parse().unwrap());
    all.members[5].node = "alone".into();
    let lists = of_members(&original, &all);
    let expected: usize = (0..300)
        .map(|own| {
            let others = all.members.iter().enumerate().filter(|(i, _)| *i != own);
            series(&original, &others.map(|(_, member)| member).collect::<Vec<_>>())
        })
        .sum();
    assert_eq!(lists.estimated_series, expected);
    let edges: usize = read(&lists, &all).values().map(|(_, list)| list.peers.len()).sum();
    // But for those that are more than a list may have.
    assert!((299 * (8 + 2 * 2)..=300 * (8 + 2 * 2)).contains(&edges), "{edges}");
    assert_eq!(lists.rotation.members, 0, "they read no lists");
}

proptest! {
    /// One pod more changes its own list and those of a few, and the figures follow from the lists.
    #[test]
    fn one_more_changes_few_lists(count in 1_usize..80, guest in 0_usize..3) {
        let settings = settings(&json!({}));
        let mut few = members(count);
        few.guests = (1000..1000 + guest).map(|i| (format!("uid-{i}"), member(i))).collect();
        let mut more = few.clone();
        more.members.push(member(count));
        let (before, after) = (of_members(&settings, &few), of_members(&settings, &more));
        let (old, new) = (read(&before, &few), read(&after, &more));
        prop_assert_eq!(new.len(), count + 1 + guest);
        let changed: Vec<_> = old.iter().filter(|(uid, (print, list))| {
            let (now, then) = (&new[*uid], (print, list));
            assert_eq!(now.0 == *then.0, now.1 == *then.1, "a fingerprint and its list change together");
            now.0 != *then.0
        }).collect();
        // Eight of its zone, two of each other zone, and those that lose a target to it.
        prop_assert!(changed.len() <= 8 + 2 * 2 + 2 * 2, "{}", changed.len());
        let by_uid = |uid: &str| more.members.iter().find(|member| member.uid == uid).unwrap();
        let sum: usize = new.values().map(|(_, list)| {
            series(&settings, &list.peers.iter().map(|peer| by_uid(&peer.uid)).collect::<Vec<_>>())
        }).sum();
        prop_assert_eq!(after.estimated_series, sum);
    }
}

/// A zone of one pod next to a zone of thousands, each pod on a separate node.
fn lopsided(count: usize, alone: usize) -> Members {
    let members = (0..count).map(|i| Member {
        node: format!("node-{i}"),
        zone: if i < alone { "small" } else { "large" }.into(),
        ips: vec![
            format!("10.0.{}.{}", i / 250, i % 250 + 1).parse().unwrap(),
            format!("fd00::{i:x}").parse().unwrap(),
        ],
        ..member(i)
    });
    Members { members: members.collect(), ..Members::default() }
}

/// For any sizes of zones, an agent exports no more than a scrape may have, can read its list, and
/// the estimate equals its exported series.
#[test]
fn no_agent_exports_more_than_a_scrape_may_have() {
    for (count, alone) in [(3001, 1), (2002, 2), (500, 0), (40, 20)] {
        let members = lopsided(count, alone);
        for spec in [
            json!({"probes": ["HTTP", "TCP", "UDP"]}),
            json!({"originalMetrics": false}),
            json!({"neighbors": {"inZone": 100, "perOtherZone": 100}}),
        ] {
            let settings = settings(&spec);
            let lists = of_members(&settings, &members);
            let by_uid: HashMap<_, _> =
                members.members.iter().map(|member| (member.uid.as_str(), member)).collect();
            let mut sum = 0;
            for member in members.members.iter().take(200) {
                let body = lists.of(&member.uid).unwrap().body();
                assert!(body.len() < 1 << 20, "{spec}");
                let list: Pinglist = serde_json::from_slice(&body).unwrap();
                // The agent takes all of it.
                assert_eq!(list.clone().sane().peers.len(), list.peers.len(), "{spec}");
                let peers: Vec<_> =
                    list.peers.iter().map(|peer| by_uid[peer.uid.as_str()]).collect();
                let series = series(&settings, &peers);
                assert!(series <= SERIES, "{spec}: {series}");
                sum += series;
            }
            assert!(lists.estimated_series >= sum && lists.estimated_series <= SERIES * count);
            assert!(lists.rotation.epochs == 1 || lists.rotation.wanted > lists.most, "{spec}");
        }
    }
}

/// Peers take turns, and only where a list is cut: elsewhere no time changes anything.
#[test]
fn lists_that_are_cut_change_with_the_time_and_others_do_not() {
    let settings = settings(&json!({"probes": ["HTTP", "TCP", "UDP"]}));
    let turn = budget::turn(settings.period);
    let version = |members: &Members, now| Pinglists::of_members(&settings, members, now).version;
    let cut = lopsided(300, 1);
    let start = turn * 1000;
    assert_eq!(version(&cut, start), version(&cut, start + turn / 2));
    assert_ne!(version(&cut, start), version(&cut, start + turn));
    let whole = members(8);
    for turns in 0..10 {
        assert_eq!(version(&whole, start), version(&whole, start + turn * turns));
    }
}
