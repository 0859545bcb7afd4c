//! Pods that the original harmed: each beside its promise.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::cluster::operator::{NAMESPACE as OPERATOR, OURS};
use serde_json::Value;

use super::objects::{agent_in, create, deployment, namespace, pod, ready, status};
use crate::objects;
use crate::stage::Stage;

const NAMESPACE: &str = "probing";
/// A namespace whose owner has not consented.
const OTHER: &str = "probing-elsewhere";
/// A selector that no node satisfies.
const NOWHERE: &str = "nodeSelector: {kubernetes.io/hostname: nowhere}";

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    stage.apply(&[namespace(NAMESPACE), namespace(OTHER)].join("---\n")).await?;
    a_pending_pod(stage).await?;
    a_job(stage).await?;
    a_deleted_prober(stage).await
}

/// A Pending pod, the NetworkProber, then the pods.
async fn a_pending_pod(stage: &Stage<'_>) -> Result<()> {
    stage.apply(&pod(NAMESPACE, "pending", "pending", NOWHERE)).await?;
    create(stage, NAMESPACE, "pending", "delivery: ConfigMap").await?;
    stage.apply(&deployment(NAMESPACE, "pending", 2)).await?;
    let began = Instant::now();
    let two_ready = async || {
        let pods = stage.list(&["pods", "-n", NAMESPACE, "-l", "app=pending"])?;
        Ok(pods.iter().filter(|pod| objects::is_true(pod, "Ready")).count() == 2)
    };
    stage.wait("two pods ready beside one that is Pending", two_ready).await?;
    let seconds = began.elapsed().as_secs_f64();
    // The pod never had an address: its deletion ended the original's process.
    let away = ["delete", "pod", "-n", NAMESPACE, "pending", "--grace-period=0", "--force"];
    stage.kubectl(&away)?;
    let selected = async || Ok(status(stage, NAMESPACE, "pending")?["selected"] == 2);
    stage.wait("two pods selected", selected).await?;
    let crashes = operator_crashes(stage)?;
    stage.claim(
        "a pending pod blocks no other, and its deletion ends nothing",
        crashes == 0,
        format!(
            "2 pods ready in {seconds:.1} s, {crashes} crashes of the operator (the original: \
             ContainerCreating for good, nil pointer)"
        ),
    );
    Ok(())
}

/// The operator's containers that have ended by themselves: not by a signal of the kubelet.
fn operator_crashes(stage: &Stage<'_>) -> Result<usize> {
    const ENDED: [i64; 3] = [0, 137, 143];
    let pods = stage.list(&["pods", "-n", OPERATOR, "-l", OURS])?;
    ensure!(!pods.is_empty(), "no operator");
    let containers =
        pods.iter().filter_map(|pod| pod["status"]["containerStatuses"].as_array()).flatten();
    let codes = containers.filter_map(|it| it["lastState"]["terminated"]["exitCode"].as_i64());
    Ok(codes.filter(|code| !ENDED.contains(code)).count())
}

async fn a_job(stage: &Stage<'_>) -> Result<()> {
    create(stage, NAMESPACE, "job", "pollingPeriod: 500ms").await?;
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\n\
         metadata: {{name: job, namespace: {NAMESPACE}}}\n\
         spec:\n  template:\n    metadata: {{labels: {{app: job}}}}\n    spec:\n      \
         restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      \
         containers: [{{name: c, image: 'busybox:1.35', command: [busybox, sleep, '3']}}]\n"
    );
    stage.apply(&job).await?;
    let began = Instant::now();
    let complete = async || stage.holds(&["job", "job", "-n", NAMESPACE], "Complete");
    stage.wait("the Job complete", complete).await?;
    let seconds = began.elapsed().as_secs_f64();
    let pods = stage.get(&["pods", "-n", NAMESPACE, "-l", "app=job"])?;
    stage.claim(
        "a Job completes beside its agent",
        agent_in(&pods["items"][0]) == Some("sidecar"),
        format!("3 s of work complete after {seconds:.1} s (a plain container never ends)"),
    );
    Ok(())
}

async fn a_deleted_prober(stage: &Stage<'_>) -> Result<()> {
    create(stage, NAMESPACE, "cleanup", "pollingPeriod: 500ms\ndelivery: ConfigMap").await?;
    stage.apply(&deployment(NAMESPACE, "cleanup", 2)).await?;
    ready(stage, NAMESPACE, "cleanup", 2).await?;
    let had = left(stage, NAMESPACE, "cleanup")?;
    ensure!(had.len() >= 4, "ConfigMap, PodMonitor, PrometheusRule and webhook, not {had:?}");
    stage.kubectl(&["delete", "networkprober", "-n", NAMESPACE, "cleanup", "--timeout=60s"])?;
    let gone = async || Ok(left(stage, NAMESPACE, "cleanup")?.is_empty());
    stage.wait("everything of it gone", gone).await?;
    // The volume of what is gone keeps no pod from starting again.
    let (after, _) = ready(stage, NAMESPACE, "cleanup", 2).await?;
    let restarts: i64 = after.iter().map(objects::restarts).sum();
    let mut maps = Vec::new();
    for pod in &after {
        let volumes = pod["spec"]["volumes"].as_array().context("volumes")?.iter();
        let sources = volumes
            .filter(|volume| volume["name"] == "net-prober-vol")
            .filter_map(|volume| volume["projected"]["sources"].as_array())
            .flatten();
        maps.extend(sources.map(|source| &source["configMap"]).filter(|map| !map.is_null()));
    }
    stage.claim(
        "a deleted prober cleans up, and its agents harm nobody",
        restarts == 0 && !maps.is_empty() && maps.iter().all(|map| map["optional"] == true),
        format!(
            "{} objects gone, 2 sidecars go on with {restarts} restarts, their volume optional",
            had.len()
        ),
    );
    Ok(())
}

/// Lists what there is of a NetworkProber: by name or, for webhooks, which share one object, by the
/// name of an entry.
pub fn left(stage: &Stage<'_>, namespace: &str, name: &str) -> Result<Vec<String>> {
    let kinds = "configmaps,podmonitors,prometheusrules,mutatingwebhookconfigurations,daemonsets";
    let has_entry = |object: &Value| {
        let mut entries = object["webhooks"].as_array().into_iter().flatten();
        entries.any(|entry| entry["name"].as_str().is_some_and(|entry| entry.contains(name)))
    };
    let listed = stage.list(&[kinds, "-n", namespace])?;
    let of_it = listed.iter().filter(|it| objects::name(it).contains(name) || has_entry(it));
    Ok(of_it.map(|object| format!("{} {}", object["kind"], objects::name(object))).collect())
}
