//! What a set at rest costs the API server.
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Stage, stage::two};
use crate::bench::run;

/// Longer than several passes.
const QUIET: Duration = Duration::from_secs(15);

/// Writes of its own status count too.
#[test]
fn a_set_at_rest_writes_nothing_but_one_refresh_of_its_status_a_minute() {
    run(async |bench| {
        let stage = Stage::new(bench).await;
        stage.nodes(3).await;
        let _operator = stage.operator().await;
        stage.set("main", two(json!({}))).await;
        stage.converged("main", &["node-1", "node-2"]).await;
        let since = Timestamp::now();
        // The length of the watch is what is tested.
        tokio::time::sleep(QUIET).await;
        let writes = stage.bench.writes_since(since);
        let own = writes.iter().filter(|w| w.subresource == "status").count();
        assert!(own == writes.len() && own <= 1, "{writes:?}");
    });
}
