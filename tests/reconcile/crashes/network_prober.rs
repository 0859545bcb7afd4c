//! A NetworkProber whose agents read files: two pods run, then a third one, and it is deleted.
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{harness, state};
use crate::bench::{Bench, message};

/// The sample of the original prober, whose lists are a file.
const ORIGINAL: &str = include_str!("../../../deploy/samples/networkprober-original.yaml");

struct Measured(Bench);

impl Measured {
    /// Runs a pod with the agent that the original's webhook gave it: our own webhook cannot be
    /// reached here, because the operator may be dead.
    async fn runs(&self, name: &str, ip: &str) {
        let agent = json!({
            "name": "net-prober", "image": "bigmikes/kube-net-prober:test-version-v8",
            "restartPolicy": "Always",
            "ports": [
                {"name": "np-ping", "containerPort": 9090},
                {"name": "np-prometheus", "containerPort": 1222},
            ],
        });
        let change = json!({
            "metadata": {"annotations": {"netprober-container-deployed": "true"}},
            "spec": {"initContainers": [agent]},
        });
        self.0.pod("default", name, change).await;
        self.0.runs("default", name, ip).await;
    }

    /// Reports whether the file lists this many agents, and the status counts them.
    async fn lists(&self, agents: usize) -> bool {
        let Some(file) = self.0.file("default", "np").await else { return false };
        let listed = file["endpointsMap"].as_object().map_or(0, serde_json::Map::len);
        let status = self.0.prober_status("default", "np").await;
        let covered = message(&status, "Covered", "True", "AllInjected").is_some();
        let injects = self.0.entry("default", "np").await.is_some();
        listed == agents && status["injected"] == agents && injects && covered
    }
}

impl harness::Pass for Measured {
    const KIND: &'static str = "NetworkProber";
    const SAMPLE: usize = 4;

    fn parts() -> usize {
        3
    }

    async fn set_up(bench: Bench) -> Self {
        // The garbage collector deletes pods of nodes that do not exist.
        bench.node("node-1").await;
        let this = Self(bench);
        this.runs("a", "10.1.0.1").await;
        this.runs("b", "10.1.0.2").await;
        this
    }

    fn bench(&self) -> &Bench {
        &self.0
    }

    async fn begin(&self, part: usize) {
        match part {
            0 => {
                let sample: Value = serde_yaml::from_str(ORIGINAL).expect("YAML");
                self.0.prober("np", sample["spec"].clone()).await;
            }
            1 => self.runs("c", "10.1.0.3").await,
            _ => {
                let probers = self.0.probers("default");
                probers.delete("np", &DeleteParams::background()).await.expect("delete");
            }
        }
    }

    async fn is_over(&self, part: usize) -> bool {
        match part {
            0 => self.lists(2).await,
            1 => self.lists(3).await,
            _ => {
                let prober = self.0.probers("default").get_opt("np").await.expect("NetworkProber");
                let map = self.0.maps("default").get_opt("np").await.expect("ConfigMap");
                let entry = self.0.entry("default", "np").await;
                prober.is_none() && map.is_none() && entry.is_none()
            }
        }
    }

    async fn state(&self) -> Value {
        let probers = "/apis/probes.bigmikes.io/v1alpha1/namespaces/default/networkprobers";
        let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let maps = "/api/v1/namespaces/default/configmaps";
        json!([
            state::objects(&self.0, probers, &[]).await,
            state::objects(&self.0, maps, &[]).await,
            // The one object that outlives each run.
            state::objects(&self.0, webhooks, &["generation"]).await,
        ])
    }
}

#[test]
fn crash_points_of_a_network_prober() {
    harness::every::<Measured>();
}
