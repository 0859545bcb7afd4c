//! Agents to start, peers that misbehave, and pages to read.
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    ops::{Deref, DerefMut},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};

/// Longer than anything takes on a busy machine; no assertion depends on it.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until `look` returns a value.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        thread::sleep(LOOK);
    }
}

/// Returns a port that is free for TCP and UDP, and that no other process of these tests gets.
pub fn free_port() -> u16 {
    loop {
        let port = lab::free_port().expect("a port");
        let any = SocketAddr::new(IpAddr::from(Ipv6Addr::UNSPECIFIED), port);
        let v4 = SocketAddr::from(([0, 0, 0, 0], port));
        let free = |at| TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok();
        if free(v4) && (free(any) || !has_ipv6()) {
            return port;
        }
    }
}

pub fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

/// A directory that is removed after the test.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("traffic-operator-agent-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Publishes a file as the kubelet does: a new directory, and a symlink that is switched to it
    /// atomically.
    pub fn publish(&self, name: &str, text: &str) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let data = format!("..data-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        fs::create_dir(self.path(&data)).unwrap();
        fs::write(self.path(&data).join(name), text).unwrap();
        std::os::unix::fs::symlink(&data, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
        let file = self.path(name);
        if !file.is_symlink() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), &file).unwrap();
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running process of ours; it ends with the test.
pub struct Program {
    child: Child,
    directory: Directory,
}

impl Program {
    /// Starts it; its output goes to a file in the directory.
    pub fn start(command: &mut Command, directory: Directory) -> Self {
        let log = File::create(directory.path("log")).unwrap();
        let child = command.stderr(log).spawn().expect("the binary runs");
        Self { child, directory }
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path("log")).unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns its exit code once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        eventually("the agent ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Agent {
    pub port: u16,
    pub metrics_port: u16,
    program: Program,
}

impl Deref for Agent {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Agent {
    /// Starts an agent with the three variables of the original, and no list yet.
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// Starts an agent with more variables and flags.
    pub fn with(variables: &[(&str, &str)], flags: &[&str]) -> Self {
        Self::of(|port, metrics_port| {
            let mut command = command(port, metrics_port);
            command.args(flags).envs(variables.iter().copied());
            command
        })
    }

    /// Starts an agent with another command.
    pub fn of(how: impl FnOnce(u16, u16) -> Command) -> Self {
        let (port, metrics_port) = (free_port(), free_port());
        let directory = Directory::new();
        let mut command = how(port, metrics_port);
        command.env("NET_PROBER_CONFIG_FILE", directory.path("config.json"));
        let program = Program::start(&mut command, directory);
        let agent = Self { port, metrics_port, program };
        eventually("the agent serves", || agent.scrape());
        agent
    }

    pub fn publish(&self, text: &str) {
        self.directory().publish("config.json", text);
    }

    /// Returns its page; `None` if it did not answer.
    pub fn scrape(&self) -> Option<Page> {
        let accept = "Accept: application/openmetrics-text\r\n";
        get(self.metrics_port, "/metrics", accept).map(|(_, body)| Page::parse(&body))
    }

    pub fn page(&self) -> Page {
        eventually("the agent answers", || self.scrape())
    }

    /// Returns its page as soon as the page satisfies `enough`.
    pub fn page_with(&self, what: &str, enough: impl Fn(&Page) -> bool) -> Page {
        eventually(what, || self.scrape().filter(&enough))
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(Path::new("/proc").join(self.id().to_string()).join("fd")).unwrap().count()
    }
}

/// Returns the agent's own program if `AGENT` names it, otherwise the operator's command `agent`;
/// both behave the same.
pub fn program() -> Command {
    if let Some(program) = std::env::var_os("AGENT") {
        Command::new(program)
    } else {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traffic-operator"));
        command.arg("agent");
        command
    }
}

/// Returns the command of an agent without starting it.
pub fn command(port: u16, metrics_port: u16) -> Command {
    let mut command = program();
    command
        .arg("probe")
        .env_clear()
        .env("HTTP_PORT", port.to_string())
        .env("HTTP_PROMETHEUS_PORT", metrics_port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Returns headers and body of an answer, in bytes; `None` without an answer.
pub fn get_bytes(port: u16, path: &str, headers: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let body = answer.split_off(end + 4);
    Some((String::from_utf8(answer).unwrap().to_lowercase(), body))
}

pub fn get(port: u16, path: &str, headers: &str) -> Option<(String, String)> {
    let (headers, body) = get_bytes(port, path, headers)?;
    Some((headers, String::from_utf8(body).unwrap()))
}

/// One peer of a configuration: at an address, on a node of the same name.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub ip: String,
    pub port: u16,
}

pub fn entry(name: &str, ip: &str, port: u16) -> Entry {
    Entry { name: name.into(), ip: ip.into(), port }
}

/// Returns a configuration with the operator's fields but no neighbors: all pods probe each other.
/// The node of pod `x` is `node-x`, its zone `zone-x`.
pub fn config(period_ms: u64, timeout_ms: u64, probes: &str, entries: &[Entry]) -> String {
    let mut map = String::new();
    for Entry { name, ip, port } in entries {
        let comma = if map.is_empty() { "" } else { "," };
        write!(
            map,
            r#"{comma}"{name}":{{"ip":"{ip}","port":"{port}","namespace":"ns","name":"{name}","uid":"u","node":"node-{name}","zone":"zone-{name}"}}"#
        )
        .unwrap();
    }
    let (period, timeout) = (period_ms * 1_000_000, timeout_ms * 1_000_000);
    format!(
        r#"{{"endpointsMap":{{{map}}},"pollingPeriod":{period},"timeout":{timeout},"probes":{probes}}}"#
    )
}

/// All three protocols.
pub const ALL: &str = r#"["HTTP","TCP","UDP"]"#;

#[derive(Clone, Debug)]
pub struct Page {
    pub text: String,
    series: Vec<(String, BTreeMap<String, String>, String)>,
}

impl Page {
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "{text}");
        let series = text.lines().filter(|line| !line.starts_with('#')).map(parse_line).collect();
        Self { text: text.to_owned(), series }
    }

    /// Returns the sum of the series of a name that have these labels; for counts, not for seconds.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        let has = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| of.get(*key).is_some_and(|of| of == value))
        };
        let found = self.series.iter().filter(|(of, all, _)| of == name && has(all));
        let whole =
            |value: &str| value.split('.').next().and_then(|whole| whole.parse::<i64>().ok());
        found.map(|(_, _, value)| whole(value).expect("a count")).sum()
    }

    /// Returns the probes of a pod's node, by further labels.
    pub fn probes(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        let node = format!("node-{name}");
        let labels = [labels, &[("dst_node", node.as_str())]].concat();
        self.sum("netprober_probes_total", &labels)
    }

    /// Returns the failed probes of a pod's node, for this reason.
    pub fn failed(&self, name: &str, reason: &str) -> i64 {
        let node = format!("node-{name}");
        self.sum("netprober_failures_total", &[("dst_node", &node), ("reason", reason)])
    }

    pub fn successes(&self, name: &str) -> i64 {
        self.probes(name, &[("result", "success")])
    }

    pub fn failures(&self, name: &str) -> i64 {
        self.probes(name, &[("result", "failure")])
    }

    pub fn skipped(&self) -> i64 {
        self.sum("netprober_skipped_probes_total", &[])
    }

    pub fn lists(&self) -> i64 {
        self.sum("netprober_pinglist_refreshes_total", &[("result", "changed")])
    }
}

fn parse_line(line: &str) -> (String, BTreeMap<String, String>, String) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (key, value) = label.split_once("=\"").expect("a label");
        (key.to_owned(), value.trim_end_matches('"').to_owned())
    });
    (name.to_owned(), labels.collect(), value.to_owned())
}

/// Accepts no connection: the backlog is full, and the kernel drops new ones. UDP packets arrive
/// and are never read.
pub struct BlackHole {
    pub port: u16,
    _listener: OwnedFd,
    _waiting: Vec<TcpStream>,
    _udp: UdpSocket,
}

impl BlackHole {
    pub fn new() -> Self {
        let port = free_port();
        let family = AddressFamily::Inet;
        let flags = SockFlag::empty();
        let listener = socket(family, SockType::Stream, flags, None).unwrap();
        // Connections of a former test may still be ending on this port.
        setsockopt(&listener, sockopt::ReuseAddr, &true).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
        bind(fd, &SockaddrIn::new(0, 0, 0, 0, port)).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut waiting = Vec::new();
        // While the kernel answers, there is still room.
        while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(300)) {
            waiting.push(stream);
        }
        let udp = UdpSocket::bind(("0.0.0.0", port)).unwrap();
        Self { port, _listener: listener, _waiting: waiting, _udp: udp }
    }
}

/// Answers every connection with `answer` (nothing: closes it), after `pause`.
pub fn server(answer: &'static str, pause: Duration) -> u16 {
    let port = free_port();
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                thread::sleep(pause);
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    port
}

pub const PONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npong\n";
