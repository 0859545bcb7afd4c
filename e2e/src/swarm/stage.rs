//! The cluster, what its workers report, and one step after the other.

use std::ops::Deref;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams};

use super::file::{self, File};
use super::history::History;
use super::settled::{Times, Workers, missing, restarted, worker};
use super::table::{Ran, Row};
use crate::objects::{ours, text};
use crate::stage::Stage as Ground;
use lab::streams::{Millis, Sink, Stretch, now};
use lab::workspace;

/// The original's names.
pub(super) const NAMESPACE: &str = "swarm";
pub(super) const WORKERS: &str = "swarm-worker";
const FILE: &str = "swarm-worker-config";
/// A dozen pods restarted one after the other, and a leader that is missed for 15 s, on a busy
/// machine.
const PATIENCE: Duration = Duration::from_mins(5);
/// Time between two checks: well below the measured times, and little work.
const PERIOD: Duration = Duration::from_millis(200);

pub(super) struct Stage<'a> {
    ground: &'a Ground<'a>,
    pub sink: Sink,
    pub history: History,
    pods: Api<Pod>,
    swarms: Api<DynamicObject>,
    pub strategy: &'static str,
    /// Desired number of workers.
    pub replicas: usize,
    pub scalings: usize,
    pub faults: usize,
    pub rows: Vec<Row>,
    /// Violations of the rules.
    pub wrong: Vec<String>,
    /// The time up to which everything has been judged.
    judged: Millis,
}

impl<'a> Deref for Stage<'a> {
    type Target = Ground<'a>;

    fn deref(&self) -> &Ground<'a> {
        self.ground
    }
}

impl<'a> Stage<'a> {
    pub async fn new(ground: &'a Ground<'a>) -> Result<Self> {
        let client = ground.client.clone();
        let swarms = ours("Swarm", "swarms");
        Ok(Self {
            ground,
            sink: ground.cluster.stream_sink().await?,
            history: History::follow(client.clone(), NAMESPACE, FILE),
            pods: Api::namespaced(client.clone(), NAMESPACE),
            swarms: Api::namespaced_with(client, NAMESPACE, &swarms),
            strategy: "HotReload",
            replicas: 2,
            scalings: 0,
            faults: 0,
            rows: Vec::new(),
            wrong: Vec::new(),
            judged: now(),
        })
    }

    /// Applies the original's layout, with workers that report here.
    pub async fn start(&self) -> Result<()> {
        let layout = workspace::root().join("e2e/manifests/swarm");
        let text = self.cluster.kubectl(&["kustomize", &layout.to_string_lossy()])?;
        self.ground.apply(&text.replace("SINK", &self.sink.url())).await
    }

    /// Runs kubectl in the namespace, and prints the command.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.ground.kubectl(&[&["-n", NAMESPACE], arguments].concat())
    }

    /// Sets the number of replicas of the workload.
    pub fn scale(&mut self, replicas: usize) -> Result<()> {
        self.replicas = replicas;
        self.scalings += 1;
        let replicas = format!("--replicas={replicas}");
        self.kubectl(&["scale", &format!("statefulset/{WORKERS}"), &replicas]).map(drop)
    }

    /// The worker's pods.
    pub async fn workers(&self) -> Result<Workers> {
        let of_ours = ListParams::default().labels(&format!("app={WORKERS}"));
        Ok(self.pods.list(&of_ours).await?.iter().map(worker).collect())
    }

    /// The file that is published now.
    pub fn file(&self) -> Result<File> {
        self.history.last().context("no file has been published")
    }

    /// Takes a step, waits until every stream runs on exactly one worker again, and judges the time
    /// that it took.
    ///
    /// Pods in `excused` may be replaced without a change of their share.
    pub async fn step(
        &mut self,
        name: &str,
        excused: &[&str],
        act: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (since, began) = (Timestamp::now(), Instant::now());
        let (known, scalings) = (self.history.len(), self.scalings);
        let before = self.workers().await?;
        act(self).await.with_context(|| name.to_owned())?;
        let (after, end) = self.settled(name, now()).await?;
        let files = self.history.since(known);
        let (old, new) = (files.first().cloned().unwrap_or_default(), self.file()?);
        let mut changed = file::changed(&files);
        if known == 0 {
            // The first file is new to all workers in it.
            changed.extend(new.shares.keys().cloned());
        }
        let restarted = restarted(&before, &after);
        for pod in &restarted {
            let may = self.strategy == "DeletePod" && changed.contains(*pod);
            if !may && !excused.contains(pod) {
                self.wrong.push(format!("{name}: {pod} was restarted for nothing"));
            }
        }
        let (moved, fewest) = (file::moves(&old, &new), file::fewest_moves(&old, &new));
        // A detour through another number may move more streams.
        if moved > fewest && self.scalings - scalings <= 1 {
            self.wrong.push(format!("{name}: {moved} streams moved, {fewest} are enough"));
        }
        let time = Stretch::new(self.judged, end);
        let ran = Ran::of(&self.sink.ledger(), time, self.replicas);
        self.judged = end;
        let row = Row {
            strategy: self.strategy,
            step: name.to_owned(),
            workers: self.replicas,
            since,
            time,
            changed,
            excused: excused.iter().map(|&pod| pod.to_owned()).collect(),
            ran,
            moved,
            epoch: new.epoch,
            restarted: restarted.len(),
            millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.say(&format!("==> {}", row.line()));
        self.rows.push(row);
        Ok(())
    }

    /// Waits until the `Swarm` says that it has converged, and the workers' reports say the same.
    ///
    /// Returns the pods, and up to when it is known what ran.
    async fn settled(&self, what: &str, acted: Millis) -> Result<(Workers, Millis)> {
        let end = Instant::now() + PATIENCE;
        loop {
            let still = match self.unsettled(acted).await {
                Ok((None, workers)) => return Ok((workers, self.known())),
                Ok((Some(still), _)) => still,
                Err(error) => format!("{error:#}"),
            };
            if Instant::now() > end {
                bail!("{what}: not within {} s: {still}\n{}", PATIENCE.as_secs(), self.state());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn unsettled(&self, acted: Millis) -> Result<(Option<String>, Workers)> {
        let workers = self.workers().await?;
        let swarm = self.swarms.get(WORKERS).await?;
        let file = self.file()?;
        let times = Times { acted, now: now() };
        let still = missing(&file, &workers, self.replicas, &self.sink.ledger(), times);
        Ok((still.or_else(|| unconverged(&swarm, self.replicas)), workers))
    }

    /// The time up to which the runs of every stream are known; if nothing should run, up to the
    /// last run.
    fn known(&self) -> Millis {
        let ledger = self.sink.ledger();
        if self.replicas == 0 {
            return ledger.end();
        }
        let ends = ledger.streams().filter_map(|stream| ledger.latest(stream));
        ends.map(|run| run.time.to).min().unwrap_or(self.judged)
    }

    /// Returns the whole state, for the error of a wait that times out.
    fn state(&self) -> String {
        let kubectl = |arguments: &[&str]| {
            let all = [&["-n", NAMESPACE], arguments].concat();
            self.cluster.kubectl(&all).unwrap_or_else(|error| format!("{error:#}"))
        };
        [
            kubectl(&["get", "swarm,statefulset,pods", "-o", "wide"]),
            kubectl(&["get", "swarm", WORKERS, "-o", "jsonpath={.status}"]),
            kubectl(&["get", "configmap", FILE, "-o", "yaml"]),
            kubectl(&["get", "events", "--sort-by=.lastTimestamp"]),
        ]
        .join("\n")
    }
}

/// Returns what the `Swarm` itself is still waiting for.
fn unconverged(swarm: &DynamicObject, replicas: usize) -> Option<String> {
    let status = &swarm.data["status"];
    if status["summary"]["workers"] != replicas {
        return Some(format!("the status knows {} workers", status["summary"]["workers"]));
    }
    // Without a worker there is nothing to converge to.
    if replicas == 0 {
        return None;
    }
    if status["observedGeneration"].as_i64() != swarm.metadata.generation {
        return Some("the status is of an older generation".to_owned());
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    match conditions.find(|condition| condition["type"] == "Converged") {
        Some(converged) if converged["status"] == "True" => None,
        Some(converged) => Some(format!("not converged: {}", text(&converged["message"]))),
        None => Some("no condition Converged".to_owned()),
    }
}
