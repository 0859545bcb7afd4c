//! From the version before to this one, and back, with objects of every kind.
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use image::PRODUCT_REFERENCE;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{monitoring::judged_after, prober, scenarios::deployment, stage::Stage, swarming};

/// The image of the version before, as the nodes have it.
const BEFORE: &str = "registry.invalid/traffic-operator:before";
/// The node whose link is loaded, and the name of all objects.
const NODE: &str = "node-1";
const NAME: &str = "upgrade";
const WORKERS: usize = 2;

/// The folder of a checkout of the version before, in which `hack/upgrade-test` has built an image;
/// none if this version takes its place.
pub fn before() -> Option<PathBuf> {
    env::var_os("UPGRADE_FROM").map(PathBuf::from)
}

/// The archive with the image of the version before.
pub fn image(checkout: &Path) -> PathBuf {
    checkout.join(".lab/image/before.tar")
}

/// Without a version before, every replica still changes its image twice.
pub async fn an_upgrade_and_the_way_back_flap_no_label_and_restart_no_pod(
    stage: &Stage,
) -> Result<()> {
    let this = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let before = if let Some(before) = before() {
        eprintln!("    from {}", before.display());
        before
    } else {
        eprintln!("    from this version under another name: UPGRADE_FROM is not set");
        stage.cluster.tag_image(PRODUCT_REFERENCE, BEFORE)?;
        this.clone()
    };
    stage.cluster.deploy_operator_from(&before, Some(BEFORE)).await?;
    let traffic = stage.cluster.traffic(NODE, 500_000_000, Duration::from_mins(9))?;
    create(stage).await?;

    let pods = pods(stage)?;
    ensure!(pods.len() > WORKERS, "{pods:?}");
    // Definitions are not taken back: the older ones would drop fields that objects have.
    stage.cluster.define_kinds(&this).await?;
    for (checkout, image) in
        [(&this, PRODUCT_REFERENCE), (&before, BEFORE), (&this, PRODUCT_REFERENCE)]
    {
        let since = Timestamp::now();
        stage.cluster.deploy_operator_from(checkout, Some(image)).await?;
        judged_after(stage, NAME, Timestamp::now()).await?;
        swarming::converged(stage, WORKERS).await?;
        leads(stage, image).await?;
        let writes = stage.node_writes(since).await?;
        ensure!(writes.is_empty(), "{image}: {writes:?}");
        ensure!(stage.label(NODE, NAME)?.as_deref() == Some("true"), "{image}: the label is gone");
        let now = self::pods(stage)?;
        ensure!(now == pods, "{image}: pods were {pods:?} and are {now:?}");
    }
    traffic.stop().await?;
    delete(stage).await
}

/// Creates an object of every kind, each with pods of users, and waits until all have settled.
async fn create(stage: &Stage) -> Result<()> {
    let spec = format!("consecutive: {{unfit: 2, fit: 2}}\n{}", deployment(NAME, ""));
    stage.watch(NAME, &spec).await?;
    prober::create(stage, "upgrade-probed", "").await?;
    prober::deploy(stage, "upgrade-probed", 3).await?;
    swarming::create(stage)?;
    // Without Calico its status reports that, before and after.
    stage
        .cluster
        .apply(
            "apiVersion: traffic.example.com/v1alpha1\nkind: RouteReflectorSet\n\
             metadata: {name: upgrade}\nspec: {mode: Observe, count: {min: 2}}\n",
        )
        .await?;
    stage.until_label(NODE, NAME, Some("true")).await?;
    stage.until_ready(NAME).await?;
    prober::ready(stage, "upgrade-probed", 3).await?;
    prober::ready(stage, NAME, 4).await?;
    swarming::converged(stage, WORKERS).await
}

async fn delete(stage: &Stage) -> Result<()> {
    stage.cluster.kubectl(&["delete", "routereflectorset", NAME, "--timeout=60s"])?;
    swarming::delete(stage)?;
    prober::delete(stage, "upgrade-probed").await?;
    stage.delete(NAME)
}

/// Waits until a replica with this image leads.
async fn leads(stage: &Stage, image: &str) -> Result<()> {
    stage
        .until(&format!("a leader with {image}"), async || {
            let leader = stage.cluster.operator_leader().await?;
            // An identity begins with the name of the pod.
            let pods = stage.json(&["pods", "-n", "traffic-operator-system"])?;
            let pods = pods["items"].as_array().context("pods")?;
            let leads = |pod: &&Value| leader.starts_with(&prober::name_of(pod));
            let leader = pods.iter().find(leads).context("the leader's pod is gone")?;
            Ok(leader["spec"]["containers"][0]["image"] == image)
        })
        .await
}

/// The pods of users: which they are, and how often their containers have restarted.
fn pods(stage: &Stage) -> Result<BTreeMap<String, (String, u64)>> {
    let all = stage.json(&["pods", "-A"])?;
    let all = all["items"].as_array().context("pods")?;
    let of_users = all.iter().filter(|pod| {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        namespace == "default" || namespace == swarming::NAMESPACE
    });
    let facts = |pod: &Value| {
        let containers = ["initContainerStatuses", "containerStatuses"].into_iter();
        let statuses =
            containers.flat_map(|key| pod["status"][key].as_array().into_iter().flatten());
        let restarts = statuses.filter_map(|status| status["restartCount"].as_u64()).sum();
        (pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), restarts)
    };
    Ok(of_users.map(|pod| (prober::name_of(pod), facts(pod))).collect())
}
