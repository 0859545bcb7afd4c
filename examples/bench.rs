//! What the operator costs: memory, processor time, requests and writes, at 100 to 5,000 nodes.
//!
//! `make bench`. A real API server with real Node objects; the answers of Prometheus are prepared,
//! so that its own work does not count. Figures of one run are comparable with each other only.
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, extract::State, http::header, response::IntoResponse};
use ground::{Operator, binary, install, wait};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use lab::{ControlPlane, ControlPlaneOptions};
use serde_json::json;
use traffic_operator::api::TrafficWatch;

mod ground;
#[path = "ground/nodes.rs"]
mod nodes;
#[path = "ground/scraper.rs"]
mod scraper;

/// Judgements that one figure is the mean of.
const JUDGEMENTS: u32 = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let binary = binary()?;
    let options =
        ControlPlaneOptions { scheduler: false, controller_manager: false, ..Default::default() };
    let plane = ControlPlane::start(options).await?;
    let client = plane.client()?;
    install(&client).await?;
    println!("{}", HEADER.join(" | "));
    println!("{}", HEADER.map(|_| "---").join(" | "));
    for (nodes, watches) in rows() {
        let row = measure(&plane, &client, &binary, nodes, watches).await?;
        println!("{}", row.join(" | "));
    }
    plane.stop().await
}

/// Nodes and objects of each row; `BENCH_ROWS=5000x1` asks for other ones.
fn rows() -> Vec<(usize, usize)> {
    let asked = std::env::var("BENCH_ROWS").unwrap_or_default();
    let asked: Vec<_> = asked
        .split(',')
        .filter_map(|row| row.split_once('x'))
        .filter_map(|(nodes, watches)| Some((nodes.parse().ok()?, watches.parse().ok()?)))
        .collect();
    if asked.is_empty() {
        vec![(100, 1), (1000, 1), (1000, 100), (5000, 1), (5000, 20)]
    } else {
        asked
    }
}

const HEADER: [&str; 11] = [
    "nodes",
    "TrafficWatches",
    "first labels s",
    "RSS MiB",
    "peak MiB",
    "CPU ms/judgement",
    "Prometheus requests/interval",
    "idle writes/min",
    "1 flip ms",
    "half flip s",
    "largest page MB",
];

/// The prepared answer: node `i` sends `percent(i)`.
fn answer(nodes: usize, percent: impl Fn(usize) -> f64) -> String {
    let mut result = Vec::new();
    for i in 0..nodes {
        let instance = format!("10.{}.{}.{}:9100", i / 65536, i / 256 % 256, i % 256);
        for (measure, value) in [
            ("transmit_percent", percent(i)),
            ("transmit_bytes", 1e8),
            ("total", 1e12),
            ("age", 3.2),
        ] {
            let metric = json!({"instance": instance, "measure": measure, "device": "eth0"});
            result.push(json!({"metric": metric, "value": [1, value.to_string()]}));
        }
    }
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

#[derive(Clone, Default)]
struct Prometheus(Arc<Mutex<(String, u32)>>);

impl Prometheus {
    async fn start(&self) -> anyhow::Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(serve).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }

    fn set(&self, body: String) {
        self.0.lock().expect("lock").0 = body;
    }

    fn requests(&self) -> u32 {
        self.0.lock().expect("lock").1
    }
}

async fn serve(State(this): State<Prometheus>) -> impl IntoResponse {
    let mut inner = this.0.lock().expect("lock");
    inner.1 += 1;
    ([(header::CONTENT_TYPE, "application/json")], inner.0.clone())
}

async fn measure(
    plane: &ControlPlane,
    client: &Client,
    binary: &Path,
    count: usize,
    watches: usize,
) -> anyhow::Result<[String; 11]> {
    let nodes = Api::<Node>::all(client.clone());
    clean(client, &nodes).await?;
    let post = PostParams::default();
    nodes::create(client, (0..count).map(nodes::node)).await?;
    let prometheus = Prometheus::default();
    prometheus.set(answer(count, |_| 10.0));
    let url = prometheus.start().await?;
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    for i in 0..watches {
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": format!("w{i}")},
            // One writes labels, so that flips are counted once; the others read the same answer.
            "spec": {"maxBandwidthPercent": "60", "interval": "2s", "window": "8s",
                     "mode": if i == 0 { "Enforce" } else { "Observe" }}
        });
        api.create(&post, &serde_json::from_value(watch)?).await?;
    }
    let started = Instant::now();
    // A lease of its own: the killed operator of the row before holds the other one.
    let (lease, any) = (format!("bench-{count}-{watches}"), "127.0.0.1:0");
    let admin = scraper::free_address()?.to_string();
    let operator = Operator::start(
        binary,
        plane.kubeconfig(),
        &lease,
        &[
            "--prometheus-url",
            &url,
            "--admin-address",
            &admin,
            "--webhook-address",
            any,
            "--pinglist-address",
            any,
        ],
    )?;
    let scraper = scraper::Scraper::start(format!("http://{admin}/metrics"));
    let summary = async |unfit: u32, fit: u32| {
        let summary = api.get("w0").await.ok()?.status?.summary?;
        (summary.unfit == unfit && summary.fit == fit).then_some(())
    };
    let all = u32::try_from(count)?;
    let labelled = ListParams::default().labels("w0.traffic.example.com/unfit=false");
    wait("all labels", async || summary(0, all).await).await?;
    wait("all labels", async || {
        let list = nodes.list_metadata(&labelled).await.ok()?;
        (list.items.len() == count).then_some(())
    })
    .await?;
    let first = started.elapsed();

    let (cpu, requests, since) = (operator.cpu()?, prometheus.requests(), Timestamp::now());
    tokio::time::sleep(Duration::from_secs(2) * JUDGEMENTS).await;
    let cpu = (operator.cpu()? - cpu) / f64::from(JUDGEMENTS);
    let requests = f64::from(prometheus.requests() - requests) / f64::from(JUDGEMENTS);
    let writes = plane
        .audit_since(since)?
        .into_iter()
        .filter(|e| e.is_write() && e.user_agent.starts_with("traffic-operator"))
        .filter(|e| !e.resource.starts_with("leases") && e.subresource != "status")
        .count();

    // The moment of the decision is the next tick but one: only what follows it is our doing.
    let flip = async |unfit: usize| -> anyhow::Result<Duration> {
        prometheus.set(answer(count, |i| if i < unfit { 90.0 } else { 10.0 }));
        let before = prometheus.requests();
        wait("two judgements", async || (prometheus.requests() >= before + 2).then_some(()))
            .await?;
        let decided = Instant::now();
        let unfit = u32::try_from(unfit)?;
        wait("the flip", async || summary(unfit, all - unfit).await).await?;
        Ok(decided.elapsed())
    };
    let one = flip(1).await?;
    let half = flip(count / 2).await?;
    let (rss, peak) = operator.memory()?;
    let page = scraper.end().await?;
    Ok([
        count.to_string(),
        watches.to_string(),
        format!("{:.1}", first.as_secs_f64()),
        format!("{rss:.1}"),
        format!("{peak:.1}"),
        format!("{cpu:.1}"),
        format!("{requests:.2}"),
        (writes * 60 / (2 * JUDGEMENTS as usize)).to_string(),
        format!("{:.0}", one.as_secs_f64() * 1000.0),
        format!("{:.1}", half.as_secs_f64()),
        format!("{page:.1}"),
    ])
}

async fn clean(client: &Client, nodes: &Api<Node>) -> anyhow::Result<()> {
    let api = Api::<TrafficWatch>::namespaced(client.clone(), "default");
    let strip = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for watch in api.list(&ListParams::default()).await? {
        api.patch(&watch.name_any(), &kube::api::PatchParams::default(), &strip).await?;
        api.delete(&watch.name_any(), &DeleteParams::default()).await?;
    }
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}
