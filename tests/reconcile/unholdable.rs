//! Values that the API server accepts and a client library may not hold: whoever may write one
//! object must not keep the others from being read.
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use serde_json::{Value, json};
use traffic_operator::manifests::NAMESPACE;

use crate::{
    bench::{Bench, Operator, eventually, run},
    network_prober::selector,
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, three_nodes},
};

/// Kubernetes reads it; in the time type of the client library it is a day too late.
const NEVER: &str = "9999-12-31T23:59:59Z";

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches/web";
const SWARM: &str = "/apis/traffic.example.com/v1alpha1/namespaces/default/swarms/load";
const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/traffic-operator";

fn apps(path: &str) -> String {
    format!("/apis/apps/v1/namespaces/default/{path}")
}

fn lease() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/traffic-operator")
}

/// A request whose answer the test's own client need not hold.
async fn send(bench: &Bench, method: &str, path: &str, body: &Value) -> Value {
    let sent = try_send(bench, method, path, body).await;
    sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

async fn try_send(bench: &Bench, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", "application/merge-patch+json")
        .body(if method == "PATCH" { body.to_string().into_bytes() } else { vec![] })
        .expect("request");
    bench.client.request(request).await
}

async fn merge(bench: &Bench, path: &str, patch: &Value) {
    send(bench, "PATCH", path, patch).await;
}

async fn read(bench: &Bench, path: &str) -> Value {
    send(bench, "GET", path, &Value::Null).await
}

/// Every time of these objects that somebody else may set.
async fn set_every_time(bench: &Bench) {
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": "R", "message": "",
            "lastTransitionTime": NEVER,
        })
    };
    for node in ["node-1", "node-2", "node-3"] {
        let path = format!("/api/v1/nodes/{node}");
        let taint = json!({"key": "a", "effect": "PreferNoSchedule", "timeAdded": NEVER});
        merge(bench, &path, &json!({"spec": {"taints": [taint]}})).await;
        let mut ready = condition("Ready", "True");
        ready["lastHeartbeatTime"] = NEVER.into();
        merge(bench, &format!("{path}/status"), &json!({"status": {"conditions": [ready]}})).await;
    }
    let state = json!({"running": {"startedAt": NEVER}});
    let last = json!({"terminated": {"exitCode": 1, "startedAt": NEVER, "finishedAt": NEVER}});
    let container = json!({
        "name": "worker", "image": "i", "imageID": "", "ready": true, "restartCount": i32::MAX,
        "state": state, "lastState": last,
    });
    let mut ready = condition("Ready", "True");
    ready["lastProbeTime"] = NEVER.into();
    let status = json!({
        "phase": "Running", "startTime": NEVER, "conditions": [ready],
        "containerStatuses": [container],
    });
    merge(bench, &format!("{PODS}/load-0/status"), &json!({"status": status})).await;
    let mut available = condition("Available", "True");
    available["lastUpdateTime"] = NEVER.into();
    for path in ["deployments/web", "statefulsets/load"] {
        merge(
            bench,
            &apps(&format!("{path}/status")),
            &json!({"status": {"conditions": [available]}}),
        )
        .await;
    }
    set_managed(bench, &NEVER.into()).await;
}

/// Sets the managed fields of every object that is read here.
async fn set_managed(bench: &Bench, time: &Value) {
    let managed = json!([{
        "manager": "somebody", "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {},
    }]);
    let maps = read(bench, MAPS).await;
    let maps = maps["items"].as_array().expect("ConfigMaps").iter();
    let maps =
        maps.map(|map| format!("{MAPS}/{}", map["metadata"]["name"].as_str().expect("name")));
    for path in [
        "/api/v1/nodes/node-1".to_owned(),
        "/api/v1/namespaces/default".to_owned(),
        format!("{PODS}/load-0"),
        apps("deployments/web"),
        apps("statefulsets/load"),
        WATCH.to_owned(),
        SWARM.to_owned(),
        WEBHOOKS.to_owned(),
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/traffic-operator-webhook"),
        lease(),
    ]
    .into_iter()
    .chain(maps)
    {
        merge(bench, &path, &json!({"metadata": {"managedFields": managed}})).await;
    }
}

/// Waits until the value at a pointer of an object is this one.
async fn until(bench: &Bench, path: &str, pointer: &str, expected: Value) {
    let holds = async || {
        let object = try_send(bench, "GET", path, &Value::Null).await.ok()?;
        (object.pointer(pointer) == Some(&expected)).then_some(())
    };
    eventually(&format!("{pointer} = {expected} in {path}"), holds).await;
}

/// Every part of the operator acts on what happens now.
async fn acts(bench: &Bench, operator: &Operator, round: u32, busy: &str, free: &str) {
    operator.ready().await;
    bench.prometheus.set(free, Sample::percent("10"));
    bench.prometheus.set(busy, Sample::percent("90"));
    let label = format!("/metadata/labels/{}", KEY.replace('/', "~1"));
    until(bench, &format!("/api/v1/nodes/{busy}"), &label, json!("true")).await;
    until(bench, &format!("/api/v1/nodes/{free}"), &label, json!("false")).await;
    // A Deployment that somebody scales is scaled back.
    merge(bench, &apps("deployments/web"), &json!({"spec": {"replicas": 7}})).await;
    until(bench, &apps("deployments/web"), "/spec/replicas", json!(2)).await;
    merge(bench, SWARM, &json!({"spec": {"jobs": [format!("stream:{round}")]}})).await;
    let generation = read(bench, SWARM).await["metadata"]["generation"].clone();
    until(bench, SWARM, "/status/observedGeneration", generation).await;
    let name = format!("mesh-{round}");
    bench.prober(&name, selector()).await;
    let entry = format!("{name}.default.probes.bigmikes.io");
    let entered = async || {
        let object = read(bench, WEBHOOKS).await;
        object["webhooks"].as_array()?.iter().any(|e| e["name"] == *entry).then_some(())
    };
    eventually("the entry of a NetworkProber", entered).await;
}

/// Gives the Lease to a holder that does not exist, for ever.
async fn take_lease(bench: &Bench) {
    let never = NEVER.replace('Z', ".000000Z");
    let spec = json!({
        "holderIdentity": "nobody", "acquireTime": never, "renewTime": never,
        "leaseDurationSeconds": 5,
    });
    merge(bench, &lease(), &json!({"spec": spec})).await;
}

async fn heal(bench: &Bench) {
    set_managed(bench, &"2026-01-01T00:00:00Z".into()).await;
    for path in ["/api/v1/nodes", &lease()] {
        send(bench, "DELETE", path, &Value::Null).await;
    }
    send(bench, "DELETE", &format!("{PODS}/load-0?gracePeriodSeconds=0"), &Value::Null).await;
    for path in ["deployments", "statefulsets"] {
        let path = format!("{}?propagationPolicy=Background", apps(path));
        send(bench, "DELETE", &path, &Value::Null).await;
    }
}

/// The values stand while the operator runs, when it starts, and in the Lease that it takes over.
#[test]
fn times_that_cannot_be_held_keep_nobody_from_acting() {
    run(async |bench| {
        three_nodes(&bench).await;
        let mut two = deployment();
        two["replicas"] = 2.into();
        bench.watch("web", json!({"deployment": two, "maxUnfit": 1})).await;
        let template = json!({
            "metadata": {"labels": {"app": "load"}},
            "spec": {"containers": [{"name": "worker", "image": "i"}]},
        });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "load"},
            "spec": {
                "replicas": 1, "serviceName": "load", "template": template,
                "selector": {"matchLabels": {"app": "load"}},
            },
        });
        let swarm = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
            "metadata": {"name": "load"},
            "spec": {"workload": {"name": "load"}, "jobs": ["stream:0"]},
        });
        for (object, path) in [(set, apps("statefulsets/load")), (swarm, SWARM.to_owned())] {
            let path = format!("{path}?fieldManager=test&force=true");
            let request = http::Request::patch(path)
                .header("Content-Type", "application/apply-patch+yaml")
                .body(object.to_string().into_bytes())
                .expect("request");
            bench.client.request::<Value>(request).await.expect("applied");
        }
        eventually("the pod", async || {
            let pods = read(&bench, PODS).await;
            pods["items"]
                .as_array()?
                .iter()
                .any(|pod| pod["metadata"]["name"] == "load-0")
                .then_some(())
        })
        .await;
        let operator = bench.operator();
        operator.ready().await;
        until(&bench, &apps("deployments/web"), "/spec/replicas", json!(2)).await;
        until(&bench, SWARM, "/status/observedGeneration", json!(1)).await;
        let acting = async {
            set_every_time(&bench).await;
            acts(&bench, &operator, 1, "node-2", "node-1").await;
            operator.signal("KILL");
            set_every_time(&bench).await;
            take_lease(&bench).await;
            let operator = bench.operator_with("operator-2", "15s");
            acts(&bench, &operator, 2, "node-3", "node-2").await;
            let log = operator.log();
            assert!(!log.contains("cannot be read"), "{log}");
        };
        let outcome = AssertUnwindSafe(acting).catch_unwind().await;
        heal(&bench).await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
}
