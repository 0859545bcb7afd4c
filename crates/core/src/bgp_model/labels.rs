//! The labels of a node.
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Labels, by key. Cheap to clone: the simulation of each step copies thousands of nodes.
///
/// One text holds all of them, and a lookup compares hashes before it reads the text: with a text
/// for each key, the processor would wait for memory some hundred thousand times.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<Inner>);

#[derive(Default, PartialEq, Eq)]
struct Inner {
    /// Keys and values, one after the other.
    text: Box<str>,
    /// The positions of the labels, by key.
    marks: Box<[Mark]>,
}

/// The position of a label in the text.
#[derive(PartialEq, Eq)]
struct Mark {
    hash: u32,
    start: u32,
    /// The position at which its key ends and its value begins.
    middle: u32,
    end: u32,
}

/// A key with its hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'k> {
    key: &'k str,
    hash: u32,
}

impl<'k> Key<'k> {
    pub fn new(key: &'k str) -> Self {
        Self { key, hash: hash(key) }
    }
}

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.value(Key::new(key))
    }

    pub(super) fn value(&self, Key { key, hash }: Key) -> Option<&str> {
        let found = self.0.marks.iter().filter(|mark| mark.hash == hash);
        found.map(|mark| self.at(mark)).find(|&(of, _)| of == key).map(|(_, value)| value)
    }

    /// Returns a copy with some labels set (`Some`) or removed (`None`).
    #[must_use]
    pub fn with(&self, changes: &[(&str, Option<&str>)]) -> Self {
        let mut labels: BTreeMap<&str, &str> = self.iter().collect();
        for &(key, value) in changes {
            match value {
                Some(value) => labels.insert(key, value),
                None => labels.remove(key),
            };
        }
        labels.into_iter().collect()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.marks.iter().map(|mark| self.at(mark))
    }

    fn at(&self, mark: &Mark) -> (&str, &str) {
        let part = |from: u32, to: u32| self.0.text.get(from as usize..to as usize).unwrap_or("");
        (part(mark.start, mark.middle), part(mark.middle, mark.end))
    }
}

/// If a key occurs twice, the last value counts.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let labels: Vec<(K, V)> = labels.into_iter().collect();
        let sorted: BTreeMap<&str, &str> =
            labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let mut text = String::new();
        // Labels of a node are a few kilobytes (etcd takes no object above 1.5 MB).
        let mut write = |part: &str| {
            text.push_str(part);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        };
        let mut start = 0;
        let marks = sorted.into_iter().map(|(key, value)| {
            let (middle, end) = (write(key), write(value));
            let mark = Mark { hash: hash(key), start, middle, end };
            start = end;
            mark
        });
        let marks = marks.collect();
        Self(Arc::new(Inner { text: text.into(), marks }))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// FNV-1a (Fowler, Noll, Vo). Equal hashes of different keys only cost time.
fn hash(key: &str) -> u32 {
    let fold = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    key.bytes().fold(0x811c_9dc5, fold)
}
