//! A Prometheus with a made-up history of three nodes: something to look at without a cluster.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use crate::cluster::exposure::query;
use crate::control_plane::free_port;
use crate::process::{Lifetime, Process, output};
use crate::tools;
use crate::wait::samples;

/// Seconds of the history before now.
const BEFORE: i64 = 6 * 3600;
/// Seconds after now, so that the newest sample stays young for this long.
const AFTER: i64 = 3600;
/// Seconds between two samples, as kube-prometheus scrapes a node-exporter.
const STEP: usize = 15;
/// Bytes of one percent of a link of 1 Gbit/s, in a second.
const PERCENT: usize = 1_250_000;
/// Prometheus opens its blocks in a second or two.
const LIMIT: Duration = Duration::from_secs(30);

/// The percentage of its link that a node uses, by seconds from now.
type Usage = fn(i64) -> usize;

const NODES: [(&str, Usage); 3] = [
    ("node-1", |_| 8),
    // Busy for the last two hours.
    ("node-2", |at| if at > -2 * 3600 { 72 } else { 31 }),
    // Busy for half an hour, three hours ago.
    ("node-3", |at| if (-3 * 3600..-9000).contains(&at) { 85 } else { 48 }),
];

/// A Prometheus on loopback, which ends when it is dropped.
#[derive(Debug)]
pub struct History {
    url: String,
    _process: Process,
}

impl History {
    /// Writes the history into `dir`, and starts a Prometheus that answers from it.
    pub async fn start(dir: &Path) -> Result<Self> {
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let (given, data, config) = (path("samples.txt"), path("data"), path("prometheus.yml"));
        fs::write(&given, exposition(Timestamp::now().as_second()))
            .with_context(|| format!("writing {given}"))?;
        let arguments = ["tsdb", "create-blocks-from", "openmetrics", &*given, &*data];
        output(tools::ensure("promtool")?, &arguments)?;
        fs::write(&config, "scrape_configs: []\n").with_context(|| format!("writing {config}"))?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let command = tools::prometheus(&config, &data, &address)?;
        let process = Process::start("prometheus", command, dir, Lifetime::Starter)?;
        let url = format!("http://{address}");
        let nodes = async || query(&url, "up").await;
        samples("the history in Prometheus", LIMIT, NODES.len(), nodes).await?;
        Ok(Self { url, _process: process })
    }

    /// Returns the address of the Prometheus.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The series of the node-exporters as OpenMetrics text: the input of promtool.
fn exposition(now: i64) -> String {
    let times = || (now - BEFORE..now + AFTER).step_by(STEP);
    let mut text = String::new();
    // Writing to a String cannot fail.
    for (node, _) in NODES {
        for time in times() {
            let _ = writeln!(text, "up{{job=\"node-exporter\",instance=\"{node}\"}} 1 {time}");
        }
    }
    for (node, percent) in NODES {
        let mut bytes = 0;
        for time in times() {
            bytes += percent(time - now) * PERCENT * STEP;
            let _ =
                writeln!(text, "node_network_transmit_bytes_total{} {bytes} {time}", eth0(node));
        }
    }
    for (node, _) in NODES {
        for time in times() {
            let speed = 100 * PERCENT;
            let _ = writeln!(text, "node_network_speed_bytes{} {speed} {time}", eth0(node));
        }
    }
    text.push_str("# EOF\n");
    text
}

fn eth0(node: &str) -> String {
    format!("{{job=\"node-exporter\",instance=\"{node}\",device=\"eth0\"}}")
}
