//! Events, written in the background: event storage that hangs delays no decision.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Client,
    api::PostParams,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{sync::Notify, time::Instant};

use super::{FIELD_MANAGER, Notice, conditions};
use crate::{infra::Api, metrics::Metrics};

/// Maximum number of waiting events. A judgment has some dozens at most, each below 2 kB.
const WAITING: usize = 1000;

/// Deadline for writing an event after it happened; all events of a judgment share it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The time after its last event for which the client library continues a series.
const SERIES: Duration = Duration::from_mins(6);

/// Maximum number of texts of one reason and object that are series of their own. Further ones are
/// one series, with the text of the first: an error whose text has a new number at each pass must
/// not fill the storage.
const TEXTS: usize = 10;

/// The same of all reasons and objects: each has a recorder, of a few kilobytes with its series.
const ALL_TEXTS: usize = 1000;

/// The queue for events.
#[derive(Clone)]
pub(super) struct Events {
    queue: Arc<Queue>,
    metrics: Metrics,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Job>>,
    pushed: Notify,
}

struct Job {
    event: Event,
    regarding: ObjectReference,
    /// True if a further event with another text belongs to the same series.
    merges: bool,
    since: Instant,
}

/// Creates a queue of events, and the task that writes them, which runs for ever.
pub(super) fn channel(client: Client, metrics: Metrics) -> (Events, impl Future<Output = ()>) {
    let events = Events { queue: Arc::default(), metrics };
    let publishing = write(client, events.clone());
    (events, publishing)
}

impl Events {
    /// Queues one event. If too many are waiting, it is dropped and counted.
    pub(super) fn publish(&self, regarding: ObjectReference, notice: &Notice) {
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.into(),
            // 1,024 bytes is the API server's limit.
            note: Some(conditions::truncate(&notice.note, 1024)),
            action: "Reconcile".into(),
            secondary: notice.node.as_ref().map(|node| ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.clone()),
                ..ObjectReference::default()
            }),
        };
        // The figures of a node differ at each of its transitions, and its events are one series.
        let merges = notice.node.is_some() && notice.reason.starts_with("Node");
        let job = Job { event, regarding, merges, since: Instant::now() };
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING {
            self.metrics.event_dropped();
            return;
        }
        waiting.push_back(job);
        drop(waiting);
        self.queue.pushed.notify_one();
    }

    async fn next(&self) -> Job {
        loop {
            let pushed = self.queue.pushed.notified();
            let first = {
                let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.pop_front()
            };
            match first {
                Some(job) => return job,
                None => pushed.await,
            }
        }
    }
}

/// Writes events one after the other, best effort: a failed write fails no pass.
async fn write(client: Client, events: Events) {
    let mut recorders = Recorders::new(client.clone());
    loop {
        let job = events.next().await;
        let (recorder, is_new) = recorders.of(&job);
        if is_new {
            log(&job);
        }
        let Job { event, regarding, since, .. } = job;
        let left = DEADLINE.saturating_sub(since.elapsed());
        let published = tokio::time::timeout(left, async {
            if regarding.name.as_deref().unwrap_or_default().len() > LONGEST_NAME {
                publish_shortened(&client, &event, &regarding).await
            } else {
                recorder.publish(&event, &regarding).await
            }
        });
        match published.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                events.metrics.event_dropped();
                tracing::debug!(%error, reason = event.reason, "event not published");
            }
            Err(_) => {
                events.metrics.event_dropped();
                tracing::debug!(reason = event.reason, "event not published in time");
            }
        }
    }
}

/// Writes what the operator did into the log: one line for each event that is no repetition.
fn log(job: &Job) {
    let Job { event, regarding, .. } = job;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let (kind, name) = (part(&regarding.kind), part(&regarding.name));
    let object = match part(&regarding.namespace) {
        namespace if namespace.is_empty() => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    };
    let (reason, note) = (event.reason.as_str(), part(&event.note));
    tracing::info!(object, reason, note);
}

/// The recorders of the client library, which continues a series with the text of its first event:
/// the text is no part of what a series is. A second event with another text would be shown as a
/// repetition of the first. So each text has a recorder of its own.
struct Recorders {
    client: Client,
    /// The recorder of events that merge regardless of their texts.
    common: Recorder,
    /// By object and reason, then by text; each with the time of its last event.
    texts: BTreeMap<(String, String), BTreeMap<String, (Recorder, Instant)>>,
}

impl Recorders {
    fn new(client: Client) -> Self {
        Self { common: recorder(&client), client, texts: BTreeMap::new() }
    }

    /// Returns the recorder of an event, and whether it is more than a repetition.
    fn of(&mut self, job: &Job) -> (Recorder, bool) {
        self.texts.retain(|_, texts| {
            texts.retain(|_, (_, last)| last.elapsed() < SERIES);
            !texts.is_empty()
        });
        if job.merges {
            return (self.common.clone(), true);
        }
        let all: usize = self.texts.values().map(BTreeMap::len).sum();
        let object = job.regarding.uid.clone().unwrap_or_default();
        let texts = self.texts.entry((object, job.event.reason.clone())).or_default();
        let text = job.event.note.clone().unwrap_or_default();
        let full = texts.len() >= TEXTS || all >= ALL_TEXTS;
        let is_new = !texts.contains_key(&text);
        if full && is_new {
            return (self.common.clone(), false);
        }
        let new = || (recorder(&self.client), Instant::now());
        let (recorder, last) = texts.entry(text).or_insert_with(new);
        *last = Instant::now();
        (recorder.clone(), is_new)
    }
}

fn recorder(client: &Client) -> Recorder {
    let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: None };
    Recorder::new(client.clone(), reporter)
}

/// The longest name of an object whose events the client library can name: it appends a dot and the
/// time in 16 digits, and a name ends at 253.
const LONGEST_NAME: usize = 236;

/// Publishes an event about an object whose name is too long as a prefix of the event's name: such
/// an event counts no repetitions.
async fn publish_shortened(
    client: &Client,
    event: &Event,
    regarding: &ObjectReference,
) -> kube::Result<()> {
    let now = Timestamp::now();
    let name = regarding.name.as_deref().unwrap_or_default();
    let name = name[..name.floor_char_boundary(LONGEST_NAME)].trim_end_matches(['.', '-']);
    let namespace = regarding.namespace.clone();
    let object = v1::Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some(event.action.clone()),
        event_time: Some(MicroTime(now)),
        note: event.note.clone(),
        reason: Some(event.reason.clone()),
        regarding: Some(regarding.clone()),
        related: event.secondary.clone(),
        reporting_controller: Some(FIELD_MANAGER.into()),
        reporting_instance: Some(FIELD_MANAGER.into()),
        type_: Some(match event.type_ {
            EventType::Normal => "Normal".into(),
            EventType::Warning => "Warning".into(),
        }),
        ..v1::Event::default()
    };
    // Events of objects without a namespace belong to this one.
    let namespace = namespace.as_deref().unwrap_or("default");
    let api = Api::<v1::Event>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;
    use crate::infra::{client, lease::Fence};

    /// Returns the requests by which these notices are published: method and text.
    async fn requests(notices: &[Notice]) -> Vec<String> {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sent);
        let server = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let event: v1::Event = serde_json::from_slice(&body)?;
                let line = format!("{} {}", parts.method, event.note.unwrap_or_default());
                seen.lock().unwrap().push(line);
                // The API server answers with the object.
                let body = Full::<Bytes>::new(body);
                let body = body.map_err(|never| -> BoxError { match never {} });
                Ok::<_, BoxError>(Response::new(body))
            }
        });
        let client = client::simulated(server, Fence::open(), Metrics::new());
        let (events, publishing) = channel(client, Metrics::new());
        let regarding = ObjectReference {
            name: Some("web".into()),
            namespace: Some("a".into()),
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        for notice in notices {
            events.publish(regarding.clone(), notice);
        }
        // It never ends; the time passes once all requests are answered.
        let _ = tokio::time::timeout(Duration::from_secs(1), publishing).await;
        std::mem::take(&mut *sent.lock().unwrap())
    }

    fn notice(reason: &'static str, note: &str, node: Option<&str>) -> Notice {
        Notice { warning: false, reason, note: note.into(), node: node.map(Into::into) }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_with_another_text_is_another_event_and_a_repetition_is_counted() {
        let switched = |note| notice("MeshSwitched", note, None);
        let sent = requests(&[switched("off"), switched("on"), switched("off")]).await;
        assert_eq!(sent, ["POST off", "POST on", "PATCH off"]);
        // The node of a pod does not make its eviction a transition of the node.
        let evicted = |note| notice("PodEvicted", note, Some("n"));
        assert_eq!(requests(&[evicted("x"), evicted("y")]).await, ["POST x", "POST y"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_transitions_of_a_node_are_one_series_for_each_direction() {
        let notices = [
            notice("NodeUnfit", "61 %", Some("n")),
            notice("NodeFit", "40 %", Some("n")),
            notice("NodeUnfit", "75 %", Some("n")),
            notice("NodeUnfit", "90 %", Some("m")),
        ];
        let sent = requests(&notices).await;
        assert_eq!(sent, ["POST 61 %", "POST 40 %", "PATCH 61 %", "POST 90 %"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_that_changes_at_each_pass_does_not_fill_the_storage() {
        let notices: Vec<_> =
            (0..100).map(|pass| notice("ApiError", &format!("port {pass}"), None)).collect();
        let sent = requests(&notices).await;
        assert_eq!(sent.len(), 100);
        assert_eq!(sent.iter().filter(|line| line.starts_with("POST")).count(), TEXTS + 1);
        assert_eq!(sent.last().map(String::as_str), Some("PATCH port 10"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_storage_that_hangs_does_not_take_in_time_is_dropped_and_counted() {
        let server = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            let body = Full::<Bytes>::default();
            let body = body.map_err(|never| -> BoxError { match never {} });
            Ok::<_, BoxError>(Response::new(body))
        });
        let (client, metrics) =
            (client::simulated(server, Fence::open(), Metrics::new()), Metrics::new());
        let (events, publishing) = channel(client, metrics.clone());
        // This does not wait, so that no judgment does.
        for _ in 0..=WAITING {
            events.publish(ObjectReference::default(), &notice("NodeFit", "x", None));
        }
        let dropped = |count: usize| {
            let line = format!("traffic_operator_events_dropped_total {count}\n");
            metrics.encode().unwrap().contains(&line)
        };
        assert!(dropped(1), "one more than may wait");
        let _ = tokio::time::timeout(2 * DEADLINE, publishing).await;
        assert!(dropped(WAITING + 1), "all of them are too late");
    }

    #[tokio::test]
    async fn the_texts_of_thousands_of_objects_do_not_fill_the_memory() {
        let server = tower::service_fn(|_: Request<Body>| async {
            let body = Full::<Bytes>::default();
            let body = body.map_err(|never| -> BoxError { match never {} });
            Ok::<_, BoxError>(Response::new(body))
        });
        let client = client::simulated(server, Fence::open(), Metrics::new());
        let (events, _) = channel(client.clone(), Metrics::new());
        let mut recorders = Recorders::new(client);
        for object in 0..2 * ALL_TEXTS {
            let regarding =
                ObjectReference { uid: Some(object.to_string()), ..ObjectReference::default() };
            events.publish(regarding, &notice("InvalidSpec", "spec", None));
            drop(recorders.of(&events.next().await));
        }
        let kept: usize = recorders.texts.values().map(BTreeMap::len).sum();
        assert_eq!(kept, ALL_TEXTS);
    }
}
