//! `explain prober` and `explain pod`, with a simulated API server, operator and Prometheus.
use serde_json::{Value, json};

use crate::{
    explaining::{ApiServer, refusal},
    program::Outcome,
    prometheus::Prometheus,
};

const PROBERS: &str = "/apis/probes.bigmikes.io/v1alpha1";

fn prober() -> Value {
    json!({
        "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
        "metadata": {"name": "mesh", "namespace": "probing", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {}},
        "status": {"selected": 3, "injected": 2, "notInjected": [{"reason": "SharedProcesses", "count": 1}]},
    })
}

/// Sets up a `NetworkProber`, a pod that it may not touch, and one with an agent.
fn cluster() -> ApiServer {
    let server = ApiServer::start();
    server.set(&format!("{PROBERS}/namespaces/probing/networkprobers/mesh"), 200, prober());
    let list = json!({"apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProberList",
        "metadata": {}, "items": [prober()]});
    server.set(&format!("{PROBERS}/networkprobers"), 200, list);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
        "annotations": {"probes.bigmikes.io/allow": "probing/mesh"}}});
    server.set("/api/v1/namespaces/shop", 200, namespace);
    let pod = |name: &str, annotations: Value, more: Value| {
        let mut spec = json!({"nodeName": "node-1", "containers": [{"name": "app"}]});
        spec.as_object_mut().expect("spec").extend(more.as_object().expect("more").clone());
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop",
            "labels": {"app": "web"}, "annotations": annotations}, "spec": spec})
    };
    let shared = pod("shared", json!({}), json!({"shareProcessNamespace": true}));
    server.set("/api/v1/namespaces/shop/pods/shared", 200, shared);
    let agent = json!({"initContainers": [{"name": "net-prober", "restartPolicy": "Always",
        "ports": [{"name": "np-ping", "containerPort": 8080}]}]});
    let by = json!({"probes.bigmikes.io/injected-by": "probing/mesh"});
    server.set("/api/v1/namespaces/shop/pods/web-1", 200, pod("web-1", by, agent));
    server
}

/// Sets up the recorded values of the rules of `probing/mesh`: node-2 is bad.
fn prometheus() -> Prometheus {
    let prometheus = Prometheus::start();
    let node = |figure: &str, node: &str| json!({"figure": figure, "node": node});
    let pair = |figure: &str, from: &str, to: &str| json!({"figure": figure, "src_node": from, "src_zone": "a", "dst_node": to, "dst_zone": "b"});
    prometheus.answer(
        "netprober:node_loss:ratio5m{prober=\"probing/mesh\"}",
        vec![
            (node("node_loss", "node-1"), 0.0),
            (node("node_loss", "node-2"), 0.19),
            (pair("pair_loss", "node-1", "node-2"), 0.2),
            (pair("also_p99", "node-1", "node-2"), 0.012),
            (json!({"figure": "scraped"}), 2.0),
        ],
    );
    prometheus.answer(
        "netprober:pair_loss:ratio5m{prober=\"probing/mesh\"}",
        vec![(pair("pair_loss", "node-1", "node-2"), 0.2)],
    );
    prometheus.answer(
        "netprober_pinglist_age_seconds{job=\"probing/mesh\", namespace=\"shop\", pod=\"web-1\"}",
        vec![
            (json!({"figure": "list_age"}), 7.0),
            (json!({"figure": "peers"}), 1.0),
            (json!({"figure": "probes", "protocol": "udp", "result": "failure", "reason": "timeout"}), 6.0),
        ],
    );
    prometheus
}

fn expect(outcome: &Outcome, all: &[&str]) {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for expected in all {
        assert!(outcome.out.contains(expected), "{expected} is not in\n{}", outcome.out);
    }
}

#[test]
fn a_prober_is_explained_by_its_status_and_a_prometheus() {
    let (server, prometheus) = (cluster(), prometheus());
    let what = ["prober", "mesh", "-n", "probing", "--prometheus-url", &prometheus.url];
    let outcome = server.explain_what("prober", &what);
    expect(
        &outcome,
        &[
            "probing/mesh (mode Sidecar, HTTP every 10s): 2 of 3 selected pods have an agent",
            "1 SharedProcesses: its containers share their processes",
            "node-2  b     19 %  -",
            "node-1  node-2  20 %  12 ms  node-2",
            "most paths of node-2 are bad",
            "the operator was not asked",
        ],
    );
    let outcome = server.explain_what("prober-json", &[&what[..], &["-o", "json"]].concat());
    let json: Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(json["measured"]["figures"]["worst"][0]["blame"], "To");
    assert_eq!(json["notInjected"][0]["reason"], "SharedProcesses");
}

/// The operator answers everything, and is the only one to query Prometheus.
#[test]
fn a_pod_is_explained_by_the_operator() {
    let server = cluster();
    let view = json!({"namespace": "probing", "name": "mesh", "problem": null, "mode": "Sidecar",
        "periodSeconds": 10.0, "timeoutSeconds": 1.0, "probes": ["HTTP"], "image": "i", "listed": true, "selected": 3, "injected": 2,
        "needRestart": 0, "notInjected": [], "failing": null, "paused": [], "members": 2, "nodes": 2,
        "agents": [], "estimatedSeries": 1, "measured": null});
    let overview = json!({"identity": "op-1", "version": "0.1.0", "now": "2026-01-01T00:00:00Z",
        "synced": true, "probers": [view]});
    server.set("/api/v1/networkprobers", 200, overview);
    let pod = json!({"prober": "probing/mesh", "takesPart": true, "problem": null,
        "peers": [{"namespace": "shop", "name": "web-2", "node": "node-2", "zone": "b"}],
        "agent": {"listAge": 7.0, "peers": 1, "probes": [{"protocol": "http", "result": "success",
            "reason": "", "count": 30.0}], "skipped": {}}});
    server.set("/api/v1/networkprobers/pods/shop/web-1", 200, pod);
    let outcome =
        server.explain_what("pod", &["pod", "web-1", "-n", "shop", "--operator-url", &server.url]);
    expect(
        &outcome,
        &[
            "shop/web-1 on node-1 has an agent of probing/mesh",
            "probes       1 pod on 1 nodes: node-2 1",
            "list         confirmed 7 s ago, 1 peers",
            "results      http success: 30 in five minutes",
            "From the operator, op-1 (version 0.1.0), just now",
        ],
    );
}

/// Which pods would get an agent, before the object is created.
#[test]
fn a_prober_in_a_file_is_planned_by_reading_only() {
    let server = cluster();
    let list = |kind: &str, items: Vec<Value>| json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": items});
    let namespace = |name: &str| json!({"metadata": {"name": name, "annotations": {"probes.bigmikes.io/allow": "probing/new"}}});
    server.set(
        "/api/v1/namespaces",
        200,
        list("Namespace", vec![namespace("shop"), namespace("kube-system")]),
    );
    server.set("/api/v1/nodes", 200, list("Node", vec![json!({"metadata": {"name": "node-1"}})]));
    let pod = |name: &str, spec: Value| {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "db"}},
            "spec": spec, "status": {"phase": "Running"}})
    };
    let bare = pod("db-0", json!({"containers": [{"name": "app"}]}));
    let host = pod("host", json!({"hostNetwork": true, "containers": [{"name": "app"}]}));
    server.set("/api/v1/namespaces/shop/pods", 200, list("Pod", vec![bare, host]));
    for (path, kind) in [("limitranges", "LimitRange"), ("resourcequotas", "ResourceQuota")] {
        server.set(&format!("/api/v1/namespaces/shop/{path}"), 200, list(kind, vec![]));
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("planned-prober.yaml");
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n\
                apiVersion: probes.bigmikes.io/v1alpha1\nkind: NetworkProber\n\
                metadata: {name: new, namespace: probing}\n\
                spec: {podSelector: {matchLabels: {app: db}}, namespaceSelector: {}}\n";
    std::fs::write(&file, text).expect("file");
    let what = ["plan", "-f", file.to_str().expect("path")];
    expect(
        &server.run("plan-file", &what),
        &[
            "NetworkProber probing/new: 1 of 2 selected pods would have an agent",
            "1 get one when they are restarted",
            "1 get none, HostNetwork: it uses the network of its node",
            "Namespaces with agents: shop",
            "not kube-system: it is never selected",
        ],
    );
    let outcome = server.run("plan-json", &[&what[..], &["-o", "json"]].concat());
    let json: Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(json["networkProbers"][0]["afterRestart"], 1);
    assert!(server.asked().iter().all(|(method, _)| method == "GET"), "{:?}", server.asked());
    std::fs::write(&file, "apiVersion: v1\nkind: Pod\n").expect("file");
    let outcome = server.run("plan-nothing", &what);
    assert!(outcome.err.contains("there is no document of the kinds TrafficWatch"), "{outcome:?}");
}

#[test]
fn a_missing_object_or_an_invalid_name_is_reported() {
    let server = cluster();
    for (what, expected) in [
        (&["prober", "mesh", "-n", "shop"][..], "there is one in namespace probing: -n probing"),
        (&["prober", "Mesh"], "must be a name"),
        (&["prober", "mesh?x=y", "-n", "a"], "must be a name"),
        (&["pod", "web-9", "-n", "shop"], "there is no pod \"web-9\" in namespace \"shop\""),
        (&["pod", "web-1", "-n", "../x"], "must be a name"),
        (&["pod", "web-1", "--prometheus-url", "ftp://x"], "must begin with http"),
    ] {
        let outcome = server.explain_what("absent", what);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.err.contains(expected), "{what:?}: {outcome:?}");
    }
    server.set(&format!("{PROBERS}/networkprobers"), 403, refusal(403, "Forbidden", "you may not"));
    let outcome = server.explain_what("forbidden", &["pod", "web-1", "-n", "shop"]);
    assert!(outcome.err.contains("list NetworkProbers: you may not"), "{outcome:?}");
}
