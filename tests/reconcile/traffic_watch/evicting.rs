//! Evictions from nodes that stay unfit.
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lab::fault::{Fault, Rule};
use serde_json::{Value, json};
use traffic_operator::controller::disruptions;

use crate::{
    bench::{Bench, Operator, eventually},
    faults,
    prometheus::Sample,
    traffic_watch::judging::{KEY, deployment, with_three_nodes},
};

/// There are no kubelets here: pods are bound and made Ready by hand.
async fn bind_and_ready(bench: &Bench, node: &str, count: usize) -> Vec<Pod> {
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
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            bench.post::<Value>(&path, &binding).await.expect("binding");
        }
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let params = PatchParams::default();
        pods.patch_status(&name, &params, &Patch::Merge(ready)).await.expect("ready");
    }
    list
}

async fn leaving(bench: &Bench) -> Vec<String> {
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
    with_three_nodes(async |bench| {
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
    with_three_nodes(async |bench| {
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

/// Every judgment waited for the whole patience of a request, for as long as a node stayed unfit.
#[test]
fn lists_of_pods_delay_no_label() {
    with_three_nodes(async |bench| {
        for node in ["node-4", "node-5"] {
            bench.node(node).await;
            bench.prometheus.set(node, Sample::percent("10"));
        }
        let spec = json!({"deployment": deployment(), "eviction": {"after": "2s"}});
        bench.watch("web", spec).await;
        let proxy = bench.proxy().await;
        let _operator = faults::start(&bench, &proxy, "60s", "operator-1");
        bench.until("web", &[("/ready", json!(true))]).await;
        proxy.set([Rule::new(Fault::Never).verbs(&["list"]).resource("pods")]);
        bench.prometheus.set("node-2", Sample::percent("99"));
        bench.until_event("web", "EvictionFailed", "takes too long to list them").await;
        for percent in ["99", "1"] {
            bench.prometheus.set("node-3", Sample::percent(percent));
            let unfit = if percent == "99" { "true" } else { "false" };
            let began = Instant::now();
            bench.until_label("node-3", KEY, Some(unfit)).await;
            // A few intervals of a second, one of which may wait two for the list.
            assert!(began.elapsed() < Duration::from_secs(9), "{unfit}: {:?}", began.elapsed());
        }
    });
}
