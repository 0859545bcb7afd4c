//! The network prober on real nodes: promises that the original broke, each with its measurement.
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    prober::{
        agent_in, compare, create, create_selecting, delete, deploy, metrics, name_of,
        not_injected, operator_restarts, pod, ready, status, sum,
    },
    stage::Stage,
};

/// A selector that no node satisfies.
const NOWHERE: &str = "nodeSelector: {kubernetes.io/hostname: nowhere}";

pub async fn the_original_prober_s_sample_runs_verbatim(stage: &Stage) -> Result<()> {
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/samples/networkprober-original.yaml");
    let sample = sample.to_str().context("path")?;
    stage.cluster.kubectl(&["apply", "-f", sample])?;
    let said = stage.cluster.kubectl(&["apply", "-f", sample])?;
    ensure!(said.contains("unchanged"), "{said}");
    let object = "networkprober/networkprober-sample";
    stage.cluster.kubectl(&["wait", "--for=condition=Ready", object, "--timeout=60s"])?;
    deploy(stage, "net-prober", 3).await?;
    let (pods, seconds) = ready(stage, "net-prober", 3).await?;
    for pod in &pods {
        let annotation = &pod["metadata"]["annotations"]["netprober-container-deployed"];
        ensure!(agent_in(pod).is_some() && annotation == "true", "{pod}");
    }
    let mut samples = 0.0;
    let began = Instant::now();
    stage
        .until("the original's metric of some pair", async || {
            samples = 0.0;
            for pod in &pods {
                samples +=
                    sum(&metrics(stage, &name_of(pod))?, "netprober_interpod_latency_s_count", &[]);
            }
            Ok(samples > 0.0)
        })
        .await?;
    let first = began.elapsed().as_secs_f64();
    compare(
        "3 pods 2/2 in 6 s; the last pod learned of the others 80 s late",
        &format!(
            "3 pods ready in {seconds:.1} s; first measurement {first:.0} s later (kubelets look \
             every 5 s here, not every minute)"
        ),
    );
    stage.cluster.kubectl(&["delete", "deployment", "net-prober"])?;
    delete(stage, "networkprober-sample").await
}

/// Originals 2: a Pending pod, the NetworkProber, then the pods.
pub async fn a_pending_pod_blocks_no_other(stage: &Stage) -> Result<()> {
    let restarts = operator_restarts(stage)?;
    pod(stage, "default", "pending", "pending", NOWHERE).await?;
    create(stage, "pending", "delivery: ConfigMap").await?;
    deploy(stage, "pending", 2).await?;
    let (_, seconds) = ready(stage, "pending", 2).await?;
    // The pod never had an address: its deletion ended the original's process.
    stage.cluster.kubectl(&["delete", "pod", "pending", "--grace-period=0", "--force"])?;
    stage
        .until("two pods selected", async || Ok(status(stage, "pending")?["selected"] == 2))
        .await?;
    let after = operator_restarts(stage)?;
    ensure!(after == restarts, "the operator was restarted {} times", after - restarts);
    compare(
        "2 pods ContainerCreating for good (FailedMount, 7 events in 40 s); deleting the Pending \
         pod ends the operator (nil pointer)",
        &format!("2 pods ready in {seconds:.1} s; 0 restarts of the operator"),
    );
    delete(stage, "pending").await
}

pub async fn without_the_operator_pods_are_created_as_ever(stage: &Stage) -> Result<()> {
    create(stage, "away", "probes: [TCP]").await?;
    stage.cluster.scale_operator(0).await?;
    let outcome = async {
        let began = Instant::now();
        for number in 0..4 {
            pod(stage, "default", &format!("away-{number}"), "away", "").await?;
        }
        let created = began.elapsed().as_secs_f64();
        let (pods, _) = ready(stage, "away", 4).await?;
        ensure!(pods.iter().all(|pod| agent_in(pod).is_none()), "injected by nobody");
        Ok(created)
    }
    .await;
    stage.cluster.scale_operator(2).await?;
    let created = outcome?;
    stage
        .until("four pods CreatedBefore", async || {
            Ok(not_injected(&status(stage, "away")?, "CreatedBefore") == 4)
        })
        .await?;
    compare(
        "every pod refused; a ReplicaSet stuck with 10 FailedCreate in 4 s",
        &format!("4 pods created in {created:.2} s, all run; counted as CreatedBefore afterwards"),
    );
    delete(stage, "away").await
}

pub async fn a_namespace_that_does_not_consent_gets_no_agents_and_its_pods_run(
    stage: &Stage,
) -> Result<()> {
    let other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: np-other}\n";
    stage.cluster.apply(other).await?;
    create(stage, "across", "namespaceSelector: {}\ndelivery: ConfigMap").await?;
    pod(stage, "np-other", "before", "across", "").await?;
    let (pods, seconds) = ready(stage, "across", 1).await?;
    ensure!(agent_in(&pods[0]).is_none(), "injected without consent: {}", pods[0]);
    // The status shows nothing of namespaces that have not consented.
    let unseen = status(stage, "across")?;
    ensure!(
        unseen["selected"] == 0 && not_injected(&unseen, "NamespaceNotConsenting") == 0,
        "{unseen}"
    );
    let consent = "probes.bigmikes.io/allow=default/across";
    stage.cluster.kubectl(&["annotate", "namespace", "np-other", consent])?;
    // The webhook's configuration follows the annotation.
    stage
        .until("a pod injected after the consent", async || {
            let arguments = ["-n", "np-other", "run", "tried", "--image=busybox:1.35"];
            let more = ["--labels=app=across", "--dry-run=server", "-o", "json"];
            let tried = stage.cluster.kubectl(&[arguments.as_slice(), &more].concat())?;
            Ok(agent_in(&serde_json::from_str(&tried)?).is_some())
        })
        .await?;
    pod(stage, "np-other", "after", "across", "").await?;
    let (pods, _) = ready(stage, "across", 2).await?;
    ensure!(pods.iter().filter(|pod| agent_in(pod).is_some()).count() == 1, "{pods:?}");
    compare(
        "injected, and never starts (no ConfigMap there); other edits hang meanwhile",
        &format!(
            "not injected, ready in {seconds:.1} s, not shown; after its consent injected and ready"
        ),
    );
    delete(stage, "across").await?;
    stage
        .until("no ConfigMap left in the other namespace", async || {
            let left = stage.json(&["configmaps", "-n", "np-other"])?.to_string();
            Ok(!left.contains("\"across\""))
        })
        .await?;
    stage.cluster.kubectl(&["delete", "namespace", "np-other", "--wait=false"]).map(drop)
}

pub async fn match_expressions_are_honored(stage: &Stage) -> Result<()> {
    let selector = |values: &str| {
        format!(
            "podSelector: {{matchExpressions: [{{key: app, operator: In, values: [{values}]}}]}}\n\
             namespaceSelector: {{}}\ndelivery: ConfigMap"
        )
    };
    create_selecting(stage, "expressions", &selector("no-such-app")).await?;
    pod(stage, "default", "expressions", "expressions", "").await?;
    let (pods, _) = ready(stage, "expressions", 1).await?;
    ensure!(agent_in(&pods[0]).is_none(), "{}", pods[0]);
    let none = status(stage, "expressions")?;
    ensure!(none["selected"] == 0, "{none}");
    create_selecting(stage, "expressions", &selector("no-such-app, expressions")).await?;
    stage
        .until("one pod selected", async || Ok(status(stage, "expressions")?["selected"] == 1))
        .await?;
    compare(
        "app In [no-such-app] lists all 22 pods of the cluster, kube-system included",
        "app In [no-such-app] selects 0 pods; app In [no-such-app, expressions] selects 1",
    );
    delete(stage, "expressions").await
}

pub async fn a_job_completes_beside_its_agent(stage: &Stage) -> Result<()> {
    create(stage, "job", "pollingPeriod: 500ms").await?;
    let yaml = "apiVersion: batch/v1\nkind: Job\n\
         metadata: {name: job, namespace: default, labels: {app: job}}\n\
         spec:\n  template:\n    metadata: {labels: {app: job}}\n    spec:\n      \
         restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      \
         containers: [{name: c, image: 'busybox:1.35', command: [busybox, sleep, '3']}]\n";
    stage.cluster.apply(yaml).await?;
    let began = Instant::now();
    stage.cluster.kubectl(&["wait", "--for=condition=Complete", "job/job", "--timeout=60s"])?;
    let seconds = began.elapsed().as_secs_f64();
    let pods = stage.json(&["pods", "-l", "app=job"])?;
    ensure!(agent_in(&pods["items"][0]) == Some("sidecar"), "{pods}");
    compare(
        "a plain container: the Job never ends (by its manifest; not run)",
        &format!("a Job of 3 s complete after {seconds:.1} s"),
    );
    delete(stage, "job").await
}

/// Lists the objects of a NetworkProber that still exist in the API server.
fn left(stage: &Stage, name: &str) -> Result<Vec<String>> {
    let kinds = "configmaps,podmonitors,prometheusrules,mutatingwebhookconfigurations,daemonsets";
    let objects = stage.json(&[kinds, "-n", "default"])?;
    let objects = objects["items"].as_array().context("objects")?;
    // By name, or (for webhooks, which share one object) by the name of an entry.
    let has_entry = |object: &Value| {
        let mut entries = object["webhooks"].as_array().into_iter().flatten();
        entries.any(|entry| entry["name"].as_str().is_some_and(|entry| entry.contains(name)))
    };
    Ok(objects
        .iter()
        .filter(|object| name_of(object).contains(name) || has_entry(object))
        .map(|object: &Value| format!("{} {}", object["kind"], name_of(object)))
        .collect())
}

pub async fn deleting_a_prober_cleans_up_and_its_agents_harm_nobody(stage: &Stage) -> Result<()> {
    create(stage, "cleanup", "pollingPeriod: 500ms\ndelivery: ConfigMap").await?;
    deploy(stage, "cleanup", 2).await?;
    let (pods, _) = ready(stage, "cleanup", 2).await?;
    let had = left(stage, "cleanup")?;
    ensure!(had.len() >= 4, "ConfigMap, PodMonitor, PrometheusRule and webhook, not {had:?}");
    stage.cluster.kubectl(&["delete", "networkprober", "cleanup", "--timeout=60s"])?;
    stage.until("everything of it gone", async || Ok(left(stage, "cleanup")?.is_empty())).await?;
    // The pods keep running: ready, without a restart, and the volume does not keep them from
    // restarting.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (after, _) = ready(stage, "cleanup", 2).await?;
    for pod in &after {
        let agents = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
        let restarts: i64 = agents.filter_map(|agent| agent["restartCount"].as_i64()).sum();
        ensure!(restarts == 0, "{restarts} restarts of the agent in {}", name_of(pod));
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let sources = volumes
            .filter(|volume| volume["name"] == "net-prober-vol")
            .filter_map(|volume| volume["projected"]["sources"].as_array())
            .flatten();
        let maps: Vec<&Value> = sources.map(|source| &source["configMap"]).collect();
        ensure!(
            maps.iter().any(|map| map["optional"] == true)
                && maps.iter().all(|map| map.is_null() || map["optional"] == true),
            "{maps:?}"
        );
    }
    ensure!(after.len() == pods.len());
    compare(
        "ConfigMap gone; 4 sidecars go on, and their pods could not be mounted again",
        &format!("{} objects gone; 2 sidecars go on, volume optional", had.len()),
    );
    stage.cluster.kubectl(&["delete", "deployment", "cleanup"]).map(drop)
}
