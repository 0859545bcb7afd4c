//! One request for all callers that need the same answer in the same tick.
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use tokio::time::timeout_at;

use crate::clock;

/// Unused answers are dropped after this long: ten times the default interval, and longer than
/// most.
const KEEP: Duration = Duration::from_secs(100);

/// Maximum number of answers that are kept for other callers in the same tick. Authors can write
/// any number of queries, and the answer about 5,000 nodes takes more than a mebibyte. Queries that
/// still wait for theirs do not count: a tenant with many would leave no room for the answers of
/// others.
const MOST: usize = 64;

/// Answers by key, each with the time at which its request began.
pub struct Shared<K, T> {
    slots: Mutex<HashMap<K, Arc<Slot<T>>>>,
}

/// The reason why one caller has no answer. The request may continue for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It could not start: others hold all permits.
    Permit,
    /// The answer takes longer than this one waits.
    Answer,
}

struct Slot<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    answer: Option<(Instant, T)>,
    /// The running request. It continues while a caller waits for it, and ends with the last.
    running: Option<(Instant, WeakShared<BoxFuture<'static, T>>)>,
    used: Instant,
}

type Running<T> = futures::future::Shared<BoxFuture<'static, T>>;

enum Found<T> {
    Answer(T),
    Running(Instant, Running<T>),
    Nothing,
}

impl<K, T> Default for Shared<K, T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash, T: Clone + Send + Sync + 'static> Shared<K, T> {
    /// Returns the answer for `key` of a request that began at or after `not_before`.
    ///
    /// Sends the request if there is none yet, once it has a `permit`. Concurrent callers share the
    /// request in flight, each for as long as its own `patience`: the request itself has its own
    /// deadline, regardless of the caller that began it. A failure is an answer: it is shared as
    /// well, so that a failing source is not queried once per object.
    ///
    /// # Errors
    /// When `patience` is over.
    pub async fn get<S, W, F>(
        &self,
        key: &K,
        not_before: Instant,
        patience: Duration,
        permit: impl Fn() -> W,
        ask: impl FnOnce(S) -> F,
    ) -> Result<T, Late>
    where
        W: Future<Output = S>,
        F: Future<Output = T> + Send + 'static,
    {
        let deadline = tokio::time::Instant::now() + patience;
        let slot = self.slot(key);
        let mut taken = None;
        let running = loop {
            let found = slot.find(not_before);
            let running = match (found, taken.take()) {
                (Found::Answer(answer), _) => return Ok(answer),
                (Found::Running(began, running), _) if began >= not_before => break running,
                // One request for a key at a time.
                (Found::Running(_, running), _) => running,
                (Found::Nothing, None) => {
                    let permitted = timeout_at(deadline, permit()).await;
                    // Another caller may have sent the request meanwhile.
                    taken = Some(permitted.map_err(|_| Late::Permit)?);
                    continue;
                }
                (Found::Nothing, Some(permit)) => break slot.begin(ask(permit)),
            };
            timeout_at(deadline, running).await.map_err(|_| Late::Answer)?;
        };
        timeout_at(deadline, running).await.map_err(|_| Late::Answer)
    }

    fn slot(&self, key: &K) -> Arc<Slot<T>> {
        let now = clock::instant();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|other, slot| {
            // Without an answer, and without a caller: all of them have given up.
            let is_left = Arc::strong_count(slot) == 1 && slot.state().answer.is_none();
            let is_old = now.saturating_duration_since(slot.state().used) >= KEEP;
            other == key || !is_left && !is_old
        });
        let slot = slots.entry(key.clone()).or_insert_with(|| {
            Arc::new(Slot { state: Mutex::new(State { answer: None, running: None, used: now }) })
        });
        slot.state().used = now;
        let slot = Arc::clone(slot);
        // Only answers that no caller is using, and this one.
        let is_idle = |slot: &Arc<Slot<T>>| Arc::strong_count(slot) == 1;
        let kept = 1 + slots.values().filter(|slot| is_idle(slot)).count();
        for _ in MOST..kept {
            let idle = slots.iter().filter(|(_, slot)| is_idle(slot));
            let oldest = idle.min_by_key(|(_, slot)| slot.state().used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            slots.remove(&oldest);
        }
        slot
    }
}

impl<T: Clone + Send + Sync + 'static> Slot<T> {
    fn find(&self, not_before: Instant) -> Found<T> {
        let state = self.state();
        if let Some((began, answer)) = &state.answer
            && *began >= not_before
        {
            return Found::Answer(answer.clone());
        }
        let running = state.running.as_ref();
        match running.and_then(|(began, running)| Some((*began, running.upgrade()?))) {
            // It has ended, and its answer is too old.
            Some((_, running)) if running.peek().is_some() => Found::Nothing,
            Some((began, running)) => Found::Running(began, running),
            None => Found::Nothing,
        }
    }

    /// Shares a new request, unless another caller was quicker.
    fn begin(self: &Arc<Self>, ask: impl Future<Output = T> + Send + 'static) -> Running<T> {
        let mut state = self.state();
        let running = state.running.as_ref().and_then(|(_, running)| running.upgrade());
        if let Some(running) = running.filter(|running| running.peek().is_none()) {
            return running;
        }
        // From now on, callers wait for the running request, and none needs the old answer.
        state.answer = None;
        let (slot, began) = (Arc::clone(self), clock::instant());
        let request = async move {
            let answer = ask.await;
            slot.state().answer = Some((began, answer.clone()));
            answer
        };
        let running = request.boxed().shared();
        state.running = running.downgrade().map(|weak| (began, weak));
        running
    }
}

impl<T> Slot<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
