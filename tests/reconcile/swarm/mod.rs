//! Swarm: whole passes against a real API server, its StatefulSet and Deployment controllers, and
//! workers that a puppet kubelet runs. A ledger records at each instant which pod runs which
//! stream.
use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use traffic_operator::api::Swarm;

use crate::{
    bench::{Bench, Operator, STRICT, eventually, eventually_or, message, run, with_values},
    network_prober::with,
};
use fake_kubelet::Puppet;
use file::File;

mod admission;
mod at_rest;
mod bounds;
mod fake_kubelet;
mod file;
mod immutable;
mod instance;
mod ledger;
mod measured;
mod parts;
mod planning;
mod preparing;
mod record;
mod refreshing;
mod scaling;
mod signed;
mod stale_watch;
mod unreachable_workers;
mod version;
mod writing;

/// Returns the original's 27 streams in their order.
pub fn sample() -> Vec<String> {
    let ids = "xxrtve1 xxrtve2 zrtve2:new zrtve1:new zrtve0:new cctv0:updated history:new foo:new \
               xxctv3:new cctv3:updated xxctv0:updated xxctv10:updated xxctv11:updated \
               xxctv12:updated xxctv13:updated xxctv14:updated yxctv1:updated yxctv2:updated \
               yxctv3:updated xabcn0:updated xacb01:updated xacb02:updated xacb03:updated \
               xacb04:updated sportnews0:updated cars:new cars:updated";
    ids.split_whitespace().map(|id| format!("stream:{id}")).collect()
}

pub fn streams(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("stream:{i}")).collect()
}

/// One bench with its kubelet and operator.
pub struct Stage {
    pub bench: Bench,
    pub puppet: Puppet,
}

/// Runs a test on a stage with an operator that is ready.
fn served<F: Future<Output = ()>>(test: impl FnOnce(Stage, Operator) -> F) {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let operator = stage.ready_operator().await;
        test(stage, operator).await;
    });
}

impl Stage {
    pub async fn new(bench: Bench) -> Self {
        let puppet = Puppet::start(bench.client.clone()).await;
        Self { bench, puppet }
    }

    /// A bench with an operator and a Swarm on a StatefulSet of its name, with this many workers,
    /// which run all of its jobs.
    pub async fn running(
        bench: Bench,
        name: &str,
        workers: u32,
        spec: Value,
    ) -> (Self, Operator, File) {
        let stage = Self::new(bench).await;
        let operator = stage.ready_operator().await;
        let jobs: Vec<String> = serde_json::from_value(spec["jobs"].clone()).expect("jobs");
        stage.stateful_set(name, workers, json!({})).await;
        stage.swarm(name, spec).await;
        let file = stage.settled(name, workers as usize, &jobs).await;
        (stage, operator, file)
    }

    /// Creates a StatefulSet whose pods mount the ConfigMap `<name>-config`.
    pub async fn stateful_set(&self, name: &str, replicas: u32, change: Value) {
        let set = with(workload("StatefulSet", name, replicas), &change);
        let set = with(set, &json!({"spec": {"serviceName": name}}));
        let set = serde_json::from_value(set).expect("StatefulSet");
        self.sets().create(&PostParams::default(), &set).await.expect("create StatefulSet");
    }

    pub async fn deployment(&self, name: &str, replicas: u32, change: Value) {
        let object = with(workload("Deployment", name, replicas), &change);
        let object = serde_json::from_value(object).expect("Deployment");
        let api = self.bench.deployments();
        api.create(&PostParams::default(), &object).await.expect("create Deployment");
    }

    pub async fn try_swarm(&self, name: &str, spec: Value) -> kube::Result<Swarm> {
        let base = json!({"workload": {"name": name}, "refresh": {"port": self.puppet.port()}});
        let spec = with(base, &spec);
        let object = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        let path = "/apis/traffic.example.com/v1alpha1/namespaces/default/swarms";
        self.bench.post(&format!("{path}{STRICT}"), &object).await
    }

    pub async fn swarm(&self, name: &str, spec: Value) {
        self.try_swarm(name, spec).await.expect("create Swarm");
    }

    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let params = PatchParams::default();
        self.swarms().patch(name, &params, &patch).await.expect("patch Swarm");
    }

    pub async fn scale(&self, name: &str, replicas: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets().patch_scale(name, &PatchParams::default(), &patch).await.expect("scale");
    }

    pub fn swarms(&self) -> Api<Swarm> {
        Api::namespaced(self.bench.client.clone(), "default")
    }

    pub fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.bench.client.clone(), "default")
    }

    pub fn pods(&self) -> Api<Pod> {
        self.bench.pods("default")
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        self.bench.maps("default")
    }

    pub async fn status(&self, name: &str) -> Value {
        let swarm = self.swarms().get(name).await.expect("Swarm");
        serde_json::to_value(swarm.status).expect("status")
    }

    /// Waits until the status has, at each pointer, the value.
    pub async fn until(&self, name: &str, expected: &[(&str, Value)]) -> Value {
        let what = format!("{name}: {expected:?}");
        let holds = async || with_values(self.status(name).await, expected);
        eventually_or(&what, holds, async || self.state(name).await).await
    }

    /// Waits until a condition has a status and reason; returns its message.
    pub async fn condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let what = format!("{name}: {type_}={status} {reason}");
        let holds = async || message(&self.status(name).await, type_, status, reason);
        eventually_or(&what, holds, async || self.state(name).await).await
    }

    pub async fn file(&self, name: &str) -> Option<File> {
        let map = self.maps().get_opt(&format!("{name}-config")).await.expect("ConfigMap")?;
        if let Some(file) = File::of(&map) {
            return Some(file);
        }
        // A divided file: its version is that of the head.
        let head = map.data?.remove("handover.yml")?;
        let head: Value = serde_yaml::from_str(&head).ok()?;
        let mut all = File { version: head["epoch"].as_u64()?, ..File::default() };
        for part in 0..head["parts"].as_array()?.len() {
            let map = format!("{name}-config-part-{part}");
            let map = self.maps().get_opt(&map).await.expect("ConfigMap")?;
            all.workloads.extend(File::of(&map)?.workloads);
        }
        Some(all)
    }

    /// Returns the whole state, for a test that fails.
    pub async fn state(&self, name: &str) -> String {
        let map = self.maps().get_opt(&format!("{name}-config")).await.ok().flatten();
        let data = map.and_then(|map| map.data).unwrap_or_default();
        let status = self.status(name).await;
        let record = data.get("handover.yml").map_or("", String::as_str);
        let pods: Vec<_> = {
            let state = self.puppet.inner.state();
            let line = |(uid, pod): (&String, &instance::Instance)| {
                format!("{} {uid} gone={} runs={} v{}", pod.name, pod.gone, pod.runs, pod.loaded)
            };
            state.pods.iter().map(line).collect()
        };
        let mut running = BTreeMap::<_, usize>::new();
        for pod in self.puppet.running().into_values().flatten() {
            *running.entry(pod).or_default() += 1;
        }
        format!(
            "status: {status:#}\nfile: {}\nrecord: {record}\npods: {pods:#?}\nrunning: {running:?}",
            data.get("config.yml").map_or("", String::as_str)
        )
    }

    /// Waits until `workers` workers run exactly the streams of the file, each once, and the status
    /// agrees.
    pub async fn settled(&self, name: &str, workers: usize, streams: &[String]) -> File {
        let what = format!("{name}: {} streams on {workers} workers", streams.len());
        let holds = async || self.is_settled(name, workers, streams).await;
        let file = eventually_or(&what, holds, async || self.state(name).await).await;
        self.puppet.assert_no_overlap();
        file
    }

    /// Returns the file if `workers` workers run exactly its streams now, each once, and the status
    /// agrees.
    pub async fn is_settled(&self, name: &str, workers: usize, streams: &[String]) -> Option<File> {
        let status = self.status(name).await;
        let conditions = status["conditions"].as_array()?;
        let reported = conditions
            .iter()
            .any(|c| c["type"] == "Converged" && (c["status"] == "True" || workers == 0));
        let file = self.file(name).await?;
        let running = self.puppet.running();
        let owners = file.owners();
        let right = running
            .iter()
            .all(|(stream, pods)| owners.get(stream.as_str()).is_some_and(|owners| pods == owners));
        let wanted = if workers == 0 { 0 } else { streams.len() };
        let complete = running.len() == wanted
            && (workers == 0 || streams.iter().all(|stream| running.contains_key(stream)));
        (reported
            && right
            && complete
            && status["summary"]["workers"] == workers
            && status["moving"] == 0
            && status["epoch"] == file.version)
            .then_some(file)
    }

    /// Returns the events about a Swarm: reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        use k8s_openapi::api::events::v1::Event;
        let uid = self.swarms().get(name).await.expect("Swarm").uid();
        let events = Api::<Event>::all(self.bench.client.clone());
        let list = events.list(&ListParams::default()).await.expect("events");
        list.into_iter()
            .filter(|e| e.regarding.as_ref().is_some_and(|r| r.uid == uid))
            .map(|e| (e.reason.unwrap_or_default(), e.note.unwrap_or_default()))
            .collect()
    }

    /// Waits for an event; returns its note.
    pub async fn until_event(&self, name: &str, reason: &str) -> String {
        let found = async || {
            let mut events = self.events(name).await.into_iter();
            events.find(|(r, _)| r == reason).map(|(_, note)| note)
        };
        let otherwise = async || format!("{:?}", self.events(name).await);
        eventually_or(&format!("event {reason} of {name}"), found, otherwise).await
    }

    /// Starts the operator with a lease that a busy machine renews in time.
    pub async fn ready_operator(&self) -> Operator {
        let operator = self.bench.operator_with("operator-1", "15s");
        operator.ready().await;
        operator
    }
}

/// Returns a workload of one container whose pods mount `<name>-config`.
fn workload(kind: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "worker", "image": "worker",
                        "volumeMounts": [{"name": "config", "mountPath": "/app/config"}],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": format!("{name}-config")}}],
                },
            },
        },
    })
}

impl Bench {
    /// Removes swarms of earlier tests.
    pub async fn clean_swarms(&self) {
        let (all, now) = (ListParams::default(), DeleteParams::default());
        let namespaced = || self.client.clone();
        let swarms = Api::<Swarm>::namespaced(namespaced(), "default");
        swarms.delete_collection(&now, &all).await.expect("delete Swarms");
        let background = DeleteParams::background();
        let sets = Api::<StatefulSet>::namespaced(namespaced(), "default");
        sets.delete_collection(&background, &all).await.expect("delete StatefulSets");
        let deployments = Api::<Deployment>::namespaced(namespaced(), "default");
        deployments.delete_collection(&background, &all).await.expect("delete Deployments");
        let budgets = Api::<PodDisruptionBudget>::namespaced(namespaced(), "default");
        budgets.delete_collection(&now, &all).await.expect("delete PodDisruptionBudgets");
        let empty = async || {
            let left = swarms.list(&all).await.is_ok_and(|list| list.items.is_empty());
            let maps = self.maps("default");
            let mut none = true;
            for map in maps.list(&all).await.ok()? {
                if map.name_any() != "kube-root-ca.crt" {
                    none = false;
                    let _ = maps.delete(&map.name_any(), &now).await;
                }
            }
            (left && none).then_some(())
        };
        eventually("no Swarm and no ConfigMap", empty).await;
    }
}
