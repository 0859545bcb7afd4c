//! Measures the analysis of a fabric of 5,000 nodes, and the whole way from the mesh to reflectors.
//!
//! Build with `--release`: without it the figures are some thirty times worse.
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use k8s_openapi::jiff::Timestamp;
use traffic_operator::{
    api::RouteReflectorSet,
    nodes::{Incarnation, Readiness, Speaker, Texts},
    route_reflector::{
        bgp_model::{Change, Fabric, Local, Node, Peer, Remote, Rule, Selector},
        datastore::Snapshot,
        dry_run::{Stage, simulate},
    },
};

/// The largest cluster that Calico itself is tested with, and the formula's number of reflectors
/// for it at 0.005.
const NODES: usize = 5000;
const REFLECTORS: usize = 25;

const ZONES: [&str; 3] = ["a", "b", "c"];
const GROUPS: usize = 12;

/// The limit of all queries about one fabric and one step from it. A plan of 100 ms makes them once
/// or twice.
const LIMIT: Duration = Duration::from_millis(60);

const RULES: [Rule; 2] = [Rule::Rfc, Rule::Bird];

const KEY: &str = "calico-route-reflector";
const SLOT: &str = "route-reflectors.traffic.example.com/slot";
const GROUP: &str = "route-reflectors.traffic.example.com/group";

pub fn run() -> anyhow::Result<()> {
    times()?;
    println!();
    ways()
}

/// Measures the whole transition from the mesh, with a new decision at each step, and one decision
/// at its end.
fn ways() -> anyhow::Result<()> {
    println!("{NODES} nodes, from the mesh | steps | ms in all | ms for one decision in the end");
    println!("--- | --- | --- | ---");
    for (topology, count) in [("Simple", REFLECTORS), ("Zonal", 9), ("Multi", 9)] {
        let set = serde_json::json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
            "metadata": {"name": "main"},
            "spec": {
                "topology": topology, "mesh": "Migrate", "zoneLabel": "zone",
                "count": {"min": count, "max": count},
            },
        });
        let set: RouteReflectorSet = serde_json::from_value(set)?;
        let mut stage = stage();
        let mut go = || {
            let start = Instant::now();
            let way = simulate(&set, &mut stage, None, Arc::default(), Timestamp::now());
            let way = way.map_err(|error| anyhow::anyhow!(error.to_text()))?;
            ensure!(way.refused.is_none(), "{topology}: {:?}", way.refused);
            anyhow::Ok((way, start.elapsed()))
        };
        let (way, whole) = go()?;
        let (rest, once) = go()?;
        ensure!(rest.steps.is_empty(), "{topology}: {} steps are left", rest.steps.len());
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (steps, whole, one) = (way.steps.len(), ms(whole), ms(once));
        println!("{topology}, {count} reflectors | {steps} | {whole:.0} | {one:.1}");
        ensure!(
            cfg!(debug_assertions) || once < Duration::from_millis(100),
            "{topology}: a decision took {once:?}"
        );
    }
    Ok(())
}

fn stage() -> Stage {
    let texts = |texts: &[(&str, &str)]| -> Texts {
        texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    };
    let speakers = (0..NODES).map(|place| {
        let address = format!("10.{}.{}.1/8", place / 250, place % 250);
        Speaker {
            name: format!("node-{place:04}").into(),
            incarnation: Incarnation {
                created: i64::try_from(place).unwrap_or_default(),
                ..Incarnation::default()
            },
            labels: texts(&[("kubernetes.io/os", "linux"), ("zone", ZONES[place % ZONES.len()])]),
            taints: [].into(),
            readiness: Readiness::Ready,
            cordoned: false,
            calico: texts(&[("projectcalico.org/IPv4Address", &address)]),
        }
    });
    let snapshot = Snapshot { mesh: true, as_number: 64_512, ..Snapshot::default() };
    Stage { speakers: speakers.collect(), snapshot }
}

/// The peers of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    /// All reflectors; one cluster id.
    Simple,
    /// The reflectors of its own zone; a cluster id per zone.
    Zonal,
    /// Three reflectors by group; a cluster id per zone.
    Multi,
}

fn peer(name: &str, local: &str, remote: &str) -> anyhow::Result<Peer> {
    Ok(Peer {
        name: name.into(),
        local: Local::Selected(Selector::parse(local)?),
        remote: Remote::Selected(Selector::parse(remote)?),
        reverse: true,
    })
}

/// Builds a fabric of nodes with as many labels as those of a cloud provider. The first are
/// reflectors.
fn fabric(
    topology: Topology,
    nodes: usize,
    reflectors: usize,
    mesh: bool,
) -> anyhow::Result<Fabric> {
    let node = |place: usize| {
        let zone = place % ZONES.len();
        let mut labels: Vec<(String, String)> = (0..16)
            .map(|i| (format!("label-{i}.example.com/of-a-node"), (place % (i + 1)).to_string()))
            .collect();
        labels.push(("topology.kubernetes.io/zone".into(), ZONES[zone].into()));
        let reflector = place < reflectors;
        if reflector {
            labels.extend([(KEY.into(), String::new()), (SLOT.into(), place.to_string())]);
        } else if topology == Topology::Multi {
            labels.push((GROUP.into(), format!("g{}", place % GROUPS)));
        } else if topology == Topology::Zonal {
            labels.push((GROUP.into(), ZONES[zone].into()));
        }
        let [.., high, low] = place.to_be_bytes();
        let of_zone = if topology == Topology::Simple { 1 } else { 1 + u8::try_from(zone)? };
        Ok(Node {
            name: format!("node-{place:05}").into(),
            address: Some(IpAddr::from([10, 0, high, low])),
            labels: labels.into_iter().collect(),
            cluster_id: reflector.then_some(Ipv4Addr::new(224, 0, 0, of_zone)),
            up: place % 500 != 499,
        })
    };
    let has = format!("has({KEY})");
    let mut peers = vec![peer("rrs-to-rrs", &has, &has)?];
    let group = |name: &str, slots: BTreeSet<usize>| {
        let slots: Vec<String> = slots.into_iter().map(|slot| format!("'{slot}'")).collect();
        let slots = format!("{SLOT} in {{{}}}", slots.join(", "));
        peer(&format!("peer-to-rrs-{name}"), &format!("{GROUP} == '{name}'"), &slots)
    };
    // Slots alternate between the zones like nodes, so a step of three stays in the zone.
    match topology {
        Topology::Simple => peers.push(peer("peer-to-rrs-1", &format!("!{has}"), &has)?),
        Topology::Zonal => {
            for (place, zone) in ZONES.into_iter().enumerate() {
                peers.push(group(zone, (place..reflectors).step_by(ZONES.len()).collect())?);
            }
        }
        Topology::Multi => {
            for place in 0..GROUPS {
                let slots = [place, place + 1, place + 5].map(|slot| slot % reflectors);
                peers.push(group(&format!("g{place}"), slots.into())?);
            }
        }
    }
    let nodes: anyhow::Result<Vec<Node>> = (0..nodes).map(node).collect();
    Ok(Fabric::new(nodes?, peers, mesh))
}

/// Prints how long a function takes: the fastest of five runs, because the machine does other work
/// too.
fn timed<T>(what: &str, total: &mut Duration, run: impl Fn() -> T) -> Option<T> {
    let mut runs: Vec<(Duration, T)> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let result = run();
            (start.elapsed(), result)
        })
        .collect();
    runs.sort_by_key(|&(time, _)| time);
    let (time, result) = runs.into_iter().next()?;
    println!("{what} | {:.2}", time.as_secs_f64() * 1000.0);
    *total += time;
    Some(result)
}

fn times() -> anyhow::Result<()> {
    println!("{NODES} nodes, {REFLECTORS} reflectors | ms\n--- | ---");
    let rows = [
        (Topology::Simple, false),
        (Topology::Zonal, false),
        (Topology::Multi, false),
        (Topology::Multi, true),
    ];
    for (topology, mesh) in rows {
        let name = format!("{topology:?}{}", if mesh { " and mesh" } else { "" });
        let row = |what: &str| format!("{name}: {what}");
        let fabric = fabric(topology, NODES, REFLECTORS, mesh)?;
        let (nodes, peers) = (fabric.nodes().to_vec(), fabric.peers().to_vec());
        // One more reflector.
        let mut after = nodes.clone();
        let changed = &mut after[REFLECTORS];
        changed.cluster_id = nodes[0].cluster_id;
        changed.labels = changed.labels.with(&[(KEY, Some("")), (SLOT, Some("0")), (GROUP, None)]);
        let changed: BTreeSet<Arc<str>> = [changed.name.clone()].into();

        let mut total = Duration::ZERO;
        timed(&row("classes"), &mut total, || Fabric::new(nodes.clone(), peers.clone(), mesh));
        timed(&row("sessions"), &mut total, || fabric.sessions());
        for rule in RULES {
            let of = |what: &str| row(&format!("{what}, {rule:?}"));
            timed(&of("missing"), &mut total, || fabric.missing(rule));
            timed(&of("worst without one"), &mut total, || fabric.worst_without_one(rule));
        }
        timed(&row("paths"), &mut total, || fabric.paths(Rule::Bird));
        let new = || Fabric::new(after.clone(), peers.clone(), mesh);
        let Some(after) = timed(&row("classes after a promotion"), &mut total, new) else {
            continue;
        };
        let new = || Change::new(&fabric, &after, &changed);
        let Some(change) = timed(&row("change"), &mut total, new) else { continue };
        for rule in RULES {
            let of = |what: &str| row(&format!("{what}, {rule:?}"));
            timed(&of("lost"), &mut total, || change.lost(rule));
            timed(&of("fragile"), &mut total, || change.fragile(rule));
        }
        println!("{} | {:.2}", row("all"), total.as_secs_f64() * 1000.0);
        ensure!(cfg!(debug_assertions) || total < LIMIT, "{name} took {total:?}");
    }
    Ok(())
}
