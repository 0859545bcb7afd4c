//! An etcd of its own, as Calico has one: TLS, and only for clients with a certificate.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::control_plane::{self, free_port, sweep};
use crate::pki::{Authority, Identity};
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::listening;
use crate::{tools, workspace};

/// The deadline for etcd to listen; it takes 0.3 s on an idle machine.
const START_LIMIT: Duration = Duration::from_mins(1);

/// A running etcd; it ends when dropped.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    process: Process,
    /// Its address: `https://127.0.0.1:…`.
    pub endpoint: String,
    /// The authority that signed its certificate and the client's, PEM.
    pub ca: String,
    /// A client certificate that it accepts, PEM.
    pub certificate: String,
    /// The key of that certificate, PEM.
    pub key: String,
    /// An authority that signed neither certificate, PEM.
    pub stranger: String,
}

impl Etcd {
    /// Starts one member on loopback and waits until it listens.
    pub async fn start() -> Result<Self> {
        sweep();
        tools::prepare(vec!["etcd"]).await?;
        let dir = workspace::own(&format!("etcd-{}", workspace::unique()))?;
        let pki = dir.join("pki");
        fs::create_dir_all(&pki)?;
        let authority = Authority::create("calico-etcd-ca")?;
        authority.write(&pki)?;
        // etcd checks its own certificate as a client's, too: its gateway is one.
        let server =
            Identity { client: true, ..Identity::server("etcd", &["127.0.0.1", "localhost"]) };
        authority.issue(&server)?.write(&pki, "server")?;
        let client = authority.issue(&Identity::user("calico", &[]))?;
        let (port, peer) = (free_port()?, free_port()?);
        let (endpoint, peer) =
            (format!("https://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let file = |name: &str| pki.join(name).display().to_string();
        let mut arguments = control_plane::etcd("calico", &dir, &endpoint, &peer);
        arguments.extend([
            "--client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={}", file("calico-etcd-ca.crt")),
            format!("--cert-file={}", file("server.crt")),
            format!("--key-file={}", file("server.key")),
        ]);
        let command = CommandLine::new(tools::ensure("etcd")?, arguments);
        let process = Process::start("etcd", command, &dir, Lifetime::Starter)?;
        let address = format!("127.0.0.1:{port}");
        listening("etcd", START_LIMIT, &address, || process.check()).await?;
        Ok(Self {
            dir,
            process,
            endpoint,
            ca: authority.certificate().to_owned(),
            certificate: client.certificate,
            key: client.key,
            stranger: Authority::create("stranger")?.certificate().to_owned(),
        })
    }

    /// Kills it with SIGKILL; its data stays.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again with its data.
    pub fn restart(&self) -> Result<()> {
        self.process.spawn().context("starting etcd again")
    }

    /// Stops it without ending it: it accepts connections and answers none.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets it continue.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
