//! Identities for one API server, issued on the fly.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::audit::{self, AuditEvent};
use crate::control_plane::AUDIT_LOG;
use crate::kubeconfig;
use crate::pki::{Authority, Identity, write_secret};

/// The authority that an API server trusts, and where that API server is.
#[derive(Debug)]
pub(crate) struct Credentials {
    authority: Authority,
    server: String,
    dir: PathBuf,
}

impl Credentials {
    /// Identities for the API server at `server`, kept in `dir`.
    pub fn new(authority: Authority, server: &str, dir: &Path) -> Result<Self> {
        install_crypto();
        fs::create_dir_all(dir)?;
        Ok(Self { authority, server: server.to_owned(), dir: dir.to_owned() })
    }

    /// Issues a certificate for a user and returns a kubeconfig that carries it.
    pub fn kubeconfig_text(&self, user: &str, groups: &[&str]) -> Result<String> {
        let pair = self.authority.issue(&Identity::user(user, groups))?;
        Ok(kubeconfig::render(&self.server, self.authority.certificate(), user, &pair))
    }

    /// The same, written to a file named after the user.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        // A service account's name has colons, which a KUBECONFIG list would split at.
        let path = self.dir.join(format!("{}.conf", user.replace([':', '/'], "-")));
        write_secret(&path, &self.kubeconfig_text(user, groups)?)?;
        Ok(path)
    }

    /// The same, as a client configuration.
    pub async fn config(&self, user: &str, groups: &[&str]) -> Result<kube::Config> {
        load(&self.kubeconfig_text(user, groups)?).await
    }
}

/// Reads a client configuration from a kubeconfig's text.
pub(crate) async fn load(text: &str) -> Result<kube::Config> {
    install_crypto();
    let kubeconfig = Kubeconfig::from_yaml(text)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("reading the lab's own kubeconfig")
}

/// TLS needs one provider for the whole process; the first user installs it.
pub(crate) fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The group whose members may do everything.
pub(crate) const ADMINS: &str = "system:masters";

/// An administrator's way into an API server, other users' ways, and the log of all requests.
#[derive(Debug)]
pub struct Access {
    credentials: Credentials,
    admin: kube::Config,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
}

impl Access {
    /// The ways into the API server at `server`, whose files are in `dir`.
    pub(crate) async fn open(authority: Authority, server: &str, dir: &Path) -> Result<Self> {
        let credentials = Credentials::new(authority, server, &dir.join("kubeconfig"))?;
        let kubeconfig = dir.join("kubeconfig/admin.conf");
        if !kubeconfig.exists() {
            credentials.kubeconfig("admin", &[ADMINS])?;
        }
        let admin = load(&fs::read_to_string(&kubeconfig)?).await?;
        Ok(Self { credentials, admin, kubeconfig, audit_log: dir.join(AUDIT_LOG) })
    }

    /// Returns the administrator's kubeconfig file; it works outside of a cluster.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the administrator's client configuration.
    pub fn config(&self) -> kube::Config {
        self.admin.clone()
    }

    /// Returns a new client of the administrator.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config()).context("making the administrator's client")
    }

    /// Returns a client configuration for any user, known or not, with at most two groups; RBAC
    /// decides what it may do. `system:authenticated` comes by itself.
    ///
    /// To act as a service account: user `system:serviceaccount:<namespace>:<name>`, groups
    /// `system:serviceaccounts` and `system:serviceaccounts:<namespace>`.
    pub async fn config_for(&self, user: &str, groups: &[&str]) -> Result<kube::Config> {
        self.credentials.config(user, groups).await
    }

    /// Writes the same configuration to a file, for another process.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.credentials.kubeconfig(user, groups)
    }

    /// Returns every request answered so far, oldest first.
    ///
    /// The API server logs a request when its answer is complete: it may show up some milliseconds
    /// after the client has it.
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        audit::read(&self.audit_log)
    }

    /// Returns the file that the API server logs requests to: never rotated, removed with it.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// Returns the requests answered at or after `time`.
    pub fn audit_since(&self, time: Timestamp) -> Result<Vec<AuditEvent>> {
        audit::since(&self.audit_log, time)
    }

    /// Returns the requests answered at or after `time`, until now: unlike
    /// [`Access::audit_since`], it waits until the log has them all.
    pub async fn whole_audit_since(&self, time: Timestamp) -> Result<Vec<AuditEvent>> {
        audit::caught_up(&self.client()?, &self.audit_log).await?;
        self.audit_since(time)
    }
}
