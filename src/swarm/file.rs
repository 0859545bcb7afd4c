//! The file that workers read, and the state beside it: two keys of one `ConfigMap`, so that both
//! change in one write.
//!
//! The workers' file has the shape of the original operator, which workers of any author can read:
//!
//! ```yaml
//! workloads:
//!   swarm-worker-0:
//!     jobs:
//!     - stream:xxrtve1
//!     next: ["stream:cars:new"]
//!     version: 12
//! version: 14
//! ```
//!
//! `next` is there only if streams will come. It is on one line, because a worker that reads line
//! by line, and does not know it, must not take these streams for its own.
//!
//! The state, which no worker needs, says what is releasing and whether there is a barrier. It
//! carries the hash of the workers' file that was written with it, which shows whether that one was
//! edited since. Streams are listed by worker and epoch: a stream takes as much room while it is
//! releasing as when it is owned, so that a `ConfigMap` that held the one file holds the next.
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Error as _, IgnoredAny, MapAccess, Visitor},
};

use super::{
    handover::{Epoch, LARGEST_EPOCH, Name, Published, Share},
    limits::{self, List, Named},
    natural_sort,
};
use crate::placement::hash;

pub mod parts;
pub(crate) mod stored;

/// The key of the state.
pub const STATE_KEY: &str = "handover.yml";

/// The two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// For the workers.
    pub config: String,
    /// The state, under [`STATE_KEY`].
    pub state: String,
}

/// The parsed contents of two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The plain content: a stream that two workers have is listed for both, until the next step
    /// takes it from the second.
    pub published: Published,
    /// Streams that are listed more than once, with the worker that keeps them.
    pub duplicates: Vec<Duplicate>,
    /// The author.
    pub origin: Origin,
}

/// A stream that is listed more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Its id.
    pub stream: Name,
    /// The worker that has it and keeps it.
    pub keeper: Name,
    /// The other worker that has it; the same one if one list has it twice.
    pub other: Name,
}

/// The author of the workers' file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is as it was written together with the state.
    Ours,
    /// One of the two has changed since: what workers have read is not known
    /// ([`Published::distrusted`]).
    Edited,
    /// There is no state beside it, so it is unknown what workers have read.
    Foreign,
}

/// A text that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The workers' file.
    #[error("the workers' file: {0}")]
    Config(#[source] serde_yaml::Error),
    /// The state. The streams that are being released are then unknown.
    #[error("{STATE_KEY}: {0}")]
    State(#[source] serde_yaml::Error),
}

/// The texts of a file. Workers and releases are in natural order, streams in that of their lists.
///
/// # Panics
/// Never: text, numbers and maps have a form in YAML.
#[must_use]
pub fn render(published: &Published) -> Files {
    render_part(published, None)
}

/// The same, of one of several parts: which one, and of how many.
fn render_part(published: &Published, part: Option<(u32, u32)>) -> Files {
    let mut shares: Vec<_> = published.shares.iter().collect();
    shares.sort_by(|(a, _), (b, _)| natural_sort::compare(a, b));
    let next: Vec<_> = shares.iter().map(|(worker, _)| published.next.get(*worker)).collect();
    let config = Config {
        workloads: Workloads { shares, next: &next },
        part: part.map(|(part, _)| part),
        parts: part.map(|(_, parts)| parts),
        version: published.epoch,
    };
    let config = with_next(&quoted(yaml(&config)), next.iter().copied().flatten());
    let mut grouped: BTreeMap<(&Name, Epoch), Vec<&Name>> = BTreeMap::new();
    for ((stream, worker), since) in &published.releasing {
        grouped.entry((worker, *since)).or_default().push(stream);
    }
    let releases =
        grouped.into_iter().map(|((worker, epoch), streams)| Releases { worker, epoch, streams });
    let mut releasing: Vec<_> = releases.collect();
    releasing.sort_by(|a, b| natural_sort::compare(a.worker, b.worker).then(a.epoch.cmp(&b.epoch)));
    let outdated = published.outdated.iter().map(|(worker, uid)| (&**worker, &**uid)).collect();
    let (config_hash, barrier) = (fingerprint(&config), published.barrier);
    let state = State { config: config_hash, barrier, releasing, outdated };
    Files { state: yaml(&state), config }
}

/// Parses the texts. A missing version is the highest one beside a list, or 0; a text without
/// content is an empty file.
///
/// # Errors
/// When one of them has an invalid format, with the line.
pub fn parse(config: &str, state: Option<&str>) -> Result<Parsed, Malformed> {
    let read: Option<ReadConfig> = serde_yaml::from_str(config).map_err(Malformed::Config)?;
    let read = read.unwrap_or_default();
    let (mut shares, mut coming) = (BTreeMap::new(), BTreeMap::new());
    let mut keepers: BTreeMap<Name, Name> = BTreeMap::new();
    let mut duplicates = Vec::new();
    for (worker, load) in read.workloads.map_or_else(BTreeMap::new, |workloads| workloads.0) {
        let ReadWorkload { jobs, next, version } = load.unwrap_or_default();
        let names = |list: Option<List<Id>>| -> Vec<Name> {
            list.unwrap_or_default().0.into_iter().map(|id| id.0).collect()
        };
        let (streams, next) = (names(jobs), names(next));
        if !next.is_empty() {
            coming.insert(worker.clone(), next);
        }
        for stream in &streams {
            if let Some(keeper) = keepers.insert(stream.clone(), worker.clone()) {
                keepers.insert(stream.clone(), keeper.clone());
                let (stream, other) = (stream.clone(), worker.clone());
                duplicates.push(Duplicate { stream, keeper, other });
            }
        }
        shares.insert(worker, Share { streams, version: version.map_or(0, |version| version.0) });
    }
    let versions = shares.values().map(|share| share.version);
    let epoch = read.version.map_or_else(|| versions.max().unwrap_or(0), |version| version.0);
    let mut published = Published { epoch, shares, next: coming, ..Published::default() };
    let mut origin = Origin::Foreign;
    if let Some(text) = state {
        let state: ReadState = serde_yaml::from_str(text).map_err(Malformed::State)?;
        if state.parts.is_some() {
            let text = "the file has several parts, of which this is the head";
            return Err(Malformed::State(serde_yaml::Error::custom(text)));
        }
        let ours = state.config.is_some_and(|hash| *hash.0 == *fingerprint(config));
        origin = if ours { Origin::Ours } else { Origin::Edited };
        published.barrier = state.barrier.map(|version| version.0);
        let outdated = state.outdated.iter();
        published.outdated =
            outdated.map(|(worker, uid)| (worker.as_str().into(), uid.as_str().into())).collect();
        for ReadReleases { worker, epoch, streams } in state.releasing.unwrap_or_default().0 {
            for stream in streams.0 {
                let since = published.releasing.entry((stream.0, worker.0.clone())).or_default();
                *since = (*since).max(epoch.0);
            }
        }
    }
    Ok(Parsed { published, duplicates, origin })
}

fn yaml(content: &impl Serialize) -> String {
    // Strings and numbers cannot fail to be written into a string.
    serde_yaml::to_string(content).unwrap_or_default()
}

fn fingerprint(config: &str) -> String {
    let mut text = String::from("h");
    let _ = write!(text, "{:016x}", hash::of(config));
    text
}

#[derive(Serialize)]
struct Config<'a> {
    workloads: Workloads<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<u32>,
    version: Epoch,
}

/// The workers in their order, and the coming streams of each.
struct Workloads<'a> {
    shares: Vec<(&'a Name, &'a Share)>,
    next: &'a [Option<&'a Vec<Name>>],
}

#[derive(Serialize)]
struct Workload<'a> {
    jobs: Vec<&'a str>,
    /// The place of [`with_next`].
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<()>,
    version: Epoch,
}

impl Serialize for Workloads<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.shares.iter().zip(self.next).map(|((worker, share), next)| {
            let jobs = share.streams.iter().map(|stream| &**stream).collect();
            (
                &***worker,
                Workload { jobs, next: next.is_some().then_some(()), version: share.version },
            )
        }))
    }
}

/// Writes these lists in place of the empty ones, each on one line.
fn with_next<'a>(config: &str, lists: impl Iterator<Item = &'a Vec<Name>>) -> String {
    const PLACE: &str = "\n    next: null\n";
    let mut parts = config.split(PLACE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (list, part) in lists.zip(parts) {
        let list: Vec<_> = list.iter().map(|stream| in_quotes(stream)).collect();
        let _ = write!(text, "\n    next: [{}]\n{part}", list.join(", "));
    }
    text
}

/// A text in double quotes, which YAML of any version reads, and JSON if it is ASCII.
fn in_quotes(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            ' '..='~' => write!(quoted, "{c}"),
            _ => write!(quoted, "\\U{:08x}", u32::from(c)),
        };
    }
    quoted + "\""
}

#[derive(Serialize)]
struct State<'a> {
    config: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier: Option<Epoch>,
    releasing: Vec<Releases<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    outdated: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct Releases<'a> {
    #[serde(serialize_with = "text")]
    worker: &'a Name,
    epoch: Epoch,
    #[serde(serialize_with = "texts")]
    streams: Vec<&'a Name>,
}

fn text<S: Serializer>(name: &Name, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name)
}

fn texts<S: Serializer>(names: &[&Name], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().map(|name| &***name))
}

#[derive(Default, Deserialize)]
#[serde(expecting = "a map with `workloads` and `version`")]
struct ReadConfig {
    workloads: Option<ReadWorkloads>,
    version: Option<Version>,
}

struct ReadWorkloads(BTreeMap<Name, Option<ReadWorkload>>);

#[derive(Default, Deserialize)]
#[serde(expecting = "a map with `jobs` and `version`")]
struct ReadWorkload {
    jobs: Option<List<Id>>,
    next: Option<List<Id>>,
    version: Option<Version>,
}

/// Ids may be longer than those of a spec: the file may be the original's.
impl Named for Id {
    fn room(&self) -> usize {
        limits::room(&self.0)
    }
}

impl Named for ReadReleases {
    fn room(&self) -> usize {
        self.worker.room() + self.streams.0.iter().map(Named::room).sum::<usize>()
    }
}

#[derive(Deserialize)]
#[serde(expecting = "a map with `releasing`")]
struct ReadState {
    config: Option<Id>,
    /// Of a head.
    parts: Option<IgnoredAny>,
    barrier: Option<Version>,
    releasing: Option<List<ReadReleases>>,
    #[serde(default)]
    outdated: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map with `worker`, `epoch` and `streams`")]
struct ReadReleases {
    worker: Id,
    epoch: Version,
    streams: List<Id>,
}

/// A map with unique keys: neither of two lists of one worker may be lost.
impl<'de> Deserialize<'de> for ReadWorkloads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = ReadWorkloads;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from workers to their jobs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut entries, mut room) = (BTreeMap::new(), 0);
                while let Some((worker, load)) = map.next_entry::<Id, Option<ReadWorkload>>()? {
                    let lists = load.iter().flat_map(|load| load.jobs.iter().chain(&load.next));
                    room += lists.flat_map(|list| &list.0).map(Named::room).sum::<usize>();
                    limits::fits(room).map_err(A::Error::custom)?;
                    if entries.contains_key(&worker.0) {
                        return Err(A::Error::custom(format!("{} is listed twice", worker.0)));
                    }
                    entries.insert(worker.0, load);
                }
                Ok(ReadWorkloads(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A name: text, or a whole number without the quotes it should have.
struct Id(Name);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name (text; in quotes if it could be something else)")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Ok(Id(text.into()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                Ok(Id(number.to_string().into()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Id, E> {
                Ok(Id(number.to_string().into()))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A whole number that every reader of JSON keeps.
struct Version(Epoch);

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Version;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a version (a whole number from 0 to {LARGEST_EPOCH})")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Version, E> {
                if number > LARGEST_EPOCH {
                    return Err(E::invalid_value(de::Unexpected::Unsigned(number), &self));
                }
                Ok(Version(number))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// Words that mean a boolean, nothing, or a sign, in any case.
const WORDS: [&str; 12] =
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<"];

/// Quotes names of streams and workers that readers of YAML 1.1 take for something else than text:
/// `on` for true, `12:30` for 750, `=` for nothing that they know. Many workers' libraries are such
/// readers, and quotes mean the same to all. Quoted names stay as they are.
fn quoted(config: String) -> String {
    // A name of several lines could be read as an entry. No pod has such a name.
    let odd = config.split('\n').any(|line| line.starts_with("  ?"));
    let mistaken = |line| around_name(line).filter(|(_, name, _)| is_other(name));
    if odd || !config.split('\n').any(|line| mistaken(line).is_some()) {
        return config;
    }
    let lines = config.split('\n').map(|line| match mistaken(line) {
        Some((before, name, after)) => format!("{before}'{}'{after}", name.replace('\'', "''")),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A line of the file that is a stream (`    - ID`) or a worker (`  NAME:`): the text before the
/// name, the name, and the text after it. Further lines of a longer text are indented further.
fn around_name(line: &str) -> Option<(&str, &str, &str)> {
    if let Some(name) = line.strip_prefix("    - ") {
        return Some((&line[..6], name, ""));
    }
    let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
    Some((&line[..2], name.strip_suffix(':')?, ":"))
}

/// Reports whether some reader may parse this as something other than text. It includes more than
/// necessary: numbers, dates and times have many forms, and quotes do no harm.
fn is_other(name: &str) -> bool {
    if WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        return true;
    }
    // Ruby's symbols.
    if name.starts_with(':') {
        return true;
    }
    let number = name.trim_start_matches(['+', '-']);
    let may = |c: char| c.is_ascii_hexdigit() || "_:.,+- oxtTzZ".contains(c);
    number.starts_with(|c: char| c.is_ascii_digit() || c == '.') && number.chars().all(may)
}

#[cfg(test)]
mod tests;
