//! The original's layout: namespace, list, workers and their names are the original's; only the
//! image is ours, and a Swarm in place of its controller.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::settled::STREAMS;
use crate::objects;
use crate::stage::Stage;

pub const NAMESPACE: &str = "swarm";
const WORKERS: &str = "swarm-worker";

pub async fn play(stage: &Stage<'_>) -> Result<()> {
    create(stage)?;
    for (workers, sizes) in [(2, vec![13, 14]), (3, vec![9, 9, 9]), (2, vec![13, 14])] {
        let (set, count) = (format!("statefulset/{WORKERS}"), format!("--replicas={workers}"));
        stage.kubectl(&["scale", "-n", NAMESPACE, &set, &count])?;
        converged(stage, workers).await?;
        let shares = shares(stage)?;
        let mut found: Vec<usize> = shares.values().map(BTreeSet::len).collect();
        found.sort_unstable();
        ensure!(found == sizes, "{workers} workers: {found:?}");
        for (worker, share) in &shares {
            let path =
                format!("/api/v1/namespaces/{NAMESPACE}/pods/{worker}:9090/proxy/internal/version");
            let same = async || {
                let runs = jobs(&serde_json::from_str(&stage.proxied(&path).await?)?);
                ensure!(runs == *share, "{worker} runs {runs:?}, its share is {share:?}");
                Ok(true)
            };
            stage.wait(&format!("{worker} runs its share"), same).await?;
        }
        let streams: BTreeSet<&String> = shares.values().flatten().collect();
        stage.claim(
            &format!(
                "the original's layout, verbatim, {workers} workers: each stream on one of them"
            ),
            streams.len() == STREAMS,
            format!("{found:?} of {STREAMS} (the original: one on both and one on neither)"),
        );
    }
    Ok(())
}

/// Creates the original's sample: two workers, and a Swarm in place of its controller.
pub fn create(stage: &Stage<'_>) -> Result<()> {
    stage.finally(|cluster| {
        let namespace = ["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s"];
        cluster.kubectl(&namespace).map(drop)
    });
    let sample = lab::workspace::root().join("deploy/samples/swarm-original");
    stage.kubectl(&["apply", "-k", &sample.to_string_lossy()]).map(drop)
}

/// Waits until the Swarm has this many workers and each runs exactly its list.
pub async fn converged(stage: &Stage<'_>, workers: usize) -> Result<()> {
    let holds = async || {
        let swarm = stage.get(&["swarm", WORKERS, "-n", NAMESPACE])?;
        let summary = &swarm["status"]["summary"];
        let all = summary["workers"] == workers && summary["ready"] == workers;
        Ok(all && objects::is_true(&swarm, "Converged"))
    };
    stage.wait(&format!("{workers} workers, each with exactly its list"), holds).await
}

/// Returns the workers' shares in the file.
fn shares(stage: &Stage<'_>) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let map = stage.get(&["configmap", "swarm-worker-config", "-n", NAMESPACE])?;
    let text = map["data"]["config.yml"].as_str().context("no config.yml")?;
    let file: Value = serde_yaml::from_str(text)?;
    let workloads = file["workloads"].as_object().context("no workloads")?;
    Ok(workloads.iter().map(|(worker, share)| (worker.clone(), jobs(share))).collect())
}

fn jobs(of: &Value) -> BTreeSet<String> {
    let jobs = of["jobs"].as_array().into_iter().flatten();
    jobs.filter_map(|job| job.as_str().map(str::to_owned)).collect()
}
