//! Labels and annotations of nodes.
use std::{collections::BTreeMap, sync::Arc};

/// Labels or annotations, sorted by key. Keys and values are shared texts: most are the same on
/// every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Arc<[(Arc<str>, Arc<str>)]>);

impl Texts {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// Returns both, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Texts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(texts: I) -> Self {
        let sorted: BTreeMap<_, _> = texts.into_iter().collect();
        Self(sorted.into_iter().collect())
    }
}
