//! The memories of all objects of one kind, which are lost with the process.
use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt};

/// Namespace and name; the namespace of a cluster-scoped object is empty.
pub type Key = (String, String);

/// The key of an object.
#[must_use]
pub fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The memory of each object; clones share them.
pub struct Memories<M>(Arc<Mutex<BTreeMap<Key, M>>>);

impl<M> Memories<M> {
    /// Returns the memory of one object.
    #[must_use]
    pub fn get(&self, key: &Key) -> M
    where
        M: Clone + Default,
    {
        self.read(key, M::clone)
    }

    /// Reads from the memory of one object; the default if it has none.
    pub fn read<T: Default>(&self, key: &Key, read: impl FnOnce(&M) -> T) -> T {
        self.all().get(key).map(read).unwrap_or_default()
    }

    /// Replaces the memory of one object.
    pub fn put(&self, key: Key, memory: M) {
        self.all().insert(key, memory);
    }

    /// Changes the memory of one object.
    pub fn change<T>(&self, key: &Key, change: impl FnOnce(&mut M) -> T) -> T
    where
        M: Default,
    {
        change(self.all().entry(key.clone()).or_default())
    }

    /// Drops the memory of one object.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Visits one object after the other, by namespace and name, and returns the results of `view`.
    /// No lock is held between two objects: one that appears or vanishes meanwhile may be missing.
    pub fn each<V>(
        &self,
        mut view: impl FnMut(&Key, &M) -> Option<V>,
    ) -> impl Iterator<Item = (Key, V)> {
        let mut last: Option<Key> = None;
        std::iter::from_fn(move || {
            let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let (key, seen) = self
                .all()
                .range::<Key, _>((from, Bound::Unbounded))
                .find_map(|(key, memory)| view(key, memory).map(|seen| (key.clone(), seen)))?;
            last = Some(key.clone());
            Some((key, seen))
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Clone for Memories<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for Memories<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> fmt::Debug for Memories<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memories").finish_non_exhaustive()
    }
}
