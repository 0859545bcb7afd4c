//! The behavior of every watch of this operator: bounded silence, bounded back-off, unlimited
//! retries. Also the common parts of its caches: [`Mirror`], [`Changes`], [`Synced`], and
//! objects that cannot keep others from being read: [`DeserializeGuard`], [`Metadata`].
use std::time::Duration;

use futures::{Stream, StreamExt, future, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::metrics::Metrics;

mod guard;
mod mirror;
mod signals;

pub use guard::{DeserializeGuard, Metadata};
pub use mirror::{Mirror, Reduced, version};
pub use signals::{Changes, Synced};

/// The time for which the server keeps one watch open. Short, because a connection that died
/// silently is only noticed at its end; it must stay at least 6 s below the client's read timeout.
const WATCH_TIMEOUT_SECONDS: u32 = 20;

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

impl Backoff for CappedBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Watches `api` for ever; errors are items, never the end.
pub fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, config).backoff(backoff()).boxed()
}

/// Returns only the events: failures of the watch are logged, and counted for `resource`.
pub fn reported<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    resource: &'static str,
    metrics: &Metrics,
) -> BoxStream<'static, Event<K>> {
    let metrics = metrics.clone();
    let events = events.filter_map(move |event| {
        let event = event.inspect_err(|error| {
            tracing::warn!(%error, "watch of {resource} failed, trying again");
            metrics.watch_restarted(resource);
        });
        future::ready(event.ok())
    });
    events.boxed()
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
    use super::*;

    #[test]
    fn pauses_stay_below_the_cap_for_ever() {
        let mut backoff = backoff();
        for _ in 0..50 {
            assert!(backoff.next().is_some_and(|pause| pause <= MAX_BACKOFF));
        }
    }
}
