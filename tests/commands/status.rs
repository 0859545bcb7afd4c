//! `status`, with a simulated API server.
use serde_json::{Value, json};

use crate::explaining::{ApiServer, refusal};

const KINDS: [(&str, &str); 4] = [
    ("TrafficWatch", "traffic.example.com/v1alpha1/trafficwatches"),
    ("NetworkProber", "probes.bigmikes.io/v1alpha1/networkprobers"),
    ("Swarm", "traffic.example.com/v1alpha1/swarms"),
    ("RouteReflectorSet", "traffic.example.com/v1alpha1/routereflectorsets"),
];

fn list(kind: &str, path: &str, items: &[Value]) -> Value {
    let version = path.rsplit_once('/').expect("a path").0;
    json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": {}, "items": items})
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "the message",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn watch(namespace: &str, name: &str, conditions: &[Value]) -> Value {
    let node = |state: &str, percent: &str| {
        json!({"currentBandwidthPercent": percent, "currentTransmitTotal": 1, "time": 0,
            "unfit": state == "Unfit", "state": state, "reason": "Measured"})
    };
    json!({
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"maxBandwidthPercent": "60"},
        "status": {"observedGeneration": 1, "max": "60 %", "conditions": conditions,
            "nodes": {"node-1": node("Fit", "1e+01"), "node-2": node("Unfit", "8e+01")},
            "summary": {"nodes": 3, "fit": 2, "unfit": 1, "unknown": 0, "suppressed": 0}}
    })
}

/// Sets up a cluster with an operator that leads, all kinds, and one healthy `TrafficWatch`.
fn cluster() -> ApiServer {
    let server = ApiServer::start();
    for (kind, path) in KINDS {
        server.set(&format!("/apis/{path}"), 200, list(kind, path, &[]));
    }
    let good = watch("default", "web", &[condition("Ready", "True", "Judged")]);
    watches(&server, &[good]);
    // Renewed in the future, so that the leader counts as alive, whatever the clock shows.
    server.set(
        "/apis/coordination.k8s.io/v1/namespaces/traffic-operator-system/leases/traffic-operator",
        200,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "traffic-operator"},
            "spec": {"holderIdentity": "op-1", "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-01T00:00:00.000000Z",
                "renewTime": "2999-01-01T00:00:00.000000Z"}}),
    );
    server
}

fn watches(server: &ApiServer, items: &[Value]) {
    let (kind, path) = KINDS[0];
    server.set(&format!("/apis/{path}"), 200, list(kind, path, items));
}

#[test]
fn a_healthy_cluster_is_one_screen_and_exit_code_0() {
    let server = cluster();
    let outcome = server.run("status-good", &["status"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for expected in [
        "Operator: op-1 leads for ",
        "(since 2026-01-01T00:00:00Z)",
        "Nodes that are not fit: 1\nNODE    STATE  REASON    LOAD",
        "node-2  Unfit  Measured  80 %  -      default/web\n\n",
        "TrafficWatch: 1\nNAME         READY  REASON  NODES  FIT  UNFIT",
        "default/web  True   Judged  3      2    1",
        "NetworkProber: none",
        "RouteReflectorSet: none",
        "Nothing needs attention",
    ] {
        assert!(outcome.out.contains(expected), "{expected} is not in\n{}", outcome.out);
    }
    let outcome = server.run("explain-nodes", &["explain", "nodes"]);
    let fit = "node-1  Fit    Measured  10 %  -      default/web\n";
    assert!(outcome.out.ends_with(fit), "{outcome:?}");
    assert!(outcome.out.contains("node-2  Unfit  Measured  80 %"), "{outcome:?}");
    let asked = server.asked();
    assert!(asked.iter().all(|(method, _)| method == "GET"), "{asked:?}");
}

#[test]
fn what_needs_attention_is_listed_with_the_next_command_and_exit_code_1() {
    let server = cluster();
    let good = watch("default", "web", &[condition("Ready", "True", "Judged")]);
    let bad = watch("shop", "db", &[condition("Ready", "False", "Conflict")]);
    let odd = json!({"metadata": {"name": "odd", "namespace": "shop"},
        "spec": {"recoverPercent": "x"}});
    watches(&server, &[good, bad, odd]);
    let outcome = server.run("status-bad", &["status", "-A"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let (screen, attention) = outcome.out.split_once("Needs attention").expect("a section");
    assert!(screen.contains("default/web") && screen.contains("shop/odd"), "{screen}");
    let odd = "TrafficWatch shop/odd\n    this version cannot read it";
    assert!(attention.contains("TrafficWatch shop/db") && attention.contains(odd), "{attention}");
    let outcome = server.run("status-bad-json", &["status", "-o", "json"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.out).expect("JSON");
    let yaml = server.run("status-bad-yaml", &["status", "-o", "yaml"]);
    let yaml: Value = serde_yaml::from_str(&yaml.out).expect("YAML");
    assert_eq!(yaml["kinds"], json["kinds"]);
    assert_eq!(json["healthy"], false);
    assert_eq!(json["operator"]["leader"], "op-1");
    assert_eq!(json["kinds"][0]["objects"][0]["figures"]["unfit"], 1);
    assert_eq!(json["attention"][0]["what"], "TrafficWatch shop/db");
}

#[test]
fn it_waits_until_nothing_needs_attention_but_not_forever() {
    let server = cluster();
    let bad = watch("shop", "db", &[condition("Ready", "False", "Conflict")]);
    watches(&server, &[bad]);
    let outcome = server.run("status-in-vain", &["status", "--wait", "1s"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.out.contains("Needs attention"), "{outcome:?}");
    let before = server.asked().len();
    let waits = std::thread::spawn({
        let server = server.clone();
        move || server.run("status-waits", &["status", "--wait", "10m"])
    });
    // It has seen the problem.
    while server.asked().len() < before + KINDS.len() + 1 {
        std::thread::yield_now();
    }
    watches(&server, &[watch("shop", "db", &[condition("Ready", "True", "Judged")])]);
    let outcome = waits.join().expect("an outcome");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("Nothing needs attention"), "{outcome:?}");
}

#[test]
fn it_shows_what_changes_until_it_is_ended() {
    let server = cluster();
    let mut status = server.start_command("status-follows", &["status", "-w"]);
    status.until("Nothing needs attention");
    watches(&server, &[watch("shop", "db", &[condition("Ready", "False", "Conflict")])]);
    status.until("TrafficWatch shop/db");
}

#[test]
fn versions_are_those_of_the_program_the_operator_and_the_cluster() {
    let server = cluster();
    let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    server.set("/version", 200, version);
    let pod = "/api/v1/namespaces/traffic-operator-system/pods/op-1";
    let containers = json!([{"name": "manager", "image": "registry/traffic-operator:1"}]);
    server.set(pod, 200, json!({"metadata": {"name": "op-1"}, "spec": {"containers": containers}}));
    let outcome = server.run("version", &["version"]);
    let client = concat!("client      ", env!("CARGO_PKG_VERSION"), "\n");
    let others = "operator    registry/traffic-operator:1 (op-1 leads)\nKubernetes  v1.36.3\n";
    assert_eq!(outcome.out, format!("{client}{others}"), "{outcome:?}");
    assert_eq!(crate::program::run(&["version", "--client"]).out, client);
}

#[test]
fn one_namespace_is_asked_for_alone_and_cluster_scoped_objects_with_it() {
    let server = cluster();
    for (kind, path) in &KINDS[..3] {
        let (group, plural) = path.rsplit_once('/').expect("a path");
        let path = format!("/apis/{group}/namespaces/shop/{plural}");
        server.set(&path, 200, list(kind, group, &[]));
    }
    let outcome = server.run("status-one", &["status", "-n", "shop"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("TrafficWatch: none"), "{}", outcome.out);
    let asked = server.asked();
    let lists = |path: &str| asked.iter().any(|(_, at)| at.split('?').next() == Some(path));
    assert!(lists("/apis/traffic.example.com/v1alpha1/namespaces/shop/trafficwatches"));
    assert!(lists("/apis/traffic.example.com/v1alpha1/routereflectorsets"), "{asked:?}");
    assert!(!lists("/apis/traffic.example.com/v1alpha1/trafficwatches"), "{asked:?}");
    let both = server.run("status-both", &["status", "-n", "shop", "-A"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn kinds_that_cannot_be_listed_are_named_and_the_others_are_shown() {
    let server = cluster();
    let path = |i: usize| format!("/apis/{}", KINDS[i].1);
    server.set(&path(1), 404, refusal(404, "NotFound", "the server could not find it"));
    server.set(&path(2), 403, refusal(403, "Forbidden", "swarms is forbidden: jane"));
    let outcome = server.run("status-rights", &["status"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for expected in [
        "default/web  True",
        "NetworkProber: the kind is not installed",
        "Swarm: not shown: list: swarms is forbidden: jane",
    ] {
        assert!(outcome.out.contains(expected), "{expected} is not in\n{}", outcome.out);
    }
    server.set(&path(3), 500, refusal(500, "InternalError", "etcd is gone"));
    let outcome = server.run("status-failed", &["status"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.out.contains("RouteReflectorSet: not shown: list: etcd is gone"));
    for i in 0..KINDS.len() {
        server.set(&path(i), 403, refusal(403, "Forbidden", "no"));
    }
    assert_eq!(server.run("status-none", &["status"]).code, Some(1));
}
