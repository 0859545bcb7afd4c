//! Events, written in the background: event storage that hangs delays no decision.
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{sync::Notify, time::Instant};

use super::{FIELD_MANAGER, Notice, conditions};
use crate::metrics::Metrics;

/// Maximum number of waiting events. A judgment has some dozens at most, each below 2 kB.
const WAITING: usize = 1000;

/// Deadline for writing an event after it happened; all events of a judgment share it.
const DEADLINE: Duration = Duration::from_secs(30);

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
        let job = Job { event, regarding, since: Instant::now() };
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
    let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    loop {
        let Job { event, regarding, since } = events.next().await;
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
