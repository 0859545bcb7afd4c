//! The product's reports about the nodes, and their display: plain lines, for terminals and logs
//! alike.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use lab::exposition;
use serde_json::Value;

use crate::leader;
use crate::objects::ours;
use crate::stage::Stage;

/// The sample's name, which is also its Deployment's and the stem of the node label.
pub(super) const SAMPLE: &str = "trafficwatch-sample";

/// A reading of everything at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub nodes: BTreeMap<String, NodeReading>,
    /// `status.ready`.
    pub ready: bool,
    /// The metrics of the replica that leads.
    pub metrics: String,
}

/// The reports about one node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeReading {
    /// Percent of the link, from the operator's metrics: the status is refreshed only once a
    /// minute.
    pub percent: Option<f64>,
    /// Percent of the link, from the status.
    pub status_percent: Option<f64>,
    pub device: String,
    pub state: String,
    pub label: String,
}

/// Reads from the API server.
pub(super) struct Reader {
    nodes: Api<Node>,
    watches: Api<DynamicObject>,
    client: Client,
}

impl Reader {
    pub fn new(client: &Client) -> Self {
        let resource = ours("TrafficWatch", "trafficwatches");
        Self {
            nodes: Api::all(client.clone()),
            watches: Api::namespaced_with(client.clone(), "default", &resource),
            client: client.clone(),
        }
    }

    /// Takes one reading.
    pub async fn read(&self) -> Result<Reading> {
        let status = self
            .watches
            .get_opt(SAMPLE)
            .await?
            .map(|watch| watch.data["status"].clone())
            .unwrap_or_default();
        let metrics = leader::metrics(&self.client).await.unwrap_or_default();
        let values = exposition::samples(&metrics, "traffic_operator_trafficwatch_node_value");
        let key = format!("{SAMPLE}.traffic.example.com/unfit");
        let mut nodes = BTreeMap::new();
        for node in self.nodes.list(&ListParams::default()).await? {
            let name = node.name_any();
            let reported = &status["nodes"][&name];
            let text = |field: &str| reported[field].as_str().unwrap_or_default().to_owned();
            let reading = NodeReading {
                percent: values
                    .iter()
                    .find(|(labels, _)| labels.get("node") == Some(&name))
                    .map(|(_, value)| *value),
                status_percent: number(&reported["currentBandwidthPercent"]),
                device: text("device"),
                state: text("state"),
                label: node.labels().get(&key).cloned().unwrap_or_default(),
            };
            nodes.insert(name, reading);
        }
        Ok(Reading { nodes, ready: status["ready"] == true, metrics })
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Prints readings as they change.
#[derive(Default)]
pub(super) struct View(String);

impl View {
    /// Shows a reading, if it differs from the last one shown.
    pub fn show(&mut self, stage: &Stage<'_>, reading: &Reading) {
        let line = line(reading);
        if line != self.0 {
            stage.say(&format!("  {line}"));
            self.0 = line;
        }
    }
}

fn line(reading: &Reading) -> String {
    let or = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let nodes: Vec<String> = reading
        .nodes
        .iter()
        .map(|(name, node)| {
            let percent =
                node.percent.map_or_else(|| "    -".to_owned(), |percent| format!("{percent:5.1}"));
            format!(
                "{name} {percent} % of {} {} unfit={}",
                or(&node.device),
                or(&node.state),
                or(&node.label)
            )
        })
        .collect();
    nodes.join(" | ")
}
