//! Measures the pure parts at 5,000 and at 50,000 nodes: reading an answer and judging it, electing
//! reflectors, lists of agents, and streams on workers.
//!
//! Build with `--release`: without it the figures are some ten times worse. Prints
//! the growth of each: ten times the nodes should cost ten times, and a little for the sorting.
use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use traffic_operator::{
    api::RouteReflectorSet,
    nodes::{Identity, NodeFacts},
    placement::{
        assignment::{Item, Rules, Standing, Worker, assign},
        ring::{Bound, Member, Neighbors, Ring},
    },
    prometheus::{Answer, Exporters},
    route_reflector::{election, settings},
    traffic_watch::replay::{Inquiry, Replay},
};

const SIZES: [usize; 2] = [5_000, 50_000];

/// Number of measurements, of which the fastest counts: the others had to share the machine.
const ROUNDS: usize = 5;

/// The largest growth from the smaller to the larger size.
const MOST: f64 = 25.0;

/// The measurement of one part with this number of nodes.
type Part = fn(usize) -> anyhow::Result<Duration>;

pub fn run() -> anyhow::Result<()> {
    println!("part | {} nodes ms | {} nodes ms | growth", SIZES[0], SIZES[1]);
    println!("--- | --- | --- | ---");
    let parts: [(&str, Part); 5] = [
        ("reading an answer of four series a node", reading),
        ("judging it", judging),
        ("electing 25 reflectors", electing),
        ("lists of agents, 8 probers each", listing),
        ("streams, 100 on each worker, one of which joins", assigning),
    ];
    let mut steep = vec![];
    for (name, part) in parts {
        let [small, large] = SIZES.map(part);
        let [small, large] = [small?, large?].map(|took| took.as_secs_f64() * 1000.0);
        let growth = large / small;
        println!("{name} | {small:.2} | {large:.1} | {growth:.1}");
        if growth > MOST {
            steep.push(name);
        }
    }
    ensure!(steep.is_empty(), "grows more than {MOST} times: {steep:?}");
    Ok(())
}

fn fastest(mut run: impl FnMut() -> anyhow::Result<Duration>) -> anyhow::Result<Duration> {
    let all = (0..ROUNDS).map(|_| run()).collect::<anyhow::Result<Vec<_>>>()?;
    all.into_iter().min().context("no round")
}

fn timed<T>(what: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let done = what();
    (began.elapsed(), done)
}

fn name(i: usize) -> Arc<str> {
    format!("node-{i:05}").into()
}

fn address(i: usize) -> String {
    format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256)
}

fn identity(nodes: usize) -> Identity {
    let addresses: Vec<[Arc<str>; 1]> = (0..nodes).map(|i| [address(i).into()]).collect();
    Identity::new(addresses.iter().enumerate().map(|(i, a)| (name(i), a.as_slice())).collect())
}

fn answer(nodes: usize) -> Answer {
    let mut body = r#"{"status":"success","data":{"resultType":"vector","result":["#.to_owned();
    for (measure, value) in [
        ("transmit_rate", "1e7"),
        ("transmit_total", "1e12"),
        ("transmit_total_before", "1e12"),
        ("speed", "1e8"),
        ("age", "3.2"),
        ("age_before", "123.2"),
    ] {
        for i in 0..nodes {
            let comma = if body.ends_with('[') { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(
                body,
                r#"{comma}{{"metric":{{"device":"eth0","instance":"{}:9100","measure":"{measure}"}},"value":[1700000000.123,"{value}"]}}"#,
                address(i)
            );
        }
    }
    let body = (body + "]}}").into_bytes();
    Answer { status: 200, content_type: "application/json".into(), body }
}

fn watch() -> anyhow::Result<traffic_operator::api::TrafficWatch> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"maxBandwidthPercent": "60"}
    }))?)
}

fn reading(nodes: usize) -> anyhow::Result<Duration> {
    let (identity, answer) = (identity(nodes), answer(nodes));
    let inquiry = Inquiry::of(&watch()?, &Exporters::default())?;
    fastest(|| {
        let (took, reading) = timed(|| inquiry.read(0, &answer, &identity));
        reading.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(took)
    })
}

fn judging(nodes: usize) -> anyhow::Result<Duration> {
    let (identity, answer) = (identity(nodes), answer(nodes));
    let watch = watch()?;
    let inquiry = Inquiry::of(&watch, &Exporters::default())?;
    let reading = inquiry.read(0, &answer, &identity);
    let reading = Arc::new(reading.map_err(|error| anyhow::anyhow!("{error:?}"))?);
    let facts: Vec<_> = (0..nodes).map(|i| NodeFacts::named(name(i))).collect();
    let mut replay = Replay::new(&watch, true);
    let mut second = 1_700_000_000;
    fastest(|| {
        second += 10;
        let (now, facts) = (Timestamp::from_second(second)?, facts.clone());
        let (took, step) = timed(|| replay.step(now, facts, &[Ok(Arc::clone(&reading))]));
        step?;
        Ok(took)
    })
}

fn electing(nodes: usize) -> anyhow::Result<Duration> {
    let spec = json!({"topology": "Multi", "count": {"min": 25, "max": 25}});
    let set: RouteReflectorSet = serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
        "metadata": {"name": "main"}, "spec": spec
    }))?;
    let rules = settings::rules(&set.spec)?;
    let member = |i: usize| election::Member {
        name: name(i),
        zone: Some(["a", "b", "c"][i % 3].into()),
        ready: true,
        suitable: true,
        ..election::Member::default()
    };
    let members: Vec<_> = (0..nodes).map(member).collect();
    fastest(|| {
        let previous = election::Previous::default();
        let (took, target) = timed(|| election::target(&rules, &members, &previous));
        ensure!(target?.slots.len() == 25, "not 25 reflectors");
        Ok(took)
    })
}

fn listing(nodes: usize) -> anyhow::Result<Duration> {
    let member = |i: usize| Member {
        id: format!("shop/web-{i}/uid"),
        zone: ["a", "b", "c"][i % 3].to_owned(),
    };
    let members: Vec<_> = (0..nodes).map(member).collect();
    let neighbors = Neighbors { in_zone: 4, per_other_zone: 2 };
    fastest(|| {
        let (took, lists) =
            timed(|| Ring::new(&members, neighbors).bounded(Bound { most: 64, epoch: 7 }).peers());
        ensure!(lists.iter().map(Vec::len).sum::<usize>() == 8 * nodes, "not 8 probers each");
        Ok(took)
    })
}

fn assigning(streams: usize) -> anyhow::Result<Duration> {
    let ids: Vec<_> = (0..streams).map(|i| format!("stream:{i}")).collect();
    let workers: Vec<_> = (0..=streams / 100).map(|i| format!("swarm-{i}")).collect();
    let item = |id| Item { id, weight: 1, pin: None, dedicated: false };
    let items: Vec<_> = ids.iter().map(|id| item(id)).collect();
    let worker = |id| Worker { id, standing: Standing::Full };
    let workers: Vec<_> = workers.iter().map(|id| worker(id)).collect();
    let rules = Rules::default();
    let before = assign(&items, &workers[1..], &vec![None; streams], &rules).owners;
    // The first one joins, so that each of the others is one place further on.
    let before: Vec<_> = before.into_iter().map(|owner| owner.map(|at| at + 1)).collect();
    fastest(|| {
        let (took, after) = timed(|| assign(&items, &workers, &before, &rules));
        ensure!(after.unassigned.is_empty(), "streams without a worker");
        Ok(took)
    })
}
