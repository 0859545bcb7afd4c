//! `explain` of whole objects, with a simulated API server and operator.
use serde_json::{Value, json};

use crate::{
    explaining::{ApiServer, refusal},
    program::Outcome,
};

const GROUP: &str = "/apis/traffic.example.com/v1alpha1";

fn expect(outcome: &Outcome, code: i32, all: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for expected in all {
        let (out, err) = (&outcome.out, &outcome.err);
        let said = out.contains(expected) || err.contains(expected);
        assert!(said, "{expected} is not in\n{out}\n{err}");
    }
}

fn watch() -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"maxBandwidthPercent": "60"},
        "status": {
            "summary": {"nodes": 3, "fit": 2, "unfit": 1, "unknown": 0, "suppressed": 0},
            "conditions": [{"type": "MetricsAvailable", "status": "False", "reason": "Unauthorized",
                "message": "401", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "nodes": {"node-2": {"currentBandwidthPercent": "7.1e+01", "currentTransmitTotal": 1,
                "time": 1_790_000_000, "unfit": true, "state": "Unfit", "device": "eth0"}}
        }
    })
}

#[test]
fn a_traffic_watch_is_explained_by_the_leader_or_by_its_status() {
    let server = ApiServer::start();
    server.set(&format!("{GROUP}/namespaces/default/trafficwatches/web"), 200, watch());
    let args = ["trafficwatch", "web", "-n", "default"];
    let outcome = server.explain_what("watch-status", &args);
    let expected = [
        "default/web (mode Enforce): 3 nodes: 2 fit, 1 unfit",
        "node-2  Unfit  -    71 % on eth0",
        "try: `doctor` asks Prometheus itself",
        "From the status, whose values may be ten minutes old; the leader was not asked: no pod leads",
    ];
    expect(&outcome, 0, &expected);
    // The name as `plan` and `kubectl get` print it.
    for alias in ["traffic-watch", "tw"] {
        let outcome =
            server.explain_what(&format!("watch-{alias}"), &[&[alias][..], &args[1..]].concat());
        expect(&outcome, 0, &expected[..1]);
    }
    let node = json!({
        "name": "node-9", "state": "Unfit", "reason": null, "since": "2026-09-21T14:13:20Z",
        "unfit": true, "ageSeconds": 4.2, "values": [{"measure": "bandwidth", "value": 71.5,
            "device": "eth0", "unfit": true, "streak": 0, "needed": 2, "reason": null}]
    });
    let view = json!({
        "leader": true, "identity": "op-1", "version": "0.1.0", "now": "2026-09-21T14:25:24Z",
        "started": "2026-09-21T10:00:00Z", "watches": [{
            "namespace": "default", "name": "web", "label": "web.traffic.example.com/unfit",
            "mode": "Enforce", "intervalSeconds": 10.0, "limit": 1, "room": 3,
            "lastSuccess": "2026-09-21T14:25:20Z",
            "summary": {"nodes": 3, "fit": 2, "unfit": 1, "unknown": 0, "suppressed": 0},
            "measures": [{"name": "bandwidth", "unit": "percent", "max": 60.0, "recover": 54.0,
                "endpoint": "default", "query": "the query", "problem": null}],
            "nodes": [node], "nodesTruncated": false, "transitions": []
        }]
    });
    let path = "/api/v1/trafficwatches?namespace=default&name=web&limit=5000";
    server.set(path, 200, view);
    let url = server.url.clone();
    let live = [&args[..], &["--operator-url", &url, "--query"]].concat();
    let expected = ["node-9  Unfit", "71.5 % on eth0", "(asked of default): the query", "op-1"];
    expect(&server.explain_what("watch-live", &live), 0, &expected);
    let outcome = server.explain_what("watch-yaml", &[&live[..], &["-o", "yaml"]].concat());
    let yaml: Value = serde_yaml::from_str(&outcome.out).expect("YAML");
    assert_eq!(yaml["nodes"][0]["node"], "node-9");
    assert_eq!(yaml["source"]["from"], "leader");
}

#[test]
fn a_route_reflector_set_is_explained_by_its_status() {
    let server = ApiServer::start();
    let set = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
        "metadata": {"name": "rrs"}, "spec": {},
        "status": {"desired": 3, "ready": 3, "slots": [{"id": 0, "node": "node-1"}],
            "plan": [{"step": "Demote", "node": "node-1", "slot": 0, "waitingFor": "sessions"}]}
    });
    server.set(&format!("{GROUP}/routereflectorsets/rrs"), 200, set);
    let outcome = server.explain_what("set", &["routereflectorset", "rrs"]);
    expect(&outcome, 0, &["rrs (mode Enforce): 3 of 3 reflectors are ready", "Demote  node-1  0"]);
    let outcome = server.explain_what("set-json", &["rrs", "rrs", "-o", "json"]);
    let json: Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(json["plan"][0]["waitingFor"], "sessions");
}

#[test]
fn an_object_that_is_not_there_is_answered_with_those_that_are() {
    let server = ApiServer::start();
    let outcome = server.explain_what("none", &["trafficwatch", "web", "-n", "default"]);
    let expected = "there is no TrafficWatch \"web\" in namespace \"default\"; there is none, or";
    expect(&outcome, 1, &["error: explain trafficwatch web: ", expected]);
    let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
    "metadata": {}, "items": [
        {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
         "metadata": {"name": "web", "namespace": "shop"}}
    ]});
    server.set(&format!("{GROUP}/trafficwatches"), 200, list.clone());
    let outcome = server.explain_what("elsewhere", &["trafficwatch", "web", "-n", "default"]);
    expect(&outcome, 1, &["there is one in namespace shop: -n shop"]);
    server.set(&format!("{GROUP}/swarms"), 200, list);
    let outcome = server.explain_what("another", &["swarm", "s", "-n", "default"]);
    expect(&outcome, 1, &["there is no Swarm \"s\" in namespace \"default\"; there are shop/web"]);
    let path = format!("{GROUP}/routereflectorsets/rrs");
    server.set(&path, 403, refusal(403, "Forbidden", "you may not"));
    let outcome = server.explain_what("refused", &["routereflectorset", "rrs"]);
    expect(&outcome, 1, &["explain routereflectorset rrs: get RouteReflectorSet: you may not"]);
}
