//! The named faults of the API server, of Prometheus and of the lease, injected by proxies.
//!
//! Each test is judged by the end state, by the number of writes in the audit log, and by silence
//! afterwards.
use std::time::Duration;

use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::fault::{Proxy, Wire};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, Operator, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

mod api_server;
mod fencing;
mod prometheus;
mod storms;

/// The verbs of writes.
pub const WRITES: &[&str] = &["create", "update", "patch", "delete"];

/// Starts the operator with a proxy between it and the API server.
pub fn start(bench: &Bench, proxy: &Proxy, lease: &str, identity: &str) -> Operator {
    let kubeconfig = proxy.kubeconfig().expect("a proxy before the API server").to_owned();
    let prometheus = ["--prometheus-url", &bench.prometheus.url];
    Bench::operator_from(
        kubeconfig,
        &prometheus,
        &["--lease-duration", lease, "--identity", identity],
    )
}

/// Returns the successful writes of the operator to a node since then.
async fn written(bench: &Bench, since: Timestamp, node: &str) -> usize {
    let writes = bench.writes_since(since).await.into_iter();
    writes.filter(|w| w.resource == "nodes" && w.name == node && w.code == 200).count()
}

/// Removes our label from a node, as a stranger.
async fn unlabel(bench: &Bench, node: &str) {
    edit(bench, node, json!({"metadata": {"labels": {KEY: null}}})).await;
}

async fn edit(bench: &Bench, node: &str, change: Value) {
    let nodes: Api<Node> = bench.nodes();
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await.expect("patch");
}

/// An operator behind a proxy that has judged three nodes, with node-2 unfit.
struct Stage {
    // Dropped in this order: the operator ends before its proxy.
    operator: Operator,
    proxy: Proxy,
    bench: Bench,
    began: Timestamp,
    descriptors: usize,
}

/// Runs a test on such a stage, whose lease lasts so long.
fn staged<F: Future<Output = ()>>(lease: &str, test: impl FnOnce(Stage) -> F) {
    run(async |bench| test(Stage::new(bench, lease).await).await);
}

impl Stage {
    async fn new(bench: Bench, lease: &str) -> Self {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = bench.proxy().await;
        let operator = start(&bench, &proxy, lease, "operator-1");
        bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        let descriptors = descriptors(&operator);
        Self { operator, proxy, bench, began: Timestamp::now(), descriptors }
    }

    /// Lets Prometheus measure this on node-2.
    fn measures(&self, percent: &'static str) {
        self.bench.prometheus.set("node-2", Sample::percent(percent));
    }

    /// Breaks all connections once, so that every watch begins again.
    async fn reconnects(&self) {
        self.proxy.wire(Wire::Reset);
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.proxy.wire(Wire::Open);
    }

    /// Asserts that the process still runs, and is alive for its kubelet.
    async fn assert_alive(&mut self) {
        assert!(self.operator.child.try_wait().expect("wait").is_none(), "the operator ended");
        let alive = self.operator.page("/livez").await.map(|(code, _)| code);
        assert_eq!(alive, Some(200), "its kubelet would restart it");
    }

    /// Ends all faults; asserts that node-2 becomes fit by one write since the stage was set, that
    /// everything rests then, and that nothing was left open.
    async fn recovers(&mut self) {
        self.recovers_after(1).await;
    }

    /// The same, with this many writes to node-2.
    async fn recovers_after(&mut self, writes: usize) {
        self.proxy.clear();
        self.proxy.wire(Wire::Open);
        self.measures("1");
        self.bench.until_label("node-2", KEY, Some("false")).await;
        self.bench.until("web", &[("/summary/fit", json!(3))]).await;
        self.bench.condition("web", "Ready", "True", "Judged").await;
        self.assert_alive().await;
        assert_eq!(written(&self.bench, self.began, "node-2").await, writes, "writes to node-2");
        self.rests().await;
        let now = descriptors(&self.operator);
        assert!(now <= self.descriptors + 10, "{now} descriptors, before {}", self.descriptors);
    }

    /// Asserts that judgments without a change write to no node.
    async fn rests(&self) {
        let since = Timestamp::now();
        self.bench.judgments(4).await;
        let writes = self.bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
    }

    /// Returns the requests of this verb about nodes, so far.
    fn about_nodes(&self, verb: &str) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|r| r.call.resource == "nodes" && r.call.verb == verb).count()
    }
}

/// Returns the number of open files and connections of the operator.
fn descriptors(operator: &Operator) -> usize {
    let folder = format!("/proc/{}/fd", operator.child.id());
    std::fs::read_dir(folder).expect("descriptors").count()
}
