//! The cluster of an act: everything that the act leaves on it is removed, also if it fails.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use kube::Client;
use lab::cluster::Sample;
use lab::cluster::operator::{NAMESPACE, OURS};
use lab::wait::lock;
use lab::{AuditEvent, Cluster};
use serde_json::Value;

use crate::judge::operator_writes;
use crate::objects;
use crate::report::Act;

/// The longest wait for a rate, a scrape or a roll-out, on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(500);

type Undo = Box<dyn FnOnce(&Cluster) -> Result<()> + Send>;

/// A cluster with the operator, for one act.
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub client: Client,
    /// The operator's program, for its commands.
    pub operator: &'a Path,
    act: Act<'a>,
    undo: Mutex<Vec<Undo>>,
}

impl<'a> Deref for Stage<'a> {
    type Target = Act<'a>;

    fn deref(&self) -> &Act<'a> {
        &self.act
    }
}

impl<'a> Stage<'a> {
    pub fn new(cluster: &'a Cluster, operator: &'a Path, act: Act<'a>) -> Result<Self> {
        Ok(Self { cluster, client: cluster.client()?, operator, act, undo: Mutex::default() })
    }

    /// Has something done when the act is over, whatever its end; the last thing first.
    pub fn finally(&self, undo: impl FnOnce(&Cluster) -> Result<()> + Send + 'static) {
        lock(&self.undo).push(Box::new(undo));
    }

    /// Removes everything that the act has left; all of it, even if something fails.
    pub async fn clear(self) -> Result<()> {
        let undo = self.undo.into_inner().unwrap_or_else(PoisonError::into_inner);
        let results: Vec<Result<()>> =
            undo.into_iter().rev().map(|undo| undo(self.cluster)).collect();
        let nodes = self.cluster.node_names();
        self.cluster.nodes_ready(&nodes).await?;
        for node in &nodes {
            self.cluster.mark(node).await?;
        }
        let installed = ["get", "deployments", "-n", NAMESPACE, "-l", OURS, "-o", "name"];
        if !self.cluster.kubectl(&installed)?.is_empty() {
            self.cluster.operator_ready().await?;
        }
        results.into_iter().collect()
    }

    /// Takes controllers and webhook away, until the act is over at the latest.
    pub async fn operator_away(&self) -> Result<()> {
        self.finally(|cluster| {
            let both = ["scale", "deployment", "-l", OURS, "--replicas=2"];
            cluster.kubectl(&[&["-n", NAMESPACE], &both[..]].concat()).map(drop)
        });
        self.say("scaling controllers and webhook to 0");
        self.cluster.scale_operator(0).await
    }

    /// Has a node's cable plugged in, and the node switched on, when the act is over.
    pub fn node_back(&self, node: &str) {
        let node = node.to_owned();
        self.finally(move |cluster| {
            cluster.join(&node)?;
            if cluster.node_runs(&node) { Ok(()) } else { cluster.start_node(&node) }
        });
    }

    /// Applies manifests, and has their objects deleted when the act is over.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        let text = yaml.to_owned();
        self.finally(move |cluster| delete(cluster, &text));
        self.cluster.apply(yaml).await
    }

    /// Applies one of the manifests of e2e, or of deploy/samples; `SINK` in it is the address for
    /// reports.
    pub async fn apply_file(&self, file: &str) -> Result<()> {
        self.say(&format!("kubectl apply -f {file}"));
        self.apply(&objects::manifest(file)?).await
    }

    /// Runs kubectl, and prints the command.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.say(&format!("kubectl {}", arguments.join(" ")));
        self.cluster.kubectl(arguments)
    }

    /// Reads an object or a list as `kubectl get -o json` does.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        if let Some(found) = objects::get(&self.client, arguments) {
            return found;
        }
        let all = [&["get"], arguments, &["-o", "json"]].concat();
        Ok(serde_json::from_str(&self.cluster.kubectl(&all)?)?)
    }

    /// Lists objects, without terminating ones.
    pub fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let list = self.get(arguments)?;
        let items = list["items"].as_array().context("no list")?.iter();
        let alive = items.filter(|item| item["metadata"]["deletionTimestamp"].is_null());
        Ok(alive.cloned().collect())
    }

    /// Polls until something is found.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            let result = look().await;
            if let Ok(Some(found)) = result {
                return Ok(found);
            }
            if Instant::now() > end {
                let why = result.err().map(|error| format!(": {error:#}")).unwrap_or_default();
                bail!("{what}: not within {} s{why}\n{}", limit.as_secs(), self.state());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Polls until a condition holds.
    pub async fn wait(
        &self,
        what: &str,
        mut holds: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.until(what, PATIENCE, async || Ok(holds().await?.then_some(()))).await
    }

    /// Returns the end of the operator's log.
    pub fn operator_log(&self) -> String {
        let arguments = ["logs", "-n", NAMESPACE, "-l", OURS, "--prefix", "--tail=20"];
        self.cluster.kubectl(&arguments).unwrap_or_else(|error| error.to_string())
    }

    /// Returns what people look at first, for an error.
    fn state(&self) -> String {
        let state = [
            ["get", "traffic,pods", "-A", "-o", "wide"].as_slice(),
            &["get", "nodes", "--show-labels"],
            &["get", "events", "-A", "--field-selector=type=Warning"],
        ];
        state.map(|arguments| self.cluster.kubectl(arguments).unwrap_or_default()).join("\n")
    }

    /// Queries Prometheus until it answers: where everything is busy, one answer may take longer than a
    /// request waits.
    pub async fn query(&self, query: &str) -> Result<Vec<Sample>> {
        let ask = async || self.cluster.query(query).await.map(Some);
        self.until("an answer of Prometheus", PATIENCE, ask).await
    }

    /// Queries Prometheus and returns the finite values by one label, or by several of them as
    /// `a -> b`.
    pub async fn by(&self, labels: &[&str], query: &str) -> Result<BTreeMap<String, f64>> {
        let samples = self.query(query).await?;
        let key = |found: &BTreeMap<String, String>| {
            let words: Vec<&str> =
                labels.iter().map(|label| found.get(*label).map_or("", String::as_str)).collect();
            words.join(" -> ")
        };
        let finite = samples.into_iter().filter(|(_, value)| value.is_finite());
        Ok(finite.map(|(found, value)| (key(&found), value)).collect())
    }

    /// Reports whether a condition of an object is True.
    pub fn holds(&self, object: &[&str], condition: &str) -> Result<bool> {
        Ok(objects::is_true(&self.get(object)?, condition))
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
            #[expect(clippy::cast_precision_loss, reason = "gigabytes at most")]
            let bytes = after.saturating_sub(*before) as f64;
            bytes * 8.0 / 1e6 / seconds
        });
        Ok(nodes.iter().cloned().zip(rates).collect())
    }

    /// The operator's writes since then, its Lease apart.
    pub async fn writes(&self, since: Timestamp) -> Result<Vec<AuditEvent>> {
        let events = self.cluster.whole_audit_since(since).await?;
        Ok(operator_writes(&events).into_iter().cloned().collect())
    }

    /// Asks the API server for a path, as often as it takes: a connection through a proxy may time
    /// out on a busy machine.
    pub async fn proxied(&self, path: &str) -> Result<String> {
        let ask = async || self.cluster.kubectl(&["get", "--raw", path]).map(Some);
        self.until(path, PATIENCE, ask).await
    }
}

/// Deletes the objects of manifests, and waits until they are gone.
fn delete(cluster: &Cluster, yaml: &str) -> Result<()> {
    let file = cluster.dir().join(format!("delete-{}.yaml", lab::workspace::unique()));
    std::fs::write(&file, yaml)?;
    let path = file.to_string_lossy();
    let arguments = ["delete", "-f", &path, "--ignore-not-found", "--timeout=120s"];
    let result = cluster.kubectl(&arguments).map(drop);
    std::fs::remove_file(&file)?;
    result.map_err(|error| anyhow!("removing what an act left: {error:#}"))
}
