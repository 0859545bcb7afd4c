//! The demo, act by act.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::time::{interval, sleep, timeout};

use super::exposition;
use super::view::{Reader, Reading, SAMPLE, View};
use crate::judge as checks;
use lab::checks::Check;
use lab::cluster::Cluster;
use lab::cluster::operator::{NAMESPACE, OURS};
use lab::workspace;

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
/// top.
const LABEL_LIMIT: f64 = 30.0;
/// The time for which nothing must be written while nothing changes.
const QUIET: Duration = Duration::from_secs(30);
/// The time that the longest act may take.
const PATIENCE: Duration = Duration::from_mins(1);

struct Stage<'a> {
    cluster: &'a Cluster,
    reader: Reader,
    view: View,
}

/// Plays all acts; each adds its checks.
pub async fn play(cluster: &Cluster, started: Instant, checks: &mut Vec<Check>) -> Result<()> {
    let mut stage =
        Stage { cluster, reader: Reader::new(&cluster.client()?), view: View::new(started) };
    stage.view.say("deploying the operator from deploy/, as `make deploy` does");
    cluster.deploy_operator().await?;
    stage.load_and_judge(checks).await?;
    stage.recover(checks).await?;
    stage.be_quiet(checks).await?;
    stage.time_the_label(checks).await?;
    stage.scraped(checks).await?;
    Ok(())
}

impl Stage<'_> {
    /// Polls every second and shows changes, until the condition holds.
    async fn until<T>(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Reading) -> Option<T>,
    ) -> Result<T> {
        let looking = async {
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                let reading = self.reader.read().await?;
                self.view.show(&reading);
                if let Some(found) = holds(&reading) {
                    return Ok(found);
                }
            }
        };
        timeout(PATIENCE, looking)
            .await
            .with_context(|| format!("{what}: not within {} s", PATIENCE.as_secs()))?
    }

    async fn label(&mut self, node: &str, value: &str) -> Result<Reading> {
        let reading = self
            .until(&format!("{node} labeled {value:?}"), |reading| {
                (reading.nodes.get(node)?.label == value).then(|| reading.clone())
            })
            .await?;
        self.view.say(&format!("==> {node} is labeled {SAMPLE}.traffic.example.com/unfit={value}"));
        Ok(reading)
    }

    /// Shows what happens for a while.
    async fn linger(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        self.until("time passing", |_| (Instant::now() >= end).then_some(())).await
    }

    /// The link is loaded first, then judged: the Deployment never sees the loaded node.
    async fn load_and_judge(&mut self, checks: &mut Vec<Check>) -> Result<()> {
        let cluster = self.cluster;
        self.view.say(&format!("kubectl label node {LOADED} traffic-generator=true"));
        cluster.kubectl(&["label", "node", LOADED, "traffic-generator=true"])?;
        self.view.say("kubectl apply -f deploy/samples/traffic-generator.yaml");
        let generator = workspace::root().join("deploy/samples/traffic-generator.yaml");
        cluster.apply(&std::fs::read_to_string(generator)?).await?;
        self.first_packet().await?;
        self.view.say(&format!("==> {LOADED} sends; it is judged once a whole window is measured"));
        let counted = self.measured(Instant::now() + FULL_WINDOW).await?;

        self.view
            .say("kubectl apply -f deploy/samples/trafficwatch.yaml (interval 2s, window 20s)");
        let applied = Timestamp::now();
        let demo = workspace::root().join("e2e/manifests");
        let sample = cluster.kubectl(&[
            "kustomize",
            "--load-restrictor=LoadRestrictionsNone",
            &demo.to_string_lossy(),
        ])?;
        cluster.apply(&sample).await?;
        let reading = self.label(LOADED, "true").await?;
        let shown = reading.nodes[LOADED].status_percent.or(reading.nodes[LOADED].percent);

        self.until("status.ready", |reading| reading.ready.then_some(())).await?;
        let pods = self.deployed().await?;
        let took = self.label_written(LOADED, applied)?;
        checks.push(Check::within(
            "loaded node judged after the TrafficWatch was applied",
            took,
            LABEL_LIMIT,
        ));
        checks.push(checks::accuracy(shown.context("no percent is shown")?, counted));
        checks.push(checks::order(&cluster.audit_since(applied)?, SAMPLE, &cluster.node_names()));
        checks.push(checks::placement(&pods, 2, LOADED));
        Ok(())
    }

    /// Waits until the loaded node's interface counts real traffic.
    async fn first_packet(&self) -> Result<()> {
        // More than Kubernetes' own traffic makes in that time by far.
        const REAL: u64 = 1_000_000;
        let before = self.cluster.counters(LOADED)?.tx_bytes;
        let deadline = Instant::now() + PATIENCE;
        while self.cluster.counters(LOADED)?.tx_bytes < before + REAL {
            if Instant::now() > deadline {
                let pods = self.cluster.kubectl(&[
                    "get",
                    "pods",
                    "-n",
                    "traffic-generator",
                    "-o",
                    "wide",
                ])?;
                bail!("the traffic generator sends nothing:\n{pods}");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Shows what Prometheus measures on the loaded node, until a time; returns the percent of the
    /// link that its interface has counted meanwhile.
    async fn measured(&self, end: Instant) -> Result<f64> {
        let query = format!(
            r#"rate(node_network_transmit_bytes_total{{device="eth0",instance="{LOADED}"}}[20s]) * 8 / {CAPACITY} * 100"#
        );
        let (begin, mut counts, mut shown) = (Instant::now(), Vec::new(), Instant::now());
        let mut ticks = interval(Duration::from_millis(500));
        while Instant::now() < end {
            ticks.tick().await;
            #[allow(clippy::cast_precision_loss, reason = "gigabytes at most")]
            let bytes = self.cluster.counters(LOADED)?.tx_bytes as f64;
            counts.push((begin.elapsed().as_secs_f64(), bytes));
            if shown.elapsed() >= Duration::from_secs(3) {
                shown = Instant::now();
                for (_, percent) in self.cluster.query(&query).await? {
                    let text =
                        format!("  {LOADED} {percent:5.1} % of 1 Gbit/s, by Prometheus over 20 s");
                    self.view.say(&text);
                }
            }
        }
        Ok(checks::slope(&counts) * 8.0 / CAPACITY * 100.0)
    }

    /// Waits until the sample's Deployment is available and returns the nodes of its pods.
    async fn deployed(&mut self) -> Result<Vec<String>> {
        let client = self.cluster.client()?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = deployments
                .get_opt(SAMPLE)
                .await?
                .and_then(|deployment| deployment.status)
                .unwrap_or_default();
            if status.available_replicas == Some(2) {
                break;
            }
            if Instant::now() > deadline {
                bail!(
                    "the sample's Deployment is not available:\n{}",
                    self.cluster.kubectl(&["get", "pods", "-o", "wide"])?
                );
            }
            sleep(Duration::from_millis(200)).await;
        }
        let of_sample = ListParams::default().labels(&format!("app.kubernetes.io/name={SAMPLE}"));
        let nodes =
            pods.list(&of_sample).await?.items.into_iter().filter_map(|pod| pod.spec?.node_name);
        let mut nodes: Vec<String> = nodes.collect();
        nodes.sort();
        self.view.say(&format!("==> Deployment {SAMPLE} runs on {}", nodes.join(", ")));
        Ok(nodes)
    }

    /// The traffic stops, the label goes back.
    async fn recover(&mut self, checks: &mut Vec<Check>) -> Result<()> {
        self.view.say("kubectl scale -n traffic-generator deployment/traffic-sink --replicas=0");
        let stopped = Timestamp::now();
        self.cluster.kubectl(&[
            "scale",
            "-n",
            "traffic-generator",
            "deployment/traffic-sink",
            "--replicas=0",
        ])?;
        self.label(LOADED, "false").await?;
        let took = self.label_written(LOADED, stopped)?;
        checks.push(Check::within("label back after the traffic stopped", took, LABEL_LIMIT));
        Ok(())
    }

    /// Nothing changes: nothing is written, and Prometheus is queried once per interval.
    async fn be_quiet(&mut self, checks: &mut Vec<Check>) -> Result<()> {
        self.view.say(&format!(
            "{} s of quiet: counting the operator's writes and requests",
            QUIET.as_secs()
        ));
        // What the last change caused (conditions, events) comes with the next judgments.
        self.linger(Duration::from_secs(6)).await?;
        let (begin, before, from) =
            (Timestamp::now(), self.reader.read().await?.metrics, Instant::now());
        self.linger(QUIET).await?;
        let (after, seconds) = (self.reader.read().await?.metrics, from.elapsed().as_secs_f64());
        let grown = |name: &str| exposition::sum(&after, name) - exposition::sum(&before, name);
        let window = SignedDuration::try_from(from.elapsed())?;
        checks.push(checks::silence(&self.cluster.audit_since(begin)?, window));
        checks.push(checks::request_rate(
            grown("traffic_operator_prometheus_requests_total"),
            seconds,
            INTERVAL,
        ));
        let processor = grown("process_cpu_seconds_total") / seconds * 100.0;
        let memory = exposition::sum(&after, "process_resident_memory_bytes") / 1_048_576.0;
        checks.push(Check::new(
            "operator pod is small",
            // The pod's own memory limit, and a twentieth of a core.
            memory > 0.0 && memory < 64.0 && processor < 5.0,
            format!("{memory:.1} MiB resident (below 64), {processor:.2} % of a core (below 5)"),
        ));
        Ok(())
    }

    /// The lab loads another node itself, so that the time of the first packet is known.
    async fn time_the_label(&mut self, checks: &mut Vec<Check>) -> Result<()> {
        self.view.say(&format!("lab traffic {LOADED_NEXT} 800M: timing from the first packet"));
        let first_packet = Timestamp::now();
        let traffic = self.cluster.traffic(LOADED_NEXT, RATE, PATIENCE)?;
        let reading = self.label(LOADED_NEXT, "true").await?;
        let took = self.label_written(LOADED_NEXT, first_packet)?;
        checks.push(Check::within("first packet to label", took, LABEL_LIMIT));
        let others = reading
            .nodes
            .iter()
            .filter(|(name, node)| *name != LOADED_NEXT && node.label == "false")
            .count();
        checks.push(Check::new("all other nodes stay fit", others == 2, format!("{others} of 2")));
        let stopped = Timestamp::now();
        traffic.stop().await?;
        self.view.say("traffic stopped");
        self.label(LOADED_NEXT, "false").await?;
        let took = self.label_written(LOADED_NEXT, stopped)?;
        checks.push(Check::within("last packet to label back", took, LABEL_LIMIT));
        Ok(())
    }

    /// Prometheus has the operator's metrics, found through its ServiceMonitor.
    async fn scraped(&self, checks: &mut Vec<Check>) -> Result<()> {
        let cluster = self.cluster;
        let builds = cluster.query("traffic_operator_build_info").await?.len();
        let states = cluster.query("traffic_operator_trafficwatch_node_state == 1").await?;
        // Two controllers and two webhooks.
        let figure = format!("{builds} of 4 replicas, {} of 3 nodes with a state", states.len());
        checks.push(Check::new(
            "operator scraped through its ServiceMonitor",
            builds == 4 && states.len() == 3,
            figure,
        ));
        Ok(())
    }

    /// Returns how many seconds after `since` the operator first wrote to a node: to the audit
    /// log's microsecond, whenever it was noticed here.
    fn label_written(&self, node: &str, since: Timestamp) -> Result<f64> {
        let events = self.cluster.audit_since(since)?;
        let written = checks::operator_writes(&events)
            .into_iter()
            .find(|event| event.resource == "nodes" && event.name == node && event.code < 300)
            .with_context(|| format!("the audit log has no write of the operator to {node}"))?;
        Ok(written.time.duration_since(since).as_secs_f64())
    }
}

/// Returns the end of the operator's log.
pub(super) fn operator_log(cluster: &Cluster) -> String {
    let arguments = ["logs", "-n", NAMESPACE, "-l", OURS, "--prefix", "--tail=20"];
    cluster.kubectl(&arguments).unwrap_or_else(|error| error.to_string())
}
