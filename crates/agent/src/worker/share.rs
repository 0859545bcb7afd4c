//! The file, as one worker reads it: its own entry, and the version. It does not read the entries
//! of others, so they cannot break it.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor},
};

use super::metrics::Looked;

/// The list of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The version of the whole file, reported as soon as all of these streams run and no others.
    pub version: u64,
    /// The version at which the worker's own list last changed: the fencing token. The version of
    /// the file if there is none.
    pub epoch: u64,
    /// The streams, each once, in the order of the file.
    pub streams: Vec<Arc<str>>,
    /// The streams that will come.
    pub next: Vec<Arc<str>>,
}

impl Share {
    /// Moves streams from those that will come to those that run.
    pub fn add(&mut self, granted: &BTreeMap<Arc<str>, u64>) {
        let coming = self.next.extract_if(.., |stream| granted.contains_key(&**stream));
        self.streams.extend(coming);
    }

    /// Reports whether both contain the same streams, in any order.
    #[must_use]
    pub fn same_streams(&self, other: &Self) -> bool {
        let set = |share: &Self| share.streams.iter().cloned().collect::<BTreeSet<_>>();
        set(self) == set(other)
    }
}

/// The newest file so far.
#[derive(Clone, Debug, Default)]
pub struct Newest(Option<Arc<Share>>);

impl Newest {
    /// Returns the current list; `None` before the first.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Share>> {
        self.0.clone()
    }

    /// Adds streams that a newer file, which has not arrived yet, gives to this worker.
    pub fn add(&mut self, granted: &BTreeMap<Arc<str>, u64>) {
        if let Some(share) = &mut self.0 {
            Arc::make_mut(share).add(granted);
        }
    }

    /// Accepts another file only if it is newer: versions never go backwards.
    pub fn offer(&mut self, share: Share) -> Looked {
        if let Some(last) = &self.0
            && share.version <= last.version
        {
            if share.version == last.version && share.same_streams(last) {
                return Looked::Unchanged;
            }
            // Each handover increases the version of the file: without a newer version, this file
            // does not determine what runs.
            tracing::warn!(
                version = share.version,
                last = last.version,
                "another file whose version is not higher: not followed"
            );
            return Looked::Stale;
        }
        tracing::info!(
            version = share.version,
            epoch = share.epoch,
            streams = share.streams.len(),
            "newer file"
        );
        self.0 = Some(Arc::new(share));
        Looked::Changed
    }
}

/// Reads the share of a worker; without an entry, or with an empty one, it is empty.
///
/// `part`: the expected part of a divided file, and the number of parts.
///
/// # Errors
/// When the text is not YAML of this format, or is another part.
pub fn parse(text: &[u8], worker: &str, part: Option<(u32, u32)>) -> anyhow::Result<Share> {
    if text.trim_ascii().is_empty() {
        return Ok(Share::default());
    }
    let file = File { worker }.deserialize(serde_yaml::Deserializer::from_slice(text))?;
    // A missing entry would count as an empty list, and its version as an acknowledgement.
    let (found, wanted) =
        ((file.part, file.parts), (part.map(|p| p.0.into()), part.map(|p| p.1.into())));
    anyhow::ensure!(found == wanted, "this is {}, and not {}", which(found), which(wanted));
    let Entry { jobs, next, version: epoch } = file.entry;
    let mut seen = BTreeSet::new();
    let mut once = |list: Option<Vec<String>>| -> Vec<Arc<str>> {
        let names = list.unwrap_or_default().into_iter().map(Arc::from);
        names.filter(|stream| seen.insert(Arc::clone(stream))).collect()
    };
    let (streams, next) = (once(jobs), once(next));
    let version = file.version.unwrap_or_default();
    Ok(Share { version, epoch: epoch.unwrap_or(version), streams, next })
}

fn which(part: (Option<u64>, Option<u64>)) -> String {
    match part {
        (None, None) => "a file that is not divided".into(),
        (part, parts) => {
            let text = |n: Option<u64>| n.map_or_else(|| "?".into(), |n| n.to_string());
            format!("part {} of {}", text(part), text(parts))
        }
    }
}

#[derive(Default)]
struct Read {
    entry: Entry,
    part: Option<u64>,
    parts: Option<u64>,
    version: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Entry {
    jobs: Option<Vec<String>>,
    next: Option<Vec<String>>,
    version: Option<u64>,
}

/// The whole file; only one worker's part is kept.
struct File<'a> {
    worker: &'a str,
}

impl<'de> DeserializeSeed<'de> for File<'_> {
    type Value = Read;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Read, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = Read;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a mapping with workloads and version")
    }

    fn visit_unit<E>(self) -> Result<Read, E> {
        Ok(Read::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let mut parts = Read::default();
        let mut seen = [false; 4];
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "workloads" => {
                    once::<A::Error>(&mut seen[0], &key)?;
                    parts.entry = map.next_value_seed(Workloads { worker: self.worker })?;
                }
                "version" => {
                    once::<A::Error>(&mut seen[1], &key)?;
                    parts.version = map.next_value()?;
                }
                "part" => {
                    once::<A::Error>(&mut seen[2], &key)?;
                    parts.part = map.next_value()?;
                }
                "parts" => {
                    once::<A::Error>(&mut seen[3], &key)?;
                    parts.parts = map.next_value()?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(parts)
    }
}

/// The entries; only one is kept.
struct Workloads<'a> {
    worker: &'a str,
}

impl<'de> DeserializeSeed<'de> for Workloads<'_> {
    type Value = Entry;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Entry, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Workloads<'_> {
    type Value = Entry;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a mapping of workers")
    }

    fn visit_unit<E>(self) -> Result<Entry, E> {
        Ok(Entry::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut entry = Entry::default();
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.worker {
                once::<A::Error>(&mut seen, &key)?;
                entry = map.next_value::<Option<Entry>>()?.unwrap_or_default();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(entry)
    }
}

/// Refuses a repeated key: it is unknown which of the two is meant.
fn once<E: Error>(seen: &mut bool, key: &str) -> Result<(), E> {
    if std::mem::replace(seen, true) {
        return Err(E::custom(format_args!("{key} is there twice")));
    }
    Ok(())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8], worker: &str) -> anyhow::Result<Share> {
        super::parse(text, worker, None)
    }

    fn share(version: u64, epoch: u64, streams: &[&str]) -> Share {
        let streams = streams.iter().map(|stream| Arc::from(*stream)).collect();
        Share { version, epoch, streams, next: vec![] }
    }

    #[test]
    fn what_will_come_is_no_job() {
        let text =
            "workloads:\n  w:\n    jobs: [a]\n    next: [\"b\", \"a\", \"on\"]\nversion: 3\n";
        let next = vec!["b".into(), "on".into()];
        assert_eq!(parse(text.as_bytes(), "w").unwrap(), Share { next, ..share(3, 3, &["a"]) });
    }

    #[test]
    fn one_workers_share_of_the_file() {
        let original = "workloads:\n  swarm-worker-0:\n    jobs:\n      - stream:xxrtve1\n      \
                        - stream:cars:new\n    version: 12\n  swarm-worker-1:\n    jobs:\n      \
                        - stream:foo:new\n    version: 3\nversion: 14\n";
        for (text, expected) in [
            (original, share(14, 12, &["stream:xxrtve1", "stream:cars:new"])),
            // As the original's controller wrote it: the only version is that of the file.
            ("workloads: {w: {jobs: [a], version: 0}}\nversion: 3", share(3, 0, &["a"])),
            ("workloads: {w: {jobs: [a]}}\nversion: 3", share(3, 3, &["a"])),
            ("version: 3\nworkloads: {w: {jobs: [a, b, a]}}", share(3, 3, &["a", "b"])),
            ("workloads: {w: {jobs: null, version: null}}\nversion: 3", share(3, 3, &[])),
            ("workloads: {w: {jobs: []}}\nversion: 3", share(3, 3, &[])),
            ("workloads: {w: {}}\nversion: 3", share(3, 3, &[])),
            ("workloads: {w: null}\nversion: 3", share(3, 3, &[])),
            ("workloads: {}\nversion: 3", share(3, 3, &[])),
            ("workloads: null\nversion: 3", share(3, 3, &[])),
            ("version: 3", share(3, 3, &[])),
            ("workloads: {w: {jobs: [a]}}", share(0, 0, &["a"])),
            ("workloads: {w: {jobs: [a]}}\nversion: null", share(0, 0, &["a"])),
            // The entries of others do not matter, and neither do unknown fields.
            ("workloads: {x: 5, w: {jobs: [a], more: {}}, y: [{}]}\nversion: 3\nmore: 1", {
                share(3, 3, &["a"])
            }),
            ("{\"workloads\":{\"w\":{\"jobs\":[\"a\"]}},\"version\":3}", share(3, 3, &["a"])),
            ("", share(0, 0, &[])),
            (" \n", share(0, 0, &[])),
            ("null", share(0, 0, &[])),
            ("{}", share(0, 0, &[])),
        ] {
            let name = if text == original { "swarm-worker-0" } else { "w" };
            assert_eq!(parse(text.as_bytes(), name).unwrap(), expected, "{text}");
        }
        let other = parse(original.as_bytes(), "swarm-worker-1").unwrap();
        assert_eq!(other, share(14, 3, &["stream:foo:new"]));
        assert_eq!(parse(original.as_bytes(), "swarm-worker-2").unwrap(), share(14, 14, &[]));
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in [
            "workloads: [",
            "- a",
            "5",
            "text",
            "workloads: {w: [a]}",
            "workloads: {w: {jobs: a}}",
            "workloads: {w: {jobs: [{}]}}",
            "workloads: {w: {jobs: [a], version: later}}",
            "workloads: 5",
            "version: -1",
            "version: 1.5",
            "version: 99999999999999999999999",
            "version: '3'",
            "version: 1\nversion: 2",
            "workloads: {w: {jobs: [a]}, w: {jobs: [b]}}",
            "version: 1\n---\nversion: 2",
            "workloads: {w: &a {jobs: *a}}",
        ] {
            assert!(parse(text.as_bytes(), "w").is_err(), "{text}");
        }
        assert!(parse(b"version: \xff", "w").is_err());
    }

    /// The list is in another part, and the version of this one acknowledges nothing of it.
    #[test]
    fn another_part_is_not_read() {
        let of = |text: &str, part| super::parse(text.as_bytes(), "w", part);
        let text = "workloads: {w: {jobs: [a]}}\npart: 2\nparts: 4\nversion: 3";
        assert_eq!(of(text, Some((2, 4))).unwrap(), share(3, 3, &["a"]));
        let error = of(text, Some((2, 5))).unwrap_err().to_string();
        assert_eq!(error, "this is part 2 of 4, and not part 2 of 5");
        assert!(of(text, Some((1, 4))).is_err());
        let error = of(text, None).unwrap_err().to_string();
        assert_eq!(error, "this is part 2 of 4, and not a file that is not divided");
        let error = of("version: 3", Some((0, 2))).unwrap_err().to_string();
        assert_eq!(error, "this is a file that is not divided, and not part 0 of 2");
        // The file is still empty.
        assert_eq!(of("", Some((0, 2))).unwrap(), share(0, 0, &[]));
    }

    #[test]
    fn only_a_higher_version_is_newer() {
        let mut newest = Newest::default();
        for (offered, expected) in [
            (share(0, 0, &["a"]), Looked::Changed),
            (share(0, 0, &["b"]), Looked::Stale),
            (share(3, 3, &["a", "b"]), Looked::Changed),
            (share(3, 3, &["b", "a"]), Looked::Unchanged),
            (share(3, 2, &["a", "b"]), Looked::Unchanged),
            (share(3, 3, &["a"]), Looked::Stale),
            (share(2, 2, &["a", "b"]), Looked::Stale),
            (share(0, 0, &[]), Looked::Stale),
            (share(4, 3, &["a", "b"]), Looked::Changed),
        ] {
            assert_eq!(newest.offer(offered.clone()), expected, "{offered:?}");
        }
        assert_eq!(*newest.get().unwrap(), share(4, 3, &["a", "b"]));
    }

    #[test]
    fn another_order_is_no_other_share() {
        assert!(share(1, 1, &["a", "b"]).same_streams(&share(2, 2, &["b", "a"])));
        assert!(!share(1, 1, &["a", "b"]).same_streams(&share(1, 1, &["a"])));
    }
}
