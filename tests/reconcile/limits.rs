//! Sizes: the longest names, the largest objects, thousands of nodes.
use futures::{StreamExt, stream};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{deployment, three_nodes},
};

/// The longest name of an object, and the longest prefix of a label key.
const LONGEST: usize = 253;

/// The longest prefix that leaves room for `.traffic.example.com`.
const LONGEST_LABEL: usize = 233;

const LONGEST_QUERY: usize = 16_384;

/// Nodes of a large cluster. (The tests of `plan` have 10,000 of them: creating and deleting that
/// many takes minutes.)
const MANY: usize = 3_000;

/// Concurrent requests.
const CONCURRENCY: usize = 64;

fn long(begin: &str, length: usize) -> String {
    format!("{begin}{}", "x".repeat(length - begin.len()))
}

#[test]
fn the_longest_names_of_nodes_objects_and_labels_are_served() {
    run(async |bench| {
        let nodes = ["a-", "b-", "c-"].map(|begin| long(begin, LONGEST));
        for node in &nodes {
            bench.node(node).await;
            bench.prometheus.set(node, Sample::percent("10"));
        }
        bench.prometheus.set(&nodes[1], Sample::percent("90"));
        let (name, label) = (long("w-", LONGEST), long("l-", LONGEST_LABEL));
        let criteria = json!([{"name": "m".repeat(63), "query": "loss", "max": 1}]);
        for node in &nodes {
            bench.prometheus.own("loss", node, "0");
        }
        let spec = json!({
            "label": label, "taint": "NoSchedule", "criteria": criteria, "deployment": deployment(),
        });
        bench.watch(&name, spec).await;
        // Without spec.label the name is the prefix.
        let named = long("n-", LONGEST_LABEL);
        bench.watch(&named, json!({})).await;
        let over = bench.watch_in("default", &long("n-", LONGEST_LABEL + 1), json!({})).await;
        let over = over.expect_err("too long").to_string();
        assert!(over.contains("set spec.label to a shorter one"), "{over}");
        let operator = bench.operator();
        let key = |prefix: &str| format!("{prefix}.traffic.example.com/unfit");
        assert_eq!(key(&label).split('/').next().map(str::len), Some(LONGEST));
        bench.until_label(&nodes[1], &key(&label), Some("true")).await;
        bench.until_label(&nodes[1], &key(&named), Some("true")).await;
        bench.until_label(&nodes[0], &key(&label), Some("false")).await;
        bench.condition(&name, "Ready", "True", "Judged").await;
        let child = async || bench.deployments().get_opt(&name).await.expect("get");
        eventually("the Deployment", child).await;
        let reported = async || {
            let events = bench.events(&name).await;
            events.into_iter().find(|(reason, _)| reason == "NodeUnfit")
        };
        let (_, note) = eventually("an event of the long name", reported).await;
        assert!(note.contains(&nodes[1]), "{note}");
        let watches = bench.watches("default");
        watches.delete(&name, &DeleteParams::default()).await.expect("delete");
        for node in &nodes {
            bench.until_label(node, &key(&label), None).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn text_of_every_alphabet_passes_through() {
    run(async |bench| {
        three_nodes(&bench).await;
        let query = "max by (node) (errors{zone=\"größte Zone – 東京 🚦\", x=~\"ß+|я\"}) # Ende ☕";
        for node in ["node-1", "node-2", "node-3"] {
            bench.prometheus.own(query, node, "5");
        }
        let annotations =
            json!({"traffic.example.com/capacity": "१०Ｇ", "größe": "kein Schlüssel"});
        let bad = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let params = PatchParams::default();
        // The API server refuses the second key, but accepts any value of the first.
        bench.nodes().patch("node-3", &params, &bad).await.expect_err("a bad key");
        let annotations = json!({"traffic.example.com/capacity": "१०Ｇ"});
        let bad = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        bench.nodes().patch("node-3", &params, &bad).await.expect("annotation");
        bench.watch("own", json!({"query": query, "window": null})).await;
        let criteria = json!([{"name": "loss", "query": query, "max": "5"}]);
        let mut template = deployment();
        template["template"]["metadata"]["annotations"] = json!({"note": "größte Zone 東京 🚦"});
        bench.watch("web", json!({"criteria": criteria, "deployment": template})).await;
        let operator = bench.operator();
        bench.condition("own", "Ready", "True", "Judged").await;
        bench.until("web", &[("/nodes/node-3/reason", json!("InvalidCapacity"))]).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        let child = async || bench.deployments().get_opt("web").await.expect("get");
        let child = eventually("the Deployment", child).await;
        let metadata = child.spec.and_then(|spec| spec.template.metadata);
        let note = metadata.and_then(|m| m.annotations?.remove("note"));
        assert_eq!(note.as_deref(), Some("größte Zone 東京 🚦"));
        assert!(
            operator.metric("traffic_operator_trafficwatch_nodes", &["name=\"own\""]).await > 2.5
        );
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn objects_as_large_as_the_api_server_takes_disturb_nobody() {
    run(async |bench| {
        three_nodes(&bench).await;
        let with = |size: usize, annotated: bool| {
            let (mut spec, text) = (deployment(), "x".repeat(size));
            if annotated {
                spec["template"]["metadata"]["annotations"] = json!({"text": text});
            } else {
                spec["template"]["spec"]["containers"][0]["args"] = json!([text]);
            }
            json!({"deployment": spec})
        };
        bench.watch("web", json!({})).await;
        let operator = bench.operator();
        bench.condition("web", "Ready", "True", "Judged").await;
        // The store accepts 1.5 MiB, the API server reads 3.
        for size in [1_800_000, 4 << 20] {
            let refused = bench.watch_in("default", "huge", with(size, false)).await;
            let refused = refused.expect_err("too large").to_string();
            assert!(refused.contains("too large"), "{size}: {refused}");
        }
        bench.watch("annotated", with(1 << 20, true)).await;
        bench.watch("large", with(1 << 20, false)).await;
        let message = bench.condition("annotated", "Ready", "False", "InvalidSpec").await;
        assert!(message.starts_with("spec.deployment: "), "{message}");
        assert!(message.contains("annotations: Too long"), "{message}");
        assert!(message.len() < 4096, "{} bytes", message.len());
        bench.until_label("node-1", "annotated.traffic.example.com/unfit", Some("false")).await;
        bench.condition("large", "Ready", "True", "Judged").await;
        let child = async || bench.deployments().get_opt("large").await.expect("get");
        eventually("the Deployment", child).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        for name in ["web", "large", "annotated"] {
            let key = format!("{name}.traffic.example.com/unfit");
            bench.until_label("node-2", &key, Some("true")).await;
        }
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn a_query_of_16384_characters_is_asked_and_one_more_is_refused() {
    run(async |bench| {
        three_nodes(&bench).await;
        let query = |characters: usize| {
            let (begin, end) = ("max by (node) (x{y=\"", "\"})");
            format!("{begin}{}{end}", "é".repeat(characters - begin.len() - end.len()))
        };
        let most = query(LONGEST_QUERY);
        for node in ["node-1", "node-2", "node-3"] {
            bench.prometheus.own(&most, node, "5");
        }
        let own = |query: &str| json!({"query": query, "window": null});
        let refused = bench.watch_in("default", "chars", own(&query(LONGEST_QUERY + 1))).await;
        let refused = refused.expect_err("too long").to_string();
        assert!(refused.contains("spec.query: Too long: may not be more than 16384"), "{refused}");
        bench.watch("most", own(&most)).await;
        let operator = bench.operator();
        bench.condition("most", "Ready", "True", "Judged").await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

#[test]
fn thousands_of_nodes_are_judged_and_a_hundred_listed() {
    run(async |bench| {
        many_nodes(&bench).await;
        // Half may be marked: five of the six busy nodes in ten. Labels are tested elsewhere.
        bench
            .watch(
                "web",
                json!({"mode": "Observe", "interval": "5s", "consecutive": {"unfit": 1, "fit": 1}}),
            )
            .await;
        let operator = bench.operator_with("operator-1", "15s");
        let summary = json!({"nodes": MANY, "fit": MANY * 2 / 5, "unfit": MANY / 2, "unknown": 0,
                             "suppressed": MANY / 10, "marked": MANY / 2});
        let status = bench.until("web", &[("/summary", summary), ("/ready", json!(true))]).await;
        assert_eq!(status["nodesTruncated"], true);
        let nodes = status["nodes"].as_object().expect("nodes");
        assert_eq!(nodes.len(), 100);
        assert!(nodes.values().all(|node| node["state"] == "Unfit"), "{status}");
        // A name alone takes 253 bytes.
        let size = status.to_string().len();
        assert!(size < 64 << 10, "the status has {size} bytes");
        bench.condition("web", "Ready", "True", "Judged").await;
        bench.condition("web", "MetricsAvailable", "True", "Available").await;
        let message = bench.condition("web", "PlacementLimited", "True", "LimitReached").await;
        assert!(message.contains(&format!("at most {} of {MANY}", MANY / 2)), "{message}");
        bench.until_event("web", "NodeUnfit", "more nodes at the same time").await;
        assert_eq!(operator.terminate().await, Some(0));
        // Deleting them one by one would take the next test's cleanup a minute.
        let (nodes, now) = (bench.nodes(), DeleteParams::default());
        let deletions = (0..MANY).map(async |i| nodes.delete(&node_name(i), &now).await.is_ok());
        stream::iter(deletions).buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await;
    });
}

/// Nodes with the longest names, six of ten of them busy.
async fn many_nodes(bench: &Bench) {
    let nodes: Api<Node> = bench.nodes();
    let now = Timestamp::now().to_string();
    let creations = (0..MANY).map(|i| {
        let name = node_name(i);
        let percent = if i % 10 < 6 { "90" } else { "10" };
        bench.prometheus.set(&name, Sample::percent(percent));
        let labels = json!({"kubernetes.io/os": "linux"});
        // Ready from the start, as a kubelet registers it: the controller-manager marks a node that
        // does not report for a minute, and creating all of them may take longer.
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now,
                           "lastTransitionTime": now});
        let node: Value = json!({"metadata": {"name": &name, "labels": labels},
                                 "status": {"conditions": [ready]}});
        let nodes = nodes.clone();
        async move {
            let node = serde_json::from_value(node).expect("node");
            nodes.create(&PostParams::default(), &node).await.expect("create node");
            // The API server taints each new node until its kubelet reports Ready.
            let open = Patch::Merge(json!({"spec": {"taints": null}}));
            nodes.patch(&name, &PatchParams::default(), &open).await.expect("untaint");
        }
    });
    stream::iter(creations).buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await;
}

fn node_name(i: usize) -> String {
    long(&format!("node-{i:05}-"), LONGEST)
}
