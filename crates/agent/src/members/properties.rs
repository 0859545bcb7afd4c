//! Properties of every file, from any writer.
use std::collections::BTreeSet;

use proptest::{collection, option, prelude::*};
use serde_json::{Map, Value, json};

use super::*;

/// One entry: whether its key names the namespace, the number of its zone, and which of its fields
/// the original does not write.
type Entry = (bool, usize, bool);

fn address(i: usize) -> String {
    format!("10.0.{}.{}", i / 250, i % 250 + 1)
}

fn key(i: usize, (named, ..): Entry) -> String {
    if named { format!("ns/pod-{i}") } else { format!("pod-{i}") }
}

fn file(entries: &[Entry], rest: &Value) -> Value {
    let mut all = Map::new();
    for (i, entry) in entries.iter().enumerate() {
        let (_, zone, extended) = *entry;
        let mut endpoint = json!({"ip": address(i), "port": "9090"});
        if extended {
            endpoint["uid"] = json!(format!("uid-{i}"));
            endpoint["node"] = json!(format!("node-{i}"));
            endpoint["zone"] = json!(format!("zone-{zone}"));
            endpoint["ips"] = json!([address(i), format!("fd00::{i:x}")]);
        }
        all.insert(key(i, *entry), endpoint);
    }
    let mut file = rest.clone();
    file["endpointsMap"] = all.into();
    file
}

/// Every field but the members.
fn rest() -> impl Strategy<Value = Value> {
    let many = || prop_oneof![0..6_u64, Just(u64::MAX)];
    let neighbors = option::of((many(), many()));
    let probes = collection::vec(prop::sample::select(vec!["HTTP", "TCP", "UDP"]), 0..4);
    let times = (0..i64::MAX, prop_oneof![Just(0), 0..10_000_000_000_i64]);
    (times, option::of(probes), neighbors, option::of(any::<bool>())).prop_map(
        |((timeout, period), probes, neighbors, original)| {
            let mut file =
                json!({"pollingPeriod": period, "timeout": timeout, "future": {"a": [1]}});
            if let Some(probes) = probes {
                file["probes"] = json!(probes);
            }
            if let Some((in_zone, other)) = neighbors {
                file["neighbours"] = json!({"inZone": in_zone, "perOtherZone": other});
            }
            if let Some(original) = original {
                file["originalMetrics"] = json!(original);
            }
            file
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    collection::vec((any::<bool>(), 0..3_usize, any::<bool>()), 0..40)
}

/// The agent of one entry; of none beyond the last one.
fn agent(i: usize) -> Identity {
    Identity {
        namespace: "ns".into(),
        name: format!("pod-{i}"),
        node: format!("node-{i}"),
        ips: vec![address(i).parse().unwrap()],
        port: 9090,
    }
}

/// An error says which part of the file is wrong.
fn names_a_place(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["config.json", "endpointsMap[", "pollingPeriod", "timeout"].iter().any(|place| {
        text.starts_with(place) || text.starts_with(&format!("not the JSON of a {place}"))
    })
}

proptest! {
    /// Every other member at most once, never itself, and no more than an agent may probe.
    #[test]
    fn the_list_is_of_others_of_the_file(
        entries in entries(), rest in rest(), me: prop::sample::Index, now: Duration,
    ) {
        let own = me.index(entries.len() + 1);
        let who = agent(own);
        let file = file(&entries, &rest);
        let members = Members::read(file.to_string().as_bytes(), &who, "ns/mesh").unwrap();
        let (list, rotates) = members.pinglist(now);
        let keys: BTreeSet<_> = list.peers.iter().map(|peer| peer.key.clone()).collect();
        prop_assert_eq!(keys.len(), list.peers.len(), "nobody twice");
        for (i, entry) in entries.iter().enumerate() {
            prop_assert!(i != own || !keys.contains(&key(i, *entry)), "{keys:?}");
        }
        let all = entries.iter().enumerate().map(|(i, entry)| key(i, *entry));
        let all: BTreeSet<_> = all.collect();
        prop_assert!(keys.is_subset(&all), "{keys:?}");
        prop_assert!(list.peers.len() <= list.most_peers(&list.peers));
        prop_assert_eq!(list.clone().sane(), list);
        let others = entries.len() - usize::from(own < entries.len());
        if file.get("neighbours").is_none() && others <= 14 {
            prop_assert_eq!(keys.len(), others, "the full mesh, as with the original");
            prop_assert!(!rotates);
        }
        if file.get("neighbours").is_some() && own == entries.len() {
            prop_assert!(keys.is_empty(), "nobody counts on its probes");
        }
    }

    /// Peers take turns, so that none is forgotten for ever.
    #[test]
    fn peers_of_a_cut_list_take_turns(count in 30..60_usize, rest in rest()) {
        let entries: Vec<Entry> = (0..count).map(|i| (true, i % 3, true)).collect();
        let mut rest = rest;
        rest["neighbours"] = Value::Null;
        rest["pollingPeriod"] = json!(1_000_000_000);
        let text = file(&entries, &rest).to_string();
        let members = Members::read(text.as_bytes(), &agent(0), "ns/mesh").unwrap();
        let mut seen = BTreeSet::new();
        let turn = budget::turn(Duration::from_secs(1));
        for epoch in 0..100 {
            let (list, _) = members.pinglist(turn * epoch);
            seen.extend(list.peers.into_iter().map(|peer| peer.key));
        }
        prop_assert_eq!(seen.len(), count - 1);
    }

    /// A file that breaks off, or is edited, is a whole file or none.
    #[test]
    fn an_edited_file_is_read_as_it_stands_or_refused_with_the_place(
        entries in entries(), rest in rest(), at: prop::sample::Index, gone in 0..3_usize,
        written in "([-\"{}:,0-9]|\\[|\\]|null|\\PC){0,3}", bytes: Vec<u8>,
    ) {
        let text = file(&entries, &rest).to_string();
        let cut = at.index(text.len());
        let end = (cut + gone).min(text.len());
        let who = agent(0);
        let begun = Members::read(&text.as_bytes()[..cut], &who, "");
        prop_assert!(begun.is_err_and(|error| names_a_place(&error)));
        let edited = format!("{}{written}{}", &text[..cut], &text[end..]);
        for text in [edited.as_bytes(), &bytes[..]] {
            match Members::read(text, &who, "") {
                Ok(members) => {
                    let (list, _) = members.pinglist(Duration::ZERO);
                    let whole = |peer: &Peer| peer.port > 0 && !peer.ips.is_empty();
                    prop_assert!(list.peers.iter().all(whole));
                }
                Err(error) => prop_assert!(names_a_place(&error), "{error:#}"),
            }
        }
    }
}
