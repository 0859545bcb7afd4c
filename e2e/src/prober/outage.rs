//! Nobody needs the operator in order to create a pod.

use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::figures::{agent_image, middle_and_longest, reasons};
use super::objects::namespace;
use super::prober_status;
use crate::stage::{PATIENCE, Stage};
use lab::checks::Check;

/// One that nobody selects.
const ELSEWHERE: &str = "elsewhere";
/// Pods per measurement: enough for a median.
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
    for (namespace, with, without) in
        [("default", &with.0, &without.0), (ELSEWHERE, &with.1, &without.1)]
    {
        let ((before, _), (after, longest)) =
            (middle_and_longest(with), middle_and_longest(without));
        let figure = format!(
            "{:.0} ms, longest {:.0} ms (with the operator {:.0} ms)",
            after * 1e3,
            longest * 1e3,
            before * 1e3
        );
        let selected = if namespace == "default" { "a selected" } else { "another" };
        stage.check(Check::new(
            &format!("operator away: pods are created in {selected} namespace"),
            after < SHORTEST_TIMEOUT,
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

/// Creates pods with the labels that the `NetworkProber` selects; returns the seconds that each
/// took.
async fn create(stage: &Stage<'_>, namespace: &str, stem: &str) -> Result<Vec<f64>> {
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), namespace);
    let (of, stems) = (namespace.to_owned(), format!("stem={stem}"));
    stage.finally(move |cluster| {
        cluster
            .kubectl(&["delete", "pods", "-n", &of, "-l", &stems, "--ignore-not-found"])
            .map(drop)
    });
    let mut seconds = Vec::new();
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
        seconds.push(began.elapsed().as_secs_f64());
    }
    Ok(seconds)
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
