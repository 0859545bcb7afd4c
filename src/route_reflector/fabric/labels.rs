//! The labels of a node.
use std::{collections::BTreeMap, sync::Arc};

/// Labels, sorted by key. Cheap to clone: thousands of nodes are copied to think through each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// The same with some labels set (`Some`) or removed (`None`).
    #[must_use]
    pub fn with(&self, changes: &[(&str, Option<&str>)]) -> Self {
        let mut labels: BTreeMap<Arc<str>, Arc<str>> = self.0.iter().cloned().collect();
        for &(key, value) in changes {
            match value {
                Some(value) => drop(labels.insert(key.into(), value.into())),
                None => drop(labels.remove(key)),
            }
        }
        Self(labels.into_iter().collect())
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// Of a key that comes twice the last value counts.
impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let sorted: BTreeMap<Arc<str>, Arc<str>> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(sorted.into_iter().collect())
    }
}
