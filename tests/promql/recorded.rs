//! Samples that are missing: a real Prometheus answers the built-in query at each moment of a
//! recording, and the operator judges.
use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use traffic_operator::{
    api::{TrafficWatch, traffic_watch::NodeState},
    nodes::{Identity, NodeFacts},
    prometheus::{Answer, Exporters},
    traffic_watch::replay::{Inquiry, Replay},
};

use crate::server::{Prometheus, eventually};

/// The beginning of the recording, in Unix seconds.
const START: i64 = 1_790_000_000;

/// The seconds at which Prometheus was away for a minute.
const GAP: std::ops::Range<i64> = 900..960;

/// The nodes, each with its load in percent and the second at which its exporter appears.
const NODES: [(&str, i64, i64); 5] = [
    ("at-72", 72, 0),
    ("at-91", 91, 0),
    ("at-62", 62, 0),
    ("at-20", 20, 0),
    ("new-at-80", 80, 900),
];

/// Half an hour of scrapes, every 15 seconds, of links that carry 125 MB/s.
fn recording() -> String {
    let mut rows = vec![];
    for second in (0..1800).step_by(15).filter(|second| !GAP.contains(second)) {
        for (node, percent, _) in NODES.iter().filter(|(_, _, since)| second >= *since) {
            let labels = format!("job=\"node-exporter\",instance=\"{node}\"");
            let link = format!("{labels},device=\"eth0\"");
            let sent = 1_000_000_000_000 + second * percent * 1_250_000;
            rows.push((second, format!("up{{{labels}}} 1")));
            rows.push((second, format!("node_network_transmit_bytes_total{{{link}}} {sent}")));
            rows.push((second, format!("node_network_speed_bytes{{{link}}} 125000000")));
        }
    }
    let mut text = String::new();
    for (second, row) in rows {
        writeln!(text, "{row} {}", START + second).expect("a text");
    }
    text + "# EOF\n"
}

#[test]
fn c31_a_gap_makes_no_busy_node_fit_and_is_named() {
    let prometheus = Prometheus::recorded("gap", &recording());
    eventually("an answer", || prometheus.ask("vector(1)"));
    let watch: TrafficWatch = serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"maxBandwidthPercent": "60", "maxUnfit": "100%", "minFit": 0},
    }))
    .expect("a TrafficWatch");
    let exporters = Exporters::any(&["node"]);
    let inquiry = Inquiry::of(&watch, &exporters).expect("a valid spec");
    let query = inquiry.measures().remove(0).query;
    let names: Vec<Arc<str>> = NODES.iter().map(|(name, ..)| Arc::from(*name)).collect();
    let identity =
        Identity::new(names.iter().map(|name| (Arc::clone(name), [].as_slice())).collect());
    let mut nodes: Vec<_> = names.iter().cloned().map(NodeFacts::named).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut replay = Replay::new(&watch, true);
    let mut seen = BTreeSet::new();
    for second in (300..1500).step_by(10) {
        let body = prometheus.at(&query, START + second).expect("an answer").into_bytes();
        let answer = Answer { status: 200, content_type: "application/json".into(), body };
        let reading = inquiry.read(0, &answer, &identity).expect("a vector");
        let now = Timestamp::from_second(START + second).expect("a time");
        replay.step(now, nodes.clone(), &[Ok(Arc::new(reading))]).expect("a judgment");
        for node in replay.nodes() {
            let judged = node.values[0].unfit.is_some();
            let is_busy = node.name != "at-20";
            assert!(!(judged && is_busy && node.state == NodeState::Fit), "{node:?} at {second}");
            assert!(is_busy || !node.unfit, "{node:?} at {second}");
            seen.insert((node.name, node.state, node.reason));
        }
    }
    let has = |name: &str, state: NodeState, reason: Option<&str>| {
        seen.contains(&(name.to_owned(), state, reason.map(str::to_owned)))
    };
    for name in ["at-72", "at-62", "new-at-80"] {
        assert!(has(name, NodeState::Unknown, Some("PartialWindow")), "{name}: {seen:?}");
        assert!(has(name, NodeState::Unfit, None), "{name}: {seen:?}");
    }
}
