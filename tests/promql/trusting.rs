//! Series that count: a real Prometheus scrapes the exporters of the cluster, and targets of other
//! tenants as well.
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use traffic_operator::{
    api::{TrafficWatch, traffic_watch::NodeState},
    inspect::{
        evaluate::{Evaluation, evaluate},
        population::Population,
    },
    nodes::Identity,
    prometheus::{
        Client, DEFAULT, Endpoints, EndpointsConfig, Exporters,
        exporters::{BIRD_EXPORTER, NODE_EXPORTER},
    },
    route_reflector::gate::{self, Asked, GateClosed, Measured, Part, Wanted},
};

use crate::server::{Prometheus, eventually, serve};

/// A link of 10 Gbit/s, in bytes.
const SPEED: u64 = 1_250_000_000;

/// An exporter whose link carries more with each scrape, every second.
fn link(labels: &str, bytes: u64, speed: u64) -> SocketAddr {
    let (labels, sent) = (labels.to_owned(), Arc::new(AtomicU64::new(0)));
    serve(move || {
        let sent = sent.fetch_add(bytes, Ordering::Relaxed);
        format!(
            "node_network_transmit_bytes_total{{{labels}}} {sent}\n\
             node_network_speed_bytes{{{labels}}} {speed}\n"
        )
    })
}

/// A job of static targets, each with its labels. A monitor may relabel freely, `instance`
/// included.
pub fn job(name: &str, targets: &[(SocketAddr, Value)]) -> Value {
    let targets: Vec<_> = targets
        .iter()
        .map(|(address, labels)| json!({"targets": [address.to_string()], "labels": labels}))
        .collect();
    json!({"job_name": name, "static_configs": targets})
}

pub fn asker(prometheus: &Prometheus) -> (Endpoints, tokio::runtime::Runtime) {
    // Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://{}", prometheus.address);
    let config = EndpointsConfig::load(None, Some(&url), Duration::from_secs(10));
    let metrics = traffic_operator::metrics::Metrics::new();
    let endpoints = Endpoints::new(&config.expect("an endpoint"), metrics).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    (endpoints, runtime.expect("a runtime"))
}

pub fn believed(node: &str) -> Exporters {
    let node_exporter = node.parse().expect("matchers");
    let bird_exporter = BIRD_EXPORTER.parse().expect("matchers");
    Exporters { node_exporter, bird_exporter, ..Exporters::any(&["node"]) }
}

fn watch() -> TrafficWatch {
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "maxBandwidthPercent": "60", "window": "5s", "maxUnfit": "100%", "minFit": 0,
            "consecutive": {"unfit": 1, "fit": 1},
        },
    }))
    .expect("a TrafficWatch")
}

fn states(evaluation: &Evaluation) -> Vec<(&str, NodeState)> {
    let mut all: Vec<_> = evaluation.nodes.iter().map(|n| (n.name.as_str(), n.state)).collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

/// A tenant has other exporters scraped, under another job.
#[test]
fn exporters_of_another_job_change_no_verdict_on_a_node() {
    use NodeState::{Fit, Unfit};
    let device = r#"device="eth0""#;
    let own = [
        (link(device, SPEED / 10, SPEED), json!({"instance": "node-1"})),
        (link(device, SPEED / 10 * 8, SPEED), json!({"instance": "node-2"})),
    ];
    let forged = [
        // A node that looks full, one that looks idle, and one with contradictory series.
        (link(device, 5 * SPEED, SPEED), json!({"instance": "node-1"})),
        (link(device, 1, 1000 * SPEED), json!({"instance": "node-2"})),
        (link(r#"device="eth0",node="node-2""#, 1, SPEED), json!({})),
    ];
    let jobs = [job("node-exporter", &own), job("team-a/forged", &forged)];
    let prometheus = Prometheus::start("s04-exporters", &jobs, &[]);
    let (endpoints, runtime) = asker(&prometheus);
    let judge = |exporters: &Exporters| {
        let watch = watch();
        let asked = evaluate(&watch, &endpoints, exporters, Population::default(), None);
        runtime.block_on(asked).expect("a judgment")
    };
    let up = "node_network_transmit_bytes_total offset 5s";
    eventually("scrapes", || (prometheus.ask(up)?.len() == 5).then_some(()));

    let right = [("node-1", Fit), ("node-2", Unfit)];
    let found = judge(&believed(NODE_EXPORTER));
    assert_eq!(states(&found), right, "{found:#?}");
    let device = found.nodes[0].values[0].device.as_deref();
    assert_eq!(device, Some("eth0"), "{found:#?}");
    // If the series counted, they would change the verdict, which also shows that the forgery is
    // effective.
    let found = judge(&Exporters::any(&["node"]));
    assert!(states(&found).iter().all(|state| !right.contains(state)), "{found:#?}");
    // A selector that names another job gets that job, whatever the series contain.
    let found = judge(&believed(r#"job="team-a/forged""#));
    assert!(states(&found).contains(&("node-1", Unfit)), "{found:#?}");
}

/// A user whose job has another name than the default, or who mistypes it, gets an explanation.
#[test]
fn where_no_series_is_believed_the_jobs_that_have_some_are_named() {
    let own = [(link(r#"device="eth0""#, SPEED / 10, SPEED), json!({"instance": "node-1"}))];
    let jobs = [job("kubernetes-nodes", &own), job("zz", &own)];
    let prometheus = Prometheus::start("s04-named", &jobs, &[]);
    let (endpoints, runtime) = asker(&prometheus);
    let up = "node_network_transmit_bytes_total offset 5s";
    eventually("scrapes", || (prometheus.ask(up)?.len() == 2).then_some(()));
    let judge = |exporters: &Exporters| {
        let watch = watch();
        let asked = evaluate(&watch, &endpoints, exporters, Population::default(), None);
        runtime.block_on(asked).expect("a judgment")
    };
    let found = judge(&believed(NODE_EXPORTER));
    assert_eq!(states(&found), [], "{found:#?}");
    let said = found.warnings.iter().find(|warning| warning.contains("--node-exporter-selector"));
    let said = said.unwrap_or_else(|| panic!("{found:#?}"));
    assert!(said.ends_with("jobs that have such series: kubernetes-nodes, zz"), "{said}");
    let found = judge(&believed(r#"job="kubernetes-nodes""#));
    assert_eq!(states(&found), [("node-1", NodeState::Fit)], "{found:#?}");
    assert!(!found.warnings.iter().any(|warning| warning.contains("such series")), "{found:#?}");
}

pub fn session(name: &str, up: bool, more: &str) -> String {
    let (state, value) = if up { ("Established", 1) } else { ("Connect", 0) };
    format!("bird_protocol_up{{proto=\"BGP\",name=\"{name}\",state=\"{state}\"{more}}} {value}\n")
}

#[test]
fn sessions_of_another_job_do_not_open_the_gate() {
    let second = Arc::new(AtomicBool::new(false));
    let of_a = {
        let second = Arc::clone(&second);
        serve(move || {
            let up = second.load(Ordering::Relaxed);
            session("Node_10_0_0_2", true, "") + &session("Node_10_0_0_3", up, "")
        })
    };
    let of_b = serve(|| session("Node_10_0_0_1", true, ""));
    let forged = serve(|| {
        let all = (2..9).map(|i| session(&format!("Node_10_0_0_{i}"), true, r#",node="a""#));
        all.collect()
    });
    let own = [
        (of_a, json!({"instance": "a", "node": "a"})),
        (of_b, json!({"instance": "b", "node": "b"})),
    ];
    // A monitor can relabel its target as that of the node.
    let forged = [(forged, json!({"instance": "a"}))];
    let jobs = [job("bird-exporter", &own), job("team-a/forged", &forged)];
    let prometheus = Prometheus::start("s04-gate", &jobs, &[]);
    let (endpoints, runtime) = asker(&prometheus);
    let client = Client::clone(endpoints.get(DEFAULT).expect("the default"));
    let identity = Identity::new(vec![("a".into(), &[]), ("b".into(), &[])]);
    let mut wanted = Wanted::default();
    for (node, others) in [("a", [(2, "b"), (3, "c")].as_slice()), ("b", &[(1, "a")])] {
        let node: Arc<str> = node.into();
        wanted.node(&node, Part { gated: true, reflector: true });
        let named = |(i, other): &(u8, &str)| {
            let name = format!("Node_10_0_0_{i}");
            (name.parse().expect("a session"), (*other).into())
        };
        wanted.sessions(others.iter().map(named).collect(), [&node].into_iter());
    }
    let wanted = Arc::new(wanted);
    let judge = |exporters: &Exporters| {
        let asked = Asked { wanted: Some(Arc::clone(&wanted)), at: 0.0 };
        let text = gate::query(exporters, &wanted);
        let measured = client.query(&text, client.timeout(), |answer| {
            let answer = (answer.status, answer.content_type.as_str(), &*answer.body);
            Measured::read(answer, &identity, &exporters.node_labels, &asked)
        });
        gate::judge(&wanted, &runtime.block_on(measured).expect("an answer"), None)
    };
    let all = "bird_protocol_up";
    eventually("scrapes", || (prometheus.ask(all)?.len() == 10).then_some(()));
    let trusted = believed(NODE_EXPORTER);
    let missing = GateClosed::Missing(vec![("a".into(), 1, 2)]);
    assert_eq!(judge(&trusted), Err(missing.clone()));
    // The effect of the series if they counted.
    assert_eq!(judge(&Exporters::any(&["node"])), Ok(()));
    // The real session opens it.
    second.store(true, Ordering::Relaxed);
    eventually("the second session", || judge(&trusted).ok());
    // A user whose exporter has another name gets an explanation.
    let other = Exporters {
        bird_exporter: r#"job="bird""#.parse().expect("matchers"),
        ..Exporters::any(&["node"])
    };
    let Err(GateClosed::Untrusted(jobs)) = judge(&other) else { panic!("open") };
    assert_eq!(jobs, ["bird-exporter", "team-a/forged"]);
}
