//! Gives each agent its pinglist, from any replica of the webhook, when it changes.
//!
//! An agent presents the token of its pod; the API server identifies the pod. No agent gets
//! another's list, and a client without a token causes no request to the API server.
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::timeout;

use super::{
    pinglists::{self, Served},
    snapshot::Snapshot,
    state::ClusterState,
};
use crate::{
    infra::shutdown::Shutdown,
    metrics::Metrics,
    serving::{Connection, Lifetime, Limits, Pace},
};

mod claims;
#[cfg(test)]
mod floods;
mod tokens;

use tokens::{Proven, Tokens};
pub use tokens::{REVIEWS, REVIEWS_OF_ONE_SOURCE};

/// Path of the pinglists.
pub const PATH: &str = "/pinglist";

/// Audience of the agents' tokens: the API server does not accept them for itself.
pub const AUDIENCE: &str = "traffic-operator";

/// The longest an agent may wait for a change: below the minute after which proxies and load
/// balancers cut idle connections.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// For how long a pod that is not known yet is waited for: its agent may be quicker than our watch.
const UNKNOWN_POD: Duration = Duration::from_secs(5);

/// For agents. In all: 5,000 that came here because the other replica restarts, and half as many of
/// theirs that are not closed yet; a waiting agent takes 41 to 45 kB (`bench prober`), and all of
/// them fit in the memory limit of the webhook's Deployment. Of one address: agents may come from
/// behind that of their node, which runs 250 pods at most, each with a connection and one that is
/// not closed yet. Strangers lose their places to new clients; an agent's next request follows its
/// last one at once, or after a pause of ten seconds.
pub const LIMITS: Limits = Limits {
    connections: 7_500,
    of_one_source: 512,
    head: Duration::from_secs(100),
    lifetime: Lifetime::WhileUsed(Pace {
        // A handshake over a bad network, and a packet.
        head: Duration::from_secs(8),
        // A pod that is not known yet is waited for, and then the turn of its token, for 5 s each;
        // an answer of the API server may take as long.
        answer: Duration::from_secs(20),
        // The longest wait for a change is 50 s, and Go's clients keep a connection for 90 s.
        idle: Duration::from_secs(100),
    }),
    keep_alive: true,
    newest_wins: true,
};

/// The server for agents; clones share it.
#[derive(Clone)]
pub struct Agents(Arc<Inner>);

struct Inner {
    cluster: ClusterState,
    metrics: Metrics,
    shutdown: Shutdown,
    tokens: Tokens,
}

/// Why there is no list.
#[derive(Debug)]
enum Refusal {
    Unauthorized(&'static str),
    Forbidden,
    NoProber,
    /// This replica does not know it, and another one may.
    Unavailable(String),
    /// No replica has lists.
    Unserved(&'static str),
}

impl Agents {
    /// Answers from what this replica knows. `reviews_of_one_source` tokens of an address are
    /// reviewed at a time.
    #[must_use]
    pub fn new(
        cluster: ClusterState,
        client: Client,
        metrics: Metrics,
        shutdown: Shutdown,
        reviews_of_one_source: usize,
    ) -> Self {
        let tokens = Tokens::new(client, reviews_of_one_source);
        Self(Arc::new(Inner { cluster, metrics, shutdown, tokens }))
    }

    /// The route.
    pub fn router(self) -> Router {
        Router::new().route(PATH, get(pinglist)).with_state(self)
    }

    /// Returns the pod of a token.
    ///
    /// A stranger's token costs the API server nothing: it reviews only a token with our audience,
    /// of a pod that has an agent. The agent may be quicker than our watch of pods.
    async fn pod_of(
        &self,
        token: &str,
        source: IpAddr,
        prober: &(String, String),
    ) -> Result<Proven, Refusal> {
        if let Some(pod) = self.0.tokens.believed(token) {
            return Ok(pod);
        }
        let claimed = claims::pod(token, Timestamp::now().as_second())?;
        let mut snapshots = self.0.cluster.subscribe();
        let known = async {
            let stranger = |snapshot: &Snapshot| {
                let found = find(snapshot, prober, &claimed);
                matches!(found, Err(Refusal::Forbidden | Refusal::NoProber))
            };
            // The sender lives in `self`.
            let _ = snapshots.wait_for(|snapshot| !stranger(snapshot)).await;
        };
        // In either case, the snapshot shows the problem.
        let _ = timeout(UNKNOWN_POD, known).await;
        find(&self.0.cluster.snapshot(), prober, &claimed).map(drop)?;
        self.0.tokens.review(token, source, claimed).await
    }

    async fn answer(
        &self,
        connection: &Connection,
        query: Option<String>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        let request = Request::of(query.as_deref().unwrap_or_default());
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let known = known.and_then(pinglists::read_etag);
        let Some(token) = bearer(&headers) else {
            return Err(Refusal::Unauthorized("Authorization: Bearer <token of the pod>\n"));
        };
        let pod = self.pod_of(token, connection.source(), &request.prober).await?;
        connection.good();
        // They keep the buffer that they were read into, and thousands wait.
        drop((headers, query));
        let mut answer = self.list_of(&pod.uid, &request, known).await?;
        if pod.in_outage {
            // The list may be as old as the outage, which may be that of this replica alone: the
            // next request may reach another one.
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer)
    }

    /// Answers with the list of a pod, once it is another than the `known` one.
    async fn list_of(
        &self,
        uid: &str,
        request: &Request,
        known: Option<u64>,
    ) -> Result<Response, Refusal> {
        let _waiting = Waiting::new(&self.0.metrics);
        let (end, patience) = (Instant::now() + request.wait, Instant::now() + UNKNOWN_POD);
        let mut snapshots = self.0.cluster.subscribe();
        loop {
            let found = match find(&snapshots.borrow_and_update(), &request.prober, uid) {
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
                // The agent tries again, at another replica.
                () = self.0.shutdown.begun() => false,
            };
            if !changed {
                return found.map(unchanged);
            }
        }
    }
}

/// The request of an agent.
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
        return Err(Refusal::Unserved("a full mesh of this many pods is refused\n"));
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
        // A stranger needs no second request, and an agent's next one may reach another replica.
        let close = [(header::CONNECTION, "close")];
        match self {
            Self::Unauthorized(text) => (StatusCode::UNAUTHORIZED, close, text).into_response(),
            Self::Forbidden => {
                let text = "this pod has no agent of the NetworkProber\n";
                (StatusCode::FORBIDDEN, close, text).into_response()
            }
            Self::NoProber => {
                (StatusCode::NOT_FOUND, close, "no such NetworkProber\n").into_response()
            }
            Self::Unavailable(text) => {
                (StatusCode::SERVICE_UNAVAILABLE, close, text).into_response()
            }
            Self::Unserved(text) => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
        }
    }
}

async fn pinglist(
    State(agents): State<Agents>,
    Extension(connection): Extension<Connection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let answer = agents.answer(&connection, query, headers).await;
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
