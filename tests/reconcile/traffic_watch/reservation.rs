//! Bandwidth as a resource that the scheduler counts: whole passes, to the status of nodes.
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, Operator, eventually, eventually_or, run},
    prometheus::Sample,
    traffic_watch::judging::KEY,
};

const NAME: &str = "traffic.example.com/egress-mbps";

/// Sets the load of a node, in bytes per second.
fn load(bench: &Bench, node: &str, bytes: &'static str) {
    bench.prometheus.set(node, Sample { percent: None, bytes: Some(bytes), age: Some("1") });
}

/// Three nodes with a load of 100 Mbit/s each.
async fn three_nodes(bench: &Bench) {
    let pods = pods(bench);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for pod in ["client", "other"] {
        // Left by a test that failed.
        let _ = pods.delete(pod, &now).await;
    }
    for node in ["node-1", "node-2", "node-3"] {
        bench.node(node).await;
        load(bench, node, "12500000");
    }
}

/// A limit of 600 Mbit/s, of which a step is 30. New requests count as settled after 6 s.
fn spec(more: &Value) -> Value {
    let mut spec = json!({
        "capacity": "1G", "maxSampleAge": "2s", "reservation": {"resource": NAME, "reserve": "0%"},
    });
    json_patch::merge(&mut spec, more);
    spec
}

fn pods(bench: &Bench) -> Api<Pod> {
    Api::namespaced(bench.client.clone(), "default")
}

/// Creates a pod that runs on a node and requests this amount.
async fn pod(bench: &Bench, name: &str, node: &str, amount: &str) {
    let resources = json!({"requests": {NAME: amount}, "limits": {NAME: amount}});
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "busybox:1.35", "resources": resources}]},
    });
    let pod = serde_json::from_value(pod).expect("pod");
    pods(bench).create(&PostParams::default(), &pod).await.expect("create pod");
}

async fn end(bench: &Bench, name: &str) {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(bench).delete(name, &now).await.expect("delete pod");
}

/// The offer of a node: its capacity of a resource, and the allocatable amount.
fn offer(node: &Node, name: &str) -> [Option<String>; 2] {
    let status = node.status.clone().unwrap_or_default();
    [status.capacity, status.allocatable]
        .map(|all| all.unwrap_or_default().get(name).map(|quantity| quantity.0.clone()))
}

async fn until_offer_of(bench: &Bench, name: &str, node: &str, amount: Option<&str>) {
    let expected = [(); 2].map(|()| amount.map(str::to_owned));
    let now = async || offer(&bench.nodes().get(node).await.expect("node"), name);
    let holds = async || (now().await == expected).then_some(());
    let what = format!("{node} to offer {amount:?} of {name}");
    eventually_or(&what, holds, async || format!("{:?}", now().await)).await;
}

async fn until_offer(bench: &Bench, node: &str, amount: Option<&str>) {
    until_offer_of(bench, NAME, node, amount).await;
}

/// An operator, the three nodes, and a pod that requests some of node-1.
async fn with_a_client(bench: &Bench) -> Operator {
    three_nodes(bench).await;
    pod(bench, "client", "node-1", "200").await;
    bench.watch("web", spec(&json!({}))).await;
    let operator = bench.operator();
    until_offer(bench, "node-2", Some("500")).await;
    // Its pod uses less than it requested: nothing foreign is left, once that has settled.
    until_offer(bench, "node-1", Some("600")).await;
    operator
}

/// The operator's writes to the status of nodes since then.
async fn writes(bench: &Bench, since: Timestamp) -> usize {
    let writes = bench.writes_since(since).await;
    writes.iter().filter(|w| w.resource == "nodes" && w.subresource == "status").count()
}

#[test]
fn nodes_offer_what_is_free_and_steady_load_writes_nothing() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", spec(&json!({}))).await;
        let operator = bench.operator();
        for node in ["node-1", "node-2", "node-3"] {
            until_offer(&bench, node, Some("500")).await;
        }
        bench.until_event("web", "ReservationBegun", NAME).await;
        bench.until("web", &[("/reservation/resource", json!(NAME))]).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        let family = "traffic_operator_trafficwatch_node_reservation_bits_per_second";
        let offered = operator.metric(family, &["node=\"node-1\"", "of=\"offered\""]).await;
        assert!((offered - 5e8).abs() < 1.0, "{offered}");
        let written = "traffic_operator_trafficwatch_reservation_writes_total";
        assert!((operator.metric(written, &["result=\"written\""]).await - 3.0).abs() < 0.5);
        // 20 Mbit/s up and down are less than a step.
        let since = Timestamp::now();
        for bytes in ["15000000", "10000000", "15000000"] {
            load(&bench, "node-1", bytes);
            bench.judgments(2).await;
        }
        assert_eq!(writes(&bench, since).await, 0);
        // Load that nobody declared, and its end.
        load(&bench, "node-1", "50000000");
        until_offer(&bench, "node-1", Some("200")).await;
        load(&bench, "node-1", "12500000");
        until_offer(&bench, "node-1", Some("500")).await;
        until_offer(&bench, "node-2", Some("500")).await;
    });
}

#[test]
fn a_device_class_that_takes_the_name_of_the_resource_is_reported() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.device_class(NAME).await;
        bench.watch("web", spec(&json!({}))).await;
        let _operator = bench.operator();
        let said = bench.condition("web", "Ready", "False", "DeviceClass").await;
        assert!(said.contains(NAME), "{said}");
    });
}

#[test]
fn a_node_never_offers_less_than_its_pods_request_and_an_unfit_one_no_more() {
    run(async |bench| {
        let _operator = with_a_client(&bench).await;
        load(&bench, "node-1", "125000000");
        bench.until_label("node-1", KEY, Some("true")).await;
        until_offer(&bench, "node-1", Some("200")).await;
        // Without evidence nothing moves.
        bench.prometheus.remove("node-1");
        bench.until("web", &[("/nodes/node-1/state", json!("Unknown"))]).await;
        let since = Timestamp::now();
        bench.judgments(3).await;
        assert_eq!(writes(&bench, since).await, 0);
        // What a new kubelet zeroes is restored at once: a pod would not be admitted again.
        let resources = json!({NAME: "0"});
        let zero = json!({"status": {"capacity": resources, "allocatable": resources}});
        let (params, zero) = (PatchParams::default(), Patch::Merge(zero));
        bench.nodes().patch_status("node-1", &params, &zero).await.expect("zero");
        until_offer(&bench, "node-1", Some("200")).await;
        end(&bench, "client").await;
    });
}

/// The pods of its own Deployment may request it, and end only after the object.
#[test]
fn a_deleted_object_takes_its_resource_away_and_names_the_pods_that_request_it() {
    run(async |bench| {
        let _operator = with_a_client(&bench).await;
        bench.watches("default").delete("web", &DeleteParams::default()).await.expect("delete");
        let gone = async || bench.watches("default").get("web").await.err();
        eventually("the object to go", gone).await;
        for node in ["node-1", "node-2", "node-3"] {
            until_offer(&bench, node, None).await;
            bench.until_label(node, KEY, None).await;
        }
        bench.until_event("web", "ReservationEnded", "pods on node-1 request it").await;
        end(&bench, "client").await;
    });
}

/// The younger one has had no pass since the older one left its resource to it.
#[test]
fn of_two_objects_that_are_deleted_together_none_leaves_its_resource() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("a-first", spec(&json!({}))).await;
        let once = json!({"fit": 1, "unfit": 1});
        let slow = json!({"label": "second", "interval": "1h", "consecutive": once});
        bench.watch("b-second", spec(&slow)).await;
        let _operator = bench.operator();
        until_offer(&bench, "node-1", Some("500")).await;
        bench.condition("b-second", "Ready", "False", "Conflict").await;
        bench.until_label("node-1", "second.traffic.example.com/unfit", Some("false")).await;
        let api = bench.watches("default");
        for name in ["a-first", "b-second"] {
            api.delete(name, &DeleteParams::default()).await.expect("delete");
            let gone = async || api.get(name).await.is_err().then_some(());
            eventually("the object to go", gone).await;
        }
        for node in ["node-1", "node-2", "node-3"] {
            until_offer(&bench, node, None).await;
        }
    });
}
