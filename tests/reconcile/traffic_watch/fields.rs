//! Every field of the spec works as documented.
use std::collections::BTreeSet;

use kube::CustomResourceExt;
use serde_json::{Value, json};
use traffic_operator::api::TrafficWatch;

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, three_nodes},
};

/// Each field, and the scenario that fails if the field is ignored: file and function.
const SCENARIOS: &[(&str, &str, &str)] = &[
    (
        "capacity",
        "traffic_watch/judging",
        "capacity_of_the_annotation_then_of_the_spec_replaces_the_link_speed",
    ),
    ("consecutive", "traffic_watch/fields", "as_many_judgments_as_the_spec_says_must_agree"),
    (
        "criteria",
        "traffic_watch/policies",
        "a_query_of_the_authors_replaces_the_built_in_one_and_criteria_stand_beside_it",
    ),
    (
        "deployment",
        "traffic_watch/judging",
        "a_loaded_node_is_marked_and_unmarked_and_the_deployment_waits_for_the_first_judgment",
    ),
    ("devices", "traffic_watch/fields", "devices_and_window_are_what_is_asked"),
    ("direction", "traffic_watch/fields", "the_direction_decides_which_load_counts"),
    (
        "eviction",
        "traffic_watch/evicting",
        "pods_leave_a_node_that_stays_unfit_one_at_a_time_and_budgets_hold",
    ),
    (
        "interval",
        "traffic_watch/judging",
        "twenty_watches_that_share_a_measurement_cost_one_request_and_no_write_when_nothing_changes",
    ),
    ("label", "lifecycle", "labels_go_with_the_object_and_follow_a_new_name"),
    (
        "maxBandwidth",
        "traffic_watch/policies",
        "an_absolute_threshold_marks_by_bits_per_second_without_any_link_speed",
    ),
    (
        "maxBandwidthPercent",
        "traffic_watch/judging",
        "a_loaded_node_is_marked_and_unmarked_and_the_deployment_waits_for_the_first_judgment",
    ),
    ("maxSampleAge", "traffic_watch/fields", "a_sample_older_than_the_spec_allows_is_no_evidence"),
    ("maxUnfit", "traffic_watch/policies", "the_limits_of_the_spec_decide_how_many_are_marked"),
    ("minFit", "traffic_watch/policies", "the_limits_of_the_spec_decide_how_many_are_marked"),
    ("mode", "traffic_watch/judging", "observe_writes_nothing_but_its_status"),
    (
        "nodeSelector",
        "lifecycle",
        "a_node_that_leaves_the_selection_loses_the_label_and_an_empty_selection_freezes",
    ),
    (
        "onUnknown",
        "traffic_watch/policies",
        "what_happens_to_a_node_without_evidence_is_the_authors_choice",
    ),
    ("paused", "traffic_watch/judging", "paused_asks_nothing_and_writes_nothing"),
    ("placement", "traffic_watch/fields", "a_preferred_placement_leaves_the_scheduler_the_choice"),
    ("prometheus", "traffic_watch/policies", "each_object_asks_the_endpoint_that_it_names"),
    (
        "query",
        "traffic_watch/policies",
        "a_query_of_the_authors_replaces_the_built_in_one_and_criteria_stand_beside_it",
    ),
    (
        "recoverPercent",
        "traffic_watch/fields",
        "the_node_is_fit_again_at_the_percent_of_the_threshold_that_the_spec_says",
    ),
    (
        "reservation",
        "traffic_watch/reservation",
        "nodes_offer_what_is_free_and_steady_load_writes_nothing",
    ),
    (
        "taint",
        "traffic_watch/policies",
        "a_taint_comes_and_goes_with_the_label_and_leaves_the_taints_of_others",
    ),
    ("window", "traffic_watch/fields", "devices_and_window_are_what_is_asked"),
];

#[test]
fn every_field_of_the_spec_has_its_scenario() {
    let crd = serde_json::to_value(TrafficWatch::crd()).expect("definition");
    let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let fields = properties["spec"]["properties"].as_object().expect("fields");
    let fields: BTreeSet<_> = fields.keys().map(String::as_str).collect();
    let named: BTreeSet<_> = SCENARIOS.iter().map(|(field, ..)| *field).collect();
    assert_eq!(named, fields);
    for (field, file, function) in SCENARIOS {
        let path = format!("tests/reconcile/{file}.rs");
        assert!(lab::proof::has_test(&path, function), "{field}: {path} has no {function}");
    }
}

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
