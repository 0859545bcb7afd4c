//! The processes of one control plane, on loopback or in a network namespace.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use super::components::{AUTHORITY, FRONT_PROXY_AUTHORITY, Layout, SERVICE_API};
use crate::audit;
use crate::credentials::{ADMINS, Credentials};
use crate::pki::{Authority, Identity, signing_keys, write_secret};
use crate::process::{Lifetime, Process};
use crate::tools;
use crate::wait::until;

/// A start takes 3 to 9 s on an idle machine with two cores; this allows for ten at once.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Writes keys, certificates, kubeconfigs and the audit policy, and returns the authority.
///
/// `names` are further names of the API server, besides its own address.
pub(crate) fn prepare(layout: &Layout, names: &[&str]) -> Result<Authority> {
    let pki = layout.dir.join("pki");
    fs::create_dir_all(&pki)?;
    let authority = Authority::create(AUTHORITY)?;
    authority.write(&pki)?;
    let mut all = vec![
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        SERVICE_API,
    ];
    all.extend(names);
    authority.issue(&Identity::server("kube-apiserver", &all))?.write(&pki, "apiserver")?;
    authority
        .issue(&Identity::user("kube-apiserver-kubelet-client", &[ADMINS]))?
        .write(&pki, "kubelet-client")?;
    let front_proxy = Authority::create(FRONT_PROXY_AUTHORITY)?;
    front_proxy.write(&pki)?;
    front_proxy
        .issue(&Identity::user("front-proxy-client", &[]))?
        .write(&pki, "front-proxy-client")?;
    let (private, public) = signing_keys()?;
    write_secret(&pki.join("service-account.key"), &private)?;
    write_secret(&pki.join("service-account.pub"), &public)?;
    fs::write(layout.dir.join("audit-policy.yaml"), audit::POLICY)?;

    // The components' own kubeconfigs name the API server as they see it; users may need another
    // address.
    let near = Credentials::new(authority, &layout.server(), &layout.dir.join("kubeconfig"))?;
    near.kubeconfig("system:kube-controller-manager", &[])?;
    near.kubeconfig("system:kube-scheduler", &[])?;
    Authority::load(&pki, AUTHORITY)
}

/// Starts etcd and the API server.
pub(crate) fn start_core(layout: &Layout, lifetime: Lifetime) -> Result<Vec<Process>> {
    let start = |name: &str, command| Process::start(name, command, &layout.dir, lifetime);
    Ok(vec![
        start("etcd", layout.etcd(tools::ensure("etcd")?))?,
        start("kube-apiserver", layout.apiserver(tools::ensure("kube-apiserver")?))?,
    ])
}

/// Waits until the API server reports that it is ready.
pub(crate) async fn ready(client: &Client, processes: &[Process]) -> Result<()> {
    until("kube-apiserver ready", START_LIMIT, || async {
        processes.iter().try_for_each(Process::check)?;
        let request =
            http::Request::get("/readyz").body(Vec::new()).context("building a request")?;
        // A request to a server that is just coming up may hang rather than fail.
        let answer =
            tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await;
        Ok(match answer {
            Ok(answer) => answer.err().map(|error| error.to_string()),
            Err(_) => Some("no answer within 2 s".to_owned()),
        })
    })
    .await
    .map_err(|error| match processes.last() {
        // The error of a process that has ended already shows its log.
        Some(last) if last.check().is_ok() => {
            anyhow::anyhow!("{error:#}{}", crate::process::tail(&last.log))
        }
        _ => error,
    })
}

pub(crate) fn start_controller_manager(
    layout: &Layout,
    node_grace: Duration,
    lifetime: Lifetime,
) -> Result<Process> {
    let program = tools::ensure("kube-controller-manager")?;
    Process::start(
        "kube-controller-manager",
        layout.controller_manager(program, node_grace),
        &layout.dir,
        lifetime,
    )
}

pub(crate) fn start_scheduler(layout: &Layout, lifetime: Lifetime) -> Result<Process> {
    let program = tools::ensure("kube-scheduler")?;
    Process::start("kube-scheduler", layout.scheduler(program), &layout.dir, lifetime)
}

/// Waits until pods can be made: the controller manager has made the default service account.
pub(crate) async fn controllers_ready(client: &Client, processes: &[Process]) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until("kube-controller-manager ready (default service account)", START_LIMIT, || async {
        processes.iter().try_for_each(Process::check)?;
        Ok(match accounts.get_opt("default").await {
            Ok(Some(_)) => None,
            Ok(None) => Some("no default service account".to_owned()),
            Err(error) => Some(error.to_string()),
        })
    })
    .await
}
