//! Identities for one API server, issued on the fly.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

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
