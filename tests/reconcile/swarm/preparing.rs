//! Streams that a worker prepares before they are its own.
use serde_json::json;

use super::{Stage, fake_kubelet::Delivery, served, signed::ours, streams};
use crate::bench::eventually;

impl Stage {
    async fn coming(&self, name: &str, worker: &str) -> Vec<String> {
        let file = self.file(name).await.unwrap_or_default();
        file.next(worker).to_vec()
    }
}

/// The new worker starts its streams at the operator's word: the kubelet delivers the file later.
#[test]
fn streams_move_once_they_are_prepared_and_without_the_kubelet() {
    served(async |stage, operator| {
        stage.puppet.control(|c| {
            (c.delivery, c.prepare) = (Delivery::Nudged, true);
            c.unprepared.insert("warm-2".into());
        });
        stage.stateful_set("warm", 2, ours()).await;
        let spec = json!({"jobs": streams(6), "refresh": {"strategy": "HotReload"}});
        stage.swarm("warm", spec).await;
        stage.settled("warm", 2, &streams(6)).await;
        stage.scale("warm", 3).await;
        stage.condition("warm", "Converged", "False", "AwaitingWorkers").await;
        operator.passes("swarm", 3).await;
        let next = stage.coming("warm", "warm-2").await;
        assert_eq!((next.len(), stage.puppet.streams("warm-2").len()), (2, 0));
        let file = stage.file("warm").await.unwrap();
        assert_eq!(file.owners().len(), 6, "their workers keep them: {file:?}");
        eventually("it has read what will come", async || {
            let state = stage.puppet.inner.state();
            let mut pods = state.pods.values();
            pods.any(|pod| pod.name == "warm-2" && pod.next() == next).then_some(())
        })
        .await;
        stage.puppet.control(|c| {
            c.held.insert("warm-2".into());
            c.unprepared.clear();
        });
        eventually("they run", async || (stage.puppet.streams("warm-2") == next).then_some(()))
            .await;
        let status = stage.until("warm", &[("/workers/2/streams", json!(2))]).await;
        let (wanted, loaded) = (&status["workers"][2]["wanted"], &status["workers"][2]["loaded"]);
        assert!(loaded.as_u64() < wanted.as_u64(), "it has not read the file: {status}");
        stage.puppet.control(|c| c.held.clear());
        stage.settled("warm", 3, &streams(6)).await;
        assert!(stage.coming("warm", "warm-2").await.is_empty());
        stage.puppet.assert_no_overlap();
    });
}
