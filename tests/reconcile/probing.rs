//! NetworkProber: what is written, what is admitted, and what agents are told.
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::api::NetworkProber;

use crate::bench::{Bench, eventually, run};

/// The original's sample, word for word.
const ORIGINAL: &str = include_str!("../../deploy/samples/networkprober-original.yaml");

impl Bench {
    fn probers(&self, namespace: &str) -> Api<NetworkProber> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn prober(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        let object = serde_json::from_value(object).expect("NetworkProber");
        let api = self.probers("default");
        api.create(&PostParams::default(), &object).await.expect("create NetworkProber");
    }

    async fn pod(&self, namespace: &str, name: &str, change: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": "net-prober"}},
            "spec": {"containers": [{"name": "app", "image": "app"}], "terminationGracePeriodSeconds": 0},
        });
        json_patch::merge(&mut pod, &change);
        let pod = serde_json::from_value(pod).expect("Pod");
        self.pods(namespace).create(&PostParams::default(), &pod).await.expect("create Pod")
    }

    /// What a kubelet would say of a pod.
    async fn runs(&self, namespace: &str, name: &str, ip: &str) {
        let bind = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let request = request.body(serde_json::to_vec(&bind).expect("JSON")).expect("request");
        self.client.request::<Value>(request).await.expect("bind");
        let status = json!({"status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{"name": "net-prober", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}],
        }});
        let params = PatchParams::default();
        self.pods(namespace)
            .patch_status(name, &params, &Patch::Merge(status))
            .await
            .expect("status");
    }

    async fn prober_status(&self, name: &str) -> Value {
        let prober = self.probers("default").get(name).await.expect("NetworkProber");
        serde_json::to_value(prober.status).expect("status")
    }
}

#[test]
fn the_original_sample_gets_what_it_got() {
    run(async |bench| {
        let operator = bench.operator();
        operator.ready().await;
        let sample: NetworkProber = serde_yaml::from_str(ORIGINAL).expect("sample");
        let api = bench.probers("default");
        api.create(&PostParams::default(), &sample).await.expect("create");
        let maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "default");
        let name = sample.name_any();
        eventually("the ConfigMap", async || maps.get_opt(&name).await.ok().flatten()).await;
        eventually("the webhook", async || {
            let status = bench.prober_status(&name).await;
            status["conditions"]
                .as_array()?
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
                .then_some(())
        })
        .await;
        let pod = bench.pod("default", "a", json!({})).await;
        println!("{}", serde_json::to_string_pretty(&pod).unwrap());
        bench.runs("default", "a", "10.1.0.1").await;
        eventually("the pod in the list", async || {
            let map = maps.get(&name).await.ok()?;
            let file = map.binary_data?.remove("config.json")?;
            let file: Value = serde_json::from_slice(&file.0).ok()?;
            println!("{file}");
            (file["endpointsMap"]["a"]["ip"] == "10.1.0.1").then_some(())
        })
        .await;
        println!("{}", bench.prober_status(&name).await);
        let _ = (ListParams::default(), DeleteParams::default());
    });
}
