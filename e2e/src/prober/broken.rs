//! A network that breaks: the measurement must not fall silent just then.
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::Impairment;
use lab::cluster::Sample;
use serde_json::Value;

use super::objects::{create, deployment, pod, ready};
use crate::monitoring::has_data;
use crate::objects::is_true;
use crate::stage::Stage;
use crate::traffic_watch::{label, until_label, watch};

/// The prober's name, and its pods' label.
const NAME: &str = "broken";

/// The label that the rules set for it.
const PROBER: &str = r#"prober="default/broken""#;

/// More than every second packet, each way: bad enough for applications to give up, while
/// measurements still get through.
const LOSS: f64 = 0.6;

/// The loss of a dead node stays above this once it has risen to 1: the window may still contain a
/// last reply from before its death.
const LOST: f64 = 0.9;

/// The longest duration of an impairment if the test does not lift it.
const IMPAIRED: Duration = Duration::from_mins(15);

/// The time until an alert has fired: its window and its `for:` are five minutes each, and
/// Prometheus evaluates rules every half minute.
const FIRES: Duration = Duration::from_mins(8);

/// A node's network loses packets, the application there depends on that path and turns NotReady,
/// and then the node dies. None of that may remove the evidence.
pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let bad = victim(stage).await?;
    let nodes = stage.cluster.node_names().len();
    create(stage, "default", NAME, "pollingPeriod: 1s\ntimeout: 900ms").await?;
    stage.apply(&deployment("default", NAME, u8::try_from(nodes)?)).await?;
    // Each new pod replaces an old one: one stays on each node.
    let one_by_one =
        r#"{"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}"#;
    stage.kubectl(&["patch", &format!("deployment/{NAME}"), "-p", one_by_one])?;
    ready(stage, "default", NAME, nodes).await?;
    all_measured(stage).await?;
    depend_on_the_path(stage, &bad).await?;
    let loss = format!("netprober:node_loss:ratio1m{{{PROBER}}}");
    let criterion = format!("criteria:\n- {{name: loss, query: '{loss}', max: \"0.05\"}}");
    watch(stage, NAME, &criterion).await?;
    until_label(stage, &bad, NAME, "false").await?;

    let impairment = Impairment { delay: Duration::ZERO, loss: LOSS, longest: None };
    stage.say(&format!("the link of {bad} loses {:.0} % of its packets, each way", LOSS * 100.0));
    let impaired = stage.cluster.impair(&bad, impairment, IMPAIRED).await?;
    let began = Instant::now();
    stage.wait("the application NotReady", async || Ok(!ready_on(stage, &bad)?)).await?;
    until_label(stage, &bad, NAME, "true").await?;
    let marked = began.elapsed().as_secs();
    // A window of a minute, during all of which the application is not Ready.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let lossy = loss_of(stage, &bad).await?.context("no loss of a lossy node")?;
    stage.claim(
        "an application that turns NotReady does not hide the path that it depends on",
        lossy > 0.5,
        format!("{bad} marked after {marked} s, loss {lossy:.2} while NotReady (the original: no series)"),
    );

    stage.say(&format!("{bad} dies"));
    stage.node_back(&bad);
    stage.cluster.kill_node(&bad)?;
    drop(impaired);
    let (full, fired) = dead(stage, &bad, began).await?;
    stage.claim(
        "a dead node stays visible until the alert has fired",
        true,
        format!("loss 1 after {full} s, alert of it alone after {fired} s"),
    );
    has_data(stage, "networkprober", 10).await
}

/// Waits until loss rises to 1 and stays there until the alert about this node, and no other, has
/// fired. Returns the seconds until each.
async fn dead(stage: &Stage<'_>, bad: &str, began: Instant) -> Result<(u64, u64)> {
    let whole = async || Ok(loss_of(stage, bad).await?.is_some_and(|loss| loss > 0.99));
    stage.wait("a loss of 1", whole).await?;
    let full = began.elapsed().as_secs();
    loop {
        let loss = loss_of(stage, bad).await?;
        ensure!(
            loss.is_some_and(|loss| loss > LOST),
            "loss {loss:?} after {} s: the evidence is gone before the alert",
            began.elapsed().as_secs()
        );
        for node in stage.cluster.node_names() {
            let expected = if node == bad { "true" } else { "false" };
            let label = label(stage, &node, NAME)?;
            ensure!(label.as_deref() == Some(expected), "{node} is marked {label:?}");
        }
        let firing = firing(stage).await?;
        ensure!(firing.iter().all(|node| node == bad), "{firing:?}");
        if !firing.is_empty() {
            return Ok((full, began.elapsed().as_secs()));
        }
        ensure!(began.elapsed() < FIRES, "no alert within {FIRES:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// Returns a node whose loss cuts off neither Prometheus nor the path from the judging operator to
/// it, which begins at the DNS: an operator that cannot query keeps the labels unchanged.
async fn victim(stage: &Stage<'_>) -> Result<String> {
    let node_of = |pod: &Value| pod["spec"]["nodeName"].as_str().map(str::to_owned);
    let dns = stage.get(&["pods", "-n", "kube-system", "-l", "k8s-app=kube-dns"])?;
    let mut needed: Vec<_> = dns["items"].as_array().context("pods")?.iter().map(node_of).collect();
    needed.push(node_of(&stage.get(&["pod", "prometheus-k8s-0", "-n", "monitoring"])?));
    let leader = async || {
        let leader = stage.cluster.operator_leader().await?;
        let pod = stage.get(&["pod", &leader, "-n", "traffic-operator-system"])?;
        Ok::<_, anyhow::Error>((node_of(&pod), leader))
    };
    let (led, pod) = leader().await?;
    let mut others = stage.cluster.node_names().into_iter().map(Some);
    if let Some(Some(node)) = others.rfind(|node| !needed.contains(node) && *node != led) {
        return Ok(node);
    }
    // The only one is the leader's: the other replica takes over.
    stage.cluster.kubectl(&["delete", "pod", &pod, "-n", "traffic-operator-system"])?;
    stage.wait("a leader on another node", async || Ok(leader().await?.0 != led)).await?;
    led.context("a node without Prometheus and DNS")
}

/// Gives the application a readiness that depends on the path to another node, like an application
/// with a database.
async fn depend_on_the_path(stage: &Stage<'_>, bad: &str) -> Result<()> {
    let home = stage.cluster.node_names().into_iter().find(|node| node != bad).context("a node")?;
    let more = format!("nodeName: {home}");
    stage.apply(&pod("default", "anchor", "anchor", &more)).await?;
    let (pods, _) = ready(stage, "default", "anchor", 1).await?;
    let address = pods[0]["status"]["podIP"].as_str().context("its address")?.to_owned();
    let serve = "busybox httpd -p 8000 -h /bin";
    stage.cluster.kubectl(&["exec", "anchor", "--", "busybox", "sh", "-c", serve])?;
    // Several packets each way, of which hardly any get through.
    let ask = format!("busybox wget -q -O /dev/null http://{address}:8000/busybox");
    let patch = serde_json::json!({"spec": {"template": {"spec": {"containers": [{
        "name": "c",
        "readinessProbe": {
            "exec": {"command": ["busybox", "sh", "-c", ask]},
            "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 2,
        },
    }]}}}});
    let deployment = format!("deployment/{NAME}");
    stage.cluster.kubectl(&["patch", &deployment, "-p", &patch.to_string()])?;
    stage.cluster.kubectl(&["rollout", "status", &deployment, "--timeout=240s"])?;
    ready(stage, "default", NAME, stage.cluster.node_names().len()).await?;
    all_measured(stage).await
}

/// Waits until every node has a value.
async fn all_measured(stage: &Stage<'_>) -> Result<()> {
    let measured = format!("count(netprober:node_loss:ratio1m{{{PROBER}}} == 0)");
    let nodes = stage.cluster.node_names().len();
    let all = async || {
        let count = stage.cluster.query(&measured).await?;
        Ok(count.first().is_some_and(|sample| format!("{:.0}", sample.1) == nodes.to_string()))
    };
    stage.wait("every node without loss", all).await
}

/// Reports whether the application on a node is Ready.
fn ready_on(stage: &Stage<'_>, node: &str) -> Result<bool> {
    let pods = stage.get(&["pods", "-l", &format!("app={NAME}")])?;
    let pods = pods["items"].as_array().context("pods")?;
    let mut there = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).peekable();
    ensure!(there.peek().is_some(), "no pod on {node}");
    Ok(there.any(|pod| is_true(pod, "Ready")))
}

/// Returns the current loss of a node in Prometheus.
async fn loss_of(stage: &Stage<'_>, node: &str) -> Result<Option<f64>> {
    let query = format!("netprober:node_loss:ratio1m{{{PROBER}, node=\"{node}\"}}");
    Ok(stage.cluster.query(&query).await?.first().map(|sample| sample.1))
}

/// Returns the nodes for which the alert fires.
async fn firing(stage: &Stage<'_>) -> Result<Vec<String>> {
    let query =
        format!("ALERTS{{alertname=\"NetworkProberLossHigh\", alertstate=\"firing\", {PROBER}}}");
    let samples = stage.cluster.query(&query).await?;
    let node = |sample: &Sample| sample.0.get("node").cloned().unwrap_or_default();
    Ok(samples.iter().map(node).collect())
}
