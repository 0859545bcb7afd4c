//! One request for everybody who needs the same answer in the same tick.
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Mutex as AsyncMutex;

/// Answers that are not asked for any more are dropped after this long: ten times the default
/// interval, and longer than most.
const KEEP: Duration = Duration::from_secs(100);

/// Answers by key, each with the moment its request began.
pub struct Shared<K, T> {
    slots: Mutex<HashMap<K, Arc<Slot<T>>>>,
}

struct Slot<T> {
    answer: AsyncMutex<Option<(Instant, T)>>,
    used: Mutex<Instant>,
}

impl<K, T> Default for Shared<K, T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Shared<K, T> {
    /// The answer for `key` of a request that began at or after `not_before`.
    ///
    /// Asks if there is none yet. Who comes while a request is under way waits for it instead of
    /// sending another. A failure is an answer: it is shared as well, so that a source in trouble
    /// is not asked once per object.
    pub async fn get<F: Future<Output = T>>(
        &self,
        key: &K,
        not_before: Instant,
        ask: impl FnOnce() -> F,
    ) -> T {
        let slot = self.slot(key);
        let mut answer = slot.answer.lock().await;
        if let Some((began, answer)) = &*answer
            && *began >= not_before
        {
            return answer.clone();
        }
        let began = Instant::now();
        let fresh = ask().await;
        *answer = Some((began, fresh.clone()));
        fresh
    }

    fn slot(&self, key: &K) -> Arc<Slot<T>> {
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|other, slot| {
            let used = *slot.used.lock().unwrap_or_else(PoisonError::into_inner);
            other == key || now.saturating_duration_since(used) < KEEP
        });
        let slot = slots.entry(key.clone()).or_insert_with(|| {
            Arc::new(Slot { answer: AsyncMutex::default(), used: Mutex::new(now) })
        });
        *slot.used.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Arc::clone(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_hundred_askers_of_one_tick_send_one_request() {
        let shared = Arc::new(Shared::<&str, usize>::default());
        let requests = Arc::new(AtomicUsize::new(0));
        let tick = Instant::now();
        let askers = (0..100).map(|_| {
            let (shared, requests) = (Arc::clone(&shared), Arc::clone(&requests));
            tokio::spawn(async move {
                let ask = || async {
                    tokio::task::yield_now().await;
                    requests.fetch_add(1, Ordering::SeqCst)
                };
                shared.get(&"query", tick, ask).await
            })
        });
        for answer in futures::future::join_all(askers).await {
            assert_eq!(answer.unwrap(), 0);
        }
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        // The next tick asks again; another query has an answer of its own.
        let next = Instant::now();
        let ask = || async { requests.fetch_add(1, Ordering::SeqCst) };
        assert_eq!(shared.get(&"query", next, ask).await, 1);
        assert_eq!(shared.get(&"other", next, ask).await, 2);
    }
}
