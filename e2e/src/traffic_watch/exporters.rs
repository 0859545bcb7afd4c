//! Nodes without a node exporter: OpenTelemetry collectors, scraped and pushing, and the kubelets'
//! own cAdvisor, judged by the operator's commands.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::cluster::addresses::GATEWAY;
use lab::process::CommandLine;
use lab::tools;
use serde_json::{Value, json};

use super::{LOAD, LOADED};
use crate::stage::{PATIENCE, Stage};

const NODE: &str = "node-2";
/// Ports of the collectors, and of a Prometheus beside the cluster's.
const COLLECTOR: u16 = 8889;
const PROMETHEUS: u16 = 9091;
/// `spec.window` of the object.
const WINDOW: Duration = Duration::from_secs(20);
/// The capacity that the object states, in bits per second: these exporters know no link speed.
const CAPACITY: f64 = 1e9;

/// Each way to the counters: `exporter`, `selector`, and the label that names the node.
const WAYS: [(&str, &str); 3] = [
    ("otel", r#"job="otel""#),
    ("otel", r#"job="otel-pushed""#),
    ("cadvisor", r#"job="kubelet",metrics_path="/metrics/cadvisor""#),
];

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let prometheus = measured(stage).await?;
    let traffic = stage.cluster.traffic(NODE, LOAD, LOADED)?;
    for (exporter, selector) in WAYS {
        as_the_kernel_counts(stage, &prometheus, exporter, selector).await?;
    }
    proposed(stage, &prometheus)?;
    a_dead_collector(stage, &prometheus).await?;
    traffic.stop().await?;
    Ok(())
}

/// Starts a collector on each node, and a Prometheus that knows them and the kubelets; returns its
/// URL.
async fn measured(stage: &Stage<'_>) -> Result<String> {
    let programs = tokio::task::spawn_blocking(|| tools::ensure_all(&["otelcol", "prometheus"]));
    let [collector, prometheus] = programs.await??.try_into().expect("one for each name");
    let dir = stage.cluster.dir().to_owned();
    let addresses: Vec<String> =
        stage.cluster.node_names().iter().map(|node| address(node)).collect();
    let at = |port: u16| addresses.iter().map(|it| format!("{it}:{port}")).collect::<Vec<_>>();
    let token =
        stage.cluster.kubectl(&["create", "token", "prometheus-k8s", "-n", "monitoring"])?;
    let path = "/metrics/cadvisor";
    let scrapes = json!([
        {"job_name": "otel", "static_configs": [{"targets": at(COLLECTOR)}]},
        {
            "job_name": "kubelet", "scheme": "https", "metrics_path": path,
            "authorization": {"credentials": token.trim()},
            "tls_config": {"insecure_skip_verify": true},
            "static_configs": [{"targets": at(10250), "labels": {"metrics_path": path}}],
        },
    ]);
    let config = json!({
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": scrapes,
    });
    let file = dir.join("exporters.yml");
    std::fs::write(&file, config.to_string())?;
    let command = CommandLine::new(
        prometheus,
        [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.join("exporters").display()),
            format!("--web.listen-address={GATEWAY}:{PROMETHEUS}"),
            "--web.enable-remote-write-receiver".into(),
        ],
    );
    stage.cluster.start_beside("prometheus-exporters", None, command)?;
    stage.finally(|cluster| cluster.end_beside("prometheus-exporters"));
    for node in stage.cluster.node_names() {
        // What a resource attribute of the node's name becomes.
        let labels = json!({"job": "otel-pushed", "k8s_node_name": node});
        let write = format!("http://{GATEWAY}:{PROMETHEUS}/api/v1/write");
        let config = json!({
            "receivers": {"host_metrics": {"collection_interval": "2s", "scrapers": {"network": {}}}},
            "exporters": {
                "prometheus": {"endpoint": format!("0.0.0.0:{COLLECTOR}")},
                "prometheusremotewrite": {"endpoint": write, "external_labels": labels},
            },
            "service": {
                "pipelines": {"metrics": {
                    "receivers": ["host_metrics"],
                    "exporters": ["prometheus", "prometheusremotewrite"],
                }},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let file = dir.join(format!("otelcol-{node}.yaml"));
        std::fs::write(&file, config.to_string())?;
        let command = CommandLine::new(&collector, [format!("--config=file:{}", file.display())]);
        let name = process(&node);
        stage.cluster.start_beside(&name, Some(&node), command)?;
        stage.finally(move |cluster| cluster.end_beside(&name));
    }
    stage.cluster.expose_beside(PROMETHEUS).await
}

fn process(node: &str) -> String {
    format!("otelcol-{node}")
}

fn address(node: &str) -> String {
    let number = lab::cluster::addresses::node_number(node).expect("a node of the lab");
    lab::cluster::addresses::node_address(number)
}

/// The value that the operator would judge, and what the kernel counted meanwhile.
async fn as_the_kernel_counts(
    stage: &Stage<'_>,
    prometheus: &str,
    exporter: &str,
    selector: &str,
) -> Result<()> {
    let compared = async || {
        let (before, began) = (stage.cluster.counters(NODE)?.tx_bytes, Instant::now());
        tokio::time::sleep(WINDOW).await;
        let (after, time) = (stage.cluster.counters(NODE)?.tx_bytes, began.elapsed());
        let node = evaluated(stage, prometheus, exporter, selector)?;
        let shown = node["values"][0]["value"].as_f64().with_context(|| node.to_string())?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of seconds")]
        let counted = (after - before) as f64 * 8.0 / time.as_secs_f64() / CAPACITY * 100.0;
        let apart = (shown - counted).abs() / counted * 100.0;
        // The first windows hold the beginning of the traffic.
        ensure!(apart <= 1.0, "{shown:.2} % shown, {counted:.2} % counted");
        Ok(Some((node, shown, counted, apart)))
    };
    let what = format!("{selector}: the kernel's count");
    let (node, shown, counted, apart) = stage.until(&what, PATIENCE, compared).await?;
    stage.claim(
        &format!("{exporter} ({selector}) shows what the kernel counted"),
        node["state"] == "Unfit" && node["values"][0]["device"] == Value::Null,
        format!("{shown:.2} % shown, {counted:.2} % counted: {apart:.2} % apart (at most 1 %)"),
    );
    Ok(())
}

/// What `evaluate` says of the node, by this exporter.
fn evaluated(stage: &Stage<'_>, prometheus: &str, exporter: &str, selector: &str) -> Result<Value> {
    let endpoint = json!({"url": prometheus, "exporter": exporter, "selector": selector});
    let config = json!({"endpoints": {"default": endpoint}});
    let watch = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "exporters", "namespace": "default"},
        "spec": {
            "maxBandwidthPercent": "30", "interval": "2s", "capacity": "1G",
            "window": format!("{}s", WINDOW.as_secs()),
            "consecutive": {"unfit": 1, "fit": 1},
        },
    });
    let dir = stage.cluster.dir();
    let (endpoints, object) = (dir.join("endpoints.yaml"), dir.join("exporters-watch.yaml"));
    std::fs::write(&endpoints, config.to_string())?;
    std::fs::write(&object, watch.to_string())?;
    let (endpoints, object) = (endpoints.to_string_lossy(), object.to_string_lossy());
    let arguments = ["evaluate", "-f", &object, "--cluster", "-o", "json"];
    let said = command(stage, &[&arguments[..], &["--prometheus-config", &endpoints]].concat())?;
    let evaluation: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    let nodes = evaluation["evaluations"][0]["nodes"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().find(|node| node["name"] == NODE).with_context(|| said.clone())
}

fn command(stage: &Stage<'_>, arguments: &[&str]) -> Result<String> {
    let output = Command::new(stage.operator)
        .args(arguments)
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .output()
        .with_context(|| stage.operator.display().to_string())?;
    // It fails without evidence, and says the same.
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn proposed(stage: &Stage<'_>, prometheus: &str) -> Result<()> {
    let said = command(stage, &["doctor", "--prometheus-url", prometheus])?;
    let line = said.lines().find(|line| line.contains("exporter: otel and selector"));
    stage.claim(
        "doctor proposes the exporter that the nodes have",
        line.is_some(),
        line.map_or(said.clone(), |line| line.trim().to_owned()),
    );
    Ok(())
}

/// A collector that pushes has no `up`: only the age of its samples shows that it died.
async fn a_dead_collector(stage: &Stage<'_>, prometheus: &str) -> Result<()> {
    let (exporter, selector) = WAYS[1];
    stage.say(&format!("the collector of {NODE} dies"));
    stage.cluster.end_beside(&process(NODE))?;
    let mut states = vec![];
    let unknown = async || {
        let node = evaluated(stage, prometheus, exporter, selector)?;
        let state = node["state"].as_str().unwrap_or_default().to_owned();
        ensure!(state != "Fit", "{NODE} sends, and looks idle: {node}");
        states.push(format!("{state} {}", node["reason"].as_str().unwrap_or_default()));
        Ok(state == "Unknown")
    };
    stage.wait(&format!("{NODE} Unknown"), unknown).await?;
    states.dedup();
    stage.claim("a node whose collector died never looks idle", true, states.join(", then "));
    Ok(())
}
