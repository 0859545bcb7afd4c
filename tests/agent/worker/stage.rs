//! Workers to start, files for them, streams that keep a journal, and a sink for reports.
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    ops::{Deref, DerefMut},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde::Deserialize;

use crate::stage::{Directory, Page, Program, eventually, free_port, get, program};

/// The answer of a worker about itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Said {
    pub jobs: Vec<String>,
    pub version: u64,
    /// Empty where the worker does not report it.
    #[serde(default)]
    pub worker: String,
}

/// Returns a command without starting it.
pub fn command(subcommand: &str, port: u16, directory: &Path) -> Command {
    let mut command = program();
    command
        .arg(subcommand)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("HTTP_PORT", port.to_string())
        .env("CONFIG_PATH", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// A running worker, called `w0` by default; its streams end with it.
pub struct Worker {
    pub port: u16,
    program: Program,
}

impl Deref for Worker {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Worker {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Worker {
    /// Starts a worker with these flags, in its own directory and without a file yet.
    pub fn start(flags: &[&str]) -> Self {
        let directory = Directory::new();
        let port = free_port();
        let mut command = command("worker", port, &directory.path(""));
        // The directory for the journal of the streams.
        command.env("HOSTNAME", "w0").env("HERE", directory.path("")).args(flags);
        Self::of(&mut command, port, directory)
    }

    /// Starts a command, and waits until it answers at its port.
    pub fn of(command: &mut Command, port: u16, directory: Directory) -> Self {
        let worker = Self::spawn(command, port, directory);
        eventually("the worker serves", || worker.version());
        worker
    }

    /// Starts a worker without waiting for it.
    pub fn spawn(command: &mut Command, port: u16, directory: Directory) -> Self {
        Self { port, program: Program::start(command, directory) }
    }

    /// Starts a worker that runs a script for each stream.
    pub fn running(flags: &[&str], script: &str) -> Self {
        Self::start(&[flags, &["--", "sh", "-c", script]].concat())
    }

    /// Publishes a file with this share.
    pub fn give(&self, version: u64, streams: &[&str]) {
        self.publish(&file(version, &[("w0", version, streams)]));
    }

    pub fn publish(&self, text: &str) {
        self.directory().publish("config.yml", text);
    }

    pub fn version(&self) -> Option<Said> {
        let (head, body) = get(self.port, "/internal/version", "")?;
        head.contains(" 200 ").then_some(())?;
        Some(serde_json::from_str(&body).expect("a version"))
    }

    /// Waits until it reports that version, and returns the answer; until then it reports older
    /// ones.
    pub fn reached(&self, version: u64) -> Said {
        let said = eventually("the version is reached", || {
            self.version().filter(|said| said.version >= version)
        });
        assert_eq!(said.version, version, "{}", self.log());
        said
    }

    pub fn page(&self) -> Page {
        Page::parse(&get(self.port, "/metrics", "").expect("a page").1)
    }

    /// Returns its page as soon as the page satisfies `enough`.
    pub fn page_with(&self, what: &str, enough: impl Fn(&Page) -> bool) -> Page {
        eventually(what, || Some(self.page()).filter(&enough))
    }

    /// Returns the lines that its streams wrote, split into words.
    pub fn journal(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.directory().path("journal")).unwrap_or_default();
        text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    }

    /// Returns the last word of the last line that begins with these words: a process id.
    pub fn last(&self, words: &[&str]) -> Option<String> {
        self.journal().into_iter().rfind(|line| line.starts_with(&owned(words)))?.pop()
    }

    /// The same, but waits for the line.
    pub fn wait_for(&self, words: &[&str]) -> String {
        eventually(&words.join(" "), || self.last(words))
    }

    pub fn count(&self, words: &[&str]) -> usize {
        self.journal().iter().filter(|line| line.starts_with(&owned(words))).count()
    }
}

impl Drop for Worker {
    /// Ends all streams, even after a failed test.
    fn drop(&mut self) {
        let id = self.program.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).stderr(Stdio::null()).status();
        for _ in 0..200 {
            if !is_there(&id) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Reports whether a process runs; a zombie does not.
pub fn is_there(id: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(id).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// Returns a file: workers with their own versions and their streams.
pub fn file(version: u64, shares: &[(&str, u64, &[&str])]) -> String {
    let mut text = "workloads:\n".to_owned();
    for (worker, epoch, streams) in shares {
        writeln!(text, "  {worker}:\n    jobs:").unwrap();
        for stream in *streams {
            writeln!(text, "      - {stream}").unwrap();
        }
        writeln!(text, "    version: {epoch}").unwrap();
    }
    writeln!(text, "version: {version}").unwrap();
    text
}

/// Writes a line when it begins and, after SIGTERM, when it has ended: half a second later.
pub const SLOW: &str = r#"
    echo "begin $STREAM $SWARM_EPOCH $$" >> "$HERE/journal"
    trap 'sleep 0.5; echo "end $STREAM $$" >> "$HERE/journal"; exit 0' TERM
    while :; do sleep 0.05; done"#;

/// A report that a sink has received.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    pub worker: String,
    pub pod: String,
    pub intervals: Vec<Interval>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Interval {
    pub stream: String,
    pub epoch: u64,
    pub from: u64,
    pub to: u64,
}

/// Ways in which a sink answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    Good,
    /// Answers with an error and keeps nothing.
    Failing,
    /// Does not answer.
    Silent,
}

struct State {
    behavior: Behavior,
    requests: usize,
    reports: Vec<Report>,
}

/// Accepts reports, and counts requests.
pub struct Sink {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Sink {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { behavior: Behavior::Good, requests: 0, reports: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(body) = body(&mut stream) else { continue };
                let mut state = shared.lock().unwrap();
                state.requests += 1;
                let status = match state.behavior {
                    Behavior::Good if body.is_empty() => "200 OK",
                    Behavior::Good => {
                        state.reports.push(serde_json::from_slice(&body).expect("a report"));
                        "204 No Content"
                    }
                    Behavior::Failing => "503 Service Unavailable",
                    Behavior::Silent => {
                        kept.push(stream);
                        continue;
                    }
                };
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/reports", self.port)
    }

    pub fn behave(&self, behavior: Behavior) {
        self.state.lock().unwrap().behavior = behavior;
    }

    /// Returns the number of requests so far, whatever their answers were.
    pub fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    pub fn reports(&self) -> Vec<Report> {
        self.state.lock().unwrap().reports.clone()
    }

    /// Returns each stream's intervals as (worker, epoch, from, to), with adjacent ones merged. A
    /// report whose answer did not arrive in time is repeated with what came since.
    pub fn runs(&self) -> BTreeMap<String, Vec<(String, u64, u64, u64)>> {
        let mut runs: BTreeMap<_, Vec<(String, u64, u64, u64)>> = BTreeMap::new();
        for report in self.reports() {
            for Interval { stream, epoch, from, to } in report.intervals {
                assert!(from <= to, "{stream} ran from {from} to {to}");
                let runs = runs.entry(stream).or_default();
                match runs.iter_mut().rfind(|run| run.0 == report.worker) {
                    Some(last) if last.1 == epoch && (last.2..=last.3).contains(&from) => {
                        last.3 = last.3.max(to);
                    }
                    _ => runs.push((report.worker.clone(), epoch, from, to)),
                }
            }
        }
        runs
    }
}

fn body(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    loop {
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if request.len() >= end + 4 + length {
                return Some(request.split_off(end + 4));
            }
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(length) => request.extend_from_slice(&part[..length]),
        }
    }
}
