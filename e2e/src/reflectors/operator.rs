//! The operator as a process of this machine, with the rights that it has in a cluster.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::judge::OPERATOR;
use lab::bgp::{Monitoring, Site};
use lab::cluster::apply::apply;
use lab::cluster::operator::{NAMESPACE, definitions};
use lab::exposition;
use lab::free_port;
use lab::process::{CommandLine, Lifetime, Process};
use lab::wait::{Task, lock, until};
use lab::workspace;

/// The estimate of the largest table.
const PATHS: &str = "traffic_operator_routereflector_paths";
/// It is checked with the same period: every step of it takes longer.
const ASK: Duration = Duration::from_millis(250);
/// It leads once the Lease of one that was killed has run out.
const PATIENCE: Duration = Duration::from_secs(30);
/// As in a cluster: a shorter one is lost where the machine is busy.
const LEASE: &str = "15s";

/// One operator, which can be killed and started again.
#[derive(Debug)]
pub(super) struct Operator {
    process: Process,
    metrics: String,
    estimates: Arc<Mutex<Vec<(Instant, f64)>>>,
    _asker: Task,
}

impl Operator {
    /// Installs its kinds and its rights, starts it and waits until it leads.
    pub async fn start(program: &Path, site: &Site, monitoring: &Monitoring) -> Result<Self> {
        let program = program
            .canonicalize()
            .with_context(|| format!("no operator: {} (`make image`)", program.display()))?;
        let client = site.plane.client()?;
        let deploy = workspace::root().join("deploy");
        for path in definitions(&deploy.join("crds"))? {
            lab::bgp::define(&client, &fs::read_to_string(&path)?).await?;
        }
        for file in [
            "base/namespace.yaml",
            "rbac/core.yaml",
            "rbac/networkprober.yaml",
            "rbac/routereflectorset.yaml",
            "rbac/swarm.yaml",
            "rbac/trafficwatch.yaml",
            "base/admissionpolicy.yaml",
            "base/ownedpolicy.yaml",
            "base/authorpolicy.yaml",
            "base/fieldpolicy.yaml",
            "base/authorroles.yaml",
        ] {
            let text = fs::read_to_string(deploy.join(file))?;
            apply(&client, &text).await.with_context(|| format!("applying {file}"))?;
        }
        let namespaced = format!("system:serviceaccounts:{NAMESPACE}");
        let groups = ["system:serviceaccounts", &namespaced];
        let kubeconfig = site.plane.kubeconfig_for(OPERATOR, &groups)?;
        let (admin, webhook) = (free_port()?, free_port()?);
        let arguments = [
            "run".to_owned(),
            format!("--prometheus-url={}", monitoring.url()),
            format!("--admin-address=127.0.0.1:{admin}"),
            "--metrics-auth=false".to_owned(),
            "--probe-address=127.0.0.1:0".to_owned(),
            "--page-address=127.0.0.1:0".to_owned(),
            format!("--webhook-address=127.0.0.1:{webhook}"),
            format!("--webhook-url=https://127.0.0.1:{webhook}"),
            "--pinglist-address=127.0.0.1:0".to_owned(),
            format!("--lease-duration={LEASE}"),
            "--log=info,traffic_operator=debug".to_owned(),
        ];
        let command = CommandLine::new(program, arguments)
            .env("KUBECONFIG", kubeconfig)
            // As in the image, which holds the program and nothing else.
            .env("SSL_CERT_FILE", "/dev/null")
            .env("SSL_CERT_DIR", "/nonexistent");
        let process = Process::start("operator", command, &site.ground.dir, Lifetime::Starter)?;
        let metrics = format!("http://127.0.0.1:{admin}/metrics");
        let estimates = Arc::<Mutex<Vec<_>>>::default();
        let asker = Task::spawn(ask(metrics.clone(), Arc::clone(&estimates)));
        let operator = Self { process, metrics, estimates, _asker: asker };
        operator.leads().await?;
        Ok(operator)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again after [`Operator::kill`].
    pub fn resume(&self) -> Result<()> {
        self.process.spawn()
    }

    /// Starts it again if it has ended by itself, as a kubelet would; says why it did.
    pub fn supervise(&self) -> Result<Option<String>> {
        let Err(error) = self.process.check() else { return Ok(None) };
        self.process.spawn()?;
        Ok(Some(format!("{error:#}")))
    }

    /// The most paths that it has expected in a table since then.
    pub fn estimate(&self, since: Instant) -> f64 {
        let estimates = lock(&self.estimates);
        let later = estimates.partition_point(|(at, _)| *at <= since);
        // What was true when the step began is the one before.
        estimates[later.saturating_sub(1)..].iter().map(|(_, paths)| *paths).fold(0.0, f64::max)
    }

    /// Returns its last estimate, if there is one.
    pub fn estimated(&self) -> Option<f64> {
        lock(&self.estimates).last().map(|(_, paths)| *paths)
    }

    /// Returns the last lines of its log.
    pub fn log(&self, lines: usize) -> String {
        let text = fs::read_to_string(&self.process.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    async fn leads(&self) -> Result<()> {
        until("the operator leading", PATIENCE, || async {
            self.process.check()?;
            let text = get(&self.metrics).await.unwrap_or_default();
            let leads = exposition::sum(&text, "traffic_operator_leader") > 0.0;
            Ok((!leads).then(|| "it does not".to_owned()))
        })
        .await
    }
}

async fn get(url: &str) -> Result<String> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
    Ok(client.get(url).send().await?.text().await?)
}

/// Keeps what it estimates.
async fn ask(url: String, estimates: Arc<Mutex<Vec<(Instant, f64)>>>) {
    loop {
        tokio::time::sleep(ASK).await;
        let Ok(text) = get(&url).await else { continue };
        if exposition::samples(&text, PATHS).is_empty() {
            continue;
        }
        let paths = exposition::sum(&text, PATHS);
        lock(&estimates).push((Instant::now(), paths));
    }
}
