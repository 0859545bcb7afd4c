//! The cluster, and the queries of every act.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::figures;
use crate::objects;
use crate::view::View;
use lab::cluster::Cluster;
use lab::streams::Sink;

/// The longest step without a waiting time of its own, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// The time of several writes of a `RouteReflectorSet`: each waits a minute after the one before.
pub(super) const STEPS: Duration = Duration::from_mins(10);
/// Label of the workers' pods, and the name of their Swarm and `StatefulSet`.
pub(super) const WORKERS: &str = "recorder";

pub(super) struct Stage<'a> {
    pub cluster: &'a Cluster,
    /// Takes the reports of the workers.
    pub sink: Sink,
    view: View,
    started: Instant,
}

impl<'a> Stage<'a> {
    pub async fn new(cluster: &'a Cluster, started: Instant) -> Result<Self> {
        let sink = cluster.stream_sink().await?;
        Ok(Self { cluster, sink, view: View::new(started), started })
    }

    /// The time since the demo began.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints what happens next, or what has happened.
    pub fn say(&self, text: &str) {
        self.view.say(text);
    }

    /// Applies one of the demo's manifests, with the address for the workers' reports.
    pub async fn apply(&self, file: &str) -> Result<()> {
        self.say(&format!("kubectl apply -f e2e/manifests/{file}"));
        self.cluster.apply(&objects::manifest(file)?.replace("SINK", &self.sink.url())).await
    }

    /// Polls until a condition holds and returns what was found.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        objects::until(what, limit, look).await.map_err(|error| {
            let state = [
                ["get", "traffic,pods", "-A", "-o", "wide"].as_slice(),
                &["get", "nodes", "--show-labels"],
                &["get", "events", "-n", "default", "--field-selector=type=Warning"],
            ]
            .map(|arguments| self.cluster.kubectl(arguments).unwrap_or_default());
            anyhow!("{error:#}\n{}", state.join("\n"))
        })
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<Value>> {
        objects::list(self.cluster, &["nodes"])
    }

    /// The nodes that carry the label of a reflector.
    pub fn reflectors(&self) -> Result<BTreeSet<String>> {
        Ok(figures::reflectors(&self.nodes()?))
    }

    /// The nodes that the `TrafficWatch` has marked unfit.
    pub fn unfit(&self) -> Result<BTreeSet<String>> {
        Ok(figures::unfit(&self.nodes()?))
    }

    /// Units of bandwidth that a node offers to pods.
    pub fn offered(&self, node: &str) -> Result<Option<u64>> {
        Ok(figures::offered(&objects::get(self.cluster, &["node", node])?))
    }

    /// The node of each worker.
    pub fn workers(&self) -> Result<BTreeMap<String, String>> {
        let pods = objects::list(self.cluster, &["pods", "-l", &format!("app={WORKERS}")])?;
        let place = |pod: &Value| (objects::name(pod), objects::text(&pod["spec"]["nodeName"]));
        Ok(pods.iter().map(place).collect())
    }

    /// Mbit/s that each node sends, by the counters of its interface.
    pub async fn rates(&self, time: Duration) -> Result<BTreeMap<String, f64>> {
        let nodes = self.cluster.node_names();
        let counters = || -> Result<Vec<u64>> {
            nodes.iter().map(|node| Ok(self.cluster.counters(node)?.tx_bytes)).collect()
        };
        let (before, began) = (counters()?, Instant::now());
        tokio::time::sleep(time).await;
        let (after, seconds) = (counters()?, began.elapsed().as_secs_f64());
        let rates = before.iter().zip(&after).map(|(before, after)| {
            #[allow(clippy::cast_precision_loss, reason = "gigabytes at most")]
            let bytes = after.saturating_sub(*before) as f64;
            bytes * 8.0 / 1e6 / seconds
        });
        Ok(nodes.iter().cloned().zip(rates).collect())
    }

    /// Queries Prometheus and returns the finite values by a label.
    pub async fn by(&self, label: &str, query: &str) -> Result<BTreeMap<String, f64>> {
        let samples = self.cluster.query(query).await?.into_iter();
        let finite = samples.filter(|(_, value)| value.is_finite());
        Ok(finite
            .map(|(found, value)| (found.get(label).cloned().unwrap_or_default(), value))
            .collect())
    }

    /// Creates pods that reserve bandwidth, all at once; on one node or where the scheduler puts
    /// them.
    pub async fn reserve(&self, pods: &[String], mbits: u64, node: Option<&str>) -> Result<()> {
        let place = node.map_or_else(String::new, |node| {
            format!("\n  nodeSelector: {{kubernetes.io/hostname: {node}}}")
        });
        let document = |pod: &String| {
            format!(
                "apiVersion: v1\nkind: Pod\n\
                 metadata: {{name: {pod}, namespace: default, labels: {{app: reserving}}}}\n\
                 spec:\n  terminationGracePeriodSeconds: 0{place}\n  containers:\n  \
                 - name: main\n    image: docker.io/library/busybox:1.35\n    \
                 command: [busybox, sleep, infinity]\n    \
                 resources: {{limits: {{{}: \"{mbits}\"}}}}\n",
                figures::RESOURCE
            )
        };
        let documents: Vec<String> = pods.iter().map(document).collect();
        self.cluster.apply(&documents.join("---\n")).await
    }

    /// Returns the node of each pod that reserves bandwidth and has been placed.
    pub fn reserving(&self) -> Result<BTreeMap<String, String>> {
        let pods = objects::list(self.cluster, &["pods", "-l", "app=reserving"])?;
        let place = |pod: &Value| (objects::name(pod), objects::text(&pod["spec"]["nodeName"]));
        Ok(pods.iter().map(place).filter(|(_, node)| !node.is_empty()).collect())
    }

    /// Deletes the pods that reserve bandwidth.
    pub fn reserve_nothing(&self) -> Result<()> {
        let arguments = ["delete", "pods", "-l", "app=reserving", "--grace-period=0", "--force"];
        self.cluster.kubectl(&arguments).map(drop)
    }

    /// Waits for the words with which the scheduler says why a pod waits.
    pub async fn reason(&self, pod: &str) -> Result<String> {
        let selector =
            format!("--field-selector=reason=FailedScheduling,involvedObject.name={pod}");
        self.until(&format!("the scheduler's reason for {pod}"), PATIENCE, async || {
            let events = objects::list(self.cluster, &["events", "-n", "default", &selector])?;
            let wanted = format!("Insufficient {}", figures::RESOURCE);
            let mut words = events.iter().rev().map(|event| objects::text(&event["message"]));
            Ok(words.find(|words| words.contains(&wanted)))
        })
        .await
    }

    /// Reports whether a condition of an object in the namespace default is True.
    pub fn condition(&self, object: &str, condition: &str) -> Result<bool> {
        let found = objects::get(self.cluster, &[object]).with_context(|| object.to_owned())?;
        Ok(objects::is_true(&found, condition))
    }
}
