//! The path of a newcomer: installs, inspects and uninstalls with the commands of the
//! documentation, unchanged.

use std::fs;

use anyhow::{Context, Result, ensure};
use image::PRODUCT_REFERENCE;
use lab::newcomer::{Installed, Newcomer, commands, without};

use crate::stage::Stage;
use crate::traffic_watch::{label, status, until_label, until_ready, watch};

/// The image in the documentation. No registry serves it here: the nodes have it under this name.
const REPOSITORY: &str = "registry.example.com/traffic-operator";

/// The page of the chart.
const HELM: &str = "docs/operations/helm.md";
const KINDS: usize = 4;

/// A newcomer to a cluster without an operator, whose nodes have the image of the documentation.
fn arrive(stage: &Stage<'_>) -> Result<Newcomer> {
    let dir = stage.cluster.dir().join("newcomer");
    let newcomer = Newcomer::arrive(&dir, stage.cluster.kubeconfig())?;
    let image = format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION"));
    stage.cluster.tag_image(PRODUCT_REFERENCE, &image)?;
    newcomer.run(&commands("docs/operations/upgrade.md", "Uninstall")?)?;
    nothing_is_left(stage, &newcomer)?;
    Ok(newcomer)
}

/// Returns the objects of the overlay and the definitions that the cluster has, however they were
/// installed.
fn installed(newcomer: &Newcomer) -> Result<Vec<Installed>> {
    newcomer.run(&["CRDS=yes hack/render > all.yaml\n".to_owned()])?;
    newcomer.installed("all.yaml")
}

/// Asserts that neither an object of ours is left nor a label, a taint or a resource of a node.
fn nothing_is_left(stage: &Stage<'_>, newcomer: &Newcomer) -> Result<()> {
    let objects = installed(newcomer)?;
    ensure!(objects.is_empty(), "left: {objects:?}");
    for node in stage.get(&["nodes"])?["items"].as_array().context("nodes")? {
        let status = &node["status"];
        let parts = [
            &node["metadata"]["labels"],
            &node["spec"]["taints"],
            &status["capacity"],
            &status["allocatable"],
        ];
        for part in parts {
            ensure!(!part.to_string().contains("traffic.example.com/"), "left: {part}");
        }
    }
    Ok(())
}

/// The steps of the README without Docker, which is missing here.
pub async fn readme(stage: &Stage<'_>) -> Result<()> {
    // The first uninstall finds labels.
    watch(stage, "last", "direction: Busiest").await?;
    for node in stage.cluster.node_names() {
        until_label(stage, &node, "last", "false").await?;
    }
    let newcomer = arrive(stage)?;
    let steps = commands("README.md", "Your cluster, five minutes")?;
    let steps = without(steps, &["make docker-build docker-push "])?;
    let said = newcomer.run(&steps)?;
    ensure!(said.contains("ok    api-server"), "doctor does not report:\n{said}");
    until_ready(stage, "observe").await?;
    let judged = &status(stage, "observe")?["nodes"];
    for node in stage.cluster.node_names() {
        ensure!(judged[node.as_str()]["state"] == "Fit", "{node}: {judged}");
        ensure!(label(stage, &node, "observe")?.is_none(), "{node} is labeled");
    }
    let before = installed(&newcomer)?;
    ensure!(before.len() > 40, "{before:?}");
    newcomer.run(&steps)?;
    let after = installed(&newcomer)?;
    ensure!(before == after, "the same again changes something:\n{before:?}\n{after:?}");
    let said = newcomer.run(&commands("docs/operations/upgrade.md", "Uninstall")?)?;
    ensure!(said.contains("No node label is left."), "{said}");
    nothing_is_left(stage, &newcomer)?;
    stage.claim(
        "a newcomer follows the README, twice, and uninstalls: no object and no label is left",
        true,
        format!("{} objects, the same after the second time", before.len()),
    );
    Ok(())
}

pub async fn helm(stage: &Stage<'_>) -> Result<()> {
    let newcomer = arrive(stage)?;
    let said = newcomer.run(&commands(HELM, "Install")?)?;
    ensure!(said.contains("Phase:          Succeeded"), "{said}");
    ensure!(said.contains("ok    api-server"), "helm test does not show doctor's output:\n{said}");

    let values = format!("image: {{repository: {REPOSITORY}}}\n");
    fs::write(newcomer.dir().join("my-values.yaml"), values)?;
    let before = installed(&newcomer)?;
    ensure!(before.len() > 40, "{before:?}");
    newcomer.run(&commands(HELM, "Upgrade")?)?;
    let after = installed(&newcomer)?;
    ensure!(before == after, "the same again changes something:\n{before:?}\n{after:?}");

    let apply = ["kubectl apply -f deploy/samples/trafficwatch.yaml\n".to_owned()];
    newcomer.run(&apply)?;
    let again = newcomer.run(&apply)?;
    ensure!(again.contains("unchanged"), "{again}");
    for node in stage.cluster.node_names() {
        until_label(stage, &node, "trafficwatch-sample", "false").await?;
    }
    until_ready(stage, "trafficwatch-sample").await?;
    let judged = status(stage, "trafficwatch-sample")?;
    for node in stage.cluster.node_names() {
        let fields = &judged["nodes"][node.as_str()];
        ensure!(fields["currentBandwidthPercent"].is_string(), "{fields}");
        ensure!(fields["currentTransmitTotal"].is_i64(), "{fields}");
        ensure!(fields["time"].is_i64() && fields["unfit"].is_boolean(), "{fields}");
    }

    // First the custom resources and the release; then what Helm keeps.
    let uninstall = commands(HELM, "Uninstall")?;
    let (release, rest) = uninstall.split_at(2);
    let said = newcomer.run(release)?;
    ensure!(said.contains("kept due to the resource policy"), "{said}");
    let kept: Vec<_> = installed(&newcomer)?.into_iter().map(|object| object.name).collect();
    let definitions = kept.iter().filter(|name| name.starts_with("CustomResourceDefinition/"));
    ensure!(definitions.count() == KINDS && kept.len() == KINDS + 1, "{kept:?}");
    newcomer.run(rest)?;
    nothing_is_left(stage, &newcomer)?;
    let gone = async || {
        let left = stage.list(&["deployments", "-n", "default"])?;
        Ok(left.iter().all(|object| object["metadata"]["name"] != "trafficwatch-sample"))
    };
    stage.wait("the sample's Deployment gone", gone).await?;
    stage.claim(
        "a newcomer installs with Helm, judges nodes by the original's sample, and uninstalls",
        true,
        format!("{} objects, the same after an upgrade to the same, nothing left", before.len()),
    );
    Ok(())
}
