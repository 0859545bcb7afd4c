//! Sizes: the longest names and the largest objects. The tests of the plan have 10,000 nodes.
use kube::api::DeleteParams;
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
