//! Measured values: weights, the number of workers, the fitness of nodes.
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Stage, served, streams};
use crate::{
    bench::{Bench, eventually, run},
    prometheus::Mode,
};

/// Sets the weight of each stream in Prometheus.
fn weigh(bench: &Bench, weights: &[(&str, &str)]) {
    let element =
        |(stream, value): &(&str, &str)| json!({"metric": {"stream": stream}, "value": [0, value]});
    let result: Vec<_> = weights.iter().map(element).collect();
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    bench.prometheus.answer(Mode::Raw(200, "application/json", body.to_string()));
}

fn weighed(more: &Value) -> Value {
    let base = json!({
        "jobs": streams(4), "refresh": {"strategy": "HotReload"},
        "weights": {"query": "sum by (stream) (x)", "interval": "1s", "for": "1s"},
    });
    crate::network_prober::with(base, more)
}

#[test]
fn streams_move_by_what_prometheus_measures_and_stay_when_it_says_nothing() {
    served(async |stage, _operator| {
        let even = ["stream:0", "stream:1", "stream:2", "stream:3"].map(|s| (s, "1"));
        weigh(&stage.bench, &even);
        stage.stateful_set("load", 2, json!({})).await;
        stage.swarm("load", weighed(&json!({}))).await;
        let before = stage.settled("load", 2, &streams(4)).await;
        // Both streams of one worker become heavy: one of them leaves it.
        let heavy = before.jobs("load-0").to_vec();
        let mut other = even;
        for (_, weight) in other.iter_mut().filter(|(s, _)| heavy.contains(&(*s).to_owned())) {
            *weight = "30";
        }
        weigh(&stage.bench, &other);
        let apart = async || {
            let file = stage.file("load").await?;
            let mine = file.jobs("load-0").iter().filter(|job| heavy.contains(job)).count();
            (mine == 1).then_some(())
        };
        eventually("the heavy streams to be apart", apart).await;
        let after = stage.settled("load", 2, &streams(4)).await;
        let status = stage.status("load").await;
        assert!(status["workers"][0]["weight"].as_str().unwrap().starts_with('3'), "{status}");
        // Missing data is no evidence.
        weigh(&stage.bench, &[]);
        let requests = stage.bench.prometheus.requests().len();
        let more = async || (stage.bench.prometheus.requests().len() >= requests + 3).then_some(());
        eventually("three measurements", more).await;
        stage.bench.prometheus.answer(Mode::Raw(503, "text/plain", "no".into()));
        stage.condition("load", "MetricsAvailable", "False", "PrometheusUnavailable").await;
        assert_eq!(stage.file("load").await.unwrap(), after);
    });
}

#[test]
fn the_number_of_workers_follows_the_weight_and_rests_between() {
    served(async |stage, _operator| {
        stage.stateful_set("auto", 1, json!({})).await;
        let spec = json!({
            "jobs": streams(8), "refresh": {"strategy": "HotReload"},
            "autoscale": {"maxWeightPerWorker": 2, "min": 1, "max": 3, "cooldown": "2s"},
        });
        stage.swarm("auto", spec).await;
        // Four are desired, three are allowed.
        stage.settled("auto", 3, &streams(8)).await;
        let note = stage.until_event("auto", "Scaled").await;
        assert_eq!(note, "StatefulSet auto scaled to 3");
        stage.change("auto", json!({"jobs": streams(3)})).await;
        stage.settled("auto", 2, &streams(3)).await;
        // Scaled to zero means switched off, also after the cooldown: other changes are still made.
        let since = Timestamp::now();
        stage.scale("auto", 0).await;
        stage.settled("auto", 0, &streams(3)).await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let seen = async || stage.status("auto").await["observedGeneration"].as_i64();
        let before = seen().await;
        stage.change("auto", json!({"jobs": streams(5)})).await;
        eventually("the change", async || (seen().await > before).then_some(())).await;
        let writes = stage.bench.writes_since(since).await;
        assert!(
            !writes.iter().any(|write| write.resource.starts_with("statefulsets")),
            "{writes:?}"
        );
        // A Deployment is scaled in the same way.
        stage.deployment("auto-many", 1, json!({})).await;
        let spec = json!({
            "workload": {"kind": "Deployment", "name": "auto-many"},
            "jobs": streams(8), "refresh": {"strategy": "HotReload", "port": stage.puppet.port()},
            "autoscale": {"maxWeightPerWorker": 2, "min": 1, "max": 3, "cooldown": "2s"},
        });
        stage.swarm("auto-many", spec).await;
        let scaled = async || {
            let deployment = stage.bench.deployments().get("auto-many").await.ok()?;
            (deployment.spec?.replicas == Some(3)).then_some(())
        };
        eventually("the Deployment to be scaled", scaled).await;
    });
}

#[test]
fn streams_leave_workers_on_nodes_that_turn_unfit_and_come_back() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        for node in ["node-1", "node-2"] {
            stage.bench.node(node).await;
        }
        // It only observes: the labels are ours to write here.
        stage.bench.watch("fit", json!({"mode": "Observe"})).await;
        let _operator = stage.ready_operator().await;
        stage.puppet.control(|c| {
            c.nodes.insert("fit-0".into(), "node-1".into());
            c.nodes.insert("fit-1".into(), "node-2".into());
        });
        stage.stateful_set("fit", 2, json!({})).await;
        let spec = json!({
            "jobs": streams(6), "fitnessRef": {"name": "fit"},
            "refresh": {"strategy": "HotReload"},
        });
        stage.swarm("fit", spec).await;
        stage.settled("fit", 2, &streams(6)).await;
        let label = async |value: &str| {
            let patch = json!({"metadata": {"labels": {"fit.traffic.example.com/unfit": value}}});
            let params = PatchParams::default();
            stage.bench.nodes().patch("node-2", &params, &Patch::Merge(patch)).await.unwrap();
        };
        label("true").await;
        let left = async || stage.puppet.streams("fit-1").is_empty().then_some(());
        eventually("no stream on the unfit node", left).await;
        stage.settled("fit", 2, &streams(6)).await;
        // The former form has the same meaning.
        stage.change("fit", json!({"fitnessRef": "fit"})).await;
        label("false").await;
        let back = async || (stage.puppet.streams("fit-1").len() == 3).then_some(());
        eventually("streams on the node that is fit again", back).await;
        stage.settled("fit", 2, &streams(6)).await;
    });
}
