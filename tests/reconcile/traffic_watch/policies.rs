//! The policies of a spec, each by its writes and by what it leaves alone.
use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::controller::disruptions;

use crate::{
    bench::{Bench, Operator, eventually, run},
    prometheus::{Prometheus, Sample},
    traffic_watch::judging::{KEY, deployment, patch_spec, three_nodes},
};

const SLOT: &str = "route-reflectors.traffic.example.com/slot";

#[test]
fn an_absolute_threshold_marks_by_bits_per_second_without_any_link_speed() {
    run(async |bench| {
        three_nodes(&bench).await;
        let busy = Sample { percent: None, bytes: Some("101000000"), age: Some("1") };
        bench.prometheus.set("node-2", busy);
        bench.watch("web", json!({"maxBandwidthPercent": null, "maxBandwidth": "800M"})).await;
        let operator = bench.operator();
        bench.until_label("node-2", KEY, Some("true")).await;
        let status = bench.until("web", &[("/max", json!("800M"))]).await;
        assert_eq!(status["nodes"]["node-2"]["criteria"][0]["value"], "8.08e+08");
        bench.until_event("web", "NodeUnfit", "uses 808 Mbit/s, above 800M").await;
        let labels = ["node=\"node-2\"", "criterion=\"bandwidth\"", "unit=\"bits_per_second\""];
        let value = operator.metric("traffic_operator_trafficwatch_node_value", &labels).await;
        assert!((value - 808e6).abs() < 1.0, "{value}");
        // 90 Mbyte/s are 720 Mbit/s: 90 % of the threshold.
        let calm = Sample { percent: None, bytes: Some("90000000"), age: Some("1") };
        bench.prometheus.set("node-2", calm);
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

#[test]
fn a_query_of_the_authors_replaces_the_built_in_one_and_criteria_stand_beside_it() {
    run(async |bench| {
        three_nodes(&bench).await;
        for node in ["node-1", "node-2", "node-3"] {
            bench.prometheus.own("my_load", node, "10");
            bench.prometheus.own("sum by (node) (loss)", node, "0.001");
        }
        let criteria = json!([{"name": "loss", "query": "sum by (node) (loss)", "max": "0.01"}]);
        let spec = json!({"query": "my_load", "window": null, "criteria": criteria});
        bench.watch("web", spec).await;
        let operator = bench.operator();
        bench.until("web", &[("/ready", json!(true)), ("/max", json!("60 %, loss 0.01"))]).await;
        let queries = bench.prometheus.requests().join("\n");
        assert!(!queries.contains("node_network"), "{queries}");
        bench.prometheus.own("my_load", "node-1", "61");
        bench.until_label("node-1", KEY, Some("true")).await;
        bench.until("web", &[("/nodes/node-1/reason", json!("bandwidth"))]).await;
        bench.prometheus.own("my_load", "node-1", "10");
        bench.until_label("node-1", KEY, Some("false")).await;
        bench.prometheus.own("sum by (node) (loss)", "node-3", "0.02");
        bench.until_label("node-3", KEY, Some("true")).await;
        bench.until("web", &[("/nodes/node-3/reason", json!("loss"))]).await;
        bench.until_event("web", "NodeUnfit", "has loss 0.02, above 0.01").await;
        let message = bench.condition("web", "MetricsAvailable", "True", "Available").await;
        assert!(message.contains("the age of the samples of custom queries"), "{message}");
        let value = operator
            .metric("traffic_operator_trafficwatch_node_value", &["criterion=\"loss\"", "node-3"])
            .await;
        assert!((value - 0.02).abs() < 1e-9, "{value}");
        // A restart knows which measure said unfit.
        drop(operator);
        bench.prometheus.own("sum by (node) (loss)", "node-3", "0.0095");
        let operator = bench.operator_with("operator-2", "5s");
        operator.ready().await;
        bench.judgments(8).await;
        assert_eq!(bench.label("node-3", KEY).await.as_deref(), Some("true"));
    });
}

#[test]
fn the_limits_of_the_spec_decide_how_many_are_marked() {
    run(async |bench| {
        three_nodes(&bench).await;
        for (node, percent) in [("node-1", "97"), ("node-2", "99"), ("node-3", "98")] {
            bench.prometheus.set(node, Sample::percent(percent));
        }
        bench.watch("web", json!({"maxUnfit": "100%", "minFit": 1})).await;
        // All nodes are marked in the end: more than the operator allows by default.
        let operator = bench.operator_args(
            &["--prometheus-url", &bench.prometheus.url],
            &["--lease-duration", "5s", "--max-unfit", "100%"],
        );
        let summary = |unfit, suppressed| json!({"nodes": 3, "fit": 0, "unfit": unfit, "unknown": 0, "suppressed": suppressed});
        bench.until("web", &[("/summary", summary(2, 1))]).await;
        bench.until_label("node-1", KEY, Some("false")).await;
        let message = bench.condition("web", "PlacementLimited", "True", "LimitReached").await;
        assert!(message.contains("at most 2 of 3"), "{message}");
        let limit = operator.metric("traffic_operator_trafficwatch_limit", &[]).await;
        assert!((limit - 2.0).abs() < f64::EPSILON);
        patch_spec(&bench, "web", json!({"minFit": 0})).await;
        bench.until("web", &[("/summary", summary(3, 0))]).await;
        bench.condition("web", "PlacementLimited", "False", "WithinLimits").await;
        // A lower limit removes no mark.
        patch_spec(&bench, "web", json!({"maxUnfit": 1})).await;
        bench.judgments(3).await;
        assert_eq!(bench.label("node-1", KEY).await.as_deref(), Some("true"));
    });
}

#[test]
fn what_happens_to_a_node_without_evidence_is_the_authors_choice() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        for action in ["Hold", "Fit", "RemoveLabel", "Unfit"] {
            let spec = json!({"onUnknown": {"after": "3s", "action": action}});
            bench.watch(&action.to_lowercase(), spec).await;
        }
        let _operator = bench.operator();
        let key = |action: &str| format!("{action}.traffic.example.com/unfit");
        for action in ["hold", "fit", "removelabel", "unfit"] {
            bench.until_label("node-2", &key(action), Some("true")).await;
        }
        bench.prometheus.remove("node-2");
        bench.until_label("node-2", &key("fit"), Some("false")).await;
        bench.until_label("node-2", &key("removelabel"), None).await;
        for action in ["hold", "unfit"] {
            let status = bench.until(action, &[("/nodes/node-2/state", json!("Unknown"))]).await;
            assert_eq!(status["nodes"]["node-2"]["unfit"], true, "{action}");
        }
        bench.until_event("fit", "NodeUnknownExpired", "NoSample for 3s").await;
        let reported = bench.events("hold").await;
        assert!(reported.iter().all(|(reason, _)| reason != "NodeUnknownExpired"), "{reported:?}");
        bench.prometheus.set("node-2", Sample::percent("10"));
        for action in ["hold", "fit", "removelabel", "unfit"] {
            bench.until_label("node-2", &key(action), Some("false")).await;
        }
    });
}

async fn taints(bench: &Bench, node: &str) -> BTreeMap<String, String> {
    let node: Node = bench.nodes().get(node).await.expect("node");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
}

async fn until_taint(bench: &Bench, node: &str, effect: Option<&str>) {
    let what = format!("taint of {node}: {effect:?}");
    let holds =
        async || (taints(bench, node).await.get(KEY).map(String::as_str) == effect).then_some(());
    eventually(&what, holds).await;
}

#[test]
fn a_taint_comes_and_goes_with_the_label_and_leaves_the_taints_of_others() {
    run(async |bench| {
        three_nodes(&bench).await;
        let foreign =
            json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}});
        let params = PatchParams::default();
        bench.nodes().patch("node-2", &params, &Patch::Merge(foreign)).await.unwrap();
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.watch("web", json!({"taint": "PreferNoSchedule"})).await;
        let _operator = bench.operator();
        until_taint(&bench, "node-2", Some("PreferNoSchedule")).await;
        patch_spec(&bench, "web", json!({"taint": "NoSchedule"})).await;
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
        assert!(!taints(&bench, "node-1").await.contains_key(KEY));
        // Nothing is written while nothing changes.
        bench.judgments(2).await;
        let since = Timestamp::now();
        bench.judgments(4).await;
        let writes = bench.writes_since(since);
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        bench.prometheus.set("node-2", Sample::percent("10"));
        until_taint(&bench, "node-2", None).await;
        bench.prometheus.set("node-2", Sample::percent("99"));
        until_taint(&bench, "node-2", Some("NoSchedule")).await;
        // The taint is removed with the object.
        bench.watches("default").delete("web", &DeleteParams::default()).await.unwrap();
        until_taint(&bench, "node-2", None).await;
        bench.until_label("node-2", KEY, None).await;
        assert_eq!(taints(&bench, "node-2").await["team"], "NoSchedule");
    });
}

/// The right to patch nodes covers all of a node: the admission policy restricts it to our keys.
#[test]
fn the_operators_account_can_change_nothing_of_a_node_but_its_own_keys() {
    run(async |bench| {
        bench.node("node-1").await;
        let labels = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"taints": [
            {"key": "team", "value": "a", "effect": "NoSchedule"}]}});
        let params = PatchParams::default();
        bench.nodes().patch("node-1", &params, &Patch::Merge(labels)).await.unwrap();
        let nodes = Api::<Node>::all(bench.as_operator().await);
        // A policy takes a moment to come into force.
        let refused = async || {
            let patch = json!({"metadata": {"labels": {"team": "b"}}});
            nodes.patch("node-1", &params, &Patch::Merge(patch)).await.err()
        };
        let error = eventually("the policy to be in force", refused).await.to_string();
        assert!(error.contains("may change only node labels that end in"), "{error}");
        for (patch, text) in [
            (json!({"metadata": {"labels": {"team": null}}}), "only node labels"),
            (json!({"metadata": {"labels": {"a.example.com/unfit": "true"}}}), "only node labels"),
            (json!({"metadata": {"labels": {"calico-route-reflectors": ""}}}), "only node labels"),
            // Not even together with a slot, which the account may write.
            (json!({"metadata": {"labels": {"rr": "", SLOT: "0"}}}), "only node labels"),
            (json!({"metadata": {"annotations": {"a": "b"}}}), "only the node annotation"),
            (
                json!({"metadata": {"annotations": {"projectcalico.org/IPv4Address": "10.0.0.9/24"}}}),
                "only the node annotation",
            ),
            (json!({"spec": {"unschedulable": true}}), "nothing of a node"),
            (json!({"spec": {"taints": []}}), "only node taints"),
            (
                json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]}}),
                "only node taints",
            ),
        ] {
            let result = nodes.patch("node-1", &params, &Patch::Merge(&patch)).await;
            let error = result.expect_err("refused").to_string();
            assert!(error.contains(text), "{patch}: {error}");
        }
        let ours = json!({"metadata": {"labels": {KEY: "true"}}, "spec": {"taints": [
            {"key": "team", "value": "a", "effect": "NoSchedule"},
            {"key": KEY, "value": "true", "effect": "NoSchedule"}]}});
        nodes.patch("node-1", &params, &Patch::Merge(ours)).await.expect("our own keys");
        let reflector = |value: Option<&str>| {
            json!({"metadata": {
                "labels": {
                    "calico-route-reflector": value,
                    SLOT: value,
                    "route-reflectors.traffic.example.com/group": value,
                },
                "annotations": {"projectcalico.org/RouteReflectorClusterID": value},
            }})
        };
        for value in [Some("1"), Some("2"), None] {
            let patch = Patch::Merge(reflector(value));
            nodes.patch("node-1", &params, &patch).await.expect("a reflector's keys");
        }
        // Other users are not restricted.
        let other = json!({"metadata": {"labels": {"team": "c"}}});
        bench.nodes().patch("node-1", &params, &Patch::Merge(other)).await.expect("others");
    });
}

/// There are no kubelets here: pods are bound and made Ready by hand.
pub async fn bind_and_ready(bench: &Bench, node: &str, count: usize) -> Vec<Pod> {
    bind_and_ready_of(bench, "web", node, count).await
}

async fn bind_and_ready_of(bench: &Bench, app: &str, node: &str, count: usize) -> Vec<Pod> {
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    let there = async || {
        let params = ListParams::default().labels(&format!("app={app}"));
        let list = pods.list(&params).await.ok()?.items;
        let alive: Vec<_> =
            list.into_iter().filter(|p| p.metadata.deletion_timestamp.is_none()).collect();
        (alive.len() == count).then_some(alive)
    };
    let list = eventually(&format!("{count} pods"), there).await;
    for pod in &list {
        let name = pod.name_any();
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()) {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": node},
            });
            let request =
                http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
                    .header("content-type", "application/json")
                    .body(binding.to_string().into_bytes())
                    .expect("request");
            bench.client.request::<Value>(request).await.expect("binding");
        }
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let params = PatchParams::default();
        pods.patch_status(&name, &params, &Patch::Merge(ready)).await.expect("ready");
    }
    list
}

pub async fn leaving(bench: &Bench) -> Vec<String> {
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    let list = pods.list(&ListParams::default().labels("app=web")).await.expect("pods");
    let leaving = list.iter().filter(|p| p.metadata.deletion_timestamp.is_some());
    leaving.map(ResourceExt::name_any).collect()
}

async fn evictions(operator: &Operator, result: &str) -> f64 {
    let label = format!("result=\"{result}\"");
    operator.metric("traffic_operator_trafficwatch_evictions_total", &[&label]).await
}

#[test]
fn pods_leave_a_node_that_stays_unfit_one_at_a_time_and_budgets_hold() {
    run(async |bench| {
        three_nodes(&bench).await;
        let spec = json!({"deployment": deployment(), "eviction": {"after": "2s"}});
        bench.watch("web", spec).await;
        let budgets = Api::<PodDisruptionBudget>::namespaced(bench.client.clone(), "default");
        let budget = json!({
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        });
        let budget = serde_json::from_value(budget).unwrap();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        // A pod with the same labels and without an owner, which is not ours to evict.
        let stranger = json!({
            "metadata": {"name": "stranger", "labels": {"app": "web", "team": "a"}},
            "spec": {"nodeName": "node-2", "containers": [{"name": "c", "image": "busybox:1.35"}]},
        });
        let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
        let operator = bench.operator();
        bench.until("web", &[("/ready", json!(true))]).await;
        bind_and_ready(&bench, "node-2", 2).await;
        let stranger = serde_json::from_value(stranger).unwrap();
        pods.create(&PostParams::default(), &stranger).await.unwrap();
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.until_event("web", "EvictionRefused", "disruption budget").await;
        assert!(leaving(&bench).await.is_empty());
        assert!(evictions(&operator, "refused").await >= 1.0);
        budgets.delete("web", &DeleteParams::default()).await.unwrap();
        bench.until_event("web", "PodEvicted", "from node node-2, which stays unfit").await;
        // The second pod waits until the replacement is Ready.
        bench.judgments(4).await;
        let first = leaving(&bench).await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert!((evictions(&operator, "evicted").await - 1.0).abs() < f64::EPSILON);
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete(&first[0], &now).await.unwrap();
        bind_and_ready(&bench, "node-1", 3).await;
        let second = async || {
            let leaving = leaving(&bench).await;
            leaving.into_iter().find(|name| *name != first[0])
        };
        let second = eventually("the second eviction", second).await;
        assert_ne!(second, "stranger");
        pods.delete(&second, &now).await.unwrap();
        bind_and_ready(&bench, "node-3", 3).await;
        bench.judgments(4).await;
        assert!(leaving(&bench).await.is_empty(), "only the stranger is left, which stays");
        pods.delete("stranger", &now).await.unwrap();
    });
}

/// Nodes without zones are one zone together.
#[test]
fn two_objects_do_not_evict_in_one_zone_at_the_same_time_and_both_have_their_turn() {
    run(async |bench| {
        three_nodes(&bench).await;
        let apps = ["web", "shop"];
        for app in apps {
            let mut deployment = deployment();
            deployment["selector"]["matchLabels"]["app"] = app.into();
            deployment["template"]["metadata"]["labels"]["app"] = app.into();
            let spec = json!({"deployment": deployment, "eviction": {"after": "2s"}});
            bench.watch(app, spec).await;
        }
        let operator = bench.operator();
        for app in apps {
            bench.until(app, &[("/ready", json!(true))]).await;
            bind_and_ready_of(&bench, app, "node-2", 2).await;
        }
        bench.prometheus.set("node-2", Sample::percent("99"));
        let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
        let both = async || {
            let list = pods.list(&ListParams::default()).await.ok()?;
            let leaving = list.iter().filter_map(|pod| {
                let at = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
                Some((pod.labels().get("app")?.clone(), at))
            });
            // Each waits for its replacement before the next one.
            let leaving: BTreeMap<_, _> = leaving.collect();
            (leaving.len() == apps.len()).then_some(leaving)
        };
        let left = eventually("a pod of each to leave", both).await;
        let apart = left["web"].abs_diff(left["shop"]);
        // Timestamps have whole seconds.
        assert!(apart + 1 >= disruptions::EVICTION.as_secs(), "{apart} s apart: {left:?}");
        let acts = async |result: &str| {
            let labels = ["kind=\"TrafficWatch\"", &format!("result=\"{result}\"")];
            operator.metric("traffic_operator_disruptions_total", &labels).await
        };
        assert!(acts("deferred").await >= 1.0);
        assert!((acts("started").await - 2.0).abs() < f64::EPSILON);
    });
}

#[test]
fn each_object_asks_the_endpoint_that_it_names() {
    run(async |bench| {
        three_nodes(&bench).await;
        let other = Prometheus::start().await;
        for node in ["node-1", "node-2", "node-3"] {
            other.set(node, Sample::percent(if node == "node-3" { "99" } else { "10" }));
        }
        bench.watch("web", json!({})).await;
        bench.watch("elsewhere", json!({"prometheus": "other"})).await;
        bench.watch("nowhere", json!({"prometheus": "missing"})).await;
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("endpoints.yaml");
        let text = format!(
            "endpoints:\n  default: {{url: '{}'}}\n  other: {{url: '{}'}}\n",
            bench.prometheus.url, other.url
        );
        std::fs::write(&file, text).expect("endpoints");
        let path = file.display().to_string();
        let operator =
            bench.operator_args(&["--prometheus-config", &path], &["--lease-duration", "5s"]);
        bench.until_label("node-3", "elsewhere.traffic.example.com/unfit", Some("true")).await;
        bench.until_label("node-3", KEY, Some("false")).await;
        let message = bench.condition("nowhere", "Ready", "False", "InvalidSpec").await;
        assert!(message.contains("spec.prometheus: no endpoint \"missing\""), "{message}");
        assert!(message.contains("default, other"), "{message}");
        let label = ["endpoint=\"other\"", "result=\"success\""];
        assert!(operator.metric("traffic_operator_prometheus_requests_total", &label).await > 0.0);
    });
}

#[test]
fn a_window_that_holds_too_few_scrapes_is_reported_and_judged_all_the_same() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.scrapes("2");
        bench.watch("web", json!({"window": "2s"})).await;
        let _operator = bench.operator();
        bench.until_event("web", "WindowTooShort", "spec.window of 2s holds 2 scrapes").await;
        let message = bench.condition("web", "MetricsAvailable", "True", "Available").await;
        assert!(message.contains("fewer than four scrapes"), "{message}");
        bench.until("web", &[("/ready", json!(true))]).await;
    });
}
