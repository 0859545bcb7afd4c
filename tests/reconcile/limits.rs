//! Sizes: the longest names and the largest objects. The tests of the plan have 10,000 nodes.
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{deployment, with_three_nodes},
};

/// The longest name of an object, and the longest prefix of a label key.
const LONGEST: usize = 253;

/// The longest prefix that leaves room for `.traffic.example.com`.
const LONGEST_LABEL: usize = 233;

const LONGEST_QUERY: usize = 16_384;

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
    with_three_nodes(async |bench| {
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
    with_three_nodes(async |bench| {
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
    with_three_nodes(async |bench| {
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
