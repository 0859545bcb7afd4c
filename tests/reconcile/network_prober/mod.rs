//! NetworkProber: the objects that it writes, the pods that it admits, and the lists for agents.
//! Pods have no kubelet here: the tests set their status.
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::api::NetworkProber;

use crate::bench::{Bench, Operator, STRICT, eventually, eventually_or, message, run, with_values};

mod accounts;
mod children;
mod crashes;
mod entries;
mod kubelets;
mod lists;
mod namespaces;
mod originals;
mod quotas;
mod refused;
mod watches;

/// The selector of every test.
pub fn selector() -> Value {
    json!({"podSelector": {"matchLabels": {"app": "net-prober"}}})
}

pub fn with(mut value: Value, change: &Value) -> Value {
    json_patch::merge(&mut value, change);
    value
}

/// Returns the agent's container, wherever it is.
pub fn agent(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::Container> {
    let spec = pod.spec.as_ref()?;
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.into_iter().find(|container| container.name == "net-prober")
}

/// Runs a test with an operator that is ready.
fn served<F: Future<Output = ()>>(test: impl FnOnce(Bench, Operator) -> F) {
    run(async |bench| {
        let operator = bench.ready_operator().await;
        test(bench, operator).await;
    });
}

impl Bench {
    pub fn probers(&self, namespace: &str) -> Api<NetworkProber> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn webhooks(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Returns the entry of a NetworkProber in the one webhook object.
    pub async fn entry(&self, namespace: &str, name: &str) -> Option<Value> {
        let object = self.webhooks().get_opt("traffic-operator").await.expect("get")?;
        let name = format!("{name}.{namespace}.probes.bigmikes.io");
        let entry = object.webhooks?.into_iter().find(|entry| entry.name == name)?;
        Some(serde_json::to_value(entry).expect("entry"))
    }

    /// Creates the webhook object as the installation does: without entries.
    pub async fn empty_webhooks(&self) {
        let object: Value = serde_yaml::from_str(&crate::shipped::webhook()).expect("YAML");
        let (apply, merge) = (PatchParams::apply("test").force(), PatchParams::default());
        let none = Patch::Merge(json!({"webhooks": null}));
        for (params, patch) in [(apply, Patch::Apply(object)), (merge, none)] {
            self.webhooks().patch("traffic-operator", &params, &patch).await.expect("webhooks");
        }
    }

    /// Makes a namespace with exactly these annotations and labels of ours.
    pub async fn namespace(&self, name: &str, metadata: Value) {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": with(json!({"name": name}), &metadata),
        });
        let api = Api::<Namespace>::all(self.client.clone());
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(object)).await.expect("namespace");
        let account = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
            self.client.clone(),
            name,
        );
        let there = async || account.get_opt("default").await.ok().flatten();
        eventually("the service account of the namespace", there).await;
    }

    pub async fn try_prober(
        &self,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> kube::Result<NetworkProber> {
        let object = json!({
            "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        let path =
            format!("/apis/probes.bigmikes.io/v1alpha1/namespaces/{namespace}/networkprobers");
        self.post(&format!("{path}{STRICT}"), &object).await
    }

    pub async fn prober(&self, name: &str, spec: Value) {
        self.try_prober("default", name, spec).await.expect("create NetworkProber");
    }

    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let api = self.probers("default");
        api.patch(name, &PatchParams::default(), &patch).await.expect("patch NetworkProber");
    }

    /// Creates a pod labeled `app: net-prober`, with a change to it.
    pub async fn try_pod(
        &self,
        namespace: &str,
        name: &str,
        change: &Value,
        dry_run: bool,
    ) -> kube::Result<Pod> {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "net-prober"}},
            "spec": {
                "containers": [{"name": "app", "image": "app"}],
                "terminationGracePeriodSeconds": 0,
            },
        });
        let pod = serde_json::from_value(with(pod, change)).expect("Pod");
        let params = PostParams { dry_run, ..PostParams::default() };
        self.pods(namespace).create(&params, &pod).await
    }

    /// The same, of which the API server accepts every pod. It ignores a webhook that takes longer
    /// than two seconds, which a busy machine does: such a pod is created again.
    pub async fn pod(&self, namespace: &str, name: &str, change: Value) -> Pod {
        loop {
            let pod = self.try_pod(namespace, name, &change, false).await.expect("create Pod");
            let other = json!({"metadata": {"name": format!("{name}-again")}});
            let again = self.try_pod(namespace, name, &with(change.clone(), &other), true).await;
            let ignored = agent(&pod).is_none() && again.is_ok_and(|pod| agent(&pod).is_some());
            if !ignored {
                return pod;
            }
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            self.pods(namespace).delete(name, &now).await.expect("delete Pod");
        }
    }

    /// Waits until the API server calls the webhook for new pods of a namespace.
    pub async fn intercepted(&self, namespace: &str) {
        let asked = async || {
            let pod = self.try_pod(namespace, "asked", &json!({}), true).await.ok()?;
            agent(&pod).map(drop)
        };
        eventually(&format!("pods of {namespace} to be injected"), asked).await;
    }

    /// Sets the status of a running pod, as a kubelet does.
    pub async fn runs(&self, namespace: &str, name: &str, ip: &str) {
        self.bind(namespace, name, "node-1").await;
        self.set_pod_status(namespace, name, running(ip)).await;
    }

    /// Puts a pod on a node, as the scheduler does. The node exists: the garbage collector deletes
    /// pods of absent nodes after 40 s.
    pub async fn bind(&self, namespace: &str, name: &str, node: &str) {
        if self.nodes().get_opt(node).await.expect("read a node").is_none() {
            self.node(node).await;
        }
        let bind = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        self.post::<Value>(&path, &bind).await.expect("bind");
    }

    pub async fn set_pod_status(&self, namespace: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        self.pods(namespace).patch_status(name, &params, &patch).await.expect("status of a pod");
    }

    /// The status of a NetworkProber: of `name` in the default namespace, or of `namespace/name`.
    pub async fn prober_status(&self, name: &str) -> Value {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let prober = self.probers(namespace).get(name).await.expect("NetworkProber");
        serde_json::to_value(prober.status).expect("status")
    }

    /// Waits until the status of a NetworkProber has, at each pointer, the value.
    pub async fn until_prober(&self, name: &str, expected: &[(&str, Value)]) -> Value {
        let what = format!("{name}: {expected:?}");
        let status = async || self.prober_status(name).await;
        let holds = async || with_values(status().await, expected);
        eventually_or(&what, holds, async || status().await.to_string()).await
    }

    /// Waits until a condition has a status and reason; returns its message.
    pub async fn until_condition(
        &self,
        name: &str,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> String {
        let what = format!("{name}: {type_}={status} {reason}");
        let all = async || self.prober_status(name).await;
        let holds = async || message(&all().await, type_, status, reason);
        eventually_or(&what, holds, async || all().await.to_string()).await
    }

    /// The parsed `config.json` in a namespace.
    pub async fn file(&self, namespace: &str, name: &str) -> Option<Value> {
        let map = self.maps(namespace).get_opt(name).await.expect("ConfigMap")?;
        serde_json::from_slice(&map.binary_data?.remove("config.json")?.0).ok()
    }

    /// Waits until the file lists exactly these endpoints, each as `key ip:port`.
    pub async fn until_listed(&self, namespace: &str, name: &str, expected: &[&str]) -> Value {
        let what = format!("endpoints {expected:?} in {namespace}/{name}");
        let holds = async || {
            let file = self.file(namespace, name).await?;
            let endpoints = file["endpointsMap"].as_object()?;
            let text = |(key, e): (&String, &Value)| {
                format!(
                    "{key} {}:{}",
                    e["ip"].as_str().unwrap_or("?"),
                    e["port"].as_str().unwrap_or("?")
                )
            };
            let found: Vec<_> = endpoints.iter().map(text).collect();
            (found == expected).then_some(file)
        };
        let otherwise = async || format!("{:?}", self.file(namespace, name).await);
        eventually_or(&what, holds, otherwise).await
    }

    /// Removes probers of earlier tests.
    pub async fn clean_probers(&self) {
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let all = ListParams::default();
        let everywhere = Api::<NetworkProber>::all(self.client.clone());
        for prober in everywhere.list(&all).await.expect("list NetworkProbers") {
            let api = self.probers(&prober.namespace().unwrap_or_default());
            // Each may be gone already.
            let _ = api.patch(&prober.name_any(), &PatchParams::default(), &strip).await;
            let _ = api.delete(&prober.name_any(), &DeleteParams::default()).await;
        }
        let ours = all.clone().labels("probes.bigmikes.io/owner-uid");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.empty_webhooks().await;
        let maps = Api::<ConfigMap>::all(self.client.clone());
        for map in maps.list(&ours).await.expect("list ConfigMaps") {
            let api = self.maps(&map.namespace().unwrap_or_default());
            // It may be gone already.
            let _ = api.delete(&map.name_any(), &now).await;
        }
        let empty = async || {
            let left = everywhere.list(&all).await.is_ok_and(|list| list.items.is_empty());
            let pods = Api::<Pod>::all(self.client.clone()).list(&all).await.ok()?;
            // The owner of a pod may be terminating, and create the pod once more.
            for pod in &pods {
                let api = self.pods(&pod.namespace().unwrap_or_default());
                let _ = api.delete(&pod.name_any(), &now).await;
            }
            (left && pods.items.is_empty()).then_some(())
        };
        eventually("no NetworkProber and no pod", empty).await;
    }

    /// Starts the operator and waits until it is ready.
    pub async fn ready_operator(&self) -> Operator {
        let operator = self.operator();
        operator.ready().await;
        operator
    }
}

/// The status of a pod that runs and is Ready.
pub fn running(ip: &str) -> Value {
    json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [{
            "name": "net-prober", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}},
        }],
    })
}
