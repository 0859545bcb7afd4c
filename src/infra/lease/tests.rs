//! Candidates and an API server of one Lease, on the paused clock.
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
};

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;

mod leading;
mod records;
mod refusals;
mod taking_over;
mod two_writers;

/// The default.
const DURATION: Duration = Duration::from_secs(15);

/// One request on its way, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Trip {
    there: u64,
    back: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Answered,
    /// It is carried out, and the answer is lost.
    Lost,
    Never,
}

/// The usual one.
const QUICK: Trip = Trip { there: 5, back: 5, end: End::Answered };
const LOST: Trip = Trip { end: End::Lost, ..QUICK };
const NEVER: Trip = Trip { end: End::Never, ..QUICK };

/// The way of one replica to the API server: the next trips, and that of all others.
#[derive(Clone)]
struct Line(Arc<Mutex<(VecDeque<Trip>, Trip)>>);

impl Line {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((VecDeque::new(), QUICK))))
    }

    fn all(&self, trip: Trip) {
        self.0.lock().unwrap().1 = trip;
    }

    fn next(&self, trips: impl IntoIterator<Item = Trip>) {
        self.0.lock().unwrap().0.extend(trips);
    }

    fn take(&self) -> Trip {
        let mut trips = self.0.lock().unwrap();
        trips.0.pop_front().unwrap_or(trips.1)
    }
}

/// The Lease, the number of its versions, and the verbs of all requests.
#[derive(Default)]
struct Store {
    lease: Option<Value>,
    version: u64,
    verbs: Vec<Method>,
    /// Refuses all requests with this code.
    refusal: Option<u16>,
}

impl Store {
    fn put(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }

    /// Carries out a request, as an API server does.
    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
        self.verbs.push(method.clone());
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(code) = self.refusal {
            return (code, failure(code, "InternalError"));
        }
        match (method, &self.lease) {
            (&Method::GET, Some(lease)) => (200, lease.clone()),
            (&Method::POST, _) if sent["metadata"]["name"] != "lease" => {
                (422, failure(422, "Invalid"))
            }
            (&Method::POST, None) => (201, self.put(sent)),
            (&Method::POST, Some(_)) => (409, failure(409, "AlreadyExists")),
            (&Method::PUT, Some(lease)) if version(lease) == version(&sent) => {
                (200, self.put(sent))
            }
            (&Method::PUT, Some(_)) => (409, failure(409, "Conflict")),
            (_, None) => (404, failure(404, "NotFound")),
            _ => (405, failure(405, "MethodNotAllowed")),
        }
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    })
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Store>>);

impl Server {
    fn client(&self, line: &Line) -> Client {
        let (server, line) = (self.clone(), line.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, trip) = (server.clone(), line.take());
            // A task of its own: a request that has left goes on, whatever becomes of its sender.
            let trip = tokio::spawn(server.trip(request, trip));
            async move { Ok::<_, std::convert::Infallible>(trip.await.unwrap()) }
        });
        Client::new(service, "ns")
    }

    async fn trip(self, request: Request<kube::client::Body>, trip: Trip) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.unwrap();
        tokio::time::sleep(Duration::from_millis(trip.there)).await;
        if trip.end == End::Never {
            return std::future::pending().await;
        }
        let (code, answer) = self.0.lock().unwrap().answer(&parts.method, &body);
        if trip.end == End::Lost {
            return std::future::pending().await;
        }
        tokio::time::sleep(Duration::from_millis(trip.back)).await;
        let mut response = Response::new(Body::from(answer.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }

    /// Changes the Lease as a stranger, if there is one.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut store = self.0.lock().unwrap();
        if let Some(mut lease) = store.lease.clone() {
            change(&mut lease);
            store.put(lease);
        }
    }

    /// Merges fields into the spec, as a stranger; `null` removes one.
    fn edit_spec(&self, fields: &Value) {
        self.edit(|lease| {
            for (name, value) in fields.as_object().unwrap() {
                let spec = lease["spec"].as_object_mut().unwrap();
                match value {
                    Value::Null => drop(spec.remove(name)),
                    value => drop(spec.insert(name.clone(), value.clone())),
                }
            }
        });
    }

    fn create(&self, spec: &Value) {
        self.0.lock().unwrap().put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lease", "namespace": "ns"}, "spec": spec,
        }));
    }

    fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    fn refuse(&self, code: impl Into<Option<u16>>) {
        self.0.lock().unwrap().refusal = code.into();
    }

    fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.as_ref().unwrap()["spec"].clone()
    }

    fn verbs(&self) -> Vec<Method> {
        std::mem::take(&mut self.0.lock().unwrap().verbs)
    }
}

/// A process that can be stopped: nothing of it runs then, while requests go on.
#[derive(Clone, Default)]
struct Signal(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Signal {
    fn stop(&self) {
        self.0.0.store(true, Ordering::Relaxed);
    }

    fn go_on(&self) {
        self.0.0.store(false, Ordering::Relaxed);
        if let Some(waker) = self.0.1.lock().unwrap().take() {
            waker.wake();
        }
    }

    async fn obeyed<T>(self, process: impl Future<Output = T>) -> T {
        let mut process = std::pin::pin!(process);
        std::future::poll_fn(|cx| {
            if self.0.0.load(Ordering::Relaxed) {
                *self.0.1.lock().unwrap() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            process.as_mut().poll(cx)
        })
        .await
    }
}

fn candidate(server: &Server, line: &Line, identity: &str, fence: &Fence) -> Candidate {
    let config = LeaseConfig {
        namespace: "ns".into(),
        name: "lease".into(),
        identity: identity.into(),
        duration: DURATION,
    };
    Candidate::new(server.client(line), config, fence.clone())
}

/// A replica that leads when it can, until it loses the lease or gets a signal.
struct Replica {
    fence: Fence,
    line: Line,
    signal: Signal,
    terminate: Option<tokio::sync::oneshot::Sender<()>>,
    /// The reason for its end; none after a signal.
    task: JoinHandle<Option<Lost>>,
}

impl Replica {
    fn start(server: &Server, identity: &str) -> Self {
        let (line, fence, signal) = (Line::new(), Fence::default(), Signal::default());
        let mut candidate = candidate(server, &line, identity, &fence);
        let (terminate, terminated) = tokio::sync::oneshot::channel::<()>();
        let process = async move {
            let leading = async {
                candidate.acquire(|| {}).await;
                candidate.renew().await
            };
            let lost = tokio::select! {
                lost = leading => return Some(lost),
                _ = terminated => None,
            };
            candidate.release().await;
            lost
        };
        let task = tokio::spawn(signal.clone().obeyed(process));
        Self { fence, line, signal, terminate: Some(terminate), task }
    }

    fn leads(&self) -> bool {
        self.fence.is_open()
    }

    /// Ends it as a kubelet does.
    fn terminate(&mut self) {
        drop(self.terminate.take());
    }

    /// Ends it as SIGKILL does.
    fn kill(&self) {
        self.task.abort();
        self.fence.set(None);
    }

    async fn lost(self) -> Lost {
        self.task.await.unwrap().unwrap()
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Waits until this holds, and returns the time that it took; never are there two writers.
async fn until(replicas: &[&Replica], holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        let writers = replicas.iter().filter(|replica| replica.leads()).count();
        assert!(writers <= 1, "two writers");
        assert!(began.elapsed() < Duration::from_mins(10), "it never holds");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// Starts a replica, and waits until it leads.
async fn leader(server: &Server, identity: &str) -> Replica {
    let replica = Replica::start(server, identity);
    until(&[&replica], || replica.leads()).await;
    replica
}

/// A leader, and a replica that has just started.
async fn leader_and_follower() -> (Server, Replica, Replica) {
    let server = Server::default();
    let leader = leader(&server, "one").await;
    let follower = Replica::start(&server, "two");
    (server, leader, follower)
}
