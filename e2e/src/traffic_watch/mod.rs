//! TrafficWatches: nodes are judged, and what follows.

pub mod autoscaling;
pub mod exporters;
pub mod judging;
pub mod kubelets;
pub mod pods;
pub mod reserving;
pub mod tour;
mod view;

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::objects;
use crate::stage::Stage;

/// Bits per second that make a node unfit: half of its link, above the threshold of 30 %.
pub const LOAD: u64 = 500_000_000;
/// The longest time for which a node is loaded.
pub const LOADED: Duration = Duration::from_mins(15);

/// Applies a `TrafficWatch` of bandwidth with windows short enough for a test.
pub async fn watch(stage: &Stage<'_>, name: &str, more: &str) -> Result<()> {
    let short = "maxBandwidthPercent: \"30\"\ninterval: 2s\nwindow: 20s";
    watch_by(stage, name, &format!("{short}\n{more}")).await
}

/// Applies any `TrafficWatch`.
pub async fn watch_by(stage: &Stage<'_>, name: &str, spec: &str) -> Result<()> {
    let spec = spec.trim_end().replace('\n', "\n  ");
    let yaml = format!(
        "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
         metadata: {{name: {name}, namespace: default}}\nspec:\n  {spec}\n"
    );
    stage.apply(&yaml).await
}

/// A Deployment for a TrafficWatch.
pub fn deployment(app: &str, affinity: &str) -> String {
    format!(
        "deployment:
  replicas: 4
  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      {affinity}
      containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, infinity]}}]"
    )
}

pub fn status(stage: &Stage<'_>, name: &str) -> Result<Value> {
    Ok(stage.get(&["trafficwatch", name])?["status"].clone())
}

/// Returns the label of a node for a TrafficWatch.
pub fn label(stage: &Stage<'_>, node: &str, name: &str) -> Result<Option<String>> {
    let node = stage.get(&["node", node])?;
    let found = &node["metadata"]["labels"][format!("{name}.traffic.example.com/unfit")];
    Ok(found.as_str().map(str::to_owned))
}

pub async fn until_label(stage: &Stage<'_>, node: &str, name: &str, value: &str) -> Result<()> {
    let is = async || Ok(label(stage, node, name)?.as_deref() == Some(value));
    stage.wait(&format!("the label of {node} for {name}: {value}"), is).await
}

pub async fn until_state(stage: &Stage<'_>, node: &str, name: &str, state: &str) -> Result<()> {
    let is = async || Ok(status(stage, name)?["nodes"][node]["state"] == state);
    stage.wait(&format!("{node} {state} for {name}"), is).await
}

pub async fn until_ready(stage: &Stage<'_>, name: &str) -> Result<()> {
    let ready = async || stage.holds(&["trafficwatch", name], "Ready");
    stage.wait(&format!("TrafficWatch {name} ready"), ready).await
}

/// Waits until the decision metrics, as scraped by Prometheus, show a judgment after `time`.
pub async fn judged_after(stage: &Stage<'_>, name: &str, time: Timestamp) -> Result<()> {
    let query = format!(
        "max(traffic_operator_trafficwatch_last_success_timestamp_seconds{{name=\"{name}\"}})"
    );
    let time = time.as_duration().as_secs_f64();
    let judged = async || {
        Ok(stage.cluster.query(&query).await?.first().is_some_and(|sample| sample.1 > time))
    };
    stage.wait("a judgment", judged).await
}

/// Returns the nodes on which the pods with a label run; an empty name for one that waits.
pub fn nodes_of(stage: &Stage<'_>, selector: &str) -> Result<Vec<String>> {
    let mut nodes: Vec<String> =
        stage.list(&["pods", "-l", selector])?.iter().map(objects::node).collect();
    nodes.sort();
    Ok(nodes)
}

/// Waits until four pods with a label run on other nodes than this one.
async fn until_off(stage: &Stage<'_>, selector: &str, node: &str) -> Result<()> {
    let off = async || {
        let nodes = nodes_of(stage, selector)?;
        Ok(nodes.len() == 4 && nodes.iter().all(|other| !other.is_empty() && other != node))
    };
    stage.wait(&format!("the pods {selector} off {node}"), off).await
}

/// The operator's writes to nodes since then.
pub async fn node_writes(stage: &Stage<'_>, since: Timestamp) -> Result<Vec<String>> {
    let writes = stage.writes(since).await?.into_iter().filter(|event| event.resource == "nodes");
    Ok(writes.map(|event| format!("{} {}/{}", event.verb, event.name, event.subresource)).collect())
}
