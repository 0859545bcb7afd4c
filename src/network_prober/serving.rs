//! Gives each agent its pinglist, from any replica, when it changes.
//!
//! An agent shows the token of its pod; the API server says whose it is. Nobody gets another's list.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    pinglists::{self, Served},
    world::{Snapshot, World},
};
use crate::{metrics::Metrics, runtime::shutdown::Shutdown};

/// Where pinglists are served.
pub const PATH: &str = "/pinglist";

/// Whom the tokens of agents are for: they are worth nothing to the API server.
pub const AUDIENCE: &str = "traffic-operator";

/// The longest an agent may wait for a change: below the minute after which proxies and load balancers
/// cut idle connections.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// For how long a pod that is not known yet is waited for: its agent may be quicker than our watch.
const UNKNOWN_POD: Duration = Duration::from_secs(5);

/// For how long a token is believed after the API server was asked: agents come back every
/// [`LONGEST_WAIT`], and a pod that is gone has no list whatever its token.
const BELIEVED: Duration = Duration::from_mins(5);

/// The most tokens that are remembered: twice the largest cluster, 1.2 kB each.
const TOKENS: usize = 10_000;

/// How many tokens the API server is asked about at once: who sends us nonsense must not make us send
/// it on as fast.
const REVIEWS: usize = 16;

/// How long an agent waits for its turn.
const REVIEW_WAIT: Duration = Duration::from_secs(5);

/// What answers agents; clones share it.
#[derive(Clone)]
pub struct Agents(Arc<Inner>);

struct Inner {
    world: World,
    client: Client,
    metrics: Metrics,
    shutdown: Shutdown,
    tokens: Mutex<HashMap<String, (String, Instant)>>,
    reviews: Semaphore,
}

/// Why there is no list.
enum Refusal {
    Unauthorized(&'static str),
    Forbidden,
    NoProber,
    Unavailable(String),
}

impl Agents {
    /// Answers from what this replica knows.
    #[must_use]
    pub fn new(world: World, client: Client, metrics: Metrics, shutdown: Shutdown) -> Self {
        let (tokens, reviews) = (Mutex::default(), Semaphore::new(REVIEWS));
        Self(Arc::new(Inner { world, client, metrics, shutdown, tokens, reviews }))
    }

    /// The route.
    pub fn router(self) -> Router {
        Router::new().route(PATH, get(pinglist)).with_state(self)
    }

    /// Whose pod a token is of, by UID.
    async fn pod_of(&self, token: &str) -> Result<String, Refusal> {
        if let Some(uid) = self.believed(token) {
            return Ok(uid);
        }
        let Ok(Ok(_permit)) = timeout(REVIEW_WAIT, self.0.reviews.acquire()).await else {
            return Err(Refusal::Unavailable("too many unknown tokens at once\n".into()));
        };
        if let Some(uid) = self.believed(token) {
            return Ok(uid);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.0.client.clone());
        let review = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(%error, "the token of an agent could not be reviewed");
            Refusal::Unavailable("the API server does not review tokens now\n".into())
        })?;
        let status = review.status.unwrap_or_default();
        let for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
        if status.authenticated != Some(true) || !for_us {
            return Err(Refusal::Unauthorized("not a token of this cluster for this service\n"));
        }
        let extra = status.user.and_then(|user| user.extra).unwrap_or_default();
        let uid =
            extra.get("authentication.kubernetes.io/pod-uid").and_then(|v| v.first().cloned());
        let uid = uid.ok_or(Refusal::Unauthorized("the token is not bound to a pod\n"))?;
        let mut tokens = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= TOKENS {
            tokens.retain(|_, (_, at)| at.elapsed() < BELIEVED);
        }
        if tokens.len() < TOKENS {
            tokens.insert(token.to_owned(), (uid.clone(), Instant::now()));
        }
        Ok(uid)
    }

    fn believed(&self, token: &str) -> Option<String> {
        let tokens = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (uid, at) = tokens.get(token)?;
        (at.elapsed() < BELIEVED).then(|| uid.clone())
    }

    async fn answer(&self, query: Option<String>, headers: HeaderMap) -> Result<Response, Refusal> {
        let request = Request::of(query.as_deref().unwrap_or_default());
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let known = known.and_then(pinglists::read_etag);
        let Some(token) = bearer(&headers) else {
            return Err(Refusal::Unauthorized("Authorization: Bearer <token of the pod>\n"));
        };
        let uid = self.pod_of(token).await?;
        // They keep the buffer that they were read into, and thousands wait.
        drop((headers, query));
        let _waiting = Waiting::new(&self.0.metrics);
        let (end, patience) = (Instant::now() + request.wait, Instant::now() + UNKNOWN_POD);
        let mut snapshots = self.0.world.subscribe();
        loop {
            let found = match find(&snapshots.borrow_and_update(), &request.prober, &uid) {
                Ok(served) if known != Some(served.print()) => return Ok(list(served)),
                found => found.map(|served| served.print()),
            };
            let until = match &found {
                Ok(_) => end,
                Err(Refusal::Forbidden | Refusal::NoProber) => end.min(patience),
                Err(_) => return found.map(unchanged),
            };
            let left = until.saturating_duration_since(Instant::now());
            let changed = tokio::select! {
                changed = timeout(left, snapshots.changed()) => matches!(changed, Ok(Ok(()))),
                // The agent comes back, to another replica.
                () = self.0.shutdown.begun() => false,
            };
            if !changed {
                return found.map(unchanged);
            }
        }
    }
}

/// What an agent asks for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    prober: (String, String),
    wait: Duration,
}

impl Request {
    fn of(query: &str) -> Self {
        let mut request = Self { prober: Default::default(), wait: Duration::ZERO };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "prober" => {
                    let (namespace, name) = value.split_once('/').unwrap_or_default();
                    request.prober = (namespace.to_owned(), name.to_owned());
                }
                "wait" => {
                    let seconds = value.parse().unwrap_or_default();
                    request.wait = Duration::from_secs(seconds).min(LONGEST_WAIT);
                }
                _ => {}
            }
        }
        request
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

fn find<'a>(
    snapshot: &'a Snapshot,
    prober: &(String, String),
    uid: &str,
) -> Result<Served<'a>, Refusal> {
    if !snapshot.synced {
        return Err(Refusal::Unavailable("not listed yet\n".into()));
    }
    let view = snapshot.views.get(prober).ok_or(Refusal::NoProber)?;
    if !view.synced {
        return Err(Refusal::Unavailable("its pods are not listed yet\n".into()));
    }
    if view.pinglists.refused {
        return Err(Refusal::Unavailable("a full mesh of so many pods is refused\n".into()));
    }
    view.pinglists.of(uid).ok_or(Refusal::Forbidden)
}

fn list(served: Served<'_>) -> Response {
    let headers = [
        (header::ETAG, pinglists::etag(served.print())),
        (header::CONTENT_TYPE, "application/json".to_owned()),
    ];
    (headers, served.body()).into_response()
}

fn unchanged(print: u64) -> Response {
    (StatusCode::NOT_MODIFIED, [(header::ETAG, pinglists::etag(print))]).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthorized(text) => (StatusCode::UNAUTHORIZED, text).into_response(),
            Self::Forbidden => {
                let text = "the NetworkProber has no agent in this pod\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::NoProber => (StatusCode::NOT_FOUND, "no such NetworkProber\n").into_response(),
            Self::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
        }
    }
}

async fn pinglist(
    State(agents): State<Agents>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let answer = agents.answer(query, headers).await;
    let answer = answer.unwrap_or_else(IntoResponse::into_response);
    agents.0.metrics.pinglist_request(answer.status().as_u16());
    answer
}

/// Counts an agent for as long as it waits; it may go away at any time.
struct Waiting<'a>(&'a Metrics);

impl<'a> Waiting<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.pinglist_agents(1);
        Self(metrics)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pinglist_agents(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_whose_list_and_how_long() {
        let request = |query: &str| {
            let Request { prober: (namespace, name), wait } = Request::of(query);
            (namespace, name, wait.as_secs())
        };
        assert_eq!(request("prober=a%2Fnp&wait=20"), ("a".into(), "np".into(), 20));
        assert_eq!(request("prober=a/np&wait=9999"), ("a".into(), "np".into(), 50));
        assert_eq!(request("wait=-1&prober=np"), (String::new(), String::new(), 0));
    }
}
