//! The product on the cluster: deployed from the same files that `make deploy` applies.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::{Cluster, Monitoring};
use crate::wait::until;
use crate::{process, workspace};
use image::PRODUCT_REFERENCE;

/// The product's namespace.
pub const NAMESPACE: &str = "traffic-operator-system";
/// The Deployment of the product's controllers, and its Services' stem.
pub const NAME: &str = "traffic-operator";
/// The Deployment of its webhook.
const WEBHOOK: &str = "traffic-operator-webhook";
/// Label of the pods of both.
pub const OURS: &str = "app.kubernetes.io/part-of=traffic-operator";
/// The port of its status page, on the loopback of its pods.
pub const PAGE: u16 = 8082;
/// Its image is on the nodes: it starts in seconds, on a busy machine in minutes.
const LIMIT: Duration = Duration::from_mins(5);

impl Cluster {
    /// Deploys the operator from `deploy/`, in the overlay for kube-prometheus, and waits for all
    /// its replicas.
    ///
    /// Its image must be on the nodes (see [`crate::images::product_archive`]).
    pub async fn deploy_operator(&self) -> Result<()> {
        let root = workspace::root();
        self.define_kinds(&root).await?;
        self.deploy_operator_from(&root, None).await
    }

    /// Applies the custom resource definitions of a checkout.
    pub async fn define_kinds(&self, checkout: &Path) -> Result<()> {
        for path in definitions(&checkout.join("deploy/crds"))? {
            self.apply(&fs::read_to_string(&path)?)
                .await
                .with_context(|| format!("applying {}", path.display()))?;
        }
        Ok(())
    }

    /// Deploys the operator of a checkout without its definitions, in the overlay for
    /// kube-prometheus, and waits for all its replicas; `image` in place of the product's own.
    pub async fn deploy_operator_from(&self, checkout: &Path, image: Option<&str>) -> Result<()> {
        let overlay = checkout.join("deploy/overlays/kube-prometheus");
        let mut manifests = self.kubectl(&["kustomize", &overlay.to_string_lossy()])?;
        if let Some(image) = image {
            manifests = with_image(&manifests, image);
        }
        if self.state().monitoring != Monitoring::Operator {
            manifests = without_monitors(&manifests);
        }
        self.apply(&manifests).await.with_context(|| format!("applying {}", overlay.display()))?;
        self.operator_ready().await
    }

    /// Waits until all replicas of the operator, its webhook's among them, are ready.
    pub async fn operator_ready(&self) -> Result<()> {
        for name in [NAME, WEBHOOK] {
            self.rolled_out(name).await?;
        }
        Ok(())
    }

    /// Scales controllers and webhook, and waits until that many of each are there.
    pub async fn scale_operator(&self, replicas: usize) -> Result<()> {
        let count = format!("--replicas={replicas}");
        let (controllers, webhook) =
            (format!("deployment/{NAME}"), format!("deployment/{WEBHOOK}"));
        self.kubectl(&["-n", NAMESPACE, "scale", &controllers, &webhook, &count])?;
        if replicas > 0 {
            return self.operator_ready().await;
        }
        let pods: Api<Pod> = Api::namespaced(self.client()?, NAMESPACE);
        let ours = ListParams::default().labels(OURS);
        until("the operator away", LIMIT, || async {
            let left = pods.list(&ours).await?.items.len();
            Ok((left > 0).then(|| format!("{left} pods are left")))
        })
        .await
    }

    async fn rolled_out(&self, name: &str) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client()?, NAMESPACE);
        until(&format!("{name} rolled out"), LIMIT, || async {
            self.check()?;
            let deployment = deployments.get(name).await?;
            let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let updated = status.observed_generation >= deployment.metadata.generation
                && status.updated_replicas == Some(wanted)
                && status.replicas == Some(wanted);
            let ready = status.ready_replicas.unwrap_or(0);
            Ok((!updated || ready != wanted).then(|| format!("{ready} of {wanted} ready")))
        })
        .await
        .map_err(|error| {
            let say = |arguments: &[&str]| {
                self.kubectl(arguments).unwrap_or_else(|error| error.to_string())
            };
            let pods = say(&["get", "pods", "-n", NAMESPACE, "-o", "wide"]);
            let log = say(&["logs", "-n", NAMESPACE, &format!("deployment/{name}"), "--tail=15"]);
            let events = say(&["get", "events", "-n", NAMESPACE]);
            anyhow::anyhow!("{error:#}\n{pods}\n{log}\n{events}")
        })
    }

    /// Returns the name of the operator's pod that leads, as its Lease has it; that pod may be
    /// gone.
    pub async fn operator_leader(&self) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client()?, NAMESPACE);
        let lease = leases.get(NAME).await.context("reading the operator's Lease")?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        holder.filter(|holder| !holder.is_empty()).context("nobody holds the operator's Lease")
    }

    /// Makes the operator's metrics reachable on loopback and returns their URL. A request reaches
    /// any replica, and needs a token (`kubectl -n monitoring create token prometheus-k8s`).
    pub async fn operator_metrics_url(&self) -> Result<String> {
        let url = self.expose(NAMESPACE, "traffic-operator-metrics", 8080).await?;
        Ok(format!("{}/metrics", url.replacen("http://", "https://", 1)))
    }
}

/// Returns the files of custom resource definitions in a directory.
pub fn definitions(dir: &std::path::Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        path.extension().is_some_and(|end| end == "yaml") && !path.ends_with("kustomization.yaml")
    });
    files.sort();
    Ok(files)
}

/// Writes `.lab/env`: how to use the cluster from a shell. Returns its text.
pub async fn write_environment(cluster: &Cluster) -> Result<String> {
    let (prometheus, metrics) =
        (cluster.prometheus_url().await?, cluster.operator_metrics_url().await?);
    // The cluster's copy of the `lab` program is there.
    let text = environment(cluster.kubeconfig(), &prometheus, &metrics, cluster.dir());
    fs::write(environment_file(), &text)?;
    Ok(text)
}

pub fn environment_file() -> PathBuf {
    workspace::state().join("env")
}

fn environment(
    kubeconfig: &std::path::Path,
    prometheus: &str,
    metrics: &str,
    programs: &std::path::Path,
) -> String {
    let bin = workspace::bin();
    let quote = |path: &std::path::Path| process::shell_quote(&path.to_string_lossy());
    format!(
        "# How to use the cluster:  . .lab/env\n\
         # Send traffic from a node:  lab traffic NODE RATE SECONDS   (lab traffic node-2 800M 30)\n\
         export KUBECONFIG={}\n\
         export PROMETHEUS_URL={prometheus}\n\
         # With a token:  curl -k -H \"Authorization: Bearer $(kubectl -n monitoring create token prometheus-k8s)\" $OPERATOR_METRICS_URL\n\
         export OPERATOR_METRICS_URL={metrics}\n\
         export LAB_BIN_DIR={}\n\
         export PATH={}:{}:\"$PATH\"\n",
        quote(kubeconfig),
        quote(&bin),
        quote(&bin),
        quote(programs),
    )
}

/// Replaces the product's image, of any version.
fn with_image(manifests: &str, image: &str) -> String {
    let (repository, _) = PRODUCT_REFERENCE.rsplit_once(':').unwrap_or((PRODUCT_REFERENCE, ""));
    let line = |line: &str| match line.split_once("image: ") {
        Some((indent, found)) if found.starts_with(repository) => {
            format!("{indent}image: {image}\n")
        }
        _ => format!("{line}\n"),
    };
    manifests.lines().map(line).collect()
}

/// Removes the objects for prometheus-operator, whose kinds are not there without it.
fn without_monitors(manifests: &str) -> String {
    let documents = manifests.split("\n---\n");
    let rest =
        documents.filter(|document| !document.contains("apiVersion: monitoring.coreos.com/"));
    rest.collect::<Vec<_>>().join("\n---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_a_shell_script_whatever_the_paths() {
        let text = environment(
            "/a b/it's/admin.conf".as_ref(),
            "http://p",
            "http://m/metrics",
            "/bin".as_ref(),
        );
        let script = format!("set -eu\n{text}\nprintf '%s|%s' \"$KUBECONFIG\" \"$PROMETHEUS_URL\"");
        let said = process::output("sh", &["-c", &script]).unwrap();
        assert_eq!(said, "/a b/it's/admin.conf|http://p");
        assert!(text.contains("lab traffic NODE RATE SECONDS"));
    }
}
