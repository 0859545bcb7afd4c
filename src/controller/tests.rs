//! Passes of a reconciler that refuses each object, before an API server that refuses writes.
use std::{collections::VecDeque, sync::Mutex};

use axum::body::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::{
    client::Body,
    runtime::{controller::Action, reflector, watcher},
};
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::{
    api::{TrafficWatch, TrafficWatchStatus},
    infra::{client, lease::Fence},
};

struct Refusing {
    finalizes: bool,
    memories: Memories<()>,
}

impl Reconciler for Refusing {
    type Kind = TrafficWatch;
    type Observed = ();
    type Desired = ();
    type Memory = ();
    const NAME: &'static str = "test";
    const FINALIZER: &'static str = "traffic.example.com/test";

    fn needs_cleanup(&self, _: &TrafficWatch) -> bool {
        self.finalizes
    }
    fn observe(
        &self,
        _: &TrafficWatch,
        _: &Store<DeserializeGuard<TrafficWatch>>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
    fn plan(_: &TrafficWatch, (): &()) -> Result<Plan<(), TrafficWatchStatus>, Error> {
        Err(Error::Invalid("spec.label: no".into()))
    }
    fn apply(
        &self,
        _: &TrafficWatch,
        (): (),
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send {
        std::future::ready(Ok(vec![]))
    }
    fn memories(&self) -> &Memories<()> {
        &self.memories
    }
}

/// A write: its method with its path, and its body.
type Write = (String, Value);

/// The operator and its API server, which answers with these codes, and then with success.
struct Stage {
    ctx: Arc<Context<Refusing>>,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl Stage {
    fn new(finalizes: bool, codes: &[u16]) -> Self {
        let writes = Arc::<Mutex<Vec<Write>>>::default();
        let codes = Arc::new(Mutex::new(VecDeque::from(codes.to_vec())));
        let seen = Arc::clone(&writes);
        let server = tower::service_fn(move |request: Request<Body>| {
            let (seen, codes) = (Arc::clone(&seen), Arc::clone(&codes));
            async move {
                let (parts, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
                let line = format!("{} {}", parts.method, parts.uri.path());
                seen.lock().unwrap().push((line, body));
                let code = codes.lock().unwrap().pop_front();
                let answer = code.map_or_else(|| object(1, &json!({})), refusal);
                let body = Full::<Bytes>::new(answer.to_string().into());
                let body = body.map_err(|never| -> BoxError { match never {} });
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(code.unwrap_or(200))?;
                Ok::<_, BoxError>(response)
            }
        });
        let client = client::simulated(server, Fence::open(), Metrics::new());
        // Events are not written here.
        let (events, _publishing) = events::channel(client.clone(), Metrics::new());
        let (objects, mut writer) = reflector::store();
        writer.apply_watcher_event(&watcher::Event::Apply(guard(object(1, &json!({})))));
        let ctx = Arc::new(Context {
            client,
            events,
            reconciler: Refusing { finalizes, memories: Memories::default() },
            schedule: schedule::Schedule::default(),
            metrics: Metrics::new(),
            objects,
            failures: Memories::default(),
            writes: Semaphore::new(1),
            unreadable: pass::Reports::default(),
        });
        Self { ctx, writes }
    }

    /// Runs one pass; returns its error, and what the driver does after it.
    async fn pass(&self, object: Value) -> (Error, Action) {
        let (object, ctx) = (Arc::new(guard(object)), Arc::clone(&self.ctx));
        let error = reconcile(Arc::clone(&object), ctx).await.unwrap_err();
        let action = error_policy(object, &error, Arc::clone(&self.ctx));
        (error, action)
    }

    /// Returns the writes since the last call.
    fn writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }

    fn failing(&self) -> usize {
        self.ctx.failures.each(|_, count| Some(*count)).count()
    }
}

fn object(generation: i64, spec: &Value) -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": "web", "namespace": "a", "uid": "u", "generation": generation},
        "spec": spec,
    })
}

fn guard(object: Value) -> DeserializeGuard<TrafficWatch> {
    serde_json::from_value(object).unwrap()
}

/// A spec that this version cannot read.
fn unreadable(generation: i64) -> Value {
    object(generation, &json!({"interval": ["never"]}))
}

fn refusal(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "no", "reason": reason, "code": code,
    })
}

const OBJECT: &str = "PATCH /apis/traffic.example.com/v1alpha1/namespaces/a/trafficwatches/web";

fn status() -> String {
    format!("{OBJECT}/status")
}

fn lines(writes: &[Write]) -> Vec<&str> {
    writes.iter().map(|(line, _)| &**line).collect()
}

fn after(seconds: u64) -> Action {
    Action::requeue(Duration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn an_invalid_spec_whose_report_fails_is_reported_again_and_then_waits_for_a_change() {
    for spec in [json!({}), json!({"interval": ["never"]})] {
        let stage = Stage::new(false, &[500]);
        let (error, action) = stage.pass(object(1, &spec)).await;
        assert_eq!((error.reason(), action), ("ApiError", after(2)));
        let (error, action) = stage.pass(object(1, &spec)).await;
        assert_eq!((error.reason(), action), ("InvalidSpec", Action::await_change()));
        assert_eq!(lines(&stage.writes()), [status(), status()]);
    }
}

/// Nothing runs when such an object is deleted: a client could create them without end.
#[tokio::test(start_paused = true)]
async fn of_an_object_that_waits_for_a_change_no_failure_is_remembered() {
    let stage = Stage::new(false, &[500]);
    stage.pass(object(1, &json!({}))).await;
    assert_eq!(stage.failing(), 1);
    stage.pass(object(1, &json!({}))).await;
    assert_eq!(stage.failing(), 0);
}

/// Each write has the time of its transition, so it changes the object and wakes the next pass.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_reported_once() {
    let stage = Stage::new(false, &[]);
    for _ in 0..2 {
        let (error, action) = stage.pass(unreadable(1)).await;
        assert_eq!((error.reason(), action), ("InvalidSpec", Action::await_change()));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(lines(&stage.writes()), [status()]);
    stage.pass(unreadable(2)).await;
    assert_eq!(lines(&stage.writes()), [status()], "another generation");
    // It could be read in the meantime.
    stage.pass(object(3, &json!({}))).await;
    stage.pass(unreadable(2)).await;
    assert_eq!(lines(&stage.writes()), [status(), status()]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_added_or_removed_is_reported_on_the_object() {
    let mut leaving = object(1, &json!({}));
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    leaving["metadata"]["finalizers"] = json!([Refusing::FINALIZER]);
    for object in [object(1, &json!({})), leaving] {
        let stage = Stage::new(true, &[403]);
        let (error, action) = stage.pass(object.clone()).await;
        assert_eq!((error.reason(), action), ("Forbidden", after(2)));
        let writes = stage.writes();
        assert_eq!(lines(&writes), [OBJECT.to_owned(), status()]);
        assert_eq!(writes[1].1["status"]["conditions"][0]["reason"], "Forbidden");
        // Another client was faster, which the next pass sees.
        for code in [409, 422] {
            let stage = Stage::new(true, &[code]);
            stage.pass(object.clone()).await;
            assert_eq!(lines(&stage.writes()), [OBJECT]);
        }
    }
}
