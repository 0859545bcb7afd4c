//! `GET /swarms` and `GET /swarms/<namespace>/<name>`: what the leader decided, for people and
//! scripts.
use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    memory::{Memories, Memory},
    snapshot::{Snapshot, Worker},
    watches::Key,
};

/// The routes. Followers decide nothing, and report that.
pub fn router(
    memories: Memories,
    leads: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Router {
    let leading = leads.clone();
    Router::new()
        .route(
            "/swarms",
            get(
                async move |State(memories): State<Memories>| {
                    if leading() { all(&memories) } else { follower() }
                },
            ),
        )
        .route(
            "/swarms/{namespace}/{name}",
            get(
                async move |State(memories): State<Memories>,
                            Path((namespace, name)): Path<(String, String)>| {
                    if leads() { one(&memories, namespace, name) } else { follower() }
                },
            ),
        )
        .with_state(memories)
}

fn follower() -> Response {
    let text = "this replica does not lead: ask the other one\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

fn answer(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode: {error}\n")).into_response()
        }
    }
}

fn all(memories: &Memories) -> Response {
    let each = memories.each(|_, memory| memory.decision());
    let each = each.map(|((namespace, name), snapshot)| {
        json!({
            "namespace": namespace, "name": name, "epoch": snapshot.epoch, "streams": counts(&snapshot),
            "workers": snapshot.workers.len(),
        })
    });
    answer(&each.collect::<Vec<_>>())
}

fn one(memories: &Memories, namespace: String, name: String) -> Response {
    let key = (namespace, name);
    if let Some(snapshot) = memories.read(&key, Memory::decision) {
        return answer(&page(&key, &snapshot, Instant::now()));
    }
    (StatusCode::NOT_FOUND, format!("no Swarm {}/{} is served\n", key.0, key.1)).into_response()
}

/// One `Swarm`, as the leader publishes it and commands read it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Namespace of the `Swarm`.
    pub namespace: String,
    /// Name of the `Swarm`.
    pub name: String,
    /// The operator's version.
    #[serde(default)]
    pub version: String,
    /// The version of the file.
    pub epoch: u64,
    /// Streams by state.
    pub streams: PageCounts,
    /// The workers that should have streams.
    pub workers: Vec<PageWorker>,
    /// Streams that two pods report as running.
    pub duplicates: Vec<String>,
    /// Weight of the heaviest worker, as a multiple of the mean.
    pub load_ratio: f64,
    /// The streams that are being released.
    pub releasing: Vec<PageReleasing>,
    /// The streams without a worker but with a known next one.
    pub free: Vec<PageFree>,
    /// The streams that no worker can take.
    pub unassigned: Vec<PageUnassigned>,
    /// The workers that are waited for: the first of them.
    #[serde(default)]
    pub waiting: Vec<PageWaiting>,
}

/// Streams by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    /// In a worker's list.
    pub owned: usize,
    /// A worker has still to stop them.
    pub releasing: usize,
    /// No worker has them.
    pub free: usize,
    /// No worker can take them.
    pub unassigned: usize,
}

/// One worker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageWorker {
    /// Name of the worker.
    pub name: String,
    /// Node of its pod; none without a pod on a node.
    pub node: Option<String>,
    /// True if its pod is ready.
    pub ready: bool,
    /// The weight of its streams.
    pub weight: f64,
    /// The version at which its list last changed.
    pub wanted: u64,
    /// The version that it has acknowledged.
    pub loaded: Option<u64>,
    /// Its list.
    pub jobs: Vec<String>,
    /// The streams that will come to it.
    #[serde(default)]
    pub next: Vec<String>,
    /// Of these, the number that it has not prepared, if it prepares any.
    #[serde(default)]
    pub preparing: usize,
    /// True if its pod signs its answers.
    #[serde(default)]
    pub signs: bool,
    /// The reason why it is unknown what it runs.
    pub error: Option<String>,
    /// The last action on its pod.
    #[serde(default)]
    pub refreshed: Option<PageRefreshed>,
}

/// The last action on a worker's pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageRefreshed {
    /// `evicted`, `refused` (an eviction that was not allowed) or `reloaded`.
    pub result: String,
    /// Seconds since then.
    pub seconds: f64,
}

/// A stream that is taken from a worker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageReleasing {
    /// The stream.
    pub id: String,
    /// The worker that must still stop it.
    pub worker: String,
    /// The version that took it.
    pub epoch: u64,
    /// For how long.
    pub seconds: f64,
}

/// A stream without a worker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageFree {
    /// The stream.
    pub id: String,
    /// For how long.
    pub seconds: f64,
}

/// A stream that no worker can take.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageUnassigned {
    /// The stream.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A worker that is waited for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PageWaiting {
    /// Its name.
    pub worker: String,
    /// Number of streams that it must release; 0 if only a barrier waits for it.
    pub streams: usize,
    /// The version that it must acknowledge.
    pub epoch: u64,
    /// The rule of the protocol that is the obstacle.
    pub why: String,
    /// The known cause.
    pub text: String,
}

/// Returns the meaning of the reason of a stream without a worker.
#[must_use]
pub fn meaning(reason: &str) -> &'static str {
    match reason {
        "NoWorker" => {
            "no worker can be given anything: no replicas, no ready pod of a Deployment, or all on nodes \
             that are unfit"
        }
        "PinnedWorkerAbsent" => "its pin names a worker that is not there",
        "NoDedicatedWorker" => "there are as many dedicated streams as workers, or more",
        "NoCapacity" => "every worker that may have it has maxStreamsPerWorker streams",
        _ => "no worker can take it",
    }
}

fn seconds(since: Instant, now: Instant) -> f64 {
    let milliseconds = now.saturating_duration_since(since).as_millis();
    f64::from(u32::try_from(milliseconds).unwrap_or(u32::MAX)) / 1000.0
}

fn texts(list: &[Arc<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn counts(snapshot: &Snapshot) -> PageCounts {
    let counts = snapshot.counts;
    PageCounts {
        owned: counts.owned,
        releasing: counts.releasing,
        free: counts.free,
        unassigned: counts.unassigned,
    }
}

fn worker(worker: &Worker, now: Instant) -> PageWorker {
    let refreshed = worker
        .refreshed
        .map(|(result, at)| PageRefreshed { result: result.to_owned(), seconds: seconds(at, now) });
    PageWorker {
        name: worker.name.to_string(),
        node: worker.node.clone(),
        ready: worker.ready,
        weight: worker.weight,
        wanted: worker.wanted,
        loaded: worker.loaded,
        jobs: texts(&worker.jobs),
        next: texts(&worker.next),
        preparing: worker.preparing,
        signs: worker.signs,
        error: worker.error.as_ref().map(ToString::to_string),
        refreshed,
    }
}

/// Returns the page of one `Swarm`.
pub(super) fn page((namespace, name): &Key, snapshot: &Snapshot, now: Instant) -> Page {
    let releasing = snapshot.releasing.iter().map(|(stream, worker, epoch, since)| PageReleasing {
        id: stream.to_string(),
        worker: worker.to_string(),
        epoch: *epoch,
        seconds: seconds(*since, now),
    });
    let free = snapshot.free.iter();
    let free = free.map(|(id, at)| PageFree { id: id.to_string(), seconds: seconds(*at, now) });
    let unassigned = snapshot
        .unassigned
        .iter()
        .map(|(id, reason)| PageUnassigned { id: id.to_string(), reason: (*reason).to_owned() });
    let waiting = snapshot.waiting.iter().map(|(waiting, text)| PageWaiting {
        worker: waiting.worker.to_string(),
        streams: waiting.streams,
        epoch: waiting.epoch,
        why: format!("{:?}", waiting.why),
        text: text.clone(),
    });
    Page {
        namespace: namespace.clone(),
        name: name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: snapshot.epoch,
        streams: counts(snapshot),
        workers: snapshot.workers.iter().map(|known| worker(known, now)).collect(),
        duplicates: texts(&snapshot.duplicates),
        load_ratio: snapshot.ratio,
        releasing: releasing.collect(),
        free: free.collect(),
        unassigned: unassigned.collect(),
        waiting: waiting.collect(),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(leads: bool, path: &str) -> (StatusCode, String) {
        let memories = Memories::default();
        let snapshot = Snapshot { decided: true, epoch: 7, ..Snapshot::default() };
        let memory = Memory { snapshot: Arc::new(snapshot), ..Memory::default() };
        memories.put(("n".into(), "s".into()), memory);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router(memories, move || leads).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_leader_tells_and_a_follower_says_that_it_follows() {
        let (status, text) = ask(true, "/swarms/n/s").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("\"epoch\":7"), "{text}");
        assert!(ask(true, "/swarms").await.1.contains("\"name\":\"s\""));
        assert_eq!(ask(true, "/swarms/n/other").await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(false, "/swarms/n/s").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
