//! A proxy between the operator and the API server: kills the operator at exactly one of its
//! writes, and delays watches.
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, extract::State, http::Request, response::Response};
use futures::StreamExt;
use kube::Client;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::AbortHandle};

use crate::bench::{Bench, Operator};

/// The point at which the operator is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// Before its n-th write reaches the API server.
    Before(usize),
    /// After the API server has executed its n-th write, before the operator receives the answer.
    After(usize),
}

#[derive(Default)]
struct Script {
    pid: Option<i32>,
    kill: Option<Kill>,
    /// The writes since the script was set: method, path, body.
    writes: Vec<String>,
    dead: bool,
}

pub struct Proxy {
    inner: Arc<Inner>,
    kubeconfig: PathBuf,
    task: AbortHandle,
}

struct Inner {
    /// A client with the operator's identity.
    client: Client,
    script: Mutex<Script>,
    /// Watches whose path and query contain this deliver nothing.
    stalled: watch::Sender<Option<&'static str>>,
}

impl Proxy {
    pub async fn start(bench: &Bench) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("address");
        // It names the certificate authority, though it serves no certificate: without one a client
        // uses the system's.
        let plane = std::fs::read_to_string(bench.plane().kubeconfig()).expect("kubeconfig");
        let plane: Value = serde_yaml::from_str(&plane).expect("kubeconfig");
        let mut cluster = plane["clusters"][0]["cluster"].clone();
        cluster["server"] = format!("http://{address}").into();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        let name = format!("proxy-{}.json", address.port());
        let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&kubeconfig, config.to_string()).expect("kubeconfig");
        let (stalled, _) = watch::channel(None);
        let client = bench.as_operator().await;
        let inner = Arc::new(Inner { client, script: Mutex::default(), stalled });
        let router = Router::new().fallback(forward).with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { inner, kubeconfig, task }
    }

    /// Starts the operator behind the proxy.
    pub async fn operator(&self, bench: &Bench) -> Operator {
        // The test does not wait until the lease of a killed process expires.
        let prometheus = ["--prometheus-url", &bench.prometheus.url];
        let args = ["--lease-duration", "15s", "--identity", "operator-1"];
        *self.inner.script.lock().expect("lock") = Script::default();
        let operator = Bench::operator_from(self.kubeconfig.clone(), &prometheus, &args);
        let pid = i32::try_from(operator.child.id()).expect("PID");
        self.inner.script.lock().expect("lock").pid = Some(pid);
        operator.ready().await;
        operator
    }

    /// Sets the next kill; writes count from here.
    pub fn kill(&self, kill: Option<Kill>) {
        let mut script = self.inner.script.lock().expect("lock");
        script.kill = kill;
        script.writes.clear();
    }

    pub fn killed(&self) -> bool {
        self.inner.script.lock().expect("lock").dead
    }

    /// Returns the writes since the script was set.
    pub fn writes(&self) -> Vec<String> {
        self.inner.script.lock().expect("lock").writes.clone()
    }

    /// Holds back the events of watches that match; `None` lets everything through.
    pub fn stall(&self, what: Option<&'static str>) {
        self.inner.stalled.send_replace(what);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Script {
    /// Kills the operator; none of its requests reaches the API server afterwards.
    fn end(&mut self) {
        self.dead = true;
        let pid = Pid::from_raw(self.pid.expect("the operator runs"));
        kill(pid, Signal::SIGKILL).expect("kill");
    }
}

async fn never() -> Response {
    std::future::pending().await
}

async fn forward(State(inner): State<Arc<Inner>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let place = head.uri.path_and_query().map_or(String::new(), ToString::to_string);
    let method = head.method.clone();
    let writes = !matches!(method.as_str(), "GET" | "HEAD");
    // These do not count: leases are written all the time, events and reviews decide nothing, and
    // certificates belong to the webhook.
    let counts =
        writes && !["/leases", "/events", "reviews", "/secrets"].iter().any(|w| place.contains(w));
    let number = {
        let mut script = inner.script.lock().expect("lock");
        if counts {
            let body = String::from_utf8_lossy(&body);
            script.writes.push(format!("{method} {place} {body}"));
        }
        let number = script.writes.len();
        if !script.dead && counts && script.kill == Some(Kill::Before(number)) {
            script.end();
        }
        (!script.dead).then_some(number)
    };
    let Some(number) = number else { return never().await };
    let mut onward = http::Request::builder().method(head.method).uri(head.uri);
    for name in ["content-type", "accept"] {
        if let Some(value) = head.headers.get(name) {
            onward = onward.header(name, value);
        }
    }
    let onward = onward.body(kube::client::Body::from(body.to_vec())).expect("request");
    let Ok(answer) = inner.client.send(onward).await else { return never().await };
    let (parts, body) = answer.into_parts();
    // The framing of the request does not matter for the answer.
    let mut back = http::Response::builder().status(parts.status);
    if let Some(value) = parts.headers.get("content-type") {
        back = back.header("content-type", value);
    }
    if place.contains("watch=true") {
        return back.body(held(&inner, place, body)).expect("response");
    }
    let bytes = Body::new(body);
    let Ok(bytes) = axum::body::to_bytes(bytes, usize::MAX).await else { return never().await };
    let dead = {
        let mut script = inner.script.lock().expect("lock");
        if !script.dead && counts && script.kill == Some(Kill::After(number)) {
            script.end();
        }
        script.dead
    };
    if dead {
        return never().await;
    }
    back.body(Body::from(bytes)).expect("response")
}

/// Returns the body of a watch, delayed as long as the test requires.
fn held(inner: &Inner, place: String, body: kube::client::Body) -> Body {
    let stalled = inner.stalled.subscribe();
    let chunks = Body::new(body).into_data_stream().then(move |chunk| {
        let (mut stalled, place) = (stalled.clone(), place.clone());
        async move {
            let _ = stalled.wait_for(|what| what.is_none_or(|what| !place.contains(what))).await;
            chunk
        }
    });
    Body::from_stream(chunks)
}
