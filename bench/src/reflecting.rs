//! Measures a `RouteReflectorSet`: memory, processor time, requests and writes, at 1,000 and 5,000
//! nodes.
//!
//! A real API server with real Node objects and Calico's kinds; Prometheus reports
//! every session of every node as established, so that only the operator's own time counts. Figures
//! of one run are comparable with each other only.
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, http::header, routing::any};
use k8s_openapi::{
    api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lab::{
    ControlPlane,
    calico::{self, Group},
};
use serde_json::{Value, json};
use traffic_operator::api::RouteReflectorSet;

use crate::{
    ground::{Figure, Operator, print, start, wait},
    nodes,
};

/// Time for which nothing should happen.
const IDLE: Duration = Duration::from_mins(2);

pub async fn run(binary: &Path) -> anyhow::Result<()> {
    let (plane, client) = start().await?;
    calico::install(&client, Group::V1).await?;
    let mut first = true;
    let simple = json!({"topology": "Simple", "count": {"min": 3, "max": 25}});
    let zonal = json!({"topology": "Zonal", "count": {"min": 9, "max": 9}});
    // `BENCH_ROWS=5000xSimple` selects some of them.
    let asked = std::env::var("BENCH_ROWS").unwrap_or_default();
    for (count, name, spec) in [
        (1000, "Simple", &simple),
        (1000, "Zonal", &zonal),
        (5000, "Simple", &simple),
        (5000, "Zonal", &zonal),
    ] {
        let row = format!("{count}x{name}");
        if !asked.is_empty() && !asked.split(',').any(|asked| *asked == row) {
            continue;
        }
        print(&measure(&plane, &client, binary, count, name, spec).await?, &mut first);
    }
    plane.stop().await
}

/// Returns a node of a usual size that is Ready and speaks BGP.
fn speaker(i: usize) -> Value {
    let mut node = nodes::node(i);
    let address = format!("{}/8", nodes::address(i));
    node["metadata"]["annotations"] = json!({"projectcalico.org/IPv4Address": address});
    node["status"]["conditions"] = json!([{
        "type": "Ready", "status": "True", "reason": "Bench", "message": "",
        "lastTransitionTime": Timestamp::now(),
    }]);
    node
}

/// Answers with all requested sessions as established, sampled just now.
fn answer(count: usize, query: &str) -> String {
    let measures = query.split("\"measure\", \"").skip(1).filter_map(|rest| rest.split_once('"'));
    let sets: Vec<&str> =
        measures.map(|(tag, _)| tag).filter(|tag| tag.starts_with("set_")).collect();
    let of = |instance: String| {
        let element = move |measure: &str, value: String| json!({"metric": {"instance": instance, "measure": measure}, "value": [1, value]});
        let mut all: Vec<_> = sets.iter().map(|set| element(set, count.to_string())).collect();
        all.push(element("age", "0".into()));
        all
    };
    let instance = |i| format!("{}:9324", nodes::address(i));
    let result: Vec<_> = (0..count).flat_map(|i| of(instance(i))).collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

/// Serves the answers; returns the URL and the count of requests.
async fn prometheus(count: usize) -> anyhow::Result<(String, Arc<AtomicU32>)> {
    let asked = Arc::new(AtomicU32::new(0));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let counter = Arc::clone(&asked);
    let serve = move |form: String| {
        counter.fetch_add(1, Ordering::Relaxed);
        // A form is written as the query of a URL.
        let asked = reqwest::Url::parse(&format!("http://prometheus/?{form}"));
        let query = asked.ok().and_then(|asked| {
            let mut all = asked.query_pairs();
            all.find(|(key, _)| key == "query").map(|(_, query)| query.into_owned())
        });
        let answer = query.map(|query| answer(count, &query)).unwrap_or_default();
        async move { ([(header::CONTENT_TYPE, "application/json")], answer) }
    };
    let router = Router::new().fallback(any(serve));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((url, asked))
}

async fn measure(
    plane: &ControlPlane,
    client: &Client,
    binary: &Path,
    count: usize,
    name: &str,
    spec: &Value,
) -> anyhow::Result<[Figure<String>; 10]> {
    clean(client).await?;
    nodes::create(client, (0..count).map(speaker)).await?;
    let (url, asked) = prometheus(count).await?;
    let writes = |since: Timestamp| -> anyhow::Result<usize> {
        let events = plane.audit_since(since)?.into_iter();
        let ours = events.filter(|e| e.is_write() && e.user_agent.starts_with("traffic-operator"));
        let ours = ours.filter(|e| !e.resource.starts_with("leases"));
        Ok(ours.filter(|e| e.subresource != "status" && !e.resource.starts_with("events")).count())
    };
    let lease = format!("bench-{count}-{}", name.to_lowercase());
    let args = ["--prometheus-url", &url, "--admin-address", "127.0.0.1:0"];
    let operator = Operator::start(binary, plane.kubeconfig(), &lease, &args)?;
    let api = Api::<RouteReflectorSet>::all(client.clone());
    let mut spec = spec.clone();
    spec["mesh"] = "Migrate".into();
    let set = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "RouteReflectorSet",
        "metadata": {"name": "bench"}, "spec": spec,
    });
    let (started, since) = (Instant::now(), Timestamp::now());
    api.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    let converged = async |without: &str| {
        let status = api.get("bench").await.ok()?.status?;
        let converged = |c: &Condition| c.type_ == "Converged" && c.status == "True";
        let done = status.conditions.iter().any(converged)
            && status.slots.iter().all(|s| s.node != without);
        done.then_some(status.slots)
    };
    let slots = wait("reflectors", async || converged("").await).await?;
    let (migrated, written) = (started.elapsed(), writes(since)?);

    let gone = slots.first().map(|slot| slot.node.clone()).unwrap_or_default();
    let (started, nodes) = (Instant::now(), Api::<Node>::all(client.clone()));
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch(&gone, &PatchParams::default(), &cordon).await?;
    wait("the other reflector", async || converged(&gone).await).await?;
    let replaced = started.elapsed();

    let (cpu, requests, since) = (operator.cpu()?, asked.load(Ordering::Relaxed), Timestamp::now());
    tokio::time::sleep(IDLE).await;
    let minutes = IDLE.as_secs_f64() / 60.0;
    let cpu = (operator.cpu()? - cpu) / minutes;
    let requests = f64::from(asked.load(Ordering::Relaxed) - requests) / minutes;
    let idle = f64::from(u32::try_from(writes(since)?)?) / minutes;
    let (rss, peak) = operator.memory()?;
    Ok([
        ("nodes", count.to_string()),
        ("set", name.to_owned()),
        ("mesh to reflectors s", format!("{:.1}", migrated.as_secs_f64())),
        ("writes", written.to_string()),
        ("replaced s", format!("{:.1}", replaced.as_secs_f64())),
        ("RSS MiB", format!("{rss:.1}")),
        ("peak MiB", format!("{peak:.1}")),
        ("CPU ms/min idle", format!("{cpu:.0}")),
        ("Prometheus requests/min idle", format!("{requests:.1}")),
        ("idle writes/min", format!("{idle:.1}")),
    ])
}

async fn clean(client: &Client) -> anyhow::Result<()> {
    nodes::clean(client, Api::<RouteReflectorSet>::all(client.clone())).await?;
    calico::remove(client, Group::V1).await?;
    calico::install(client, Group::V1).await
}
