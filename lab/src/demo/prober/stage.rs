//! The cluster, and the queries of every act.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::demo::view::View;
use crate::workspace;

/// The name of the `NetworkProber`, as the original's sample has it.
pub(super) const SAMPLE: &str = "networkprober-sample";
/// Value of the label on its series: namespace and name.
pub(super) const PROBER: &str = "default/networkprober-sample";
/// Labels of the demo's pods.
pub(super) const PODS: &str = "app=net-prober,part=web";
/// The time that the longest step may take: the original's sample is scraped every 30 s, after
/// Prometheus knows of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(110);
/// Time between two checks: a kubectl takes a tenth of that.
const PERIOD: Duration = Duration::from_millis(500);

pub(super) struct Stage<'a> {
    pub cluster: &'a Cluster,
    view: View,
}

impl<'a> Stage<'a> {
    pub fn new(cluster: &'a Cluster, started: Instant) -> Self {
        Self { cluster, view: View::new(started) }
    }

    /// Prints what happens next, or what has happened.
    pub fn say(&self, text: &str) {
        self.view.say(text);
    }

    /// Applies one of the demo's manifests.
    pub async fn apply(&self, file: &str) -> Result<()> {
        let path = workspace::root().join("lab/demo/prober").join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        self.cluster.apply(&text).await
    }

    /// Reads objects as JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let all = [&["get"], arguments, &["-o", "json"]].concat();
        Ok(serde_json::from_str(&self.cluster.kubectl(&all)?)?)
    }

    /// Lists objects as JSON, without terminating ones.
    pub fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let list = self.get(arguments)?;
        let items = list["items"].as_array().context("no list")?;
        Ok(items
            .iter()
            .filter(|item| item["metadata"]["deletionTimestamp"].is_null())
            .cloned()
            .collect())
    }

    /// The status of the `NetworkProber`.
    pub fn status(&self) -> Result<Value> {
        Ok(self.get(&["networkprober", SAMPLE])?["status"].clone())
    }

    /// Polls until a condition holds and returns what was found.
    pub async fn until<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            let result = look().await;
            if let Ok(Some(found)) = result {
                return Ok(found);
            }
            if Instant::now() > end {
                let why = result.err().map(|error| format!(": {error:#}")).unwrap_or_default();
                let state = [
                    ["get", "networkprober,podmonitor,pods", "-A", "-o", "wide"].as_slice(),
                    &["get", "events", "-n", "default", "--field-selector=type=Warning"],
                ]
                .map(|arguments| self.cluster.kubectl(arguments).unwrap_or_default());
                bail!("{what}: not within {} s{why}\n{}", PATIENCE.as_secs(), state.join("\n"));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Waits until this many of the demo's pods are ready and returns them.
    pub async fn pods_ready(&self, count: usize) -> Result<Vec<Value>> {
        self.until(&format!("{count} pods ready"), async || {
            let pods = self.list(&["pods", "-l", PODS])?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            Ok((pods.len() == count && ready == count).then_some(pods))
        })
        .await
    }

    /// Queries Prometheus and returns the finite values by one label, or by two of them as
    /// `a -> b`.
    pub async fn by(&self, labels: &[&str], query: &str) -> Result<BTreeMap<String, f64>> {
        let samples = self.cluster.query(query).await?;
        let key = |found: &BTreeMap<String, String>| {
            let words: Vec<&str> =
                labels.iter().map(|label| found.get(*label).map_or("", String::as_str)).collect();
            words.join(" -> ")
        };
        Ok(samples
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(found, value)| (key(&found), value))
            .collect())
    }
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
