//! The number of workers changes.
use serde_json::json;

use super::{Stage, sample};
use crate::bench::run;

#[test]
fn with_hot_reload_every_stream_is_on_exactly_one_worker_through_2_3_2_workers() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("hot", 2, json!({})).await;
        stage.swarm("hot", json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}})).await;
        let two = stage.settled("hot", 2, &sample()).await;
        stage.scale("hot", 3).await;
        let three = stage.settled("hot", 3, &sample()).await;
        assert!(three.version > two.version);
        stage.scale("hot", 2).await;
        stage.settled("hot", 2, &sample()).await;
        assert_eq!(stage.puppet.uid("hot-0").is_some(), true);
    });
}

#[test]
fn with_delete_pod_every_stream_is_on_exactly_one_worker_through_2_3_2_workers() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        let _operator = stage.ready_operator().await;
        stage.stateful_set("cold", 2, json!({})).await;
        stage.swarm("cold", json!({"jobs": sample()})).await;
        stage.settled("cold", 2, &sample()).await;
        stage.scale("cold", 3).await;
        stage.settled("cold", 3, &sample()).await;
        stage.scale("cold", 2).await;
        stage.settled("cold", 2, &sample()).await;
    });
}
