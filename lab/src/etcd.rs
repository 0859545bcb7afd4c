//! An etcd of its own, as Calico has one: TLS, and only for clients with a certificate.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::control_plane::{OWNER, free_port, sweep};
use crate::pki::{Authority, Identity};
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::{Look, until};
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
        let dir = workspace::run().join(format!("etcd-{}", workspace::unique()));
        let pki = dir.join("pki");
        fs::create_dir_all(&pki)?;
        fs::write(dir.join(OWNER), std::process::id().to_string())?;
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
        let arguments = [
            "--name=calico".to_owned(),
            format!("--data-dir={}", dir.join("etcd").display()),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={endpoint}"),
            format!("--advertise-client-urls={endpoint}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=calico={peer}"),
            "--client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={}", file("calico-etcd-ca.crt")),
            format!("--cert-file={}", file("server.crt")),
            format!("--key-file={}", file("server.key")),
        ];
        let command = CommandLine::new(tools::ensure("etcd")?, arguments);
        let process = Process::start("etcd", command, &dir, Lifetime::Starter)?;
        until("etcd listens", START_LIMIT, || async {
            process.check()?;
            Ok(match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })
        .await?;
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
