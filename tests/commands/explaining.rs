//! `explain` with a simulated API server: the command queries the leader through a port-forward to
//! its pod.
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use crate::program::{Outcome, Running, listen, run_with_env, serve};

const SYSTEM: &str = "traffic-operator-system";
const LABEL: &str = "web.traffic.example.com/unfit";

#[derive(Clone, Default)]
pub struct ApiServer {
    answers: Arc<Mutex<BTreeMap<String, (u16, Value)>>>,
    /// Methods and addresses of requests.
    asked: Arc<Mutex<Vec<(String, String)>>>,
    pub url: String,
}

impl ApiServer {
    pub fn start() -> Self {
        let (listener, url) = listen();
        let this = Self { url, ..Self::default() };
        serve(listener, Router::new().fallback(answer).with_state(this.clone()));
        this
    }

    pub fn set(&self, path: &str, status: u16, body: Value) {
        self.answers.lock().expect("lock").insert(path.to_owned(), (status, body));
    }

    fn explain(&self, name: &str, more: &[&str]) -> Outcome {
        self.explain_what(name, &[&["node", "node-2"], more].concat())
    }

    /// Returns the requests so far: methods and addresses.
    pub fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().expect("lock").clone()
    }

    /// Runs `explain` for any object.
    pub fn explain_what(&self, name: &str, what: &[&str]) -> Outcome {
        self.run(name, &[&["explain"], what].concat())
    }

    /// Runs any command. Each test names its own kubeconfig, because tests run concurrently.
    pub fn run(&self, name: &str, what: &[&str]) -> Outcome {
        self.run_with_env(name, what, &[])
    }

    /// Starts a command that runs until it is dropped.
    pub fn start_command(&self, name: &str, what: &[&str]) -> Running {
        let path = self.kubeconfig(name);
        Running::start(&[what, &["--kubeconfig", path.to_str().expect("path")]].concat())
    }

    /// Runs any command with these environment variables.
    fn run_with_env(&self, name: &str, what: &[&str], env: &[(&str, &str)]) -> Outcome {
        let path = self.kubeconfig(name);
        let cluster = ["--kubeconfig", path.to_str().expect("path")];
        run_with_env(&[what, &cluster[..]].concat(), env)
    }

    /// Writes a kubeconfig of this name for this server.
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.kubeconfig"));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]
        });
        std::fs::write(&path, kubeconfig.to_string()).expect("kubeconfig");
        path
    }
}

async fn answer(State(this): State<ApiServer>, request: Request) -> Response {
    let asked = (request.method().to_string(), request.uri().to_string());
    this.asked.lock().expect("lock").push(asked);
    let forward = request.uri().path().ends_with("/portforward");
    let known = this.known(request.uri());
    match known {
        // The pod's answer; a refusal of the API server is an ordinary answer.
        Some((200, view)) if forward => upgrade(request, view),
        known => plain(request.uri(), known),
    }
}

impl ApiServer {
    fn known(&self, uri: &Uri) -> Option<(u16, Value)> {
        let answers = self.answers.lock().expect("lock");
        answers.get(&uri.to_string()).or_else(|| answers.get(uri.path())).cloned()
    }
}

/// The protocol of a port-forward: of each message the first byte is the channel, 0 for data and 1
/// for errors; both begin with the port.
fn upgrade(mut request: Request, view: Value) -> Response {
    let key = request.headers()[header::SEC_WEBSOCKET_KEY].clone();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgraded.await.expect("upgrade"));
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        for channel in [0, 1] {
            let [low, high] = PORT.to_le_bytes();
            socket.send(Message::binary(vec![channel, low, high])).await.expect("port");
        }
        if let Some(why) = view.as_str() {
            let text = [b"\x01", why.as_bytes()].concat();
            socket.send(Message::binary(text)).await.expect("error");
            // As with the API server, the client ends the connection.
            while let Some(Ok(_)) = socket.next().await {}
            return;
        }
        let asked = socket.next().await.expect("a request").expect("a message").into_data();
        let asked = String::from_utf8_lossy(&asked[1..]).into_owned();
        assert!(asked.starts_with("GET /api/v1/trafficwatches?node=node-2 HTTP/1.1"), "{asked}");
        let body = view.to_string();
        let head = format!("\0HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.send(Message::binary((head + &body).into_bytes())).await.expect("answer");
        // Until the other end has read it.
        while let Some(Ok(_)) = socket.next().await {}
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
        .header(header::SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io")
        .body(Body::empty())
        .expect("response")
}

fn plain(uri: &Uri, known: Option<(u16, Value)>) -> Response {
    let (status, body) = known.unwrap_or_else(|| {
        let message = format!("there is no {uri}");
        (404, refusal(404, "NotFound", &message))
    });
    let status = StatusCode::from_u16(status).expect("status");
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

pub fn refusal(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": message
    })
}

/// Sets up a node, an object that judges it, and a leader.
fn cluster() -> ApiServer {
    let server = ApiServer::start();
    server.set(
        "/api/v1/nodes/node-2",
        200,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2", "labels":
            {"kubernetes.io/os": "linux", LABEL: "true"}}}),
    );
    server.set(
        "/apis/traffic.example.com/v1alpha1/trafficwatches",
        200,
        json!({"apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatchList",
        "metadata": {}, "items": [
            {"metadata": {"name": "web", "namespace": "default"},
             "spec": {"maxBandwidthPercent": "60"}},
            {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"recoverPercent": "x"}}
        ]}),
    );
    server.set(
        &format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/traffic-operator"),
        200,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "traffic-operator"},
            "spec": {"holderIdentity": "op-1", "renewTime": "2026-09-21T14:25:24.000000Z"}}),
    );
    server.set(&forward(), 200, view());
    server
}

/// The answer of the leader.
fn view() -> Value {
    let node = json!({
        "name": "node-2", "state": "Unfit", "reason": null, "since": "2026-09-21T14:13:20Z",
        "unfit": true, "ageSeconds": 4.2, "values": [{"measure": "bandwidth", "value": 71.5,
            "device": "eth0", "unfit": true, "streak": 1, "needed": 2, "reason": null}]
    });
    json!({
        "leader": true, "identity": "op-1", "version": "0.1.0", "now": "2026-09-21T14:25:24Z",
        "started": "2026-09-21T10:00:00Z", "watches": [{
            "namespace": "default", "name": "web", "label": LABEL, "mode": "Enforce",
            "intervalSeconds": 10.0, "limit": 1, "room": 3, "lastSuccess": "2026-09-21T14:25:20Z",
            "summary": {"nodes": 3, "fit": 2, "unfit": 1, "unknown": 0, "suppressed": 0},
            "measures": [{"name": "bandwidth", "unit": "percent", "max": 60.0, "recover": 54.0,
                "endpoint": "default", "query": "the query", "problem": null}],
            "nodes": [node], "nodesTruncated": false, "transitions": []
        }]
    })
}

/// The port of the status page on the loopback of its pod.
const PORT: u16 = 8082;

fn forward() -> String {
    format!("/api/v1/namespaces/{SYSTEM}/pods/op-1/portforward")
}

#[test]
fn the_leader_is_asked_through_a_port_forward_to_its_pod() {
    let outcome = cluster().explain("leader", &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for expected in [
        "node-2 is Unfit for default/web for ",
        "71.5 % on eth0, above 60 %; sample 4 s old; 1 of 2 judgments in a row say fit",
        "web.traffic.example.com/unfit=true, as it should be",
        "default/odd  its spec cannot be read",
        "From the leader, op-1 (version 0.1.0), just now",
    ] {
        assert!(outcome.out.contains(expected), "{expected} is not in\n{}", outcome.out);
    }
}

#[test]
fn what_other_kinds_do_on_the_node_is_shown() {
    let server = cluster();
    let group = "traffic.example.com/v1alpha1";
    let lists = |plural: &str, kind: &str, item: Value| {
        let list = json!({"apiVersion": group, "kind": kind, "metadata": {}, "items": [item]});
        server.set(&format!("/apis/{group}/{plural}"), 200, list);
    };
    lists(
        "swarms",
        "SwarmList",
        json!({"metadata": {"name": "streams", "namespace": "shop"},
            "spec": {"workload": {"name": "w"}, "jobs": ["a"]},
            "status": {"workers": [
                {"name": "worker-0", "streams": 3, "wanted": 9, "loaded": 7},
                {"name": "worker-1", "streams": 4, "wanted": 9, "loaded": 9}]}}),
    );
    lists(
        "routereflectorsets",
        "RouteReflectorSetList",
        json!({"metadata": {"name": "routes"}, "spec": {}, "status": {"slots": [
            {"id": 2, "node": "node-2", "since": "2026-09-21T10:00:00Z", "leaving": "Unfit"},
            {"id": 3, "node": "node-3"}]}}),
    );
    let pod = json!({"metadata": {"name": "worker-0", "namespace": "shop"}});
    let pods = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": {}, "items": [pod]});
    server.set("/api/v1/pods", 200, pods);
    let outcome = server.explain("others", &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let expected = "\
Also on node-2
  worker       worker-0 of Swarm shop/streams: 3 streams; version 7 is acknowledged, wanted is 9
  reflector    slot 2 of RouteReflectorSet routes since 2026-09-21T10:00:00Z; another node takes it over: Unfit
";
    assert!(outcome.out.contains(expected), "{}", outcome.out);
    assert!(!outcome.out.contains("the query"), "{}", outcome.out);
    let asked = server.asked();
    let on_node = |at: &String| at.starts_with("/api/v1/pods?") && at.contains("nodeName%3Dnode-2");
    assert!(asked.iter().any(|(_, at)| on_node(at)), "{asked:?}");
    let queries = server.explain("others-query", &["--query"]);
    assert!(queries.out.contains("(asked of default): the query"), "{}", queries.out);
}

#[test]
fn the_leader_s_page_is_shown_on_a_port_of_this_machine() {
    let server = cluster();
    let mut page = server.start_command("page", &["page", "--port", "0"]);
    let line = page.until("shows the status page of op-1");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let mut browser = std::net::TcpStream::connect(address.expect("an address")).expect("the port");
    let request = b"GET /api/v1/trafficwatches?node=node-2 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    browser.write_all(request).expect("a request");
    let mut answer = String::new();
    while !answer.contains("op-1") {
        let mut part = [0; 1000];
        let length = browser.read(&mut part).expect("an answer");
        assert!(length > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn what_keeps_the_leader_from_answering_is_named() {
    let refusal = |status, reason: &str| (status, refusal(status, reason, "no"));
    let inside = "failed to connect to localhost:8082 inside namespace: connection refused";
    for (name, (status, body), expected) in [
        ("forbidden", refusal(403, "Forbidden"), "you may not forward ports of pods in namespace"),
        ("gone", refusal(404, "NotFound"), "there is no pod op-1"),
        ("node", refusal(503, "ServiceUnavailable"), "exec op-1 -- /traffic-operator explain"),
        ("silent", (200, Value::from(inside)), "does not answer on its own port 8082: failed to"),
    ] {
        let server = cluster();
        server.set(&forward(), status, body);
        let outcome = server.explain(name, &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.out.contains("has not looked at this TrafficWatch yet"), "{}", outcome.out);
        assert!(outcome.out.contains(expected), "{}", outcome.out);
    }
}

/// Runs `explain node` as `kubectl exec` does in a pod of the operator, whose account may not
/// forward ports, and whose own page has this port.
fn in_the_pod(pod: &str, port: &str) -> (Outcome, bool) {
    let server = cluster();
    server.set(&forward(), 403, refusal(403, "Forbidden", "no"));
    let what = ["explain", "node", "node-2", "--operator-port", port];
    let env = [("POD_NAME", pod), ("POD_NAMESPACE", SYSTEM)];
    let outcome = server.run_with_env(&format!("inside-{pod}-{port}"), &what, &env);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let forwarded = server.asked().iter().any(|(_, path)| path.contains("portforward"));
    (outcome, forwarded)
}

/// The page of the process beside the command.
fn page() -> ApiServer {
    let page = ApiServer::start();
    page.set("/api/v1/trafficwatches?node=node-2", 200, view());
    page
}

/// The account of the operator may list its kinds, and not get one object by name.
#[test]
fn an_account_that_may_only_list_explains_one_trafficwatch() {
    let server = cluster();
    let list = "/apis/traffic.example.com/v1alpha1/namespaces/default/trafficwatches";
    let no = |name: &str| refusal(403, "Forbidden", &format!("{name} is not yours to get"));
    server.set(&format!("{list}/web"), 403, no("web"));
    server.set(&format!("{list}/shop"), 403, no("shop"));
    server.set(
        &format!("{list}?&fieldSelector=metadata.name%3Dweb"),
        200,
        json!({"apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatchList",
        "metadata": {}, "items": [{"metadata": {"name": "web", "namespace": "default"},
            "spec": {"maxBandwidthPercent": "60"}}]}),
    );
    let explain = |name: &str| {
        let watch = format!("default/{name}");
        server.explain(&format!("list-{name}"), &["--watch", &watch])
    };
    let outcome = explain("web");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("node-2 is Unfit for default/web for "), "{}", outcome.out);
    let outcome = server.explain_what("list-tw", &["trafficwatch", "web", "-n", "default"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // Refused both ways, the reason is that of the read by name.
    let outcome = explain("shop");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("get TrafficWatch: shop is not yours to get"), "{outcome:?}");
}

#[test]
fn a_command_in_the_pod_of_the_leader_asks_its_own_page() {
    let page = page();
    let (_, port) = page.url.rsplit_once(':').expect("a port");
    let (outcome, forwarded) = in_the_pod("op-1", port);
    assert!(outcome.out.contains("node-2 is Unfit for default/web for "), "{}", outcome.out);
    assert!(outcome.out.contains("From the leader, op-1 (version 0.1.0), just now"));
    assert!(!forwarded, "the account of the operator may not forward ports");
}

#[test]
fn a_command_in_the_pod_of_another_replica_names_the_one_to_ask() {
    let page = page();
    let (_, port) = page.url.rsplit_once(':').expect("a port");
    let (outcome, _) = in_the_pod("op-2", port);
    let expected = format!(
        "this pod, op-2, does not lead; run the command in the leader: kubectl -n {SYSTEM} exec op-1 -- \
         /traffic-operator explain …"
    );
    assert!(outcome.out.contains(&expected), "{}", outcome.out);
    assert_eq!(page.asked(), [], "its page is not the leader's");
}

#[test]
fn the_page_of_the_leader_s_own_pod_that_does_not_answer_is_named() {
    // A port that is not served here.
    let (outcome, forwarded) = in_the_pod("op-1", "1");
    assert!(outcome.out.contains("http://127.0.0.1:1: "), "{}", outcome.out);
    assert!(forwarded, "someone may have given the account that right");
}

#[test]
fn a_command_in_a_pod_of_the_operator_finds_the_lease_in_its_own_namespace() {
    let server = cluster();
    let env = [("POD_NAMESPACE", "elsewhere")];
    let outcome = server.run_with_env("elsewhere", &["explain", "node", "node-2"], &env);
    let expected = "no pod leads: the Lease elsewhere/traffic-operator has no holder";
    assert!(outcome.out.contains(expected), "{}", outcome.out);
}
