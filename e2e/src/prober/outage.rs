//! Nobody needs the operator in order to create a pod.

use std::{fmt, time::Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::figures::{agent_image, reasons};
use super::objects::namespace;
use super::prober_status;
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;

/// One that nobody selects.
const ELSEWHERE: &str = "elsewhere";
/// Pods per measurement.
const PODS: usize = 5;
/// The shortest timeout of a webhook: a client of a webhook that is down waits this long, in
/// seconds.
const SHORTEST_TIMEOUT: f64 = 1.0;

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.apply(&namespace(ELSEWHERE)).await?;
    let with = (create(stage, "default", "with").await?, create(stage, ELSEWHERE, "with").await?);
    stage.operator_away().await?;
    let without =
        (create(stage, "default", "without").await?, create(stage, ELSEWHERE, "without").await?);
    for (selected, with, without) in
        [("a selected", &with.0, &without.0), ("another", &with.1, &without.1)]
    {
        let figure = format!("{without} (with the operator {with})");
        stage.check(Check::new(
            &format!("operator away: pods are created in {selected} namespace"),
            without.pod - without.other < SHORTEST_TIMEOUT,
            figure,
        ));
    }
    running(stage).await?;
    stage.say("scaling controllers and webhook to 2");
    stage.cluster.scale_operator(2).await?;
    let missed = stage
        .until("the pods of the outage counted", PATIENCE, async || {
            let count = reasons(&prober_status(stage)?).get("CreatedBefore").copied();
            Ok(count.filter(|count| usize::try_from(*count) == Ok(PODS)))
        })
        .await?;
    stage.check(Check::new(
        "operator back: pods it missed are counted",
        true,
        format!("{missed} CreatedBefore"),
    ));
    Ok(())
}

/// The quickest creation in seconds: each one waits for a webhook that is down, and a busy machine
/// delays only some.
struct Quickest {
    pod: f64,
    /// Of an object that no webhook of the operator asks for.
    other: f64,
}

impl fmt::Display for Quickest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, other } = self;
        write!(f, "a pod {:.0} ms, a ConfigMap {:.0} ms", pod * 1e3, other * 1e3)
    }
}

/// Creates pods with the labels that the `NetworkProber` selects, each beside a `ConfigMap`.
async fn create(stage: &Stage<'_>, namespace: &str, stem: &str) -> Result<Quickest> {
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), namespace);
    let (of, stems) = (namespace.to_owned(), format!("stem={stem}"));
    stage.finally(move |cluster| {
        cluster
            .kubectl(&["delete", "pods,configmaps", "-n", &of, "-l", &stems, "--ignore-not-found"])
            .map(drop)
    });
    let mut quickest = Quickest { pod: f64::INFINITY, other: f64::INFINITY };
    for number in 0..PODS {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{stem}-{number}"),
                "labels": {"app": "net-prober", "act": "outage", "stem": stem},
            },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main",
                    "image": "busybox:1.35",
                    "command": ["busybox", "sleep", "infinity"],
                }],
            },
        }))?;
        let began = Instant::now();
        pods.create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("creating a pod in {namespace}"))?;
        quickest.pod = quickest.pod.min(began.elapsed().as_secs_f64());
        let map: ConfigMap = serde_json::from_value(json!({"metadata": pod.metadata}))?;
        let began = Instant::now();
        maps.create(&PostParams::default(), &map)
            .await
            .with_context(|| format!("creating a ConfigMap in {namespace}"))?;
        quickest.other = quickest.other.min(began.elapsed().as_secs_f64());
    }
    Ok(quickest)
}

/// Waits until what was created without the operator runs, and says that it has no agent.
async fn running(stage: &Stage<'_>) -> Result<()> {
    let pods = stage
        .until("the pods of the outage running", PATIENCE, async || {
            let pods = stage.list(&["pods", "-A", "-l", "stem=without"])?;
            let run = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            Ok((run == 2 * PODS).then_some(pods))
        })
        .await?;
    let injected = pods.iter().filter_map(agent_image).count();
    stage.check(Check::new(
        "operator away: the pods run",
        injected == 0,
        format!("{} run, {injected} with an agent", pods.len()),
    ));
    Ok(())
}
