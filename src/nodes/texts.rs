//! Labels and annotations of nodes: most nodes have the same keys, which are in memory once.
use std::{collections::BTreeMap, sync::Arc};

/// Labels or annotations, by key. Nodes with the same keys can share the list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// Sorted.
    keys: Arc<[Arc<str>]>,
    /// In the order of the keys.
    values: Arc<[Arc<str>]>,
}

impl Texts {
    /// Joins values and their keys, which are sorted.
    pub(super) fn new(keys: Arc<[Arc<str>]>, values: Arc<[Arc<str>]>) -> Self {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "sorted by key");
        debug_assert_eq!(keys.len(), values.len(), "one value for each");
        Self { keys, values }
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let place = self.keys.binary_search_by(|known| (**known).cmp(key)).ok()?;
        self.values.get(place)
    }

    /// Returns the keys, sorted.
    pub(super) fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    /// Returns the values, in the order of the keys.
    pub(super) fn values(&self) -> &[Arc<str>] {
        &self.values
    }

    /// Returns both, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.keys.iter().zip(&*self.values)
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Texts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(texts: I) -> Self {
        let sorted: BTreeMap<_, _> = texts.into_iter().collect();
        let (keys, values): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
        Self { keys: keys.into(), values: values.into() }
    }
}
