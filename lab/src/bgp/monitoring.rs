//! A Prometheus that scrapes what every BIRD says of itself, and figures that the lab makes up.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::json;

use super::family::Family;
use super::ground::Ground;
use super::machine::EXPORTER_PORT;
use super::network::{self, GATEWAY};
use crate::cluster::exposure::{Sample, query};
use crate::tools;
use crate::wait::{Task, lock, samples};
use crate::workspace::write_whole;

const PROMETHEUS: &str = "prometheus";
/// Port of Prometheus, in the outer namespace.
const PORT: u16 = 9090;
/// It replays its own log when it starts again; on a busy machine that takes a while.
const PATIENCE: Duration = Duration::from_mins(1);
/// The figure that the lab makes up for each node.
pub const LOAD: &str = "lab_link_load_percent";

type Loads = Arc<Mutex<BTreeMap<String, f64>>>;

/// Prometheus, and what it scrapes.
#[derive(Debug)]
pub struct Monitoring {
    ground: Arc<Ground>,
    url: String,
    loads: Loads,
    _server: Task,
}

impl Monitoring {
    /// Starts an exporter beside every BIRD and a Prometheus, and waits until it has samples of
    /// all.
    pub async fn start(ground: Arc<Ground>) -> Result<Self> {
        tools::prepare(vec![PROMETHEUS]).await?;
        let loads = Loads::default();
        let outer = network::outer(&ground.id);
        // A socket stays in the namespace in which it was made.
        let listener = network::inside(&outer, || TcpListener::bind((GATEWAY, 0)))?;
        let listener = listener.with_context(|| format!("listening on {GATEWAY}"))?;
        listener.set_nonblocking(true)?;
        let figures = listener.local_addr()?;
        let router =
            Router::new().route("/metrics", get(exposition)).with_state(Arc::clone(&loads));
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let server = Task::spawn(async move { axum::serve(listener, router).await });
        let url = format!(
            "http://{}",
            ground.relay("relay-prometheus", &format!("{GATEWAY}:{PORT}")).await?
        );
        let monitoring = Self { ground, url, loads, _server: server };
        let configuration = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": "bird-exporter", "file_sd_configs": [{"files": [monitoring.targets()]}]},
                {"job_name": "lab", "honor_labels": true,
                 "static_configs": [{"targets": [figures.to_string()]}]},
            ],
        });
        fs::write(monitoring.file("prometheus.yml"), serde_json::to_vec_pretty(&configuration)?)?;
        monitoring.ground.each(super::machine::Machine::export)?;
        monitoring.follow_machines()?;
        monitoring.resume().await?;
        Ok(monitoring)
    }

    /// Its URL outside of the ground.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Evaluates a PromQL expression now.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        query(&self.url, expression).await
    }

    /// Says how loaded a node's link is from now on.
    pub fn set_load(&self, node: &str, percent: f64) {
        lock(&self.loads).insert(node.to_owned(), percent);
    }

    /// No longer reflects the load of a node that is gone.
    pub fn forget_load(&self, node: &str) {
        lock(&self.loads).remove(node);
    }

    /// Starts the exporter of a node that is new, and has it scraped.
    pub fn add(&self, node: &str) -> Result<()> {
        self.ground.machine(node)?.export()?;
        self.follow_machines()
    }

    /// Scrapes the current nodes.
    pub fn follow_machines(&self) -> Result<()> {
        let target = |machine: &Arc<super::machine::Machine>| {
            json!({
                "targets": [format!("{}:{EXPORTER_PORT}", machine.address(Family::V4))],
                "labels": {"node": machine.name, "instance": machine.name},
            })
        };
        let targets: Vec<_> = self.ground.machines().iter().map(target).collect();
        write_whole(self.targets().as_ref(), &serde_json::to_vec_pretty(&targets)?)
    }

    /// Kills Prometheus: its clients' connections are refused.
    pub fn stop(&self) -> Result<()> {
        self.ground.end_helper(PROMETHEUS)
    }

    /// Starts Prometheus, with what it knew before, and waits until it has fresh samples of all
    /// nodes.
    pub async fn resume(&self) -> Result<()> {
        let (config, data) = (self.file("prometheus.yml"), self.file("tsdb"));
        let command = tools::prometheus(&config, &data, &format!("{GATEWAY}:{PORT}"))?;
        let outer = network::outer(&self.ground.id);
        self.ground.help(PROMETHEUS, command.inside(Some(&outer)))?;
        let all = self.ground.machines().len();
        // Old samples are answered with for five minutes: only those from now on say anything.
        let fresh =
            r#"up{job="bird-exporter"} == 1 and (time() - timestamp(up{job="bird-exporter"})) < 3"#;
        samples("samples of all nodes", PATIENCE, all, async || self.query(fresh).await).await
    }

    fn targets(&self) -> String {
        self.file("targets.json")
    }

    fn file(&self, name: &str) -> String {
        self.ground.dir.join(name).to_string_lossy().into_owned()
    }
}

async fn exposition(State(loads): State<Loads>) -> String {
    let loads = lock(&loads);
    let lines = loads.iter().map(|(node, load)| format!("{LOAD}{{node=\"{node}\"}} {load}\n"));
    format!("# TYPE {LOAD} gauge\n{}", lines.collect::<String>())
}
