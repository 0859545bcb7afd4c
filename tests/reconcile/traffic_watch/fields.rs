//! Every field of the spec works as documented.
use serde_json::{Value, json};

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, three_nodes},
};

#[test]
fn the_direction_decides_which_load_counts() {
    run(async |bench| {
        three_nodes(&bench).await;
        for (node, sends, receives) in
            [("node-1", "99", "1"), ("node-2", "1", "99"), ("node-3", "1", "1")]
        {
            bench.prometheus.set(node, Sample::percent(sends));
            bench.prometheus.receives(node, receives);
        }
        let all = json!({"maxUnfit": "100%"});
        let with = |direction: &str| {
            let mut spec = all.clone();
            spec["direction"] = direction.into();
            spec
        };
        for direction in ["Transmit", "Receive", "Busiest"] {
            bench.watch(&direction.to_lowercase(), with(direction)).await;
        }
        // Two of three are marked: more than the operator allows by default.
        let _operator = bench.operator_args(
            &["--prometheus-url", &bench.prometheus.url],
            &["--lease-duration", "5s", "--max-unfit", "100%"],
        );
        for (name, labels) in [
            ("transmit", ["true", "false", "false"]),
            ("receive", ["false", "true", "false"]),
            ("busiest", ["true", "true", "false"]),
        ] {
            let key = format!("{name}.traffic.example.com/unfit");
            for (node, label) in ["node-1", "node-2", "node-3"].into_iter().zip(labels) {
                bench.until_label(node, &key, Some(label)).await;
            }
        }
    });
}

#[test]
fn devices_and_window_are_what_is_asked() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({"devices": "bond[0-9]+", "window": "7s"})).await;
        let _operator = bench.operator();
        bench.judgments(1).await;
        let form = format!("http://form/?{}", bench.prometheus.requests()[0]);
        let form = reqwest::Url::parse(&form).expect("a form");
        let query = form.query_pairs().find(|(key, _)| key == "query").expect("a query").1;
        let selector = "device=~\"bond[0-9]+\",job=\"node-exporter\"";
        let asked = format!("rate(node_network_transmit_bytes_total{{{selector}}}[7000ms])");
        assert!(query.contains(&asked), "{query}");
        assert!(!query.contains("eth"), "{query}");
    });
}

#[test]
fn as_many_judgments_as_the_spec_says_must_agree() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({"consecutive": {"unfit": 6, "fit": 1}})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("false")).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        // One judgment may be in progress; four more are fewer than six.
        bench.judgments(5).await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("false"));
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.prometheus.set("node-2", Sample::percent("1"));
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

#[test]
fn the_node_is_fit_again_at_the_percent_of_the_threshold_that_the_spec_says() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.watch("web", json!({"recoverPercent": 50})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.prometheus.set("node-2", Sample::percent("31"));
        bench.judgments(4).await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        bench.prometheus.set("node-2", Sample::percent("30"));
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

#[test]
fn a_sample_older_than_the_spec_allows_is_no_evidence() {
    run(async |bench| {
        three_nodes(&bench).await;
        let old = Sample { age: Some("6"), ..Sample::percent("99") };
        bench.prometheus.set("node-2", old);
        bench.watch("strict", json!({"maxSampleAge": "5s"})).await;
        bench.watch("patient", json!({"maxSampleAge": "7s"})).await;
        let _operator = bench.operator();
        bench.until_label("node-2", "patient.traffic.example.com/unfit", Some("true")).await;
        let reason = ("/nodes/node-2/reason", json!("StaleSample"));
        bench.until("strict", &[("/nodes/node-2/state", json!("Unknown")), reason]).await;
        assert_eq!(bench.label("node-2", "strict.traffic.example.com/unfit").await, None);
    });
}

#[test]
fn a_preferred_placement_leaves_the_scheduler_the_choice() {
    run(async |bench| {
        three_nodes(&bench).await;
        let spec = json!({"deployment": deployment(), "placement": "Preferred"});
        bench.watch("web", spec).await;
        let _operator = bench.operator();
        let child =
            eventually("the Deployment", async || bench.deployments().get("web").await.ok()).await;
        let affinity = child.spec.and_then(|spec| spec.template.spec).and_then(|pod| pod.affinity);
        let affinity = serde_json::to_value(affinity).expect("affinity");
        assert_eq!(
            affinity["nodeAffinity"],
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": {"matchExpressions": [
                    {"key": KEY, "operator": "NotIn", "values": ["true"]}]},
            }]})
        );
        assert_eq!(affinity["podAffinity"], Value::Null);
    });
}
