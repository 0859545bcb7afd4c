//! The ground of the benches: a real API server with the installation of `make deploy`, and the
//! operator's process.
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use lab::{ControlPlane, ControlPlaneOptions, process};
use serde_json::json;
use traffic_operator::{api::KINDS, manifests};

/// The longest wait for any condition: the first pass over 5,000 nodes takes the longest.
const PATIENCE: Duration = Duration::from_mins(3);

/// Starts an API server, and installs the definitions and the operator's namespace for its Lease.
pub async fn start() -> anyhow::Result<(ControlPlane, Client)> {
    let options =
        ControlPlaneOptions { scheduler: false, controller_manager: false, ..Default::default() };
    let plane = ControlPlane::start(options).await?;
    let client = plane.client()?;
    install(&client).await?;
    Ok((plane, client))
}

async fn install(client: &Client) -> anyhow::Result<()> {
    let post = PostParams::default();
    let namespace = json!({"metadata": {"name": manifests::NAMESPACE}});
    Api::<Namespace>::all(client.clone())
        .create(&post, &serde_json::from_value(namespace)?)
        .await?;
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for kind in KINDS {
        let crd = (kind.crd)();
        crds.create(&post, &crd).await?;
        let established = async || {
            let status = crds.get(&crd.name_any()).await.ok()?.status?;
            let conditions = status.conditions?;
            conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
        };
        wait("the definition", established).await?;
    }
    Ok(())
}

pub async fn wait<T>(what: &str, check: impl AsyncFnMut() -> Option<T>) -> anyhow::Result<T> {
    wait_for(what, PATIENCE, check).await
}

/// The same, with another longest wait.
pub async fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = check().await {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A figure, with the name of its column.
pub type Figure<T = f64> = (&'static str, T);

/// Prints a row of a table, and before the first one the names of its columns.
pub fn print(row: &[Figure<String>], first: &mut bool) {
    if std::mem::take(first) {
        println!("{}", row.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | "));
        println!("{}", vec!["---"; row.len()].join(" | "));
    }
    println!("{}", row.iter().map(|(_, figure)| figure.as_str()).collect::<Vec<_>>().join(" | "));
}

/// Prints which figures are above their limits, and reports whether there are any.
pub fn above(figures: &[Figure], limits: &[Figure]) -> bool {
    let mut found = false;
    for (name, limit) in limits {
        let figure = figures.iter().find(|(column, _)| column == name);
        if let Some((_, figure)) = figure.filter(|(_, figure)| figure > limit) {
            println!("above the limit: {name} is {figure:.2}, at most {limit}");
            found = true;
        }
    }
    found
}

/// Returns an address with a port that has no listener, and that no connection takes in the
/// meantime.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(([127, 0, 0, 1], lab::free_port()?).into())
}

/// The operator's process.
pub struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Operator {
    /// Starts `run` with these arguments and the environment of `deploy/base`. A killed operator
    /// keeps its Lease, so the next one needs another.
    pub fn start(
        binary: &Path,
        kubeconfig: &Path,
        lease: &str,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        Self::start_command(Command::new(binary), kubeconfig, lease, args)
    }

    /// The same with a program that may have flags before `run`.
    pub fn start_command(
        mut command: Command,
        kubeconfig: &Path,
        lease: &str,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let child = command
            .args(["run", "--log", "warn", "--lease-name", lease])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            // Scraped over plain HTTP: TLS and reviews are a cost of the API server, not ours.
            .env("TRAFFIC_OPERATOR_METRICS_AUTH", "false")
            // All objects are of one namespace.
            .env("TRAFFIC_OPERATOR_TRAFFICWATCHES_PER_NAMESPACE", "0")
            .env("TRAFFIC_OPERATOR_TRAFFICWATCHES", "0")
            .env("TRAFFIC_OPERATOR_PROBE_ADDRESS", "127.0.0.1:0")
            .env("TRAFFIC_OPERATOR_PAGE_ADDRESS", "127.0.0.1:0")
            .env("TRAFFIC_OPERATOR_WEBHOOK_ADDRESS", "127.0.0.1:0")
            .env("TRAFFIC_OPERATOR_PINGLIST_ADDRESS", "127.0.0.1:0")
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "4194304")
            .env("MALLOC_TRIM_THRESHOLD_", "1048576")
            .stdin(Stdio::null())
            .spawn();
        Ok(Self(child.with_context(|| format!("{}", program.display()))?))
    }

    /// Returns the current and the maximum resident memory, in MiB.
    pub fn memory(&self) -> anyhow::Result<(f64, f64)> {
        Ok((self.mib("VmRSS:")?, self.mib("VmHWM:")?))
    }

    fn mib(&self, key: &str) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        Ok(process::kib(&status, key)? / 1024.0)
    }

    pub fn descriptors(&self) -> anyhow::Result<i64> {
        let count = fs::read_dir(format!("/proc/{}/fd", self.0.id()))?.count();
        Ok(i64::try_from(count)?)
    }

    /// Returns how much of the resident memory belongs to pages of the binary, in MiB.
    pub fn binary_pages(&self) -> anyhow::Result<f64> {
        self.mib("RssFile:")
    }

    /// Returns the processor time so far, in milliseconds.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        process::cpu(self.0.id())
    }
}
