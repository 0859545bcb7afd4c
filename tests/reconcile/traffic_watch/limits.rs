//! Limits on the number of marked nodes: those of one object, and of all objects together.
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use traffic_operator::manifests;

use crate::{
    bench::{eventually, run},
    prometheus::Sample,
    traffic_watch::judging::three_nodes,
};

/// Each would put a label on every node.
#[test]
fn objects_of_one_author_in_excess_write_nothing_and_the_platform_is_judged() {
    const NODES: usize = 20;
    const OBJECTS: usize = 300;
    run(async |bench| {
        for node in 0..NODES {
            let name = format!("node-{node:02}");
            bench.node(&name).await;
            bench.prometheus.set(&name, Sample::percent("10"));
        }
        bench.namespace("greedy", json!({})).await;
        let stored = async || {
            let request = http::Request::get("/metrics").body(vec![]).expect("request");
            let page = bench.client.request_text(request).await.expect("metrics");
            let line = page.lines().find(|line| line.starts_with("apiserver_storage_size_bytes"));
            let size = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            size.expect("a size") / 1e6
        };
        let before = stored().await;
        // As long as it may be.
        let name = |i: usize| format!("{i:03}{}", "x".repeat(60));
        for i in 0..OBJECTS {
            let label = json!({"label": format!("{}.greedy", name(i))});
            bench.watch_in("greedy", &name(i), label).await.expect("create TrafficWatch");
        }
        let _operator = bench.operator_with("operator-1", "15s");
        let own = manifests::NAMESPACE;
        bench.watch_in(own, "platform", json!({})).await.expect("create TrafficWatch");
        let key = "platform.traffic.example.com/unfit";
        bench.until_label("node-00", key, Some("false")).await;
        // Of objects that are created in the same second, the first by name are the older ones.
        let ready = async |i: usize| {
            let ready = bench.condition_in("greedy", &name(i), "Ready").await?;
            Some(ready["reason"].as_str()?.to_owned())
        };
        eventually("the first to be judged", async || (ready(0).await? == "Judged").then_some(()))
            .await;
        eventually("the last to be refused", async || {
            (ready(OBJECTS - 1).await? == "TooMany").then_some(())
        })
        .await;
        let labels = async || {
            let node = bench.nodes().get("node-07").await.ok()?;
            let ours = node.labels().keys().filter(|key| key.contains(".greedy.traffic")).count();
            (ours == 16).then_some(serde_json::to_vec(&node).ok()?.len())
        };
        let bytes = eventually("16 labels", labels).await;
        let grown = stored().await - before;
        println!("a node has {bytes} bytes, and etcd {grown:.1} MB more");
        assert!(grown < 20.0, "{grown} MB");
        assert!(bytes < 8_000, "{bytes} bytes");
        // A place that is free is taken.
        let api = bench.watches("greedy");
        api.delete(&name(3), &DeleteParams::default()).await.expect("delete");
        eventually("the next to be judged", async || (ready(16).await? == "Judged").then_some(()))
            .await;
        api.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .expect("gone");
        let left =
            async || api.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(());
        eventually("all to be gone", left).await;
        assert_eq!(bench.label("node-07", key).await.as_deref(), Some("false"));
    });
}

/// Its next judgment would be tomorrow.
#[test]
fn a_tenant_that_has_every_place_gives_some_back_when_the_platform_waits() {
    run(async |bench| {
        bench.namespace("greedy", json!({})).await;
        for (i, load) in ["80", "81", "82", "83", "84", "85", "86", "87"].into_iter().enumerate() {
            let node = format!("node-{i}");
            bench.node(&node).await;
            bench.prometheus.set(&node, Sample::percent(load));
            let pool = if i < 4 { "greedy" } else { "platform" };
            let pool = Patch::Merge(json!({"metadata": {"labels": {"pool": pool}}}));
            bench.nodes().patch(&node, &PatchParams::default(), &pool).await.expect("pool");
        }
        let spec = |pool: &str, more: serde_json::Value| {
            let mut spec = json!({
                "nodeSelector": {"matchLabels": {"pool": pool}}, "maxUnfit": "100%", "minFit": 0,
                "consecutive": {"unfit": 1, "fit": 1},
            });
            spec.as_object_mut().expect("map").extend(more.as_object().expect("map").clone());
            spec
        };
        let operator = bench.operator();
        let daily = json!({"label": "web.greedy", "interval": "24h"});
        bench.watch_in("greedy", "web", spec("greedy", daily)).await.expect("create");
        let unfit = async |key: &str| {
            let nodes = bench.nodes().list(&ListParams::default()).await.expect("nodes");
            let marked = |node: &&k8s_openapi::api::core::v1::Node| {
                node.labels().get(key).is_some_and(|v| v == "true")
            };
            nodes.iter().filter(marked).map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        let greedy = "web.greedy.traffic.example.com/unfit";
        eventually("all places taken", async || (unfit(greedy).await.len() == 4).then_some(()))
            .await;
        let (own, key) = (manifests::NAMESPACE, "platform.traffic.example.com/unfit");
        bench.watch_in(own, "platform", spec("platform", json!({}))).await.expect("create");
        // Four places: a quarter is the tenant's share.
        let moved = async || (unfit(key).await.len() == 3).then_some(());
        eventually("the platform to have its places", moved).await;
        assert_eq!(unfit(key).await, ["node-5", "node-6", "node-7"]);
        assert_eq!(unfit(greedy).await, ["node-3"], "its worst node");
        let why = async || {
            let limited = bench.condition_in("greedy", "web", "PlacementLimited").await?;
            limited["message"].as_str()?.contains("has its share").then_some(())
        };
        eventually("the reason", why).await;
        // Half of the nodes, over all objects.
        for (metric, expected) in [
            ("traffic_operator_unfit_nodes", 4.0),
            ("traffic_operator_unfit_nodes_limit", 4.0),
            ("traffic_operator_trafficwatch_above_ceiling", 4.0),
        ] {
            let value = operator.metric(metric, &[]).await;
            assert!((value - expected).abs() < f64::EPSILON, "{metric} = {value}");
        }
    });
}

/// Each asks something else every second, three times of what a namespace may ask.
#[test]
fn a_tenant_that_asks_too_much_waits_alone() {
    const OBJECTS: usize = 16;
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-1", Sample::percent("99"));
        bench.namespace("greedy", json!({})).await;
        for i in 0..OBJECTS {
            let window = format!("{}s", 60 + i);
            let spec = json!({"mode": "Observe", "window": window});
            bench.watch_in("greedy", &format!("g-{i:03}"), spec).await.expect("create");
        }
        let _operator = bench.operator();
        let own = manifests::NAMESPACE;
        bench.watch_in(own, "platform", json!({})).await.expect("create TrafficWatch");
        let reasons = async |namespace: &str| {
            let all = bench.watches(namespace).list(&ListParams::default()).await.ok()?;
            let reason = |watch: &traffic_operator::api::TrafficWatch| {
                let conditions = &watch.status.as_ref()?.conditions;
                let measured = conditions.iter().find(|c| c.type_ == "MetricsAvailable")?;
                Some(measured.reason.clone())
            };
            Some(all.items.iter().filter_map(reason).collect::<Vec<_>>())
        };
        let over = async || reasons("greedy").await?.contains(&"OverBudget".into()).then_some(());
        eventually("some of the tenant's objects to wait", over).await;
        bench.until_label("node-1", "platform.traffic.example.com/unfit", Some("true")).await;
        // The platform's object asks at each interval, and never waits.
        bench.judgments(10).await;
        assert_eq!(reasons(own).await, Some(vec!["Available".to_owned()]));
        // Nobody starves within the tenant's share: each object has its turn.
        let all = async || {
            let watches = bench.watches("greedy").list(&ListParams::default()).await.ok()?;
            let judged = |watch: &&traffic_operator::api::TrafficWatch| {
                let status = watch.status.as_ref();
                status.is_some_and(|status| !status.nodes.is_empty())
            };
            (watches.items.iter().filter(judged).count() == OBJECTS).then_some(())
        };
        eventually("each object to be judged once", all).await;
        for namespace in ["greedy", own] {
            let api = bench.watches(namespace);
            let (all, now) = (ListParams::default(), DeleteParams::default());
            api.delete_collection(&now, &all).await.expect("gone");
            let left = async || api.list(&all).await.ok()?.items.is_empty().then_some(());
            eventually("all to be gone", left).await;
        }
    });
}
