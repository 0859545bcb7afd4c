//! Labels and annotations of nodes: what most nodes have in common is in memory once.
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Labels or annotations, by key. Nodes with the same ones, apart from one text of their own, can
/// share the list of them.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// `None` if there are none.
    list: Option<Arc<List>>,
    /// The value where the list has none: that of `kubernetes.io/hostname`, mostly.
    own: Option<Arc<str>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct List {
    /// Sorted.
    keys: Arc<[Arc<str>]>,
    /// In the order of the keys; `None` where each node has its own.
    values: Box<[Option<Arc<str>>]>,
}

/// Lists that nodes share, each stored once.
#[derive(Default)]
pub(super) struct Lists {
    keys: HashSet<Arc<[Arc<str>]>>,
    lists: HashSet<Arc<List>>,
}

impl Texts {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        self.value(self.keys().binary_search_by(|known| (**known).cmp(key)).ok()?)
    }

    /// Returns the keys, sorted.
    pub(super) fn keys(&self) -> &[Arc<str>] {
        self.list.as_ref().map_or(&[], |list| &list.keys)
    }

    /// Returns the value at a place among the keys.
    pub(super) fn value(&self, place: usize) -> Option<&Arc<str>> {
        self.list.as_ref()?.values.get(place)?.as_ref().or(self.own.as_ref())
    }

    /// Returns both, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let keys = self.keys().iter().enumerate();
        keys.filter_map(|(place, key)| Some((key, self.value(place)?)))
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.list, &other.list) {
            (Some(list), Some(other)) => Arc::ptr_eq(list, other),
            (None, None) => true,
            _ => false,
        };
        (same && self.own == other.own) || self.iter().eq(other.iter())
    }
}

impl Eq for Texts {}

impl Lists {
    /// Returns texts with the same keys as others, which they share.
    pub fn with_keys(&mut self, sorted: Vec<(Arc<str>, Arc<str>)>) -> Texts {
        if sorted.is_empty() {
            return Texts::default();
        }
        let (keys, values) = sorted.into_iter().map(|(key, value)| (key, Some(value))).unzip();
        Texts { list: Some(Arc::new(self.list(keys, values))), own: None }
    }

    /// Returns texts that are shared with those that differ only in the value of the key `own`, and
    /// of other keys with the same value.
    pub fn shared(&mut self, sorted: Vec<(Arc<str>, Arc<str>)>, own: &str) -> Texts {
        if sorted.is_empty() {
            return Texts::default();
        }
        let (keys, mut values): (Vec<_>, Vec<_>) =
            sorted.into_iter().map(|(key, value)| (key, Some(value))).unzip();
        let place = keys.binary_search_by(|key: &Arc<str>| (**key).cmp(own));
        let own = place.ok().and_then(|place| values[place].take());
        if own.is_some() {
            values.iter_mut().filter(|value| **value == own).for_each(|value| *value = None);
        }
        let list = self.list(keys, values);
        let known = self.lists.get(&list).cloned();
        let list = known.unwrap_or_else(|| {
            let list = Arc::new(list);
            self.lists.insert(Arc::clone(&list));
            list
        });
        Texts { list: Some(list), own }
    }

    fn list(&mut self, keys: Vec<Arc<str>>, values: Vec<Option<Arc<str>>>) -> List {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "sorted by key");
        let keys = self.keys.get(&*keys).cloned().unwrap_or_else(|| {
            let keys: Arc<[_]> = keys.into();
            self.keys.insert(Arc::clone(&keys));
            keys
        });
        List { keys, values: values.into() }
    }

    /// Returns the number of stored lists.
    pub fn len(&self) -> usize {
        self.keys.len() + self.lists.len()
    }

    /// Drops the lists that no node has.
    pub fn forget_unused(&mut self) {
        self.lists.retain(|list| Arc::strong_count(list) > 1);
        self.keys.retain(|keys| Arc::strong_count(keys) > 1);
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Texts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(texts: I) -> Self {
        let sorted: BTreeMap<_, _> = texts.into_iter().collect();
        Lists::default().with_keys(sorted.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
        texts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    /// Labels of two nodes that differ in their own name are one list; `get` and `iter` show the
    /// name of each.
    #[test]
    fn nodes_that_differ_in_their_own_text_share_a_list() {
        let mut lists = Lists::default();
        let mut of = |name: &str, zone: &str| {
            let labels = texts(&[("csi/node", name), ("host", name), ("zone", zone)]);
            let shared = lists.shared(labels.clone(), "host");
            assert_eq!(shared, labels.iter().cloned().collect(), "{labels:?}");
            assert!(shared.iter().map(|(k, v)| (k.clone(), v.clone())).eq(labels));
            shared
        };
        let (a, b, c) = (of("a", "x"), of("b", "x"), of("a", "y"));
        assert_eq!(a.get("csi/node").map(|name| &**name), Some("a"));
        assert_eq!(b.get("host").map(|name| &**name), Some("b"));
        assert_eq!(b.get("rack"), None);
        assert!(a != b && a != c, "they differ nevertheless");
        assert!(Arc::ptr_eq(a.list.as_ref().unwrap(), b.list.as_ref().unwrap()));
        // The keys, and one list for each zone.
        assert_eq!(lists.len(), 3);
        drop((a, b));
        lists.forget_unused();
        assert_eq!(lists.len(), 2);
        drop(c);
        lists.forget_unused();
        assert_eq!(lists.len(), 0);
    }

    /// A value that is the same by chance is no reason to be equal, or to be another.
    #[test]
    fn texts_are_equal_however_they_are_stored() {
        let mut lists = Lists::default();
        let labels = texts(&[("host", "a"), ("zone", "a")]);
        let shared = lists.shared(labels.clone(), "host");
        assert_eq!(shared, lists.with_keys(labels.clone()));
        let other = texts(&[("host", "a"), ("zone", "b")]);
        assert_ne!(shared, lists.shared(other, "host"));
        assert_eq!(Texts::default(), lists.shared(vec![], "host"));
        // Without the key, nothing is their own.
        let shared = lists.shared(labels, "rack");
        assert_eq!(shared.get("zone").map(|value| &**value), Some("a"));
    }
}
