//! From the version before to this one, and back, with objects of every kind.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use image::PRODUCT_REFERENCE;
use jiff::Timestamp;
use lab::cluster::operator::{NAMESPACE, OURS};
use serde_json::Value;

use crate::objects;
use crate::prober::objects as probers;
use crate::stage::Stage;
use crate::swarm::verbatim;
use crate::traffic_watch::{
    LOAD, LOADED, deployment, judged_after, label, node_writes, until_label, until_ready, watch,
};

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
pub async fn play(stage: &Stage<'_>) -> Result<()> {
    let this = lab::workspace::root();
    let before = if let Some(before) = before() {
        stage.say(&format!("from {}", before.display()));
        before
    } else {
        stage.say("from this version under another name: UPGRADE_FROM is not set");
        stage.cluster.tag_image(PRODUCT_REFERENCE, BEFORE)?;
        this.clone()
    };
    stage.finally(|cluster| {
        let image = format!("operator={PRODUCT_REFERENCE}");
        let all = ["set", "image", "deployment", "-l", OURS, &image];
        cluster.kubectl(&[&["-n", NAMESPACE], &all[..]].concat()).map(drop)
    });
    stage.cluster.deploy_operator_from(&before, Some(BEFORE)).await?;
    let traffic = stage.cluster.traffic(NODE, LOAD, LOADED)?;
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
        verbatim::converged(stage, WORKERS).await?;
        leads(stage, image).await?;
        let writes = node_writes(stage, since).await?;
        ensure!(label(stage, NODE, NAME)?.as_deref() == Some("true"), "{image}: the label is gone");
        let now = self::pods(stage)?;
        ensure!(now == pods, "{image}: pods were {pods:?} and are {now:?}");
        stage.claim(
            &format!("to {image}: no label flaps and no pod restarts"),
            writes.is_empty(),
            format!("{} writes to nodes {writes:?}, the same {} pods", writes.len(), pods.len()),
        );
    }
    traffic.stop().await.map(drop)
}

/// Creates an object of every kind, each with pods of users, and waits until all have settled.
async fn create(stage: &Stage<'_>) -> Result<()> {
    let spec = format!("consecutive: {{unfit: 2, fit: 2}}\n{}", deployment(NAME, ""));
    watch(stage, NAME, &spec).await?;
    probers::create(stage, "default", "upgrade-probed", "").await?;
    stage.apply(&probers::deployment("default", "upgrade-probed", 3)).await?;
    verbatim::create(stage)?;
    // Without Calico its status reports that, before and after.
    stage
        .apply(
            "apiVersion: traffic.example.com/v1alpha1\nkind: RouteReflectorSet\n\
             metadata: {name: upgrade}\nspec: {mode: Observe, count: {min: 2}}\n",
        )
        .await?;
    until_label(stage, NODE, NAME, "true").await?;
    until_ready(stage, NAME).await?;
    probers::ready(stage, "default", "upgrade-probed", 3).await?;
    probers::ready(stage, "default", NAME, 4).await?;
    verbatim::converged(stage, WORKERS).await
}

/// Waits until a replica with this image leads.
async fn leads(stage: &Stage<'_>, image: &str) -> Result<()> {
    stage
        .wait(&format!("a leader with {image}"), async || {
            let leader = stage.cluster.operator_leader().await?;
            // An identity begins with the name of the pod.
            let pods = stage.get(&["pods", "-n", "traffic-operator-system"])?;
            let pods = pods["items"].as_array().context("pods")?;
            let leads = |pod: &&Value| leader.starts_with(&objects::name(pod));
            let leader = pods.iter().find(leads).context("the leader's pod is gone")?;
            Ok(leader["spec"]["containers"][0]["image"] == image)
        })
        .await
}

/// The pods of users: which they are, and how often their containers have restarted.
fn pods(stage: &Stage<'_>) -> Result<BTreeMap<String, (String, i64)>> {
    let all = stage.get(&["pods", "-A"])?;
    let all = all["items"].as_array().context("pods")?;
    let of_users = all.iter().filter(|pod| {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        namespace == "default" || namespace == verbatim::NAMESPACE
    });
    let facts = |pod: &Value| (objects::text(&pod["metadata"]["uid"]), objects::restarts(pod));
    Ok(of_users.map(|pod| (objects::name(pod), facts(pod))).collect())
}
