//! Budgets of a resource, in total and for each user: bytes in memory, running reviews.
use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of known users of a budget above which those that are gone are forgotten.
const FORGET_FROM: usize = 256;

/// An amount that is distributed, to the longest waiter first; clones share it.
#[derive(Debug)]
pub struct Budget<K>(Arc<Inner<K>>);

impl<K> Clone for Budget<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K> {
    all: Arc<Semaphore>,
    of_one: usize,
    each: Mutex<Each<K>>,
}

#[derive(Debug)]
struct Each<K> {
    parts: HashMap<K, Weak<Semaphore>>,
    forget_from: usize,
}

/// A part of a budget, which is released when this is dropped.
#[derive(Debug)]
pub struct Share {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
}

impl<K: Hash + Eq> Budget<K> {
    /// Creates a budget of `most` in total, and `of_one` for each user.
    #[must_use]
    pub fn new(most: usize, of_one: usize) -> Self {
        let all = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let each = Mutex::new(Each { parts: HashMap::new(), forget_from: FORGET_FROM });
        Self(Arc::new(Inner { all, of_one: of_one.min(Semaphore::MAX_PERMITS), each }))
    }

    /// Returns an empty share, which can [grow](Share::grow).
    #[must_use]
    pub fn none(&self, key: K) -> Share {
        let mut each = self.0.each.lock().unwrap_or_else(PoisonError::into_inner);
        let own = each.parts.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(self.0.of_one));
            if each.parts.len() >= each.forget_from {
                each.parts.retain(|_, part| part.strong_count() > 0);
                each.forget_from = FORGET_FROM.max(2 * each.parts.len());
            }
            each.parts.insert(key, Arc::downgrade(&own));
            own
        });
        Share { all: Arc::clone(&self.0.all), own, held: Vec::new() }
    }

    /// Returns a share, if that much is free.
    #[must_use]
    pub fn take(&self, key: K, amount: u32) -> Option<Share> {
        let mut share = self.none(key);
        let own = Arc::clone(&share.own).try_acquire_many_owned(amount).ok()?;
        let all = Arc::clone(&share.all).try_acquire_many_owned(amount).ok()?;
        share.held.extend([own, all]);
        Some(share)
    }

    /// Returns a share, as soon as that much is free. Waits for ever for more than the total: use a
    /// deadline.
    pub async fn wait(&self, key: K, amount: u32) -> Share {
        let mut share = self.none(key);
        share.grow(amount).await;
        share
    }
}

impl Share {
    /// Adds to the share, as soon as that much is free. Waits for ever for more than the total: use
    /// a deadline.
    pub async fn grow(&mut self, amount: u32) {
        // Its own part first: a user that has exhausted it waits there, without blocking others.
        let own = Arc::clone(&self.own).acquire_many_owned(amount).await;
        let all = Arc::clone(&self.all).acquire_many_owned(amount).await;
        // The semaphores are never closed.
        for permit in [own, all].into_iter().flatten() {
            match self
                .held
                .iter_mut()
                .find(|held| Arc::ptr_eq(held.semaphore(), permit.semaphore()))
            {
                Some(held) => held.merge(permit),
                None => self.held.push(permit),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_one_uses_all_of_it_and_who_waits_gets_what_is_given_back() {
        let budget = Budget::new(3, 2);
        let mut first = budget.none('a');
        first.grow(1).await;
        let second = budget.take('a', 1).unwrap();
        assert!(budget.take('a', 1).is_none(), "one user has its part");
        let other = budget.take('b', 1).unwrap();
        assert!(budget.take('b', 1).is_none(), "the total is used");
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.wait('c', 2).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop((first, second));
        let third = waiting.await.unwrap();
        drop((other, third));
        assert_eq!(budget.0.all.available_permits(), 3);
    }

    #[test]
    fn those_who_are_gone_are_forgotten() {
        let budget = Budget::new(10, 1);
        let kept = budget.take(0, 1).unwrap();
        for key in 1..100 * FORGET_FROM {
            drop(budget.take(key, 1).unwrap());
        }
        assert!(budget.0.each.lock().unwrap().parts.len() <= FORGET_FROM);
        assert!(budget.take(0, 1).is_none(), "it still has its part");
        drop(kept);
    }
}
