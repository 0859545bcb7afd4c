//! A real Prometheus, its targets, and its answers.
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// A process that ends with the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A test's own Prometheus, which ends with the test.
pub struct Prometheus {
    pub address: SocketAddr,
    _process: Ended,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes each second, with these `scrape_configs` and rule files.
    pub fn start(name: &str, scrapes: &[Value], rules: &[Value]) -> Self {
        Self::run(&empty(name), scrapes, rules, &[])
    }

    /// Starts one that scrapes nothing, with further flags.
    pub fn with(name: &str, flags: &[&str]) -> Self {
        Self::run(&empty(name), &[], &[], flags)
    }

    /// Starts one that scrapes nothing and has these samples, in the format of OpenMetrics.
    pub fn recorded(name: &str, samples: &str) -> Self {
        let dir = empty(name);
        let file = dir.join("samples");
        fs::write(&file, samples).expect("samples");
        let output = Command::new(lab::tools::ensure("promtool").expect("promtool"))
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([file, dir.join("data")])
            .output()
            .expect("promtool");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::run(&dir, &[], &[], &[])
    }

    fn run(dir: &Path, scrapes: &[Value], rules: &[Value], flags: &[&str]) -> Self {
        let files: Vec<_> = (0..rules.len()).map(|i| format!("rules-{i}.json")).collect();
        for (file, rules) in files.iter().zip(rules) {
            fs::write(dir.join(file), rules.to_string()).expect("rules");
        }
        let second = "1s";
        let config = json!({
            "global": {
                "scrape_interval": second, "scrape_timeout": second, "evaluation_interval": second,
            },
            "rule_files": files,
            "scrape_configs": scrapes,
        });
        let file = dir.join("prometheus.yml");
        fs::write(&file, config.to_string()).expect("configuration");
        let address = (Ipv4Addr::LOCALHOST, lab::free_port().expect("a port")).into();
        let process = Command::new(lab::tools::ensure("prometheus").expect("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(flags)
            .stdin(Stdio::null())
            .stderr(File::create(dir.join("log")).expect("log"))
            .spawn()
            .expect("prometheus");
        Self { address, _process: Ended(process) }
    }

    /// Sends one query to Prometheus; `None` while it does not answer.
    pub fn ask(&self, query: &str) -> Option<Vec<Value>> {
        let answer = self.send(&format!("query={}", escaped(query)))?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        answer["data"]["result"].as_array().cloned()
    }

    /// Returns the body of the answer to a query at a time in Unix seconds.
    pub fn at(&self, query: &str, time: i64) -> Option<String> {
        self.send(&format!("time={time}&query={}", escaped(query)))
    }

    fn send(&self, body: &str) -> Option<String> {
        post(self.address, "/api/v1/query", "application/x-www-form-urlencoded", body)
    }
}

/// Sends something of this type; returns the body of the answer, `None` while there is no answer.
pub fn post(address: SocketAddr, path: &str, kind: &str, body: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\
         Content-Type: {kind}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// An empty directory for a Prometheus.
pub fn empty(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("directory");
    dir
}

/// Returns the body of a server's answer; `None` while there is no answer.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// Serves the current text to every client, until the test's process ends.
pub fn serve(text: impl Fn() -> String + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (text, mut head) = (text.clone(), [0; 4096]);
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = stream.read(&mut head);
                let text = text();
                let kind = if text.ends_with("# EOF\n") {
                    "application/openmetrics-text; version=1.0.0; charset=utf-8"
                } else {
                    "text/plain; version=0.0.4"
                };
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n");
                let length = format!("Content-Length: {}\r\n\r\n", text.len());
                let _ = stream.write_all([head, length, text].concat().as_bytes());
            });
        }
    });
    address
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02X}"))
}

/// Waits until `look` returns a value, for at most a minute.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
}
