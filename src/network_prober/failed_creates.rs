//! The API server's words about pods that it refuses, from the events of what creates them.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Event;
use kube::{
    Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::Deserialize;

use crate::{
    clock,
    controller::conditions::truncate,
    infra::Api,
    partial_resource::{self, nullable, partial_resource},
    text::printable,
};

/// Time after which the events of a namespace are read again.
const AGAIN: Duration = Duration::from_mins(10);

/// Maximum number of events: those of one `ReplicaSet` with the same words are one.
const EVENTS: u32 = 100;

/// Maximum number of bytes of the words in a condition.
const LONGEST: usize = 400;

/// The part of an event that is read.
#[derive(Clone, Debug, Deserialize)]
struct EventObject {
    #[serde(deserialize_with = "partial_resource::metadata")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "nullable")]
    message: String,
    /// The time of its last occurrence, as text: many forms are in use.
    #[serde(default, rename = "lastTimestamp", deserialize_with = "nullable")]
    last: String,
}

partial_resource!(EventObject as Event, NamespaceResourceScope);

/// What was read of each namespace.
#[derive(Debug, Default)]
pub struct FailedCreates(Mutex<HashMap<String, (Instant, Option<String>)>>);

impl FailedCreates {
    /// Returns why pods of a namespace could not be created the last time, if an event has it.
    pub async fn why(&self, client: &Client, namespace: &str) -> Option<String> {
        let now = clock::instant();
        let known = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, (at, _)| now.saturating_duration_since(*at) < AGAIN);
            all.get(namespace).map(|(_, why)| why.clone())
        };
        if let Some(why) = known {
            return why;
        }
        let api = Api::<EventObject>::namespaced(client.clone(), namespace);
        let params = ListParams::default().fields("reason=FailedCreate").limit(EVENTS);
        let why = match api.list(&params).await {
            Ok(events) => last(&events.items),
            Err(error) => {
                tracing::warn!(namespace, "cannot list events: {error}");
                None
            }
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(namespace.to_owned(), (now, why.clone()));
        why
    }
}

/// The words of the last one.
fn last(events: &[EventObject]) -> Option<String> {
    let created = |event: &EventObject| {
        event.meta().creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
    };
    let last = events.iter().max_by_key(|event| created(event).max(event.last.clone()))?;
    let words = printable(last.message.trim());
    (!words.is_empty()).then(|| truncate(&words, LONGEST))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_event_says_it_whatever_it_contains() {
        let event = |note: &str, created: &str, last: Option<&str>| {
            serde_json::from_value::<EventObject>(json!({
                "metadata": {"name": "e", "creationTimestamp": created}, "message": note,
                "lastTimestamp": last, "eventTime": null,
            }))
            .unwrap()
        };
        let events = [
            event("early", "2026-01-01T00:00:00Z", Some("2026-01-01T00:09:00Z")),
            event("later", "2026-01-01T00:05:00Z", None),
        ];
        assert_eq!(last(&events).as_deref(), Some("early"));
        let hostile =
            event(&format!("\u{1b}[2J{}", "é".repeat(1000)), "2026-01-01T00:00:00Z", None);
        let words = last(&[hostile]).unwrap();
        assert!(words.len() <= LONGEST + 3 && !words.contains('\u{1b}'), "{words}");
        assert_eq!((last(&[]), last(&[event("", "2026-01-01T00:00:00Z", None)])), (None, None));
    }
}
