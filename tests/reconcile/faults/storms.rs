//! Storms: more changes at once than any cluster makes. Each is judged by the number of requests:
//! one write for each change, no list and no query more than without the storm.
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use lab::AuditEvent;
use serde_json::json;

use super::staged;
use crate::{
    bench::{Bench, eventually},
    prometheus::Sample,
    traffic_watch::judging::KEY,
};

/// The number of nodes of a burst: a cloud's largest scale-up in a test of minutes.
const BURST: usize = 1500;

/// The time for which strangers edit nodes.
const FOREIGN: Duration = Duration::from_secs(15);

/// The number of requests of a storm at a time.
const AT_ONCE: usize = 16;

/// Returns the operator's writes since then, except to leases, with all that were answered by now.
async fn writes(bench: &Bench, since: Timestamp) -> Vec<AuditEvent> {
    bench.writes_since(since).await
}

fn count(writes: &[AuditEvent], resource: &str, subresource: &str) -> usize {
    let is = |w: &&AuditEvent| w.resource == resource && w.subresource == subresource;
    writes.iter().filter(is).count()
}

/// The resource of TrafficWatches, as the audit log names it.
const WATCHES: &str = "trafficwatches.traffic.example.com";

#[test]
fn each_of_many_nodes_in_a_burst_gets_one_write_and_costs_no_list() {
    staged("60s", async |mut stage| {
        let lists = stage.about_nodes("list");
        let names: Vec<_> = (0..BURST).map(|i| format!("burst-{i}")).collect();
        for name in &names {
            stage.bench.prometheus.set(name, Sample::percent("10"));
        }
        let began = Instant::now();
        let nodes = stage.bench.nodes();
        stream::iter(&names)
            .map(|name| {
                let node =
                    json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}});
                let node = serde_json::from_value(node).expect("node");
                let nodes = nodes.clone();
                async move { nodes.create(&PostParams::default(), &node).await }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await
            .expect("create nodes");
        let created = began.elapsed();
        let all = ListParams::default().labels(KEY);
        let labeled = async || {
            let nodes = stage.bench.nodes().list_metadata(&all).await.ok()?;
            (nodes.items.len() == BURST + 3).then_some(())
        };
        eventually("a label on each node", labeled).await;
        let took = began.elapsed();
        stage.bench.until("web", &[("/summary/nodes", json!(BURST + 3))]).await;

        let writes = writes(&stage.bench, stage.began).await;
        let done = |name: &str| {
            writes
                .iter()
                .filter(|w| w.resource == "nodes" && w.name == name && w.code == 200)
                .count()
        };
        let other: Vec<_> = names.iter().filter(|name| done(name) != 1).collect();
        assert_eq!(other, Vec::<&String>::new(), "nodes without exactly one write");
        let (to_nodes, statuses) = (count(&writes, "nodes", ""), count(&writes, WATCHES, "status"));
        println!(
            "{BURST} nodes created in {created:?}, labeled in {took:?}: {to_nodes} requests to \
             nodes, {statuses} statuses"
        );
        // A node that its controller changes meanwhile is refused once, and written again.
        assert!(to_nodes <= BURST + BURST / 5, "{to_nodes} requests");
        // One for a pass, and not one for a node: how many passes there are depends on the machine.
        assert!(statuses <= BURST / 50, "{statuses} statuses");
        assert_eq!(stage.about_nodes("list"), lists, "lists of all nodes");
        stage.measures("1");
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        stage.bench.until("web", &[("/summary/fit", json!(BURST + 3))]).await;
        stage.assert_alive().await;
        stage.rests().await;
    });
}

#[test]
fn labels_of_strangers_change_all_the_time_and_only_our_key_is_written() {
    staged("60s", async |mut stage| {
        let passes = async || stage.operator.metric("traffic_operator_reconcile_total", &[]).await;
        let (lists, before, since) = (stage.about_nodes("list"), passes().await, Timestamp::now());
        let end = Instant::now() + FOREIGN;
        let storm = |node: &'static str| {
            let nodes = stage.bench.nodes();
            async move {
                let mut edits = 0_u64;
                while Instant::now() < end {
                    let labels = json!({"storm.example.com/edit": edits.to_string()});
                    let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
                    nodes
                        .patch_metadata(node, &PatchParams::default(), &change)
                        .await
                        .expect("edit");
                    edits += 1;
                }
                edits
            }
        };
        // In the midst of it, node-2 becomes fit.
        let measure = async {
            tokio::time::sleep(FOREIGN / 3).await;
            stage.measures("1");
        };
        let (edits, ()) =
            tokio::join!(join_all(["node-1", "node-2", "node-3"].map(storm)), measure);
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        let passes = passes().await - before;
        let writes = writes(&stage.bench, since).await;
        let to_nodes: Vec<_> = writes.iter().filter(|w| w.resource == "nodes").collect();
        println!(
            "{edits:?} edits in {FOREIGN:?}: {passes} passes, {} requests to nodes",
            to_nodes.len()
        );
        assert!(edits.iter().sum::<u64>() > 300, "no storm: {edits:?}");
        // One that is refused each time because the node has changed is made to any version of it.
        assert!(to_nodes.iter().all(|w| w.name == "node-2"), "{to_nodes:?}");
        assert!(to_nodes.len() <= 5, "{to_nodes:?}");
        for (node, edits) in ["node-1", "node-2", "node-3"].into_iter().zip(&edits) {
            let theirs = stage.bench.label(node, "storm.example.com/edit").await;
            assert_eq!(theirs, Some((edits - 1).to_string()), "the stranger's last word on {node}");
        }
        // That one names the node's UID, by which the API server refuses it for a successor.
        let labels = json!({"metadata": {"uid": "another", "labels": {KEY: "true"}}});
        let (nodes, patch) = (stage.bench.nodes(), Patch::Merge(labels));
        let refused = nodes.patch_metadata("node-1", &PatchParams::default(), &patch).await;
        assert!(matches!(refused, Err(kube::Error::Api(s)) if s.code == 422), "another UID");
        // A judgment a second, and as many passes for what the nodes became meanwhile.
        let most = 2.0 * FOREIGN.as_secs_f64();
        assert!(passes <= most, "{passes} passes in {FOREIGN:?}");
        assert_eq!(stage.about_nodes("list"), lists, "lists of all nodes");
        stage.recovers().await;
    });
}
