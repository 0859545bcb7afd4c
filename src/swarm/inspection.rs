//! `GET /swarms` and `GET /swarms/<namespace>/<name>`: what the leader decided, for people and scripts.
use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{handover::Counts, memory::Memories, told::Told};

/// The routes. Followers decide nothing, and say so.
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
    let each = memories.told().into_iter().map(|((namespace, name), told)| {
        json!({
            "namespace": namespace, "name": name, "epoch": told.epoch, "streams": counts(&told),
            "workers": told.workers.len(),
        })
    });
    answer(&each.collect::<Vec<_>>())
}

fn one(memories: &Memories, namespace: String, name: String) -> Response {
    let key = (namespace, name);
    if let Some(told) = memories.told().get(&key) {
        return answer(&page(&key.0, &key.1, told, Instant::now()));
    }
    (StatusCode::NOT_FOUND, format!("no Swarm {}/{} is served\n", key.0, key.1)).into_response()
}

fn counts(told: &Told) -> Value {
    let Counts { owned, releasing, free, unassigned } = told.counts;
    json!({"owned": owned, "releasing": releasing, "free": free, "unassigned": unassigned})
}

fn page(namespace: &str, name: &str, told: &Told, now: Instant) -> Value {
    let seconds = |since: &Instant| {
        let milliseconds = now.saturating_duration_since(*since).as_millis();
        f64::from(u32::try_from(milliseconds).unwrap_or(u32::MAX)) / 1000.0
    };
    let releasing = told.releasing.iter().map(|(stream, worker, epoch, since)| {
        json!({"id": **stream, "worker": **worker, "epoch": epoch, "seconds": seconds(since)})
    });
    let free = told.free.iter().map(|(id, since)| json!({"id": **id, "seconds": seconds(since)}));
    let unassigned =
        told.unassigned.iter().map(|(id, reason)| json!({"id": **id, "reason": reason}));
    let texts = |list: &[Arc<str>]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let workers = told.workers.iter().map(|worker| {
        json!({
            "name": *worker.name, "node": worker.node, "ready": worker.ready,
            "weight": worker.weight, "wanted": worker.wanted, "loaded": worker.loaded,
            "jobs": texts(&worker.jobs), "error": worker.error.as_deref(),
        })
    });
    json!({
        "namespace": namespace, "name": name, "epoch": told.epoch, "streams": counts(told),
        "workers": workers.collect::<Vec<_>>(), "duplicates": texts(&told.duplicates), "loadRatio": told.ratio,
        "releasing": releasing.collect::<Vec<_>>(), "free": free.collect::<Vec<_>>(),
        "unassigned": unassigned.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::swarm::memory::Memory;

    async fn ask(leads: bool, path: &str) -> (StatusCode, String) {
        let memories = Memories::default();
        let told = Told { decided: true, epoch: 7, ..Told::default() };
        let memory = Memory { told: Arc::new(told), ..Memory::default() };
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
