//! The signals by which a cache wakes the tasks that depend on it.
use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use tokio::sync::{Notify, watch};

/// Becomes true once the first list is complete, and stays true.
#[derive(Default)]
pub struct Synced(watch::Sender<bool>);

impl Synced {
    /// Notes that the first list is complete.
    pub fn reached(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the first list is complete.
    pub async fn wait(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|synced| *synced).await;
    }
}

/// Keys of objects to reconcile again, each only once no matter how often it changed. Clones share
/// them.
#[derive(Clone)]
pub struct Changes<K>(Arc<(Mutex<BTreeSet<K>>, Notify)>);

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), Notify::new())))
    }
}

impl<K: Clone + Ord> Changes<K> {
    /// Adds the keys of changed objects.
    pub fn add(&self, keys: impl IntoIterator<Item = K>) {
        let (changed, notify) = &*self.0;
        let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.extend(keys);
        if !changed.is_empty() {
            notify.notify_one();
        }
    }

    /// Returns the keys of changed objects, for ever. For one reader: each key is delivered once.
    pub fn stream(&self) -> impl Stream<Item = K> + Send + 'static + use<K>
    where
        K: Send + 'static,
    {
        let each = stream::unfold(self.clone(), |changes| async move {
            let (changed, notify) = &*changes.0;
            notify.notified().await;
            let keys = mem::take(&mut *changed.lock().unwrap_or_else(PoisonError::into_inner));
            Some((stream::iter(keys), changes))
        });
        each.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_that_changed_often_is_given_once() {
        let changes = Changes::default();
        changes.add(["b", "a"]);
        changes.add(["b"]);
        let mut keys = Box::pin(changes.stream());
        assert_eq!((keys.next().await, keys.next().await), (Some("a"), Some("b")));
        assert!(futures::poll!(keys.next()).is_pending());
        changes.add([]);
        assert!(futures::poll!(keys.next()).is_pending());
        changes.add(["b"]);
        assert_eq!(keys.next().await, Some("b"));
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_first_list() {
        let synced = Synced::default();
        let mut waits = Box::pin(synced.wait());
        assert!(futures::poll!(&mut waits).is_pending());
        synced.reached();
        waits.await;
        synced.wait().await;
    }
}
