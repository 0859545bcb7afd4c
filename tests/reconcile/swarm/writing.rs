//! How often the file and the status are written, and a file that may not be.
use std::time::Duration;

use serde_json::json;

use super::{Stage, sample};
use crate::{bench::run, faults};

fn hot(jobs: &[String]) -> serde_json::Value {
    json!({"jobs": jobs, "refresh": {"strategy": "HotReload"}})
}

/// Bugs 2, 3 and 11: a write that failed was logged and forgotten, and a forbidden one looked like
/// a missing object.
#[test]
fn a_file_that_may_not_be_written_is_reported_tried_again_and_written_when_it_may() {
    run(async |bench| {
        let (stage, operator, before) = Stage::running(bench, "deny", 2, hot(&sample())).await;
        let writes = ["create", "update", "patch", "delete"];
        let granted = stage.bench.deny("configmaps", &writes).await;
        stage.scale("deny", 3).await;
        let text = stage.condition("deny", "Ready", "Unknown", "Forbidden").await;
        assert!(text.contains("ConfigMap"), "{text}");
        assert_eq!(stage.file("deny").await.unwrap(), before);
        let failed = ["reason=\"Forbidden\"", "controller=\"swarm\""];
        assert!(operator.metric("traffic_operator_reconcile_errors_total", &failed).await >= 1.0);
        stage.bench.grant(granted).await;
        stage.settled("deny", 3, &sample()).await;
        stage.condition("deny", "Ready", "True", "Placed").await;
    });
}

/// A handover consists of some files and some counts: a write for each, and no other.
#[test]
fn a_handover_writes_the_status_as_often_as_it_has_something_to_tell() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = stage.bench.proxy().await;
        let operator = faults::start(&stage.bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        stage.stateful_set("thrift", 2, json!({})).await;
        stage.swarm("thrift", hot(&sample())).await;
        stage.settled("thrift", 2, &sample()).await;
        // One worker stays away for a while: there is nothing to report meanwhile.
        stage.puppet.control(|c| c.held.insert("thrift-0".into()));
        let before = proxy.requests().len();
        stage.scale("thrift", 3).await;
        stage.until("thrift", &[("/summary/ready", json!(3))]).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.puppet.control(|c| c.held.clear());
        stage.settled("thrift", 3, &sample()).await;
        let requests = proxy.requests().split_off(before);
        let writes = || requests.iter().map(|r| &r.call).filter(|call| call.is_write());
        let status = writes().filter(|call| call.subresource == "status").count();
        let files = writes().filter(|call| call.resource == "configmaps").count();
        assert!((1..=12).contains(&status), "{status}: {requests:#?}");
        assert!((1..=6).contains(&files), "{files}: {requests:#?}");
    });
}
