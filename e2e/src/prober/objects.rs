//! `NetworkProber`s and pods of the acts beside the tour.

use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use crate::objects;
use crate::stage::Stage;

/// The agents' metrics port, as in the original's sample.
const METRICS: &str = "1222";

pub fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
}

/// Applies a NetworkProber that selects `app: <name>`, and waits until it is ready.
pub async fn create(stage: &Stage<'_>, namespace: &str, name: &str, more: &str) -> Result<()> {
    let spec = format!("podSelector: {{matchLabels: {{app: {name}}}}}\n{more}");
    let spec = spec.trim_end().replace('\n', "\n  ");
    let yaml = format!(
        "apiVersion: probes.bigmikes.io/v1alpha1\nkind: NetworkProber\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  httpPort: \"9090\"\n  httpPrometheusPort: \"{METRICS}\"\n  \
         monitoring: {{interval: 2s}}\n  {spec}\n"
    );
    stage.apply(&yaml).await?;
    // The webhook's configuration follows the object: pods that come before it have no agent.
    let what = format!("NetworkProber {name} ready");
    stage
        .wait(&what, async || {
            let prober = stage.get(&["networkprober", name, "-n", namespace])?;
            let current =
                prober["status"]["observedGeneration"] == prober["metadata"]["generation"];
            Ok(current && objects::is_true(&prober, "Ready"))
        })
        .await
}

/// A pod; `more` goes into its spec.
pub fn pod(namespace: &str, name: &str, app: &str, more: &str) -> String {
    limited_pod(namespace, name, app, more, "{}")
}

/// The same, with limits of resources.
pub fn limited_pod(namespace: &str, name: &str, app: &str, more: &str, limits: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  {more}\n  \
         containers:\n  - {{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity], \
         resources: {{limits: {limits}}}}}\n"
    )
}

/// A Deployment with its pods on different nodes.
pub fn deployment(namespace: &str, name: &str, replicas: u8) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}\n\
         spec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
         template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 0\n      topologySpreadConstraints:\n      \
         - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, \
         labelSelector: {{matchLabels: {{app: {name}}}}}}}\n      \
         containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity]}}]\n"
    )
}

/// Waits until this many pods of an app, and no more, are ready; returns them.
pub async fn ready(
    stage: &Stage<'_>,
    namespace: &str,
    app: &str,
    count: usize,
) -> Result<(Vec<Value>, f64)> {
    let began = Instant::now();
    let found = selected(stage, namespace, &format!("app={app}"), count).await?;
    Ok((found, began.elapsed().as_secs_f64()))
}

/// The same, with any labels.
pub async fn selected(
    stage: &Stage<'_>,
    namespace: &str,
    labels: &str,
    count: usize,
) -> Result<Vec<Value>> {
    let pods = async || {
        let pods = stage.list(&["pods", "-n", namespace, "-l", labels])?;
        let all = pods.iter().all(|pod| objects::is_true(pod, "Ready"));
        Ok((pods.len() == count && all).then_some(pods))
    };
    stage.until(&format!("{count} pods {labels} ready"), crate::stage::PATIENCE, pods).await
}

/// Returns the form of a pod's agent: a native sidecar, a plain container, or none.
pub fn agent_in(pod: &Value) -> Option<&'static str> {
    let has = |list: &str| {
        let mut containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.any(|container| container["name"] == "net-prober")
    };
    has("initContainers").then_some("sidecar").or_else(|| has("containers").then_some("container"))
}

pub fn status(stage: &Stage<'_>, namespace: &str, name: &str) -> Result<Value> {
    Ok(stage.get(&["networkprober", name, "-n", namespace])?["status"].clone())
}
