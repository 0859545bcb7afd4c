//! Real servers in Prometheus' place, configured as the page has it: `VictoriaMetrics`, whose `rate`
//! divides by the time between the first and the last sample, and whose `now` is half a minute ago
//! unless the query says otherwise; Thanos, which chooses between the samples of two replicas; and
//! Cortex.
use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use traffic_operator::{
    api::{TrafficWatch, traffic_watch::NodeState},
    inspect::{evaluate::evaluate, population::Population},
    metrics::Metrics,
    prometheus::{Endpoints, EndpointsConfig, exporters::NODE_EXPORTER},
};

use crate::{
    server::{Ended, empty, eventually},
    trusting::believed,
};

/// A link of 1 Gbit/s, in bytes.
const SPEED: f64 = 125e6;
/// Seconds between two scrapes, and in the window.
const SCRAPE: i32 = 15;
const WINDOW: i32 = 120;

/// A node, by the samples of its pods of the exporter: each has those of some seconds before now.
struct Node {
    name: String,
    /// Percent of its link in use, all the time.
    percent: f64,
    pods: Vec<Range<i32>>,
    /// What may be said about it.
    allowed: &'static [NodeState],
}

fn nodes() -> Vec<Node> {
    use NodeState::{Fit, Unfit, Unknown};
    let mut all = vec![];
    let mut add = |name: String, percent, pods: &[Range<i32>], allowed| {
        all.push(Node { name, percent, pods: pods.to_vec(), allowed });
    };
    for (percent, is) in [(45.0, &[Fit]), (80.0, &[Unfit])] {
        let all = 0..600;
        add(format!("steady-{percent}"), percent, std::slice::from_ref(&all), is);
        // Two replicas that scrape the same exporter.
        add(format!("twice-{percent}"), percent, &[0..600, 0..600], is);
    }
    for ago in (0..=WINDOW).step_by(15) {
        let pods = [0..ago.max(1), ago + SCRAPE..600];
        add(format!("replaced-{ago}-45"), 45.0, &pods, &[Fit, Unknown]);
        add(format!("replaced-{ago}-80"), 80.0, &pods, &[Unfit, Unknown]);
    }
    for age in [15, 30, 45, 60, 75, 90, 110] {
        let late = age..600;
        add(format!("late-{age}-45"), 45.0, std::slice::from_ref(&late), &[Fit, Unknown]);
        add(format!("late-{age}-80"), 80.0, std::slice::from_ref(&late), &[Unfit, Unknown]);
        let new = 0..age;
        add(format!("new-{age}-70"), 70.0, std::slice::from_ref(&new), &[Unfit, Unknown]);
    }
    for gap in [30, 45, 60, 90] {
        let pods = [0..20, 20 + gap..600];
        add(format!("gap-{gap}-80"), 80.0, &pods, &[Unfit, Unknown]);
    }
    all
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    i64::try_from(now).expect("a time")
}

/// The samples of all nodes, the oldest first, without the label `job`.
fn samples(now: i64) -> String {
    let mut text = String::new();
    for Node { name, percent, pods, .. } in nodes() {
        for (pod, times) in pods.into_iter().enumerate() {
            let labels = format!(r#"instance="{name}",pod="{pod}""#);
            for ago in times.step_by(15).rev() {
                let time = (now - i64::from(ago)) * 1000;
                let bytes = (1e6 + f64::from(600 - ago) * SPEED * percent / 100.0).round();
                let link = format!(r#"{labels},device="eth0""#);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "up{{{labels}}} 1 {time}");
                let _ =
                    writeln!(text, "node_network_transmit_bytes_total{{{link}}} {bytes} {time}");
                let _ = writeln!(text, "node_network_speed_bytes{{{link}}} {SPEED} {time}");
            }
        }
    }
    text
}

fn watch() -> TrafficWatch {
    serde_json::from_value(json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "maxBandwidthPercent": "60", "window": format!("{WINDOW}s"), "maxUnfit": "100%",
            "minFit": 0, "consecutive": {"unfit": 1, "fit": 1},
        },
    }))
    .expect("a TrafficWatch")
}

fn address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, lab::free_port().expect("a port")).into()
}

/// Starts a server, which logs into its folder.
fn start(program: &Path, dir: &Path, arguments: &[String]) -> Ended {
    let log = File::create(dir.join("log")).expect("a log");
    let mut command = Command::new(program);
    // Cortex writes below the directory that it runs in.
    let command = command.args(arguments).current_dir(dir).stdin(Stdio::null());
    let process = command.stdout(log.try_clone().expect("a log")).stderr(log).spawn();
    Ended(process.unwrap_or_else(|error| panic!("{}: {error}", program.display())))
}

/// Writes the samples of all nodes, some seconds late, to this path as Prometheus does, once the
/// server takes them.
fn push(dir: &Path, server: SocketAddr, path: &'static str, late: i64) {
    let file = dir.join("samples");
    let url = format!("http://{}", forwarding(server, path));
    let promtool = lab::tools::ensure("promtool").expect("promtool");
    eventually("remote write", || {
        // Their age counts from now, and not from the start of a server or a build.
        fs::write(&file, samples(now() - late)).expect("samples");
        let mut command = Command::new(&promtool);
        command.args(["push", "metrics", "--timeout=5s", "--label=job=node-exporter"]);
        let output = command.args(["--header=X-Scope-OrgID=platform", &url]).arg(&file).output();
        let output = output.expect("promtool");
        print!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success().then_some(())
    });
}

/// An address that forwards to this path what is sent to the only one that promtool knows.
fn forwarding(server: SocketAddr, path: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let forward = move |mut client: TcpStream| {
        let mut server = TcpStream::connect(server)?;
        let mut head = [0; 1024];
        let read = client.read(&mut head)?;
        let rest = head[..read].strip_prefix(b"POST /api/v1/write").expect("a remote write");
        server.write_all(&[b"POST ", path.as_bytes(), rest].concat())?;
        let (mut answer, mut to) = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || io::copy(&mut answer, &mut to));
        io::copy(&mut client, &mut server)
    };
    thread::spawn(move || {
        // A server that does not listen yet is asked again.
        listener.incoming().flatten().for_each(|client| drop(forward(client)));
    });
    address
}

/// The server's numbers make no busy node fit and no idle one unfit, and they are evidence where
/// there is some.
fn judges_well(dir: &Path, endpoint: &Value) {
    // Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = dir.join("endpoints.yaml");
    fs::write(&file, json!({"endpoints": {"default": endpoint}}).to_string()).expect("endpoints");
    let config = EndpointsConfig::load(Some(&file), None, Duration::from_secs(10));
    let endpoints = Endpoints::new(&config.expect("endpoints"), Metrics::new()).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let judged = eventually("all nodes", || {
        let (watch, exporters) = (watch(), believed(NODE_EXPORTER));
        let asked = evaluate(&watch, &endpoints, &exporters, Population::default(), None);
        let found = runtime.block_on(asked).ok()?;
        (found.nodes.len() == nodes().len()).then_some(found)
    });
    let mut wrong = vec![];
    for node in nodes() {
        let found = judged.nodes.iter().find(|found| found.name == node.name).expect("a node");
        if !node.allowed.contains(&found.state) {
            wrong.push(format!("{}: {:?} {:?}", node.name, found.state, found.values[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let known = judged.nodes.iter().filter(|node| node.state != NodeState::Unknown).count();
    assert!(known >= 12, "{known} of {}: {:#?}", judged.nodes.len(), judged.nodes);
}

#[test]
fn victoria_metrics() {
    let (dir, address) = (empty("victoria-metrics"), address());
    let program = lab::tools::ensure("victoria-metrics").expect("victoria-metrics");
    let _process = start(
        &program,
        &dir,
        &[
            format!("-httpListenAddr={address}"),
            format!("-storageDataPath={}", dir.join("data").display()),
            "-memory.allowedBytes=64MiB".into(),
        ],
    );
    push(&dir, address, "/api/v1/write", 0);
    let parameters = json!({"latency_offset": "1s"});
    judges_well(&dir, &json!({"url": format!("http://{address}"), "parameters": parameters}));
}

/// Two replicas of Prometheus scrape at different times.
#[test]
#[ignore = "builds for minutes: `make night` runs it"]
fn thanos() {
    let program = lab::tools::only("thanos").expect("thanos");
    let (dir, address) = (empty("thanos"), address());
    let mut arguments = vec![
        "query".to_owned(),
        format!("--http-address={address}"),
        format!("--grpc-address={}", self::address()),
        "--query.replica-label=replica".into(),
    ];
    let mut processes = vec![];
    for (replica, late) in [("a", 0), ("b", 7)] {
        let dir = empty(&format!("thanos-{replica}"));
        let (write, store) = (self::address(), self::address());
        processes.push(start(
            &program,
            &dir,
            &[
                "receive".into(),
                format!("--tsdb.path={}", dir.join("data").display()),
                format!("--label=replica=\"{replica}\""),
                format!("--remote-write.address={write}"),
                format!("--grpc-address={store}"),
                format!("--http-address={}", self::address()),
                format!("--receive.capnproto-address={}", self::address()),
            ],
        ));
        push(&dir, write, "/api/v1/receive", late);
        arguments.push(format!("--endpoint={store}"));
    }
    processes.push(start(&program, &dir, &arguments));
    let parameters = json!({"dedup": "true", "partial_response": "false"});
    let endpoint = json!({"url": format!("http://{address}"), "parameters": parameters});
    judges_well(&dir, &endpoint);
    // The store of a replica dies.
    drop(processes.remove(1));
    judges_well(&dir, &endpoint);
}

#[test]
#[ignore = "builds for minutes: `make night` runs it"]
fn cortex() {
    let (dir, address, rpc) = (empty("cortex"), address(), address());
    let here = json!({"kvstore": {"store": "inmemory"}, "instance_addr": "127.0.0.1"});
    let at = |name: &str| dir.join(name);
    let config = json!({
        "auth_enabled": true,
        "server": {
            "http_listen_address": "127.0.0.1", "http_listen_port": address.port(),
            "grpc_listen_address": "127.0.0.1", "grpc_listen_port": rpc.port(),
        },
        "distributor": {"ring": here},
        "compactor": {"sharding_ring": here, "data_dir": at("compactor")},
        "store_gateway": {"sharding_ring": here},
        "querier": {"store_gateway_addresses": format!("127.0.0.1:{}", rpc.port())},
        "ingester": {"lifecycler": {
            "address": "127.0.0.1", "join_after": "0s", "final_sleep": "0s", "min_ready_duration": "0s",
            "ring": {"kvstore": {"store": "inmemory"}, "replication_factor": 1},
        }},
        "blocks_storage": {
            "backend": "filesystem", "filesystem": {"dir": at("blocks")},
            "tsdb": {"dir": at("tsdb")}, "bucket_store": {"sync_dir": at("sync")},
        },
    });
    let file = dir.join("cortex.yaml");
    fs::write(&file, config.to_string()).expect("configuration");
    let modules = "-target=distributor,ingester,querier,query-frontend,store-gateway";
    let program = lab::tools::only("cortex").expect("cortex");
    let _process =
        start(&program, &dir, &[format!("-config.file={}", file.display()), modules.into()]);
    push(&dir, address, "/api/v1/push", 0);
    let tenant = json!({"X-Scope-OrgID": "platform"});
    judges_well(&dir, &json!({"url": format!("http://{address}/prometheus"), "headers": tenant}));
}
