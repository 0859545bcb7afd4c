//! A Prometheus with the series of thousands of nodes, for benches: one exporter makes up what the
//! node-exporters of all of them would export.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;

use crate::cluster::exposure::query;
use crate::control_plane::free_port;
use crate::process::{Lifetime, Process};
use crate::wait::{Task, lock, until};
use crate::{credentials, exposition, process, tools, workspace};

/// Bytes that a link of 10 Gbit/s carries in a second: `node_network_speed_bytes`.
const SPEED: u64 = 1_250_000_000;
/// Bytes that one percent of such a link carries in a millisecond.
const PERCENT: u64 = SPEED / 1000 / 100;
/// The percentage of its link that a node uses, and that a busy one uses.
const USAGE: [u64; 2] = [10, 90];
/// The devices of a node, as on one with two cards and a bridge for pods.
const DEVICES: [&str; 4] = ["eth0", "eth1", "cni0", "lo"];
/// The devices that have a speed.
const LINKS: [&str; 2] = ["eth0", "eth1"];
/// Time between two scrapes, as kube-prometheus scrapes a node-exporter.
const SCRAPES: &str = "15s";
/// Two scrapes, on a machine that is busy with the series of thousands of nodes.
const LIMIT: Duration = Duration::from_mins(3);
/// An answer of Prometheus about itself takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An exporter of many nodes and a Prometheus that scrapes it; both end when it is dropped.
///
/// The exporter is one target whose labels are kept (`honor_labels`): the stored series are those
/// of one target per node, at the cost of one scrape.
#[derive(Debug)]
pub struct Fleet {
    dir: PathBuf,
    url: String,
    counters: Arc<Mutex<Counters>>,
    _exporter: Task,
    prometheus: Process,
}

impl Fleet {
    /// Starts both, and waits until a rate of every node can be computed. `address` returns the
    /// address of each node's exporter, its label `instance`.
    pub async fn start(nodes: usize, address: impl Fn(usize) -> String) -> Result<Self> {
        tools::prepare(vec!["prometheus"]).await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let target = listener.local_addr()?.to_string();
        let counters = Counters::new((0..nodes).map(address).collect());
        let counters = Arc::new(Mutex::new(counters));
        let router = Router::new().route("/metrics", get(serve)).with_state(Arc::clone(&counters));
        let exporter = Task::spawn(async move { axum::serve(listener, router).await });
        let dir = workspace::own(&format!("fleet-{}", workspace::unique()))?;
        let configuration = json!({
            "global": {"scrape_interval": SCRAPES, "scrape_timeout": "10s"},
            "scrape_configs": [{
                "job_name": "fleet", "honor_labels": true,
                "static_configs": [{"targets": [target]}],
            }],
        });
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        fs::write(path("prometheus.yml"), serde_json::to_vec_pretty(&configuration)?)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let command = tools::prometheus(&path("prometheus.yml"), &path("data"), &address)?;
        let prometheus = Process::start("prometheus", command, &dir, Lifetime::Starter)?;
        let url = format!("http://{address}");
        let fleet = Self { dir, url, counters, _exporter: exporter, prometheus };
        fleet.whole(nodes).await?;
        Ok(fleet)
    }

    /// Waits until Prometheus knows the rate of every node.
    async fn whole(&self, nodes: usize) -> Result<()> {
        let rates = r#"rate(node_network_transmit_bytes_total{device="eth0"}[1m])"#;
        let missing = format!("{nodes} - count({rates})");
        until("the rates of all nodes in Prometheus", LIMIT, || async {
            self.prometheus.check()?;
            Ok(match query(&self.url, &missing).await {
                Ok(samples) if samples.iter().any(|(_, missing)| *missing < 0.5) => None,
                Ok(samples) => Some(format!("missing: {samples:?}")),
                Err(error) => Some(format!("{error:#}")),
            })
        })
        .await
    }

    /// Returns the address of the Prometheus.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets the first `busy` nodes use 90 % of their links from now on, and the others 10 %.
    pub fn set_busy(&self, busy: usize) {
        let mut counters = lock(&self.counters);
        counters.advance(Instant::now());
        counters.busy = busy;
    }

    /// Returns the processor time of Prometheus so far, in milliseconds.
    pub fn cpu(&self) -> Result<f64> {
        let pid = self.prometheus.pid().context("Prometheus does not run")?;
        process::cpu(pid)
    }

    /// Returns the number of instant queries that Prometheus has answered, as it counts them.
    pub async fn queries(&self) -> Result<f64> {
        credentials::install_crypto();
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        let metrics = client.get(format!("{}/metrics", self.url)).send().await?.text().await?;
        Ok(answered(&metrics))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.prometheus.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The sum of the requests to the handler of instant queries, whatever was answered.
fn answered(metrics: &str) -> f64 {
    let requests = exposition::samples(metrics, "prometheus_http_requests_total").into_iter();
    requests
        .filter(|(labels, _)| labels["handler"] == "/api/v1/query")
        .map(|(_, count)| count)
        .sum()
}

#[derive(Debug)]
struct Counters {
    addresses: Vec<String>,
    /// Bytes that each node has sent over its first link.
    sent: Vec<u64>,
    /// The number of busy nodes, which are the first ones.
    busy: usize,
    /// The time that the counters have reached.
    at: Instant,
}

impl Counters {
    fn new(addresses: Vec<String>) -> Self {
        Self { sent: vec![0; addresses.len()], addresses, busy: 0, at: Instant::now() }
    }

    /// Counts what was sent until now.
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_millis();
        // Whole milliseconds: the rest counts the next time.
        let passed = u64::try_from(passed).unwrap_or(0);
        self.at += Duration::from_millis(passed);
        for (node, sent) in self.sent.iter_mut().enumerate() {
            *sent += USAGE[usize::from(node < self.busy)] * PERCENT * passed;
        }
    }

    /// Renders the page of all node-exporters.
    fn page(&self) -> String {
        // About 1,200 bytes for each node.
        let mut text = String::with_capacity(self.sent.len() * 1300);
        // The second link is nearly idle; pods' traffic passes both the bridge and the first link.
        let bytes = |device: &str, sent: u64| if device == "eth1" { sent / 100 } else { sent };
        self.write(&mut text, "up", "gauge", &[""], |_, _| 1);
        self.write(&mut text, "node_network_transmit_bytes_total", "counter", &DEVICES, bytes);
        self.write(&mut text, "node_network_receive_bytes_total", "counter", &DEVICES, bytes);
        self.write(&mut text, "node_network_speed_bytes", "gauge", &LINKS, |_, _| SPEED);
        text
    }

    /// Writes one metric of all nodes, by device; `""` is none.
    fn write(
        &self,
        text: &mut String,
        name: &str,
        kind: &str,
        devices: &[&str],
        value: impl Fn(&str, u64) -> u64,
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (address, sent) in self.addresses.iter().zip(&self.sent) {
            for &device in devices {
                let _ = write!(text, r#"{name}{{job="node-exporter",instance="{address}""#);
                if !device.is_empty() {
                    let _ = write!(text, r#",device="{device}""#);
                }
                let _ = writeln!(text, "}} {}", value(device, *sent));
            }
        }
    }
}

async fn serve(State(counters): State<Arc<Mutex<Counters>>>) -> impl IntoResponse {
    let text = {
        let mut counters = lock(&counters);
        counters.advance(Instant::now());
        counters.page()
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
