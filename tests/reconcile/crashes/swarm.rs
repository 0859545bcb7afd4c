//! A Swarm of two workers, which get a third one: the first file, and a handover of streams. `make
//! soak` then also changes the streams of workers that restart to read their file.
use serde_json::{Value, json};

use super::{harness, points::Write, state};
use crate::{
    bench::Bench,
    swarm::{Stage, sample},
};

const NAME: &str = "crash";

struct Handover(Stage);

impl Handover {
    fn workers(part: usize) -> usize {
        3.min(2 + part)
    }

    /// The streams of a part: the last one is gone when workers restart.
    fn streams(part: usize) -> Vec<String> {
        let mut streams = sample();
        if part > 1 {
            streams.pop();
        }
        streams
    }
}

impl harness::Pass for Handover {
    const KIND: &'static str = "Swarm";
    const SAMPLE: usize = 4;

    fn parts() -> usize {
        // Each worker restarts after the one before it is ready.
        if harness::soaks() { 3 } else { 2 }
    }

    async fn set_up(bench: Bench) -> Self {
        let stage = Stage::new(bench).await;
        stage.stateful_set(NAME, 2, json!({})).await;
        Self(stage)
    }

    fn bench(&self) -> &Bench {
        &self.0.bench
    }

    async fn begin(&self, part: usize) {
        match part {
            0 => {
                let spec = json!({"jobs": sample(), "refresh": {"strategy": "HotReload"}});
                self.0.swarm(NAME, spec).await;
            }
            1 => self.0.scale(NAME, 3).await,
            _ => {
                let spec =
                    json!({"jobs": Self::streams(part), "refresh": {"strategy": "DeletePod"}});
                self.0.change(NAME, spec).await;
            }
        }
    }

    async fn is_over(&self, part: usize) -> bool {
        let (workers, streams) = (Self::workers(part), Self::streams(part));
        self.0.is_settled(NAME, workers, &streams).await.is_some()
    }

    async fn state(&self) -> Value {
        let swarms = "/apis/traffic.example.com/v1alpha1/namespaces/default/swarms";
        let maps = "/api/v1/namespaces/default/configmaps";
        // Versions rise with each file, and a crash may cost one more. The port is the test's.
        let versions = ["epoch", "wanted", "loaded", "port"];
        let file = self.0.file(NAME).await;
        json!([
            file.map(|file| json!(file.owners())),
            state::objects(self.bench(), swarms, &versions).await,
            // Their contents, and so their fingerprints, have versions and a key.
            state::objects(self.bench(), maps, &["data", "traffic.example.com/content"]).await,
        ])
    }

    /// No stream ever ran twice.
    fn judge(&self) {
        self.0.puppet.assert_no_overlap();
    }

    /// Workers acknowledge one by one: how many streams are free at each look depends on the time,
    /// and each file may be followed by a reload of each worker.
    fn spare(write: &Write) -> usize {
        if write.is_to("configmaps") || write.is_to("pods") { 3 } else { 0 }
    }
}

#[test]
fn crash_points_of_a_swarm() {
    harness::every::<Handover>();
}
