//! The cluster, and the queries that every scenario sends to it.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use lab::{AuditEvent, Cluster, ClusterOptions};
use serde_json::Value;

use crate::{objects, upgrading};

/// The longest wait for any condition here: rates, scrapes and roll-outs.
const PATIENCE: Duration = Duration::from_mins(3);

/// The operator's account at the API server.
pub const ACCOUNT: &str = "system:serviceaccount:traffic-operator-system:traffic-operator";

/// A cluster with the operator deployed.
pub struct Stage {
    pub cluster: Cluster,
    client: Client,
}

impl Stage {
    pub async fn set() -> Result<Self> {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(".lab/image/traffic-operator.tar");
        ensure!(archive.exists(), "{} is not there: run `make image`", archive.display());
        let mut images = vec![image::original_agent_archive(&archive), archive];
        images.extend(upgrading::before().map(|before| upgrading::image(&before)));
        let options = ClusterOptions {
            // The links are 10 Gbit/s; traffic that fills a tenth of them is enough.
            capacity: Some("1G".into()),
            images,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start(options).await?;
        cluster.deploy_operator().await?;
        let client = cluster.client()?;
        Ok(Self { cluster, client })
    }

    pub async fn strike(self) -> Result<()> {
        self.cluster.down().await
    }

    /// A TrafficWatch with windows short enough for a test.
    pub async fn watch(&self, name: &str, spec: &str) -> Result<()> {
        let indented = spec.trim_end().replace('\n', "\n  ");
        let yaml = format!(
            "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
             metadata: {{name: {name}, namespace: default}}\n\
             spec:\n  maxBandwidthPercent: \"30\"\n  interval: 2s\n  window: 20s\n  {indented}\n"
        );
        self.cluster.apply(&yaml).await
    }

    pub fn delete(&self, name: &str) -> Result<()> {
        self.cluster.kubectl(&["delete", "trafficwatch", name, "--timeout=60s"]).map(drop)
    }

    /// Returns what `kubectl get` prints with these arguments and `-o json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        if let Some(found) = objects::get(&self.client, arguments) {
            return found;
        }
        let mut all = vec!["get"];
        all.extend(arguments);
        all.extend(["-o", "json"]);
        Ok(serde_json::from_str(&self.cluster.kubectl(&all)?)?)
    }

    pub fn status(&self, name: &str) -> Result<Value> {
        Ok(self.json(&["trafficwatch", name])?["status"].clone())
    }

    pub fn condition(&self, name: &str, type_: &str) -> Result<(String, String)> {
        let status = self.status(name)?;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == type_);
        let text = |key: &str| found.and_then(|c| c[key].as_str()).unwrap_or_default().to_owned();
        Ok((text("status"), text("reason")))
    }

    /// Returns the label of a node for the TrafficWatch `name`.
    pub fn label(&self, node: &str, name: &str) -> Result<Option<String>> {
        let node = self.json(&["node", node])?;
        let labels = &node["metadata"]["labels"];
        Ok(labels[format!("{name}.traffic.example.com/unfit")].as_str().map(str::to_owned))
    }

    pub async fn until_label(&self, node: &str, name: &str, value: Option<&str>) -> Result<()> {
        self.until(&format!("label of {node} for {name} = {value:?}"), async || {
            Ok(self.label(node, name)?.as_deref() == value)
        })
        .await
    }

    pub async fn until_ready(&self, name: &str) -> Result<()> {
        self.until(
            &format!("{name} Ready"),
            async || Ok(self.condition(name, "Ready")?.0 == "True"),
        )
        .await
    }

    /// Polls until the condition holds.
    pub async fn until(
        &self,
        what: &str,
        mut holds: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let result = holds().await;
            if matches!(result, Ok(true)) {
                return Ok(());
            }
            if Instant::now() > end {
                let watches = self.cluster.kubectl(&["get", "trafficwatch", "-A", "-o", "yaml"]);
                let why = result.err().map(|e| format!("{e:#}")).unwrap_or_default();
                bail!("not within {PATIENCE:?}: {what} {why}\n{}", watches.unwrap_or_default());
            }
            // Some looks are a kubectl, a tenth of a second of processor time.
            tokio::time::sleep(Duration::from_millis(750)).await;
        }
    }

    /// Returns the nodes on which the pods with a label run.
    pub fn nodes_of(&self, selector: &str) -> Result<Vec<String>> {
        let pods = self.json(&["pods", "-l", selector])?;
        let items = pods["items"].as_array().context("pods")?;
        let nodes = items.iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null());
        let mut nodes: Vec<_> = nodes
            .map(|p| p["spec"]["nodeName"].as_str().unwrap_or("(not scheduled)").to_owned())
            .collect();
        nodes.sort();
        Ok(nodes)
    }

    /// Returns the operator's writes to nodes since then.
    pub async fn node_writes(&self, since: Timestamp) -> Result<Vec<AuditEvent>> {
        let events = self.cluster.whole_audit_since(since).await?;
        let ours = events.into_iter().filter(|e| e.is_write() && e.user == ACCOUNT);
        Ok(ours.filter(|e| e.resource == "nodes").collect())
    }
}
