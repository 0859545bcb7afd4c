//! The cluster, and the queries of every act.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::objects;
use crate::view::View;
use lab::cluster::Cluster;

/// The name of the `NetworkProber`, as the original's sample has it.
pub(super) const SAMPLE: &str = "networkprober-sample";
/// Value of the label on its series: namespace and name.
pub(super) const PROBER: &str = "default/networkprober-sample";
/// Labels of the demo's pods.
pub(super) const PODS: &str = "app=net-prober,part=web";
/// The time that the longest step may take: the original's sample is scraped every 30 s, after
/// Prometheus knows of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(110);

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
        self.cluster.apply(&objects::manifest(&format!("prober/{file}"))?).await
    }

    /// Reads objects as JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        objects::get(self.cluster, arguments)
    }

    /// Lists objects as JSON, without terminating ones.
    pub fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        objects::list(self.cluster, arguments)
    }

    /// The status of the `NetworkProber`.
    pub fn status(&self) -> Result<Value> {
        Ok(self.get(&["networkprober", SAMPLE])?["status"].clone())
    }

    /// Polls until a condition holds and returns what was found.
    pub async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        objects::until(what, PATIENCE, look).await.map_err(|error| {
            let state = [
                ["get", "networkprober,podmonitor,pods", "-A", "-o", "wide"].as_slice(),
                &["get", "events", "-n", "default", "--field-selector=type=Warning"],
            ]
            .map(|arguments| self.cluster.kubectl(arguments).unwrap_or_default());
            anyhow!("{error:#}\n{}", state.join("\n"))
        })
    }

    /// Waits until this many of the demo's pods are ready and returns them.
    pub async fn pods_ready(&self, count: usize) -> Result<Vec<Value>> {
        self.until(&format!("{count} pods ready"), async || {
            let pods = self.list(&["pods", "-l", PODS])?;
            let ready = pods.iter().filter(|pod| objects::is_true(pod, "Ready")).count();
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
