//! Gives each agent its pinglist, from any replica of the webhook, when it changes.
//!
//! An agent presents the token of its pod; the API server identifies the pod. No agent gets
//! another's list, and a client without a token causes no request to the API server.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use k8s_openapi::{
    api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    jiff::Timestamp,
};
use kube::{Client, api::PostParams};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    pinglists::{self, Served},
    snapshot::Snapshot,
    state::ClusterState,
};
use crate::{
    infra::{Api, shutdown::Shutdown},
    metrics::Metrics,
    serving::{Connection, Lifetime, Limits, Pace, budget::Budget},
};

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
        let claimed = claimed_pod(token, Timestamp::now().as_second())?;
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

/// The time for which a token is accepted after a review: agents return every 50 s, and a deleted
/// pod has no list whatever its token.
const BELIEVED: Duration = Duration::from_mins(5);

/// The time for which it is accepted while the API server cannot be asked, or others use up the
/// reviews: agents matter most during an outage. A token lives an hour.
const BELIEVED_IN_OUTAGE: Duration = Duration::from_mins(30);

/// The most tokens that are remembered: twice the largest cluster.
const TOKENS: usize = 10_000;

/// Maximum number of concurrent token reviews.
pub const REVIEWS: usize = 16;

/// Maximum number of these for one address. Agents may come from behind the address of their node:
/// those of a starting node are reviewed within a quarter of a second.
pub const REVIEWS_OF_ONE_SOURCE: usize = 4;

/// The time for which an agent waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// The time for which an address may present no further token of a pod for which it has presented a
/// wrong one.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between two log lines about tokens that cannot be reviewed.
const SAID: Duration = Duration::from_mins(1);

/// A pod by its UID, as its token proves it.
struct Proven {
    uid: String,
    /// True if the API server could not be asked: this replica may be cut off from it.
    in_outage: bool,
}

/// The print of a token: it is a secret, and a hundred times as long.
type Print = [u8; SHA256_OUTPUT_LEN];

/// A client at this address that claims to be this pod, by UID.
type Claimant = (IpAddr, String);

/// The known tokens.
struct Tokens {
    client: Client,
    memory: Mutex<Memory>,
    reviews: Budget<IpAddr>,
    claimants: Budget<Claimant>,
}

#[derive(Default)]
struct Memory {
    /// The pod, and the time of the API server's answer.
    known: HashMap<Print, (String, Instant)>,
    /// The senders of wrong tokens, with the time.
    wrong: HashMap<Claimant, Instant>,
    said: Option<Instant>,
}

impl Tokens {
    fn new(client: Client, of_one_source: usize) -> Self {
        Self {
            client,
            memory: Mutex::default(),
            reviews: Budget::new(REVIEWS, of_one_source),
            claimants: Budget::new(usize::MAX, 1),
        }
    }

    /// Returns the pod of a token, if the API server has confirmed it recently.
    fn believed(&self, token: &str) -> Option<Proven> {
        self.memory().known(&print(token), BELIEVED).map(Proven::now)
    }

    /// Asks the API server about a token that claims to belong to the pod `claimed`.
    async fn review(
        &self,
        token: &str,
        source: IpAddr,
        claimed: String,
    ) -> Result<Proven, Refusal> {
        let key = print(token);
        let claimant = (source, claimed);
        let pause = || {
            let wrong = self.memory().wrong.get(&claimant).copied();
            wrong.is_some_and(|at| at.elapsed() < PAUSE)
        };
        let turn = async {
            let own = self.claimants.wait(claimant.clone(), 1).await;
            (own, self.reviews.wait(source, 1).await)
        };
        let stranger = Refusal::Unauthorized("not a token of this cluster for this service\n");
        if pause() {
            return Err(stranger);
        }
        let Ok(_turn) = timeout(TURN, turn).await else {
            let busy = Refusal::Unavailable("too many unknown tokens at once\n".into());
            return self.memory().known_in_outage(&key).ok_or(busy);
        };
        // Meanwhile the same token may have been presented, or a wrong one.
        if let Some(uid) = self.memory().known(&key, BELIEVED) {
            return Ok(Proven::now(uid));
        }
        if pause() {
            return Err(stranger);
        }
        match self.ask(token).await {
            Ok(status) if reviewed_pod(&status).is_some_and(|uid| *uid == claimant.1) => {
                self.memory().learn(key, &claimant);
                Ok(Proven::now(claimant.1))
            }
            Ok(_) => {
                self.memory().refuse(&key, claimant);
                Err(stranger)
            }
            Err(error) => {
                let mut memory = self.memory();
                memory.say(&error);
                let text = "the API server does not review tokens now\n";
                let unavailable = Refusal::Unavailable(text.into());
                memory.known_in_outage(&key).ok_or(unavailable)
            }
        }
    }

    async fn ask(&self, token: &str) -> kube::Result<TokenReviewStatus> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.client.clone());
        Ok(api.create(&PostParams::default(), &review).await?.status.unwrap_or_default())
    }

    /// Makes everything that is known older, if this machine has run for as long.
    #[cfg(test)]
    fn age(&self, by: Duration) -> bool {
        let mut memory = self.memory();
        memory.known.values_mut().all(|(_, at)| {
            let Some(earlier) = at.checked_sub(by) else { return false };
            *at = earlier;
            true
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proven {
    fn now(uid: String) -> Self {
        Self { uid, in_outage: false }
    }
}

impl Memory {
    fn known_in_outage(&self, key: &Print) -> Option<Proven> {
        let uid = self.known(key, BELIEVED_IN_OUTAGE)?;
        Some(Proven { uid, in_outage: true })
    }

    fn known(&self, key: &Print, within: Duration) -> Option<String> {
        let (uid, at) = self.known.get(key)?;
        (at.elapsed() < within).then(|| uid.clone())
    }

    fn learn(&mut self, key: Print, claimant: &Claimant) {
        self.wrong.remove(claimant);
        if self.known.len() >= TOKENS {
            self.known.retain(|_, (_, at)| at.elapsed() < BELIEVED);
        }
        if self.known.len() < TOKENS || self.known.contains_key(&key) {
            self.known.insert(key, (claimant.1.clone(), Instant::now()));
        }
    }

    fn refuse(&mut self, key: &Print, claimant: Claimant) {
        self.known.remove(key);
        if self.wrong.len() >= TOKENS {
            self.wrong.retain(|_, at| at.elapsed() < PAUSE);
        }
        if self.wrong.len() < TOKENS {
            self.wrong.insert(claimant, Instant::now());
        }
    }

    fn say(&mut self, error: &kube::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= SAID) {
            self.said = Some(Instant::now());
            tracing::warn!(%error, "tokens of agents cannot be reviewed");
        }
    }
}

fn print(token: &str) -> Print {
    let mut print = Print::default();
    print.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    print
}

/// The UID of the pod that an answer of the API server is about.
fn reviewed_pod(status: &TokenReviewStatus) -> Option<&String> {
    let for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
    if status.authenticated != Some(true) || !for_us {
        return None;
    }
    let extra = status.user.as_ref()?.extra.as_ref()?;
    extra.get("authentication.kubernetes.io/pod-uid")?.first()
}

/// Tolerance after a token's expiry, in seconds, within which it is still reviewed: clocks differ.
const LATE: i64 = 60;

/// The claims of a token that Kubernetes issues.
#[derive(Deserialize)]
struct Claims {
    aud: Audience,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Kubernetes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    pod: Option<Bound>,
}

#[derive(Deserialize)]
struct Bound {
    uid: String,
}

/// The UID of the pod that a token claims to be bound to. No claim is trusted before the API server
/// has confirmed it: they only decide which tokens are worth a review.
fn claimed_pod(token: &str, now: i64) -> Result<String, Refusal> {
    let nonsense = Refusal::Unauthorized("not a token of a service account\n");
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(nonsense);
    };
    let Ok(payload) = BASE64_URL_SAFE_NO_PAD.decode(payload) else { return Err(nonsense) };
    let Ok(claims) = serde_json::from_slice::<Claims>(&payload) else { return Err(nonsense) };
    let for_us = match &claims.aud {
        Audience::One(audience) => audience == AUDIENCE,
        Audience::Several(audiences) => audiences.iter().any(|audience| audience == AUDIENCE),
    };
    if !for_us {
        return Err(Refusal::Unauthorized("the token is not for this service\n"));
    }
    if claims.exp.saturating_add(LATE) < now {
        return Err(Refusal::Unauthorized("the token has expired\n"));
    }
    let bound = claims.kubernetes.and_then(|kubernetes| kubernetes.pod);
    let unbound = Refusal::Unauthorized("the token is not bound to a pod\n");
    bound.map(|pod| pod.uid).filter(|uid| !uid.is_empty()).ok_or(unbound)
}

#[cfg(test)]
mod tests;
