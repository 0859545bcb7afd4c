//! Shared by all tests here: the control plane, nodes, the operator's process, and waits.
use std::{
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, Once, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use lab::{AuditEvent, ControlPlane, ControlPlaneOptions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    sync::{OnceCell, Semaphore, SemaphorePermit},
};
use traffic_operator::api::TrafficWatch;

use self::installation::{install, is_whole};
pub use self::{
    accounts::{ACCOUNT, WEBHOOK_ACCOUNT},
    installation::{apply_object, define},
    operator::Operator,
};
use crate::prometheus::Prometheus;

mod accounts;
mod installation;
mod operator;

/// One runtime for all tests: clients and the control plane outlive the test that made them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("runtime"));
/// The control planes, each of which serves one test at a time: a cluster has only one operator,
/// and a test decides about all of its cluster's nodes. A test mostly waits for intervals and
/// deadlines, so that eight use two processors well; a control plane costs five seconds of one when
/// it starts, and a hundredth of one while nothing happens.
static PLANES: [OnceCell<ControlPlane>; 8] = [const { OnceCell::const_new() }; 8];
/// The control planes that no test has now, with whether Calico's definitions may be in them: an API
/// server takes time to serve definitions and to end that. The last one to be returned is the first to
/// be taken.
static FREE: Mutex<Vec<(usize, bool)>> = Mutex::new(Vec::new());
static TURNS: Semaphore = Semaphore::const_new(0);

/// The longest wait for any condition: only failing tests wait this long, and a busy machine is
/// several times slower than an idle one.
const PATIENCE: Duration = Duration::from_mins(3);

/// As kubectl creates objects: fields that the definition does not know are refused.
pub const STRICT: &str = "?fieldManager=test&fieldValidation=Strict";

/// The image of agents where a NetworkProber specifies none.
pub const AGENT_IMAGE: &str = "registry.example.com/traffic-operator:test";

pub fn run<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    RUNTIME.block_on(async {
        let bench = Bench::new().await;
        test(bench).await;
    });
}

/// The surroundings of one test.
pub struct Bench {
    pub client: Client,
    pub prometheus: Prometheus,
    plane: &'static ControlPlane,
    /// The time at which this test began: older entries are about another test's objects of the
    /// same name.
    began: Timestamp,
    _turn: Turn,
}

/// A control plane, for the time of one test.
struct Turn {
    index: usize,
    reflects: bool,
    _permit: SemaphorePermit<'static>,
}

impl Turn {
    async fn take() -> Self {
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| {
            free().extend((0..PLANES.len()).map(|index| (index, false)));
            TURNS.add_permits(PLANES.len());
        });
        let permit = TURNS.acquire().await.expect("never closed");
        // A test has a thread of its own, which has its path.
        let reflects =
            std::thread::current().name().is_some_and(|t| t.starts_with("route_reflector::"));
        let mut free = free();
        let alike = free.iter().rposition(|(_, reflected)| *reflected == reflects);
        let last = free.len().checked_sub(1).expect("one for each permit");
        let (index, reflected) = free.remove(alike.unwrap_or(last));
        Self { index, reflects: reflects || reflected, _permit: permit }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        free().push((self.index, self.reflects));
    }
}

fn free() -> std::sync::MutexGuard<'static, Vec<(usize, bool)>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    async fn new() -> Self {
        let turn = Turn::take().await;
        let index = turn.index;
        let plane = PLANES[index]
            .get_or_init(|| async move {
                // As on OpenShift: an owner reference that blocks the deletion of its owner needs a
                // right that the operator does not have.
                let plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
                // A node is created Ready; the taint would stay until a kubelet reports.
                let no_taints = "--disable-admission-plugins=TaintNodesByCondition";
                let options = ControlPlaneOptions {
                    scheduler: false,
                    apiserver_arguments: vec![plugin.into(), no_taints.into()],
                    // No heartbeats are sent here: a node stays in the state that a test sets.
                    node_grace: Duration::from_hours(1),
                    ..Default::default()
                };
                let plane = ControlPlane::start(options).await.expect("control plane");
                keep_record(&plane, index);
                install(&plane.client().expect("client")).await;
                plane
            })
            .await;
        let client = plane.client().expect("client");
        let bench = Self {
            client,
            prometheus: Prometheus::start().await,
            plane,
            began: Timestamp::now(),
            _turn: turn,
        };
        if !is_whole(&bench.client).await {
            install(&bench.client).await;
        }
        bench.clean().await;
        bench
    }

    /// Removes what the previous test left: it may have failed anywhere.
    async fn clean(&self) {
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let list = self.watches("").list(&ListParams::default()).await.expect("list");
        for watch in list {
            let api = self.watches(&watch.namespace().unwrap_or_default());
            let name = watch.name_any();
            // Each may be gone already.
            let _ = api.patch(&name, &PatchParams::default(), &strip).await;
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
        let all = ListParams::default();
        let now = DeleteParams::default();
        // In any namespace, one that stays would create pods for ever.
        let everywhere = Api::<Deployment>::all(self.client.clone());
        for deployment in everywhere.list(&all).await.expect("list deployments") {
            let namespace = deployment.namespace().unwrap_or_default();
            let api = Api::<Deployment>::namespaced(self.client.clone(), &namespace);
            // It may be gone already.
            let _ = api.delete(&deployment.name_any(), &now).await;
        }
        self.clean_obstacles().await;
        self.clean_reflectors().await;
        self.nodes().delete_collection(&now, &all).await.expect("delete nodes");
        self.clean_swarms().await;
        self.clean_probers().await;
        let empty = async || {
            let none = self.nodes().list(&all).await.is_ok_and(|l| l.items.is_empty());
            let left = self.watches("").list(&all).await.is_ok_and(|l| l.items.is_empty());
            (none && left).then_some(())
        };
        eventually("an empty cluster", empty).await;
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The `TrafficWatches` of a namespace; of all namespaces if it is empty.
    pub fn watches(&self, namespace: &str) -> Api<TrafficWatch> {
        match namespace {
            "" => Api::all(self.client.clone()),
            namespace => Api::namespaced(self.client.clone(), namespace),
        }
    }

    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a node that is Ready.
    pub async fn node(&self, name: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
            "status": {"conditions": [readiness(true)]},
        });
        let node = serde_json::from_value(node).expect("node");
        self.nodes().create(&PostParams::default(), &node).await.expect("create node");
    }

    /// Creates a TrafficWatch in `default`, with intervals short enough for a test.
    pub async fn watch(&self, name: &str, spec: Value) {
        self.watch_in("default", name, spec).await.expect("create TrafficWatch");
    }

    pub async fn watch_in(
        &self,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> kube::Result<DynamicObject> {
        let mut full = json!({"maxBandwidthPercent": "60", "interval": "1s", "window": "4s"});
        full.as_object_mut().expect("map").extend(spec.as_object().expect("map").clone());
        self.create(json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": name, "namespace": namespace}, "spec": full,
        }))
        .await
    }

    /// Creates a TrafficWatch with strict validation, which the client library cannot request.
    pub async fn create(&self, object: Value) -> kube::Result<DynamicObject> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let path =
            format!("/apis/traffic.example.com/v1alpha1/namespaces/{namespace}/trafficwatches");
        self.post(&format!("{path}{STRICT}"), &object).await
    }

    /// Posts an object, or a request, to the API server.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> kube::Result<T> {
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let body = serde_json::to_vec(body).expect("JSON");
        self.client.request(request.body(body).expect("request")).await
    }

    /// Starts the operator; it ends when the returned value is dropped.
    pub fn operator(&self) -> Operator {
        self.operator_with("operator-1", "15s")
    }

    pub fn operator_with(&self, identity: &str, lease: &str) -> Operator {
        let args = ["--lease-duration", lease, "--identity", identity];
        self.operator_args(&["--prometheus-url", &self.prometheus.url], &args)
    }

    /// Starts the operator with a test's own flags, such as the address of Prometheus.
    pub fn operator_args(&self, prometheus: &[&str], args: &[&str]) -> Operator {
        Self::operator_from(self.kubeconfig_of(ACCOUNT), prometheus, args)
    }

    /// The same, with another way to the API server.
    pub fn operator_from(kubeconfig: PathBuf, prometheus: &[&str], args: &[&str]) -> Operator {
        let image = ["--agent-image", AGENT_IMAGE];
        Operator::start_at(free_address(), kubeconfig, &[prometheus, &image, args].concat())
    }

    /// Starts the operator as in a pod of this name, whose image agents get.
    pub fn operator_in_pod(&self, pod: &str) -> Operator {
        Operator::start_at(free_address(), self.kubeconfig_of(ACCOUNT), &["--identity", pod])
    }

    pub async fn status(&self, name: &str) -> Value {
        let watch = self.watches("default").get(name).await.expect("TrafficWatch");
        serde_json::to_value(watch.status).expect("status")
    }

    /// Waits until the status of a TrafficWatch has, at each pointer, the value.
    pub async fn until(&self, name: &str, expected: &[(&str, Value)]) -> Value {
        let what = format!("{name}: {expected:?}");
        let holds = async || with_values(self.status(name).await, expected);
        eventually_or(&what, holds, async || self.status(name).await.to_string()).await
    }

    /// Waits until a condition has a status and reason; returns its message.
    pub async fn condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let what = format!("{name}: {type_}={status} {reason}");
        let holds = async || message(&self.status(name).await, type_, status, reason);
        eventually_or(&what, holds, async || self.status(name).await.to_string()).await
    }

    /// A condition of a TrafficWatch in a namespace, as it is now.
    pub async fn condition_in(&self, namespace: &str, name: &str, type_: &str) -> Option<Value> {
        let status = self.watches(namespace).get(name).await.ok()?.status?;
        let all = serde_json::to_value(status.conditions).expect("conditions");
        all.as_array()?.iter().find(|condition| condition["type"] == type_).cloned()
    }

    pub async fn label(&self, node: &str, key: &str) -> Option<String> {
        let node = self.nodes().get(node).await.expect("node");
        node.labels().get(key).cloned()
    }

    pub async fn until_label(&self, node: &str, key: &str, value: Option<&str>) {
        let what = format!("label {key} of {node} = {value:?}");
        let holds = async || (self.label(node, key).await.as_deref() == value).then_some(());
        eventually(&what, holds).await;
    }

    /// Waits until `count` more requests have reached Prometheus, which means that many judgments.
    pub async fn judgments(&self, count: usize) {
        let before = self.prometheus.requests().len();
        let holds = async || (self.prometheus.requests().len() >= before + count).then_some(());
        eventually(&format!("{count} judgments"), holds).await;
    }

    /// Returns the operator's writes since then, except to leases.
    pub async fn writes_since(&self, since: Timestamp) -> Vec<AuditEvent> {
        self.requests_since(since)
            .await
            .into_iter()
            .filter(|e| e.is_write() && e.user == ACCOUNT && !e.resource.starts_with("leases"))
            .collect()
    }

    /// Returns all requests since then; waits until the audit log has them.
    pub async fn requests_since(&self, since: Timestamp) -> Vec<AuditEvent> {
        self.plane.whole_audit_since(since).await.expect("audit log")
    }

    pub fn plane(&self) -> &'static ControlPlane {
        self.plane
    }

    /// Reason and note of each event about an object of this test.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        use k8s_openapi::api::events::v1::Event;
        let events = Api::<Event>::all(self.client.clone());
        let list = events.list(&ListParams::default()).await.expect("events");
        list.into_iter()
            .filter(|e| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name))
            .filter(|e| e.event_time.as_ref().is_none_or(|time| time.0 >= self.began))
            .map(|e| (e.reason.unwrap_or_default(), e.note.unwrap_or_default()))
            .collect()
    }

    /// Waits for an event whose note contains this text: events are written asynchronously.
    pub async fn until_event(&self, name: &str, reason: &str, text: &str) {
        let found = async || {
            let events = self.events(name).await;
            events.into_iter().any(|(r, note)| r == reason && note.contains(text)).then_some(())
        };
        let otherwise = async || format!("{:?}", self.events(name).await);
        eventually_or(&format!("event {reason} with {text:?}"), found, otherwise).await;
    }
}

/// The condition of a node.
fn readiness(ready: bool) -> Value {
    let now = Timestamp::now().to_string();
    let status = if ready { "True" } else { "False" };
    json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

/// Returns a status that has, at each pointer, the value.
pub fn with_values(status: Value, expected: &[(&str, Value)]) -> Option<Value> {
    expected.iter().all(|(at, v)| status.pointer(at) == Some(v)).then_some(status)
}

/// The message of a condition, if its status and reason are these.
pub fn message(all: &Value, type_: &str, status: &str, reason: &str) -> Option<String> {
    let c = all["conditions"].as_array()?.iter().find(|c| c["type"] == type_)?;
    (c["status"] == status && c["reason"] == reason)
        .then(|| c["message"].as_str().unwrap_or_default().to_owned())
}

/// Links the audit log of a control plane to where `tests/rights` looks for it. The link grows with
/// the log, and outlives the control plane.
fn keep_record(plane: &ControlPlane, index: usize) {
    let Some(dir) = std::env::var_os("AUDIT_RECORDS") else { return };
    let record = Path::new(&dir).join(format!("{}-{index}.log", std::process::id()));
    std::fs::hard_link(plane.audit_log(), &record)
        .unwrap_or_else(|error| panic!("{}: {error}", record.display()));
}

/// An address without a listener, whose port no connection takes meanwhile.
pub fn free_address() -> std::net::SocketAddr {
    ([127, 0, 0, 1], lab::free_port().expect("a port")).into()
}

/// Polls until `check` returns a value; panics with the name of the condition.
pub async fn eventually<T>(what: &str, check: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_or(what, check, async || String::new()).await
}

/// The same; the panic also shows the state.
pub async fn eventually_or<T>(
    what: &str,
    mut check: impl AsyncFnMut() -> Option<T>,
    otherwise: impl AsyncFn() -> String,
) -> T {
    let mut pauses = pauses();
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() <= end, "not within {PATIENCE:?}: {what}\n{}", otherwise().await);
        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
    }
}

/// The pauses between two looks: short for what happens at once, and longer for what takes long.
/// The tests' own requests take most of the API server's time otherwise.
pub fn pauses() -> impl Iterator<Item = Duration> {
    let longest = Duration::from_millis(400);
    std::iter::successors(Some(Duration::from_millis(50)), move |last| {
        Some((*last * 3 / 2).min(longest))
    })
}
