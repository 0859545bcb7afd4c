//! Queries that the network prober's scenarios send to the cluster.
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::stage::Stage;

/// The operator's namespace.
const OPERATOR: &str = "traffic-operator-system";
/// The agents' metrics port in all scenarios, as in the original's sample.
const METRICS_PORT: &str = "1222";

/// Prints the observation next to the behavior of the original (measured on the same kind of
/// cluster).
pub fn compare(original: &str, here: &str) {
    eprintln!("    original: {original}\n    here:     {here}");
}

/// Creates a NetworkProber that selects `app: <name>`, and waits until it is ready.
pub async fn create(stage: &Stage, name: &str, more: &str) -> Result<()> {
    let selector = format!("podSelector: {{matchLabels: {{app: {name}}}}}\n{more}");
    create_selecting(stage, name, &selector).await
}

/// Creates one with a selector that the scenario chooses.
pub async fn create_selecting(stage: &Stage, name: &str, spec: &str) -> Result<()> {
    let spec = spec.trim_end().replace('\n', "\n  ");
    let yaml = format!(
        "apiVersion: probes.bigmikes.io/v1alpha1\nkind: NetworkProber\n\
         metadata: {{name: {name}, namespace: default}}\n\
         spec:\n  httpPort: \"9090\"\n  httpPrometheusPort: \"{METRICS_PORT}\"\n  \
         monitoring: {{interval: 2s}}\n  {spec}\n"
    );
    stage.cluster.apply(&yaml).await?;
    let object = format!("networkprober/{name}");
    stage.cluster.kubectl(&["wait", "--for=condition=Ready", &object, "--timeout=60s"]).map(drop)
}

/// Deletes a NetworkProber and all pods of its scenario.
pub async fn delete(stage: &Stage, name: &str) -> Result<()> {
    let kubectl = |arguments: &[&str]| stage.cluster.kubectl(arguments);
    kubectl(&["delete", "networkprober", name, "--timeout=60s"])?;
    let label = format!("app={name}");
    kubectl(&["delete", "deployments,jobs,pods", "-A", "-l", &label, "--grace-period=1"])?;
    stage
        .until("the scenario's pods gone", async || {
            let pods = stage.json(&["pods", "-A", "-l", &label])?;
            Ok(pods["items"].as_array().is_some_and(Vec::is_empty))
        })
        .await
}

/// Creates a Deployment with one pod on each node.
pub async fn deploy(stage: &Stage, name: &str, replicas: u8) -> Result<()> {
    let yaml = format!(
        "apiVersion: apps/v1\nkind: Deployment\n\
         metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}\n\
         spec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
         template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 0\n      topologySpreadConstraints:\n      \
         - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, \
         labelSelector: {{matchLabels: {{app: {name}}}}}}}\n      \
         containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity]}}]\n"
    );
    stage.cluster.apply(&yaml).await
}

/// Creates a single pod; `more` goes into its spec.
pub async fn pod(stage: &Stage, namespace: &str, name: &str, app: &str, more: &str) -> Result<()> {
    let yaml = format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  {more}\n  \
         containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity]}}]\n"
    );
    stage.cluster.apply(&yaml).await
}

/// Waits until this many pods of a scenario are ready; returns them, and the seconds that took.
pub async fn ready(stage: &Stage, app: &str, count: usize) -> Result<(Vec<Value>, f64)> {
    let (began, label) = (Instant::now(), format!("app={app}"));
    let mut found = Vec::new();
    stage
        .until(&format!("{count} pods of {app} ready"), async || {
            let pods = stage.json(&["pods", "-A", "-l", &label])?;
            let pods = pods["items"].as_array().context("pods")?;
            found = pods.iter().filter(|pod| is_ready(pod)).cloned().collect();
            Ok(found.len() == count)
        })
        .await?;
    Ok((found, began.elapsed().as_secs_f64()))
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the form of a pod's agent: a native sidecar, a plain container, or none.
pub fn agent_in(pod: &Value) -> Option<&'static str> {
    let has = |list: &str| {
        let mut containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.any(|container| container["name"] == "net-prober")
    };
    has("initContainers").then_some("sidecar").or_else(|| has("containers").then_some("container"))
}

pub fn status(stage: &Stage, name: &str) -> Result<Value> {
    Ok(stage.json(&["networkprober", name])?["status"].clone())
}

/// Returns the number of selected pods without an agent for this reason.
pub fn not_injected(status: &Value, reason: &str) -> i64 {
    let mut listed = status["notInjected"].as_array().into_iter().flatten();
    listed
        .find(|entry| entry["reason"] == reason)
        .and_then(|entry| entry["count"].as_i64())
        .unwrap_or(0)
}

/// Reads the metrics page of a pod's agent.
pub fn metrics(stage: &Stage, pod: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/default/pods/{pod}:{METRICS_PORT}/proxy/metrics");
    stage.cluster.kubectl(&["get", "--raw", &path])
}

/// Adds up the samples of a metric that have all these labels.
pub fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels_of, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}')?,
            None if rest.starts_with(' ') => ("", rest),
            None => return None,
        };
        let has = |(key, value): &(&str, &str)| labels_of.contains(&format!("{key}=\"{value}\""));
        let value = value.split_whitespace().next()?.parse::<f64>().ok()?;
        labels.iter().all(has).then_some(value)
    });
    samples.sum()
}

/// Returns the number of restarts of the operator's containers.
pub fn operator_restarts(stage: &Stage) -> Result<i64> {
    let label = "app.kubernetes.io/part-of=traffic-operator";
    let pods = stage.json(&["pods", "-n", OPERATOR, "-l", label])?;
    let pods = pods["items"].as_array().context("pods")?;
    ensure!(!pods.is_empty(), "no operator");
    let containers =
        pods.iter().filter_map(|pod| pod["status"]["containerStatuses"].as_array()).flatten();
    Ok(containers.filter_map(|container| container["restartCount"].as_i64()).sum())
}
