//! Connections without credentials, which take nothing away from clients with credentials.
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
};

use super::{client, source, stage, token};
use crate::{
    bench::run,
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

async fn connect(from: u8, to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((source(from), 0).into()).ok()?;
    socket.connect(to).await.ok()
}

#[test]
fn two_thousand_idle_connections_starve_neither_probes_nor_scrapes_nor_judging() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({})).await;
        let stage = stage(&bench).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        let prometheus = token(&bench, "monitoring", "prometheus-k8s").await;
        assert_eq!(stage.scrape(20, Some(&prometheus)).await.0, StatusCode::OK);

        // One neighbor that reconnects whenever it is closed, at both ports, with and without a
        // byte.
        let mut attack = tokio::task::JoinSet::new();
        for address in [stage.metrics, stage.probes] {
            for number in 0..20 {
                attack.spawn(async move {
                    let mut held = Vec::new();
                    for _ in 0..50 {
                        // At the probes as a pod on the host network, at the metrics as another
                        // one.
                        let from = if address == stage.probes { 1 } else { 2 };
                        let Some(mut stream) = connect(from, address).await else { continue };
                        if number % 2 == 0 {
                            // A byte of a handshake, or of a head: the connection may be closed
                            // already.
                            let _ = stream.write_all(b"\x16\x03\x01").await;
                        }
                        held.push(stream);
                    }
                    held
                });
            }
        }
        let held: Vec<_> = attack.join_all().await.into_iter().flatten().collect();
        assert_eq!(held.len(), 2_000);

        let started = Instant::now();
        let live = client(1).get(format!("http://{}/livez", stage.probes)).send().await;
        assert_eq!(live.expect("an answer").status(), StatusCode::OK);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        let (status, page) = stage.scrape(20, Some(&prometheus)).await;
        assert_eq!(status, StatusCode::OK);
        let refused = |server: &str| {
            let name = "traffic_operator_connections_refused_total";
            let start = format!("{name}{{server=\"{server}\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("0");
            line.parse::<u64>().expect("a count")
        };
        // Half of those at the probes get a 400 for what they sent.
        assert!(refused("metrics") > 900 && refused("probes") > 300, "{page}");
        // Objects are still judged.
        bench.prometheus.set("node-2", Sample::percent("71.5"));
        bench.until_label("node-2", KEY, Some("true")).await;
        let peak = stage.operator.peak() >> 20;
        println!("VmHWM {peak} MiB");
        assert!(peak < limit(), "{peak} MiB");
        drop(held);
    });
}

/// The memory limit of the Deployment, in MiB.
fn limit() -> u64 {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base/deployment.yaml");
    let text = std::fs::read_to_string(path).expect("deployment");
    let deployment: Value = serde_yaml::from_str(&text).expect("YAML");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let limit = container["resources"]["limits"]["memory"].as_str().expect("limit");
    limit.strip_suffix("Mi").expect("Mi").parse().expect("MiB")
}
