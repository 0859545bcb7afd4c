//! The proxy itself: its server, and the way of each request through it.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::upstream::Upstream;
use super::wire::{self, Wire};
use super::{Call, Fault, Rule, Shared, events};
use crate::control_plane::{ControlPlane, free_port};
use crate::pki::write_secret;
use crate::wait::Task;
use crate::workspace;

/// The time in which the bytes before a break leave.
const FLUSH: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The request.
    pub call: Call,
    /// Its body, if it is a write.
    pub body: String,
    pub fault: Option<Fault>,
    /// The code that was answered; 0 if there was no answer yet.
    pub code: u16,
}

/// A proxy with faults. It ends when it is dropped.
pub struct Proxy {
    pub(super) shared: Arc<Shared>,
    wire: watch::Sender<Wire>,
    url: String,
    kubeconfig: Option<PathBuf>,
    _tasks: [Task; 2],
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Proxy").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy before an API server, which sends every request as this user.
    pub async fn before_api_server(
        plane: &ControlPlane,
        user: &str,
        groups: &[&str],
    ) -> Result<Self> {
        let upstream = Upstream::kubernetes(plane.config_for(user, groups).await?)?;
        let mut proxy = Self::start(upstream).await?;
        let path = plane.kubeconfig().with_file_name(format!("{}.conf", proxy.port()));
        write_secret(&path, &without_identity(plane.kubeconfig(), &proxy.url)?)?;
        proxy.kubeconfig = Some(path);
        Ok(proxy)
    }

    /// Starts a proxy before a server of plain HTTP, such as a Prometheus.
    pub async fn before(url: &str) -> Result<Self> {
        Self::start(Upstream::plain(url)?).await
    }

    async fn start(upstream: Upstream) -> Result<Self> {
        // Connections end at the relay; behind it is the server that reads requests.
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        // A port that nobody takes while connections are refused.
        let front = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)).await?;
        let (inner, url) = (server.local_addr()?, format!("http://{}", front.local_addr()?));
        let shared = Arc::new(Shared::new(upstream));
        let router = Router::new().fallback(forward).with_state(Arc::clone(&shared));
        let (wire, state) = watch::channel(Wire::Open);
        let serving = Task::spawn(async move { axum::serve(server, router).await });
        let tasks = [serving, Task::spawn(wire::relay(front, inner, state))];
        Ok(Self { shared, wire, url, kubeconfig: None, _tasks: tasks })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    fn port(&self) -> &str {
        self.url.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// Returns a kubeconfig for its clients, which need no identity; none before other servers.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Replaces all rules, with their numbers; releases events that are held back no longer.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        let rules: Vec<Rule> = rules.into_iter().collect();
        self.shared.change(|script| script.rules = rules);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.set([]);
    }

    /// Sets the state of all connections.
    pub fn wire(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }

    /// Holds back the events about this resource, as an API server does that lags behind; `None`
    /// releases them.
    pub fn hold(&self, resource: Option<&'static str>) {
        self.shared.change(|script| script.held = resource);
    }

    /// Reports whether the request that halts the proxy was executed. The test kills the client
    /// then, and starts it again behind another proxy.
    pub fn is_halted(&self) -> bool {
        self.shared.script().halted
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.script().requests.clone()
    }

    /// Returns how many requests had a fault.
    pub fn faults(&self) -> usize {
        self.shared.script().requests.iter().filter(|request| request.fault.is_some()).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(path) = &self.kubeconfig {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the kubeconfig with another server and no user. It names the certificate authority,
/// though the proxy serves no certificate: without one a client uses the system's.
fn without_identity(kubeconfig: &Path, server: &str) -> Result<String> {
    let config: Value = serde_yaml::from_str(&workspace::read(kubeconfig)?)?;
    let mut cluster = config["clusters"][0]["cluster"].clone();
    cluster["server"] = server.into();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": cluster}],
        "users": [{"name": "proxy", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
    });
    Ok(config.to_string())
}

async fn forward(State(shared): State<Arc<Shared>>, request: http::Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let call = Call::of(&head.method, &head.uri);
    let (number, fault) = shared.decide(&call);
    // A client that goes away in mid-request gets no answer anyhow.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    if call.is_write() {
        shared.script().requests[number].body = String::from_utf8_lossy(&body).into_owned();
    }
    // Nothing is sent before it is awaited.
    let onward = pass_on(&shared, &head, &call, body);
    let answer = match fault {
        None | Some(Fault::Event(_)) => onward.await,
        Some(Fault::Delay(pause)) => {
            tokio::time::sleep(pause).await;
            onward.await
        }
        Some(Fault::Refuse(code)) => refusal(status(code)),
        Some(Fault::Throttle(seconds)) => {
            let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS);
            answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            answer
        }
        Some(Fault::Answer(code, kind, text)) => answer_of(status(code), kind, text),
        Some(Fault::Bomb(mebibytes)) => bomb(mebibytes),
        Some(Fault::Never) => std::future::pending().await,
        Some(Fault::Halt) => {
            onward.await;
            shared.change(|script| script.halted = true);
            std::future::pending().await
        }
        Some(Fault::Cut(most)) => onward.await.map(|body| cut(body, most)),
    };
    shared.answered(number, answer.status().as_u16());
    if call.verb == "watch" && answer.status().is_success() {
        return answer.map(|body| events::edited(&shared, &call, body));
    }
    answer
}

/// Sends a request to the server behind, and returns its answer.
async fn pass_on(shared: &Shared, head: &Parts, call: &Call, body: Bytes) -> Response {
    let target = &call.target;
    shared.upstream.send(head, target, body).await.unwrap_or_else(|error| {
        crate::progress(&format!("the proxy could not send {target}: {error:#}"));
        refusal(StatusCode::BAD_GATEWAY)
    })
}

/// Breaks a body after this many bytes, if it has them.
fn cut(body: Body, most: usize) -> Body {
    let chunks = stream::unfold(Some((body.into_data_stream(), most)), |state| async move {
        let (mut chunks, left) = state?;
        if left == 0 {
            // An error ends the connection at once: the head and the bytes so far leave first.
            tokio::time::sleep(FLUSH).await;
            return Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), None));
        }
        match chunks.next().await? {
            Ok(mut chunk) => {
                chunk.truncate(left);
                let left = left - chunk.len();
                Some((Ok(chunk), Some((chunks, left))))
            }
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    });
    Body::from_stream(chunks)
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns an answer with a Status, as the API server refuses a request.
fn refusal(code: StatusCode) -> Response {
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault of the proxy", "reason": reason, "code": code.as_u16(),
    });
    answer_of(code, "application/json", status.to_string())
}

/// Returns the beginning of a vector with one label of this many mebibytes, compressed.
fn bomb(mebibytes: usize) -> Response {
    let begin = br#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"x":""#;
    let chunk = vec![b'x'; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(begin).and_then(|()| {
        (0..mebibytes).try_for_each(|_| encoder.write_all(&chunk))?;
        encoder.finish()
    });
    let Ok(bytes) = written else { return refusal(StatusCode::INTERNAL_SERVER_ERROR) };
    let mut answer = answer_of(StatusCode::OK, "application/json", String::new());
    *answer.body_mut() = Body::from(bytes);
    let gzip = header::HeaderValue::from_static("gzip");
    answer.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    answer
}

fn answer_of(code: StatusCode, kind: &'static str, text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}
