//! A TrafficWatch with a Deployment, taints and evictions: nodes are judged, two of them change
//! sides, of which one gives up a pod, and it is deleted.
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{harness, state};
use crate::{
    bench::Bench,
    prometheus::Sample,
    traffic_watch::{
        evicting::{bind_and_ready, leaving},
        judging::{KEY, deployment, three_nodes},
    },
};

struct Watched(Bench);

impl Watched {
    /// The labels of the three nodes.
    async fn labels(&self) -> [Option<String>; 3] {
        let label = async |node| self.0.label(node, KEY).await;
        [label("node-1").await, label("node-2").await, label("node-3").await]
    }

    /// Reports whether it has judged all nodes, and exactly this one is unfit.
    async fn has_judged(&self, unfit: &str) -> bool {
        let nodes = ["node-1", "node-2", "node-3"];
        let expected = nodes.map(|node| Some((node == unfit).to_string()));
        let status = self.0.status("web").await;
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        self.labels().await == expected
            && status["ready"] == true
            && status["summary"]["unfit"] == 1
            && status["summary"]["fit"] == 2
            && conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
    }
}

impl harness::Pass for Watched {
    const KIND: &'static str = "TrafficWatch";
    const SAMPLE: usize = 4;

    fn parts() -> usize {
        3
    }

    async fn set_up(bench: Bench) -> Self {
        three_nodes(&bench).await;
        // Without a kubelet, a pod that was evicted in the last run is still there.
        let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete_collection(&now, &ListParams::default()).await.expect("delete pods");
        bench.prometheus.set("node-2", Sample::percent("90"));
        Self(bench)
    }

    fn bench(&self) -> &Bench {
        &self.0
    }

    async fn begin(&self, part: usize) {
        match part {
            0 => {
                let spec = json!({
                    "deployment": deployment(), "taint": "PreferNoSchedule",
                    "eviction": {"after": "2s", "maxPerPass": 1},
                });
                self.0.watch("web", spec).await;
            }
            1 => {
                bind_and_ready(&self.0, "node-3", 2).await;
                self.0.prometheus.set("node-2", Sample::percent("10"));
                self.0.prometheus.set("node-3", Sample::percent("90"));
            }
            _ => {
                let watches = self.0.watches("default");
                watches.delete("web", &DeleteParams::background()).await.expect("delete");
            }
        }
    }

    async fn is_over(&self, part: usize) -> bool {
        let child = self.0.deployments().get_opt("web").await.expect("Deployment").is_some();
        match part {
            0 => child && self.has_judged("node-2").await,
            // The second pod stays until the replacement of the first is Ready: never, here.
            1 => child && self.has_judged("node-3").await && leaving(&self.0).await.len() == 1,
            _ => {
                let watch = self.0.watches("default").get_opt("web").await.expect("TrafficWatch");
                let labels = self.labels().await;
                !child && watch.is_none() && labels.iter().all(Option::is_none)
            }
        }
    }

    async fn state(&self) -> Value {
        let watches = "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches";
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        json!([
            state::nodes(&self.0).await,
            state::objects(&self.0, watches, &[]).await,
            // Its status is that of its controller.
            state::objects(&self.0, deployments, &["status"]).await,
        ])
    }
}

#[test]
fn crash_points_of_a_traffic_watch() {
    harness::every::<Watched>();
}
