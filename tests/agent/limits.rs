//! Limits of an agent's cost, whatever its list contains, and its defense against other clients.
use std::{
    fmt::Write as _,
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket},
};
use traffic_operator::agent::budget;

use crate::stage::{ALL, Agent, BlackHole, Page, command, config, entry, eventually, get};

/// Members on nodes of their own, with names as long as in real clusters; the first is alone in its
/// zone.
fn crowd(count: usize, probes: &str) -> String {
    let mut map = String::new();
    for i in 0..count {
        let comma = if i == 0 { "" } else { "," };
        let zone = if i == 0 { "eu-central-1a" } else { "eu-central-1b" };
        let name = format!("shop-frontend-7c9f8d6b5-{i:05}");
        write!(
            map,
            r#"{comma}"{name}":{{"ip":"127.1.{}.{}","port":"9","namespace":"shop","name":"{name}","uid":"8b8a33a4-1111-2222-3333-{i:012}","node":"ip-10-0-{i}.eu-central-1.compute.internal","zone":"{zone}"}}"#,
            i / 250,
            i % 250 + 1,
        )
        .unwrap();
    }
    format!(
        r#"{{"endpointsMap":{{{map}}},"pollingPeriod":1000000000,"probes":{probes},
        "neighbours":{{"inZone":8,"perOtherZone":2}}}}"#
    )
}

/// The only member of its zone beside 3,000 others: formerly 3,000 peers, 218,000 series and 107
/// MB.
#[test]
fn an_agent_alone_in_its_zone_stays_within_its_budget() {
    let name = "shop-frontend-7c9f8d6b5-00000";
    let variables = [("NET_PROBER_POD_NAMESPACE", "shop"), ("NET_PROBER_POD_NAME", name)];
    for (probes, protocols) in [(ALL, 3), (r#"["HTTP"]"#, 1)] {
        let agent = Agent::with(&variables, &[]);
        agent.publish(&crowd(3001, probes));
        let most = i64::try_from(budget::most_peers(protocols, 1, true, 0)).unwrap();
        let page = agent.page_with("it probes", |page| {
            page.sum("netprober_peers", &[]) > 0
                && page.sum("netprober_probes_total", &[]) > 3 * most
        });
        assert_eq!(page.sum("netprober_peers", &[]), most, "{probes}");
        let series = page.text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= budget::SERIES, "{probes}: {series} series");
        let memory = page.sum("process_resident_memory_bytes", &[]);
        println!(
            "{protocols} protocols: {most} peers, {series} series, {} bytes of {} MiB RSS",
            page.text.len(),
            memory >> 20
        );
    }
}

/// Connections that [`Idle`] opens every tenth of a second: a thousand a second keep every place
/// taken. Replacing all closed ones at once would mean fifteen thousand a second, a flood that
/// takes the processor from the agent on a busy machine, while the test is about idle connections.
const REOPENED: usize = 100;

/// Holds connections that send nothing, from its own address, and replaces those that the agent
/// closes. Ends with the test.
struct Idle {
    over: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Idle {
    fn hold(count: usize, from: [u8; 4], to: u16) -> Self {
        let (over, open) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
        let (end, opened) = (Arc::clone(&over), Arc::clone(&open));
        let thread = thread::spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            while !end.load(Ordering::Relaxed) {
                held.retain_mut(|stream| {
                    let read = stream.read(&mut [0]);
                    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                });
                for _ in 0..(count - held.len()).min(REOPENED) {
                    if let Ok(stream) = connect_from(from, to) {
                        held.push(stream);
                        opened.fetch_add(1, Ordering::Relaxed);
                    }
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self { over, open, thread: Some(thread) }
    }

    /// Returns the number of connections opened so far.
    fn opened(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn connect_from(from: [u8; 4], to: u16) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let [a, b, c, d] = from;
    bind(socket.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0))?;
    connect(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, to))?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Reports whether the page arrives within a second.
fn scraped_in_time(port: u16) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let accept = "Accept: application/openmetrics-text";
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\nConnection: close\r\n\r\n"
        )?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    ask().is_ok_and(|page| page.ends_with("# EOF\n"))
}

/// Raises the limit of file descriptors for the sockets of this test.
fn allow_many_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

/// A single client without credentials made a node appear to lose packets, and silenced its
/// metrics.
#[test]
fn idle_connections_of_one_source_neither_cost_a_probe_nor_a_scrape() {
    allow_many_descriptors();
    let (agent, peer) = (Agent::start(), Agent::start());
    let pings = Idle::hold(1800, [127, 0, 0, 9], peer.port);
    let scrapes = Idle::hold(40, [127, 0, 0, 9], peer.metrics_port);
    eventually("they are held", || (pings.opened() >= 1800).then_some(()));
    eventually("they are held", || (scrapes.opened() >= 40).then_some(()));
    agent.publish(&config(1500, 1400, ALL, &[entry("b", "127.0.0.1", peer.port)]));
    // A busy machine may be too late for one; where connections take the room, all are lost.
    let (mut lost, mut from) = (0, 0);
    let page = eventually("thirty probes in a row are answered", || {
        let page = agent.scrape()?;
        if page.failures("b") > lost {
            (lost, from) = (page.failures("b"), page.successes("b"));
        }
        (page.successes("b") >= from + 30).then_some(page)
    });
    let mut in_time = 0;
    eventually("ten scrapes", || {
        in_time += usize::from(scraped_in_time(peer.metrics_port));
        (in_time >= 10).then_some(())
    });
    println!(
        "{} idle connections to the ping port, {} to the metrics: {} of {} probes answered",
        pings.opened(),
        scrapes.opened(),
        page.successes("b"),
        page.probes("b", &[]),
    );
}

/// Starts an agent under a shell's limits.
fn limited(limit: &str, port: u16, metrics_port: u16) -> Command {
    let agent = command(port, metrics_port);
    let variables = agent.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limit} && exec \"$@\""), "sh"])
        .arg(agent.get_program())
        .args(agent.get_args())
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// An agent without descriptors reports that, and blames no peer.
#[test]
fn an_agent_without_descriptors_skips_and_blames_nobody() {
    let (peer, hole) = (Agent::start(), BlackHole::new());
    // As few as it needs to start, and some more for probes.
    let agent = Agent::of(|port, metrics_port| limited("ulimit -n 40", port, metrics_port));
    let mut entries = vec![entry("healthy", "127.0.0.2", peer.port)];
    // Each of these probes holds a descriptor for most of the time.
    entries.extend((0..30).map(|i| entry(&format!("d{i}"), &format!("127.0.1.{i}"), hole.port)));
    agent.publish(&config(1000, 900, r#"["HTTP","TCP"]"#, &entries));
    let local = |page: &Page| page.sum("netprober_skipped_probes_total", &[("reason", "local")]);
    let page = agent.page_with("it lacks descriptors", |page| local(page) >= 50);
    assert_eq!(page.failures("healthy"), 0, "{}", page.text);
    assert_eq!(page.sum("netprober_failures_total", &[("reason", "other")]), 0, "{}", page.text);
    // As soon as there are descriptors, it probes.
    agent.publish(&config(1000, 900, r#"["HTTP","TCP"]"#, &entries[..1]));
    let page = agent.page_with("probing continues", |page| page.successes("healthy") >= 3);
    println!("{} skipped, {} answered", local(&page), page.successes("healthy"));
}

/// A list that could not be read once, because there was no descriptor, was never read again: only
/// another file would have been.
#[test]
fn a_list_that_cannot_be_read_is_read_as_soon_as_it_can() {
    let (peer, agent) = (Agent::start(), Agent::start());
    let id = agent.id().to_string();
    let allow = |descriptors: &str| {
        let limit = format!("--nofile={descriptors}:");
        assert!(Command::new("prlimit").args(["--pid", &id, &limit]).status().unwrap().success());
    };
    allow("3");
    agent.publish(&config(500, 500, r#"["HTTP"]"#, &[entry("b", "127.0.0.1", peer.port)]));
    let refused = "Too many open files";
    eventually("it cannot be read", || agent.log().contains(refused).then_some(()));
    // Further checks fail without another line.
    thread::sleep(Duration::from_secs(3));
    let lines = agent.log().lines().filter(|line| line.contains("configuration file")).count();
    allow("999");
    agent.page_with("it probes", |page| page.successes("b") >= 1);
    assert!(lines <= 2, "one of the missing file, one of this:\n{}", agent.log());
}

/// The soft limit suits programs that use select, the hard one is the limit of the node.
#[test]
fn an_agent_may_open_as_many_files_as_the_node_allows() {
    let agent = Agent::of(|port, metrics_port| limited("ulimit -S -n 99", port, metrics_port));
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|i| line.split_whitespace().nth(i).unwrap());
    assert_eq!(soft, hard, "{line}");
}

/// The standard library queues 128 connections, and a single client can take all of these places.
#[test]
fn connections_wait_while_the_agent_is_not_run() {
    let agent = Agent::start();
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if most.trim().parse::<usize>().unwrap() < 1024 {
        lab::left_out(&format!("300 connections that wait: this host allows {}", most.trim()));
        return;
    }
    agent.signal("STOP");
    let at = SocketAddr::from(([127, 0, 0, 1], agent.port));
    let waiting: Vec<_> =
        (0..300).map(|_| TcpStream::connect_timeout(&at, Duration::from_secs(2))).collect();
    agent.signal("CONT");
    assert!(waiting.iter().all(Result::is_ok));
    eventually("it answers", || get(agent.port, "/ping", ""));
}
