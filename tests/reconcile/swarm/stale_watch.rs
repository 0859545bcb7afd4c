//! The operator's view is older than the real state.
use std::time::Duration;

use serde_json::json;

use super::{Stage, fake_kubelet::Delivery, streams};
use crate::{
    bench::{eventually, run},
    faults,
};

/// A missing pod frees its streams. A pod that the watch had not delivered yet counted as missing.
#[test]
fn a_pod_that_the_watch_has_not_brought_yet_keeps_its_streams() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let proxy = stage.bench.proxy().await;
        let operator = faults::start(&stage.bench, &proxy, "15s", "operator-1");
        operator.ready().await;
        stage.stateful_set("lag", 1, json!({})).await;
        let spec = json!({"jobs": streams(3), "refresh": {"strategy": "HotReload"}});
        stage.swarm("lag", spec).await;
        stage.settled("lag", 1, &streams(3)).await;
        // Its kubelet delivers a new file by itself.
        stage.puppet.control(|c| c.delivery = Delivery::Eager);
        proxy.hold(Some("pods"));
        stage.scale("lag", 2).await;
        stage.change("lag", json!({"jobs": streams(6)})).await;
        // The new streams go to the new worker, whose pod the operator has not seen.
        let runs = async || (stage.puppet.streams("lag-1").len() == 3).then_some(());
        eventually("lag-1 to run the new streams", runs).await;
        // The pod takes its time to end.
        stage.puppet.control(|c| c.stop = Duration::from_secs(2));
        stage.scale("lag", 1).await;
        let all = async || (stage.puppet.streams("lag-0").len() == 6).then_some(());
        eventually("lag-0 to run all", all).await;
        stage.puppet.assert_no_overlap();
        proxy.hold(None);
        stage.settled("lag", 1, &streams(6)).await;
    });
}
