//! The behavior of every watch of this operator: bounded silence, bounded back-off, unlimited
//! retries. Also the common parts of its caches: [`Mirror`], [`Changes`], [`Synced`], and
//! objects that cannot keep others from being read: [`DeserializeGuard`], [`Metadata`].
use std::time::Duration;

use futures::{
    Stream, StreamExt, future,
    stream::{self, BoxStream},
};
use kube::{
    Resource,
    runtime::{
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::api::{Api, left_out};
use crate::metrics::Metrics;

mod guard;
mod mirror;
mod signals;

pub use guard::{DeserializeGuard, Metadata};
pub use mirror::{Mirror, Reduced, version};
pub use signals::{Changes, Synced};

/// The time for which the server keeps one watch open, if bookmarks show that the connection lives.
const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// Objects per page of the first list: 100 nodes of 16 kB are a 1.6 MB answer, where the default
/// page of 500 would set the process' peak memory.
const PAGE_SIZE: u32 = 100;

/// The longest pause between two attempts, in place of the client library's 30 s: the operator has
/// no news for this long after an outage.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The configuration of every watch.
#[must_use]
pub fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS).page_size(PAGE_SIZE)
}

/// The back-off of every watch.
#[must_use]
pub fn backoff() -> CappedBackoff {
    CappedBackoff(DefaultBackoff::default())
}

/// The client library's back-off (exponential, with jitter), capped.
pub struct CappedBackoff(DefaultBackoff);

impl Iterator for CappedBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0.next()?;
        #[cfg(test)]
        let pause = if crate::clock::simulated::is_running() { steady(pause) } else { pause };
        Some(pause.min(MAX_BACKOFF))
    }
}

/// Returns the pause without its jitter, which is at most as long as the pause itself.
#[cfg(test)]
fn steady(pause: Duration) -> Duration {
    let mut steady = Duration::from_millis(800);
    while steady * 2 <= pause {
        steady *= 2;
    }
    steady
}

/// No pause: for what reads a stream of [`follow`], which pauses by itself.
pub struct AtOnce;

impl Iterator for AtOnce {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Backoff for AtOnce {
    fn reset(&mut self) {}
}

/// Watches `api` for ever; errors are items, never the end. Managed fields are dropped.
pub fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<DeserializeGuard<K>>, watcher::Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    follow_managed(api, config).map(|event| {
        event.map(|event| {
            map(event, |mut object| {
                object.meta_mut().managed_fields = None;
                object
            })
        })
    })
}

/// Watches `api` as [`follow`] does, with managed fields.
///
/// Only a complete list, or an event after it, is a success for the back-off: the client library
/// takes the beginning of a list for one, so that a list that fails would be tried every second.
pub fn follow_managed<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<DeserializeGuard<K>>, watcher::Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api.each(), config).boxed();
    stream::unfold((events, backoff(), Duration::ZERO), |state| async move {
        let (mut events, mut backoff, pause) = state;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = match &event {
            Ok(Event::Init | Event::InitApply(_)) => Duration::ZERO,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                backoff.0.reset();
                Duration::ZERO
            }
            Err(_) => backoff.next().unwrap_or(MAX_BACKOFF),
        };
        Some((event, (events, backoff, pause)))
    })
}

/// Returns only the events: failures of the watch are logged, and counted for `resource`, as is the
/// watch itself until its first list is complete.
pub fn reported<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    resource: &'static str,
    metrics: &Metrics,
) -> BoxStream<'static, Event<K>> {
    let mut unlisted = Some(metrics.unlisted(resource));
    let metrics = metrics.clone();
    let events = events.filter_map(move |event| {
        if matches!(event, Ok(Event::InitDone)) {
            unlisted.take();
        }
        let event = event.inspect_err(|error| {
            tracing::warn!(%error, "watch of {resource} failed, trying again");
            metrics.watch_restarted(resource);
        });
        future::ready(event.ok())
    });
    events.boxed()
}

/// Returns the events about objects that can be read. The others are logged and counted, and what
/// was known about them stays.
pub fn readable<K: Resource + DeserializeOwned + Send + 'static>(
    events: impl Stream<Item = Result<Event<DeserializeGuard<K>>, watcher::Error>> + Send + 'static,
    resource: &'static str,
    metrics: &Metrics,
) -> BoxStream<'static, Event<K>> {
    let events = reported(events, resource, metrics);
    let metrics = metrics.clone();
    let readable = move |event: Event<DeserializeGuard<K>>| {
        let is_gone = matches!(event, Event::Delete(_));
        let read = match event {
            Event::Init => return Some(Event::Init),
            Event::InitDone => return Some(Event::InitDone),
            Event::InitApply(object) => object.0.map(Event::InitApply),
            Event::Apply(object) => object.0.map(Event::Apply),
            Event::Delete(object) => object.0.map(Event::Delete),
        };
        let invalid = match read {
            Ok(event) => return Some(event),
            Err(invalid) => invalid,
        };
        left_out(&invalid);
        metrics.unreadable(resource);
        // An object that is gone is known by its name.
        let named = || serde_json::from_value(serde_json::json!({"metadata": invalid.metadata}));
        is_gone.then(named)?.ok().map(Event::Delete)
    };
    events.filter_map(move |event| future::ready(readable(event))).boxed()
}

/// Returns the same event with its object replaced.
pub fn map<K, T>(event: Event<K>, each: impl FnOnce(K) -> T) -> Event<T> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(each(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(each(object)),
        Event::Delete(object) => Event::Delete(each(object)),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;

    /// A client whose requests get what `answer` returns.
    fn client(
        answer: impl FnMut(Request<Body>) -> (StatusCode, String) + Clone + Send + 'static,
    ) -> Client {
        let service = tower::service_fn(move |request| {
            let (status, body) = answer.clone()(request);
            let mut response = Response::new(axum::body::Body::from(body));
            *response.status_mut() = status;
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_tried_ever_less_often() {
        let failing = client(|_| (StatusCode::INTERNAL_SERVER_ERROR, "away".into()));
        let mut events = Box::pin(follow(Api::<Namespace>::all(failing), config()));
        let mut failed = 0;
        let minutes = async {
            while let Some(event) = events.next().await {
                failed += usize::from(event.is_err());
            }
        };
        let _ = tokio::time::timeout(Duration::from_mins(10), minutes).await;
        assert!((60..=80).contains(&failed), "{failed} lists in ten minutes");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_left_out_until_it_goes() {
        let list = |request: Request<Body>| {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": [
                {"metadata": {"name": "bad"}, "data": 7}, {"metadata": {"name": "good"}},
            ]});
            let gone = r#"{"type":"DELETED","object":{"metadata":{"name":"bad","resourceVersion":"2"},"data":7}}"#;
            let watch = request.uri().query().is_some_and(|query| query.contains("watch"));
            (StatusCode::OK, if watch { format!("{gone}\n") } else { list.to_string() })
        };
        let metrics = Metrics::default();
        let events = follow(Api::<ConfigMap>::all(client(list)), config());
        let mut events = readable(events, "configmaps", &metrics);
        let mut next = async || events.next().await.unwrap();
        assert!(matches!(next().await, Event::Init));
        let Event::InitApply(good) = next().await else { panic!("no object") };
        assert_eq!(good.metadata.name.as_deref(), Some("good"));
        assert!(matches!(next().await, Event::InitDone));
        let Event::Delete(bad) = next().await else { panic!("not gone") };
        assert_eq!(bad.metadata.name.as_deref(), Some("bad"));
    }

    #[test]
    fn pauses_stay_below_the_cap_for_ever() {
        let mut backoff = backoff();
        for _ in 0..50 {
            assert!(backoff.next().is_some_and(|pause| pause <= MAX_BACKOFF));
        }
    }
}
