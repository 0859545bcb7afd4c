//! The operator's process: start, requests and end.
use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{eventually, free_address};

/// The operator's process.
pub struct Operator {
    pub child: Child,
    pub url: String,
    /// The URL that the API server uses for the webhook.
    pub webhook: String,
    /// The address that agents use.
    pub pinglists: String,
    log: PathBuf,
}

impl Operator {
    /// Starts it with its admin server at this address.
    pub fn start_at(address: SocketAddr, kubeconfig: PathBuf, args: &[&str]) -> Self {
        let [webhook, pinglists, probes, page] = [(); 4].map(|()| free_address());
        let log =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("operator-{}.log", address.port()));
        // Another build of it.
        let program = std::env::var_os("OPERATOR");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_traffic-operator").into());
        let child = Command::new(program)
            .arg("run")
            .args(["--admin-address", &address.to_string()])
            .args(["--webhook-address", &webhook.to_string()])
            .args(["--pinglist-address", &pinglists.to_string()])
            .args(["--log", "info,traffic_operator=debug"])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            // A variable, so that a controller can say where the webhook's process is.
            .env("TRAFFIC_OPERATOR_WEBHOOK_URL", format!("https://{webhook}"))
            // All of it over plain HTTP at one address; scraping.rs covers the deployed form.
            .env("TRAFFIC_OPERATOR_METRICS_AUTH", "false")
            .env("TRAFFIC_OPERATOR_PROBE_ADDRESS", probes.to_string())
            .env("TRAFFIC_OPERATOR_PAGE_ADDRESS", page.to_string())
            // As in the image, which holds only the program: no certificates can be found.
            .env("SSL_CERT_FILE", "/dev/null")
            .env("SSL_CERT_DIR", "/nonexistent")
            .env_remove("POD_NAMESPACE")
            .env_remove("POD_NAME")
            .stdin(Stdio::null())
            .stderr(File::create(&log).expect("log"))
            .spawn()
            .expect("operator");
        let url = format!("http://{address}");
        let [webhook, pinglists] = [webhook, pinglists].map(|address| format!("https://{address}"));
        Operator { child, url, webhook, pinglists, log }
    }

    pub async fn page(&self, path: &str) -> Option<(u16, String)> {
        let http = reqwest::Client::builder().tls_certs_only([]).build().ok()?;
        let answer = http.get(format!("{}{path}", self.url)).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    pub async fn ready(&self) {
        let what = "the operator to be ready";
        eventually(what, async || {
            self.page("/readyz").await.filter(|(code, _)| *code == 200).map(drop)
        })
        .await;
    }

    /// The sum of a metric's series that hold all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (_, page) = self.page("/metrics").await.expect("/metrics");
        page.lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Returns how many passes of a kind, named in lower case, it has made.
    pub async fn made(&self, kind: &str) -> f64 {
        let label = format!("controller=\"{kind}\"");
        self.metric("traffic_operator_reconcile_total", &[&label]).await
    }

    /// Waits until it has made this many more passes of a kind, named in lower case.
    pub async fn passes(&self, kind: &str, count: u32) {
        let all = self.made(kind).await + f64::from(count);
        let holds = async || (self.made(kind).await >= all).then_some(());
        eventually(&format!("{count} passes of a {kind}"), holds).await;
    }

    /// Returns its peak memory in bytes.
    pub fn peak(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB") << 10
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("log")
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill");
        assert!(status.success(), "kill -s {signal} {pid}");
    }

    /// Ends it as the kubelet does, and returns its exit code.
    pub async fn terminate(mut self) -> Option<i32> {
        self.signal("TERM");
        let ended = async || self.child.try_wait().expect("wait");
        eventually("the operator to end", ended).await.code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        if std::thread::panicking() {
            let lines: Vec<_> = log.lines().filter(|line| !line.contains(" DEBUG ")).collect();
            let last = lines.len().saturating_sub(30);
            eprintln!("{}:\n{}", self.log.display(), lines[last..].join("\n"));
        } else {
            // Whatever a test does to Secrets, no key stands in a log: in PEM, or encoded as the API
            // server answers it.
            for key in ["-----BEGIN", "LS0tLS1CRUdJTi"] {
                assert!(!log.contains(key), "{} has a key", self.log.display());
            }
            let _ = std::fs::remove_file(&self.log);
        }
    }
}
