//! `backtest`: a history, evaluated without a cluster.
use std::path::Path;

use serde_json::{Value, json};

use crate::{
    program::{Outcome, run_with_input},
    prometheus::{Prometheus, START, STEP},
};

const SPEC: &str = "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
                    metadata: {name: web}\nspec: {maxBandwidthPercent: \"60\"}\n";

/// An hour of three nodes: one is busy twice within ten minutes, one vanishes.
fn hour() -> Prometheus {
    let prometheus = Prometheus::start();
    let busy =
        |i: usize| if (60..90).contains(&i) || (120..150).contains(&i) { 80.0 } else { 20.0 };
    prometheus.history("node-1:9100", (0..360).map(|i| Some(busy(i))));
    prometheus.history("node-2:9100", (0..360).map(|_| Some(40.0)));
    prometheus.history("node-3:9100", (0..360).map(|i| (i < 300).then_some(10.0)));
    prometheus
}

fn backtest(prometheus: &Prometheus, more: &[&str]) -> Outcome {
    let (from, to) = (START.to_string(), (START + 359 * STEP).to_string());
    backtest_of(prometheus, &from, &to, more)
}

fn backtest_of(prometheus: &Prometheus, from: &str, to: &str, more: &[&str]) -> Outcome {
    let url = prometheus.url.as_str();
    let args = ["backtest", "-f", "-", "--prometheus-url", url, "--from", from, "--to", to];
    run_with_input(&[&args[..], more].concat(), SPEC)
}

fn json_of(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str::<Value>(&outcome.out).expect("JSON")["backtests"][0].clone()
}

#[test]
fn transitions_times_and_thresholds_of_an_hour() {
    let prometheus = hour();
    let result = json_of(&backtest(&prometheus, &["-o", "json"]));
    let transitions: Vec<_> = result["run"]["transitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            (t["at"].as_str().unwrap(), t["node"].as_str().unwrap(), t["to"].as_str().unwrap())
        })
        .collect();
    // The second judgment in a row decides: one step after the load changed.
    assert_eq!(
        transitions,
        [
            ("2026-09-21T14:23:30Z", "node-1", "Unfit"),
            ("2026-09-21T14:28:30Z", "node-1", "Fit"),
            ("2026-09-21T14:33:30Z", "node-1", "Unfit"),
            ("2026-09-21T14:38:30Z", "node-1", "Fit"),
            ("2026-09-21T15:03:20Z", "node-3", "Unknown"),
        ]
    );
    let node = &result["run"]["nodes"][0];
    assert_eq!(
        (&node["unfitSeconds"], &node["timesUnfit"], &node["flaps"]),
        (&json!(600.0), &json!(2), &json!(1))
    );
    assert_eq!(result["run"]["nodes"][2]["unknownSeconds"], 600.0);
    assert_eq!(result["run"]["evaluations"], json!({"ok": 360, "lowCoverage": 0, "failed": 0}));
    let unfit = |threshold: f64| {
        let all = result["thresholds"].as_array().unwrap();
        all.iter().find(|t| t["threshold"] == threshold).unwrap()["unfitSeconds"].clone()
    };
    assert_eq!(result["thresholds"].as_array().unwrap().len(), 6);
    assert_eq!((unfit(60.0), unfit(75.0)), (json!(600.0), json!(600.0)));
    // At 30 percent node-2 is overloaded all the time, and node-1 waits for its place.
    assert_eq!(unfit(30.0), 3590.0);
    let result = json_of(&backtest(&prometheus, &["-o", "json", "--thresholds", "30"]));
    let low = &result["thresholds"][0];
    assert_eq!(low["threshold"], 30.0);
    assert_eq!(low["breaker"], json!({"judgments": 60, "nodeSeconds": 600.0}));
    assert_eq!(result["thresholds"][1]["configured"], true);
}

#[test]
fn the_table_reads_well() {
    let outcome = backtest(&hour(), &[]);
    for expected in [
        "default/web from 2026-09-21T14:13:20Z to 2026-09-21T15:13:20Z\n",
        "360 judgments, one every 10s: 360 ok, 0 with low coverage, 0 failed\n",
        "bandwidth: unfit above 60 %, fit again at or below 54 %\n",
        "2026-09-21T14:23:30Z  node-1  Fit    Unfit    Measured  80 %\n",
        "2026-09-21T15:03:20Z  node-3  Fit    Unknown  NoSample  -\n",
        "node-1  10m    0s          0s       2            1\n",
        "60 %       1            10m         5            1      0s         as configured\n",
    ] {
        assert!(outcome.out.contains(expected), "{expected:?} is not in\n{}", outcome.out);
    }
}

#[test]
fn a_long_history_is_asked_for_in_pieces_that_a_server_answers() {
    let prometheus = Prometheus::start();
    // Two days and more: 20,000 points.
    prometheus.history("node-1:9100", (0..20_000).map(|_| Some(20.0)));
    prometheus
        .history("node-2:9100", (0..20_000).map(|i| Some(if i == 15_000 { 90.0 } else { 20.0 })));
    prometheus.refuse(1);
    let to = (START + 19_999 * STEP).to_string();
    let more = ["-o", "json", "--thresholds", "60"];
    let outcome = backtest_of(&prometheus, &START.to_string(), &to, &more);
    let result = json_of(&outcome);
    assert_eq!(result["run"]["evaluations"]["ok"], 20_000);
    // One sample above the threshold is not two in a row.
    assert_eq!(result["run"]["transitions"], json!([]));
    let ranges = prometheus.ranges();
    assert_eq!(ranges.iter().map(|(_, points)| points).sum::<i64>(), 20_000);
    assert!(ranges.len() > 2, "{ranges:?}");
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].0 + pair[0].1 * STEP, pair[1].0, "no gap and no overlap");
    }
}

#[test]
fn the_picture_stands_alone() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("backtest.html");
    let outcome = backtest(&hour(), &["--html", path.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let page = std::fs::read_to_string(&path).unwrap();
    for expected in ["<svg", "url(#Unfit)", "node-1: Unfit from 2026-09-21T14:23:30Z", "45 %"] {
        assert!(page.contains(expected), "{expected}");
    }
    for outside in ["http://", "https://", "<script", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_history_that_is_unavailable_says_why() {
    let prometheus = hour();
    for (from, to, more, expected) in [
        ("now", "-48h", &[][..], "--from must be before --to"),
        ("yesterday", "now", &[], "--from"),
        ("-1h", "now", &["--thresholds", "160"], "at most 100"),
        ("0", "now", &["--step", "1ms"], "choose a longer --step"),
    ] {
        let outcome = backtest_of(&prometheus, from, to, more);
        assert_ne!(outcome.code, Some(0), "{expected}: {outcome:?}");
        assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
    prometheus.refuse(usize::MAX);
    let outcome = backtest(&prometheus, &[]);
    assert!(outcome.err.contains("too many samples"), "{}", outcome.err);
}

#[test]
fn the_least_and_the_most_that_nodes_offered() {
    let prometheus = hour();
    let spec = SPEC.replace(
        "spec: {",
        "spec: {capacity: 1G, \
         reservation: {resource: traffic.example.com/egress-mbps, reserve: \"0%\"}, ",
    );
    let (from, to) = (START.to_string(), (START + 359 * STEP).to_string());
    let args = [
        "backtest",
        "-f",
        "-",
        "--prometheus-url",
        prometheus.url.as_str(),
        "--from",
        &from,
        "--to",
        &to,
        "--pod-request",
        "200",
    ];
    let outcome = run_with_input(&args, &spec);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // The busy node offers nothing twice; the one that vanishes keeps its amount.
    let expected = "traffic.example.com/egress-mbps: 700 offered at least (room for 3 pods with \
                    200 each), 1100 at most (room for 5 pods with 200 each); 7 changes\n";
    assert!(outcome.out.contains(expected), "{}", outcome.out);
}
