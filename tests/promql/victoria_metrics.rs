//! A real `VictoriaMetrics` in Prometheus' place: its `rate` divides by the time between the first
//! and the last sample, and its `now` is half a minute ago unless the query says otherwise.
use std::{
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use traffic_operator::{
    api::{TrafficWatch, traffic_watch::NodeState},
    inspect::{evaluate::evaluate, population::Population},
    metrics::Metrics,
    prometheus::{Endpoints, EndpointsConfig, exporters::NODE_EXPORTER},
};

use crate::{
    server::{Ended, empty, eventually, post},
    trusting::believed,
};

/// A link of 1 Gbit/s, in bytes.
const SPEED: f64 = 125e6;
/// Seconds between two scrapes, and in the window.
const SCRAPE: i64 = 15;
const WINDOW: i64 = 120;

/// A node, by the samples of its pods of the exporter: each has those of some seconds before now.
struct Node {
    name: String,
    /// Percent of its link in use, all the time.
    percent: f64,
    pods: Vec<Range<i64>>,
    /// What may be said about it.
    allowed: &'static [NodeState],
}

fn nodes() -> Vec<Node> {
    use NodeState::{Fit, Unfit, Unknown};
    let mut all = vec![];
    let mut add = |name: String, percent, pods: &[Range<i64>], allowed| {
        all.push(Node { name, percent, pods: pods.to_vec(), allowed });
    };
    for (percent, is) in [(45.0, &[Fit]), (80.0, &[Unfit])] {
        let all = 0..600;
        add(format!("steady-{percent}"), percent, std::slice::from_ref(&all), is);
        // Two replicas that scrape the same exporter.
        add(format!("twice-{percent}"), percent, &[0..600, 0..600], is);
    }
    for ago in (0..=WINDOW).step_by(15) {
        let pods = [0..ago.max(1), ago + SCRAPE..600];
        add(format!("replaced-{ago}-45"), 45.0, &pods, &[Fit, Unknown]);
        add(format!("replaced-{ago}-80"), 80.0, &pods, &[Unfit, Unknown]);
    }
    for age in [15, 30, 45, 60, 75, 90, 110] {
        let late = age..600;
        add(format!("late-{age}-45"), 45.0, std::slice::from_ref(&late), &[Fit, Unknown]);
        add(format!("late-{age}-80"), 80.0, std::slice::from_ref(&late), &[Unfit, Unknown]);
        let new = 0..age;
        add(format!("new-{age}-70"), 70.0, std::slice::from_ref(&new), &[Unfit, Unknown]);
    }
    for gap in [30, 45, 60, 90] {
        let pods = [0..20, 20 + gap..600];
        add(format!("gap-{gap}-80"), 80.0, &pods, &[Unfit, Unknown]);
    }
    all
}

fn samples(now: i64) -> String {
    let mut text = String::new();
    for Node { name, percent, pods, .. } in nodes() {
        for (pod, times) in pods.into_iter().enumerate() {
            let labels = format!(r#"job="node-exporter",instance="{name}",pod="{pod}""#);
            for ago in times.clone().step_by(15) {
                let time = (now - ago) * 1000;
                #[expect(clippy::cast_precision_loss, reason = "seconds of ten minutes")]
                let since = (600 - ago) as f64;
                let bytes = (1e6 + since * SPEED * percent / 100.0).round();
                let link = format!(r#"{labels},device="eth0""#);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "up{{{labels}}} 1 {time}");
                let _ =
                    writeln!(text, "node_network_transmit_bytes_total{{{link}}} {bytes} {time}");
                let _ = writeln!(text, "node_network_speed_bytes{{{link}}} {SPEED} {time}");
            }
        }
    }
    text
}

fn watch() -> TrafficWatch {
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "maxBandwidthPercent": "60", "window": format!("{WINDOW}s"), "maxUnfit": "100%",
            "minFit": 0, "consecutive": {"unfit": 1, "fit": 1},
        },
    }))
    .expect("a TrafficWatch")
}

#[test]
fn victoria_metrics_makes_no_busy_node_fit_and_no_idle_one_unfit() {
    // Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, lab::free_port().expect("a port")).into();
    let dir = empty("victoria-metrics");
    let _process = Ended(
        Command::new(lab::tools::ensure("victoria-metrics").expect("victoria-metrics"))
            .arg(format!("-httpListenAddr={address}"))
            .arg(format!("-storageDataPath={}", dir.join("data").display()))
            .args(["-loggerLevel=ERROR", "-memory.allowedBytes=64MiB"])
            .stdin(Stdio::null())
            .spawn()
            .expect("victoria-metrics"),
    );
    // As the page has it for VictoriaMetrics.
    let config = json!({"endpoints": {"default": {
        "url": format!("http://{address}"), "parameters": {"latency_offset": "1s"},
    }}});
    let file = dir.join("endpoints.yaml");
    std::fs::write(&file, config.to_string()).expect("endpoints");
    let config = EndpointsConfig::load(Some(&file), None, Duration::from_secs(10));
    let endpoints = Endpoints::new(&config.expect("endpoints"), Metrics::new()).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");

    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let samples = samples(i64::try_from(now).expect("a time"));
    eventually("an import", || post(address, "/api/v1/import/prometheus", "text/plain", &samples));
    let judged = eventually("all nodes", || {
        let (watch, exporters) = (watch(), believed(NODE_EXPORTER));
        let asked = evaluate(&watch, &endpoints, &exporters, Population::default(), None);
        let found = runtime.block_on(asked).ok()?;
        (found.nodes.len() == nodes().len()).then_some(found)
    });
    let mut wrong = vec![];
    for node in nodes() {
        let found = judged.nodes.iter().find(|found| found.name == node.name).expect("a node");
        if !node.allowed.contains(&found.state) {
            wrong.push(format!("{}: {:?} {:?}", node.name, found.state, found.values[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Evidence is not given up where there is some.
    let known = judged.nodes.iter().filter(|node| node.state != NodeState::Unknown).count();
    assert!(known >= 12, "{known} of {}: {:#?}", judged.nodes.len(), judged.nodes);
}
