//! Sessions that open the gate: a real Prometheus scrapes exporters whose answers contain more than
//! intended.
use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use traffic_operator::{
    nodes::Identity,
    prometheus::{Client, DEFAULT, Exporters},
    route_reflector::gate::{self, Asked, GateClosed, Measured, Part, Wanted},
};

use crate::{
    server::{Prometheus, eventually, serve},
    trusting::{asker, job, session},
};

/// Reports of a reflector that lacks one of its two sessions, `Node_10_0_0_3`, or none.
const CASES: [(&str, &[(&str, bool)]); 9] = [
    ("healthy", &[("Node_10_0_0_2", true), ("Node_10_0_0_3", true)]),
    ("down", &[("Node_10_0_0_2", true), ("Node_10_0_0_3", false)]),
    ("dual-stack", &[("Node_10_0_0_2", true), ("Node_fd00__2", true), ("Node_fd00__3", true)]),
    ("another-port", &[("Node_10_0_0_2", true), ("Node_10_0_0_2_port_1790", true)]),
    ("router", &[("Node_10_0_0_2", true), ("Node_10_9_0_1", true), ("Global_10_9_0_1", true)]),
    ("workload", &[("Node_10_0_0_2", true), ("Local_Workload_10_65_0_3", true)]),
    // Calico's confd is a minute behind: it still has the mesh.
    ("mesh", &[("Node_10_0_0_2", true), ("Mesh_10_0_0_2", true), ("Mesh_10_0_0_3", true)]),
    ("global", &[("Node_10_0_0_2", true), ("Global_10_0_0_3", true)]),
    // Sessions with the reflectors of another group, to which it belonged before.
    ("stale", &[("Node_10_0_0_2", true), ("Node_10_0_0_4", true), ("Node_10_0_0_5", true)]),
];

/// Every case is a node that must have sessions with two others, `b` and `c`.
fn wanted() -> Wanted {
    let mut wanted = Wanted::default();
    let nodes: Vec<Arc<str>> = CASES.iter().map(|(node, _)| (*node).into()).collect();
    for node in &nodes {
        wanted.node(node, Part { gated: true, reflector: true });
    }
    let names = [("Node_10_0_0_2", "b"), ("Node_10_0_0_3", "c")];
    let names = names.map(|(name, node)| (name.parse().expect("a session"), node.into()));
    wanted.sessions(BTreeMap::from(names), nodes.iter());
    wanted
}

#[test]
fn only_the_sessions_that_are_meant_open_the_gate_whatever_the_clock_says() {
    let targets: Vec<_> = CASES
        .iter()
        .map(|(node, sessions)| {
            let text: String = sessions.iter().map(|(name, up)| session(name, *up, "")).collect();
            (serve(move || text.clone()), json!({"instance": node}))
        })
        .collect();
    // Two scrape jobs of the same exporters: both count, and every session is reported twice.
    let jobs = ["bird-exporter", "bird-exporter-pods"].map(|name| job(name, &targets));
    let prometheus = Prometheus::start("r03-sessions", &jobs, &[]);
    let (endpoints, runtime) = asker(&prometheus);
    let client = Client::clone(endpoints.get(DEFAULT).expect("the default"));
    let identity =
        Identity::new(CASES.iter().map(|(node, _)| ((*node).into(), &[] as _)).collect());
    let exporters = Exporters {
        bird_exporter: r#"job=~"bird-exporter.*""#.parse().expect("matchers"),
        ..Exporters::any(&["node"])
    };
    let wanted = Arc::new(wanted());
    let measured = |at: f64| {
        let asked = Asked { wanted: Some(Arc::clone(&wanted)), at };
        let text = gate::query(&exporters, &wanted);
        let read = client.query(&text, client.timeout(), |answer| {
            let answer = (answer.status, answer.content_type.as_str(), &*answer.body);
            Measured::read(answer, &identity, &exporters.node_labels, &asked)
        });
        runtime.block_on(read).expect("an answer")
    };
    let all = "count by (instance) (up == 1) == 2";
    eventually("scrapes", || (prometheus.ask(all)?.len() == CASES.len()).then_some(()));

    let missing = CASES.iter().filter(|(node, _)| *node != "healthy");
    let mut missing: Vec<_> = missing.map(|(node, _)| (Arc::from(*node), 1, 2)).collect();
    missing.sort();
    // Our clock is right, or an hour off in both directions; the last step was a minute ago by that
    // clock.
    for ours in [1_800_000_000.0, 1_800_003_600.0, 1_799_996_400.0] {
        let shut = gate::judge(&wanted, &measured(ours), Some(ours - 60.0));
        assert_eq!(shut, Err(GateClosed::Missing(missing.clone())), "{ours}");
        // A step just now: nothing was scraped since.
        let shut = gate::judge(&wanted, &measured(ours), Some(ours));
        assert!(
            matches!(&shut, Err(GateClosed::Stale(all)) if all.len() == CASES.len()),
            "{shut:?}"
        );
    }
}
