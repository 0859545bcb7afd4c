//! The product's main job: the sample, a node that a traffic generator loads, and rest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use lab::checks::Check;
use lab::cluster::operator::OURS;
use lab::exposition;
use tokio::time::{interval, sleep};

use super::nodes_of;
use super::view::{Reader, Reading, SAMPLE, View};
use crate::judge;
use crate::stage::{PATIENCE, Stage};

/// The node that the sample generator loads.
const LOADED: &str = "node-2";
/// The node that the lab itself loads, to the exact moment.
const LOADED_NEXT: &str = "node-3";
/// Bits per second of the nodes' capacity annotation.
const CAPACITY: f64 = 1e9;
/// Rate of the lab's traffic: 80 % of the capacity, well above the sample's threshold of 60 %.
const RATE: u64 = 800_000_000;
/// The demo's `spec.interval`, in seconds.
const INTERVAL: f64 = 2.0;
/// The demo's `spec.window`, and a scrape more: after that a rate is that of the load alone.
const FULL_WINDOW: Duration = Duration::from_secs(22);
/// A window of 20 s passes 60 % of 80 % after 15 s; two agreeing judgments and one scrape come on
/// top: 30 s, and as much again for a busy machine.
const LABEL_LIMIT: f64 = 60.0;
/// The time for which nothing must be written while nothing changes, and the part of it before
/// which nothing must have been written to call that rest.
const QUIET: Duration = Duration::from_secs(30);
/// Measurements of a rate that may not agree because the machine did not send evenly meanwhile.
const ATTEMPTS: usize = 5;

struct Tour<'a> {
    stage: &'a Stage<'a>,
    reader: Reader,
    view: View,
}

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let mut tour = Tour { stage, reader: Reader::new(&stage.client), view: View::default() };
    tour.load_and_judge().await?;
    tour.recover().await?;
    tour.be_quiet().await?;
    tour.time_the_label().await?;
    scraped(stage).await
}

impl Tour<'_> {
    /// Polls every second and shows changes, until the condition holds.
    async fn until<T>(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Reading) -> Option<T>,
    ) -> Result<T> {
        let Self { stage, reader, view } = self;
        let look = async || {
            let reading = reader.read().await?;
            view.show(stage, &reading);
            Ok(holds(&reading))
        };
        stage.until(what, PATIENCE, look).await
    }

    async fn label(&mut self, node: &str, value: &str) -> Result<Reading> {
        let reading = self
            .until(&format!("{node} labeled {value:?}"), |reading| {
                (reading.nodes.get(node)?.label == value).then(|| reading.clone())
            })
            .await?;
        self.stage.say(&format!("==> {node}: {SAMPLE}.traffic.example.com/unfit={value}"));
        Ok(reading)
    }

    /// The link is loaded first, then judged: the Deployment never sees the loaded node.
    async fn load_and_judge(&mut self) -> Result<()> {
        let stage = self.stage;
        stage.kubectl(&["label", "node", LOADED, "traffic-generator=true"])?;
        stage.finally(|cluster| {
            cluster.kubectl(&["label", "node", LOADED, "traffic-generator-"]).map(drop)
        });
        stage.apply_file("deploy/samples/traffic-generator.yaml").await?;
        self.first_packet().await?;
        stage.say(&format!("==> {LOADED} sends; it is judged once a whole window is measured"));
        let mut counted = self.measured().await?;

        let applied = Timestamp::now();
        let layout = lab::workspace::root().join("e2e/manifests");
        let layout = layout.to_string_lossy();
        let options = ["kustomize", "--load-restrictor=LoadRestrictionsNone"];
        let sample = [&options[..], &[&*layout]].concat();
        stage.say("kubectl apply -f deploy/samples/trafficwatch.yaml (interval 2s, window 20s)");
        stage.apply(&stage.cluster.kubectl(&sample)?).await?;
        let mut reading = self.label(LOADED, "true").await?;
        self.until("status.ready", |reading| reading.ready.then_some(())).await?;
        let pods = self.deployed().await?;
        let took = self.label_written(LOADED, applied)?;
        let name = "loaded node judged after the TrafficWatch was applied";
        stage.check(Check::within(name, took, LABEL_LIMIT));
        let mut shown = None;
        for attempt in 1..=ATTEMPTS {
            let node = &reading.nodes[LOADED];
            shown = node.percent.or(node.status_percent);
            let close = shown.is_some_and(|shown| judge::accuracy(shown, counted).pass);
            if close || attempt == ATTEMPTS {
                break;
            }
            counted = self.measured().await?;
            reading = self.reader.read().await?;
        }
        stage.check(judge::accuracy(shown.context("no percent is shown")?, counted));
        let events = stage.cluster.whole_audit_since(applied).await?;
        stage.check(judge::order(&events, SAMPLE, &stage.cluster.node_names()));
        stage.check(judge::placement(&pods, 2, LOADED));
        Ok(())
    }

    /// Waits until the loaded node's interface counts real traffic.
    async fn first_packet(&self) -> Result<()> {
        // More than Kubernetes' own traffic makes in that time by far.
        const REAL: u64 = 1_000_000;
        let before = self.stage.cluster.counters(LOADED)?.tx_bytes;
        let sent = async || Ok(self.stage.cluster.counters(LOADED)?.tx_bytes > before + REAL);
        self.stage.wait("the traffic generator sends", sent).await
    }

    /// Shows what Prometheus measures on the loaded node over a window; returns the percent of the
    /// link that its interface has counted meanwhile.
    async fn measured(&self) -> Result<f64> {
        let query = format!(
            r#"rate(node_network_transmit_bytes_total{{device="eth0",instance="{LOADED}"}}[20s]) * 8 / {CAPACITY} * 100"#
        );
        let (begin, mut counts, mut shown) = (Instant::now(), Vec::new(), Instant::now());
        let mut ticks = interval(Duration::from_millis(500));
        while begin.elapsed() < FULL_WINDOW {
            ticks.tick().await;
            #[expect(clippy::cast_precision_loss, reason = "gigabytes at most")]
            let bytes = self.stage.cluster.counters(LOADED)?.tx_bytes as f64;
            counts.push((begin.elapsed().as_secs_f64(), bytes));
            if shown.elapsed() >= Duration::from_secs(5) {
                shown = Instant::now();
                // Only shown: the measurement goes on without it.
                for (_, percent) in self.stage.cluster.query(&query).await.unwrap_or_default() {
                    let text =
                        format!("  {LOADED} {percent:5.1} % of 1 Gbit/s, by Prometheus over 20 s");
                    self.stage.say(&text);
                }
            }
        }
        Ok(judge::slope(&counts) * 8.0 / CAPACITY * 100.0)
    }

    /// Waits until the sample's Deployment is available and returns the nodes of its pods.
    async fn deployed(&self) -> Result<Vec<String>> {
        let available = async || {
            let status = &self.stage.get(&["deployment", SAMPLE])?["status"];
            Ok(status["availableReplicas"] == 2)
        };
        self.stage.wait("the sample's Deployment available", available).await?;
        let nodes = nodes_of(self.stage, &format!("app.kubernetes.io/name={SAMPLE}"))?;
        self.stage.say(&format!("==> Deployment {SAMPLE} runs on {}", nodes.join(", ")));
        Ok(nodes)
    }

    /// The traffic stops, the label goes back.
    async fn recover(&mut self) -> Result<()> {
        let stopped = Timestamp::now();
        let sink = ["scale", "-n", "traffic-generator", "deployment/traffic-sink", "--replicas=0"];
        self.stage.kubectl(&sink)?;
        self.label(LOADED, "false").await?;
        let took = self.label_written(LOADED, stopped)?;
        self.stage.check(Check::within("label back after the traffic stopped", took, LABEL_LIMIT));
        Ok(())
    }

    /// Nothing changes: nothing is written, and Prometheus is queried once per interval.
    async fn be_quiet(&mut self) -> Result<()> {
        let stage = self.stage;
        stage.say("what the last change caused (conditions, events) is written first");
        let silence = async |time: Duration| -> Result<Check> {
            let (since, began) = (Timestamp::now(), Instant::now());
            sleep(time).await;
            let mut events = stage.cluster.whole_audit_since(since).await?;
            // Other acts have other nodes' labels and other objects.
            events.retain(|event| event.resource == "nodes" || event.name.starts_with(SAMPLE));
            Ok(judge::silence(&events, SignedDuration::try_from(began.elapsed())?))
        };
        stage.wait("rest", async || Ok(silence(QUIET / 3).await?.pass)).await?;
        stage.say(&format!("{} s of quiet: counting writes and requests", QUIET.as_secs()));
        let (before, from) = (self.reader.read().await?.metrics, Instant::now());
        let silent = silence(QUIET).await?;
        let (after, seconds) = (self.reader.read().await?.metrics, from.elapsed().as_secs_f64());
        let grown = |name: &str| exposition::sum(&after, name) - exposition::sum(&before, name);
        stage.check(silent);
        let requests = grown("traffic_operator_prometheus_requests_total");
        stage.check(judge::request_rate(requests, seconds, INTERVAL));
        let processor = grown("process_cpu_seconds_total") / seconds * 100.0;
        let most = stage.most_memory();
        let memory = exposition::sum(&after, "process_resident_memory_bytes") / 1_048_576.0;
        stage.claim(
            "operator pod is small",
            memory > 0.0 && memory < most && processor < 10.0,
            format!(
                "{memory:.1} MiB resident (below {most}), {processor:.2} % of a core (below 10)"
            ),
        );
        Ok(())
    }

    /// The lab loads another node itself, so that the time of the first packet is known.
    async fn time_the_label(&mut self) -> Result<()> {
        let stage = self.stage;
        stage.say(&format!("lab traffic {LOADED_NEXT} 800M: timing from the first packet"));
        let first_packet = Timestamp::now();
        let traffic = stage.cluster.traffic(LOADED_NEXT, RATE, PATIENCE * 2)?;
        let reading = self.label(LOADED_NEXT, "true").await?;
        let took = self.label_written(LOADED_NEXT, first_packet)?;
        stage.check(Check::within("first packet to label", took, LABEL_LIMIT));
        let mut others = reading.nodes.iter().filter(|(name, _)| *name != LOADED_NEXT);
        let unfit = others.find(|(_, node)| node.label != "false").map(|(name, _)| name);
        let figure = unfit.map_or("all labeled false".to_owned(), ToString::to_string);
        stage.claim("all other nodes stay fit", unfit.is_none(), figure);
        let stopped = Timestamp::now();
        traffic.stop().await?;
        stage.say("traffic stopped");
        self.label(LOADED_NEXT, "false").await?;
        let took = self.label_written(LOADED_NEXT, stopped)?;
        stage.check(Check::within("last packet to label back", took, LABEL_LIMIT));
        Ok(())
    }

    /// Returns how many seconds after `since` the operator first wrote to a node: to the audit
    /// log's microsecond, whenever it was noticed here.
    fn label_written(&self, node: &str, since: Timestamp) -> Result<f64> {
        let events = self.stage.cluster.audit_since(since)?;
        let written = judge::operator_writes(&events)
            .into_iter()
            .find(|event| event.resource == "nodes" && event.name == node && event.code < 300)
            .with_context(|| format!("the audit log has no write of the operator to {node}"))?;
        Ok(written.time.duration_since(since).as_secs_f64())
    }
}

/// Prometheus has the operator's metrics.
async fn scraped(stage: &Stage<'_>) -> Result<()> {
    let nodes = stage.cluster.node_names().len();
    let query = format!("traffic_operator_trafficwatch_node_value{{name=\"{SAMPLE}\"}}");
    // Two controllers and two webhooks.
    let pods = stage.list(&["pods", "-n", lab::cluster::operator::NAMESPACE, "-l", OURS])?.len();
    let all = async || {
        let builds = stage.cluster.query("traffic_operator_build_info").await?.len();
        let states = stage.cluster.query(&query).await?.len();
        Ok((builds == pods && pods == 4 && states == nodes).then_some((builds, states)))
    };
    let (builds, states) =
        stage.until("every replica and node in Prometheus", PATIENCE, all).await?;
    let figure = format!("{builds} of 4 replicas, {states} of {nodes} nodes with a value");
    stage.claim("Prometheus has the operator's metrics", true, figure);
    Ok(())
}
