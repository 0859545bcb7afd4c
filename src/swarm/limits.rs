//! The limits of a `Swarm`: its author must not exhaust the operator, which serves all namespaces.
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

use super::watches::WorkloadFacts;
use crate::{api::swarm::WorkloadKind, controller::Error};

/// Maximum number of workers, ready or not. The schema allows `autoscale` the same number; a
/// cluster has 5,000 nodes at most, and a worker costs the operator about a kilobyte.
pub const WORKERS: u32 = 10_000;

/// The most streams: half as many again as the 100,000 that are measured. Each costs the operator
/// some hundred bytes and the time to place it.
pub const STREAMS: usize = 150_000;

/// The most bytes of streams that the last answers of a Swarm's workers may take: of 150,000
/// streams with two owners each.
pub const ANSWERS: usize = 32 << 20;

/// The memory of an id beside its characters.
const OVERHEAD: usize = 48;

/// Maximum number of characters of an id, as in the schema.
pub const ID: usize = 253;

/// The most bytes that the names of one text may have together. The API server keeps no `ConfigMap`
/// of more than 1 MiB, and an escape makes three bytes of two (`"\L"`): more names than that come
/// of aliases, by which a short text repeats a long one many times.
pub const NAMES: usize = LARGEST_TEXT / 2 * 3;

/// The most bytes of a text with streams, as of a `ConfigMap`: the API server's limit.
pub const LARGEST_TEXT: usize = 1 << 20;

/// Refuses a workload of more workers than are served, before anything is made for each of them.
///
/// # Errors
/// The field, the number of entries, and the allowed number.
pub fn workers(kind: WorkloadKind, name: &str, workload: &WorkloadFacts) -> Result<(), Error> {
    let replicas = workload.replicas;
    if replicas <= WORKERS {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "spec.workload.name: {} {} has {replicas} replicas, and a Swarm has at most {WORKERS} workers: scale it \
         down, or divide the streams among several Swarms; workers keep what they have",
        kind.as_str(),
        name
    )))
}

/// Refuses a list of more streams than are served.
///
/// # Errors
/// The number of entries, and the allowed number.
pub fn streams(count: usize) -> Result<(), String> {
    if count <= STREAMS {
        return Ok(());
    }
    Err(format!("has {count} streams, and a Swarm has at most {STREAMS}"))
}

/// The memory of an id in an answer, in bytes.
#[must_use]
pub fn kept(id: &str) -> usize {
    id.len() + OVERHEAD
}

/// Refuses answers that take too much together.
///
/// # Errors
/// The allowed size of all.
pub fn answers(size: usize) -> Result<(), String> {
    if size <= ANSWERS {
        return Ok(());
    }
    Err(format!(
        "the workers of this Swarm report more streams than the operator keeps ({} MiB)",
        ANSWERS >> 20
    ))
}

/// Refuses a text that is too long to be read.
///
/// # Errors
/// How long it is, and may be.
pub fn text(text: &str) -> Result<(), String> {
    if text.len() <= LARGEST_TEXT {
        return Ok(());
    }
    Err(format!("has {} bytes, and at most {LARGEST_TEXT} are read", text.len()))
}

/// Something with names in it.
pub trait Named {
    /// Returns their size: at least one byte each.
    fn room(&self) -> usize;

    /// Succeeds if each of them is short enough.
    ///
    /// # Errors
    /// The length of one, and the allowed length.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The size of one name: in the text it takes at least a separator.
#[must_use]
pub fn room(name: &str) -> usize {
    name.len() + 1
}

/// Refuses a name that is too long; an empty one is checked elsewhere.
///
/// # Errors
/// Its length, and the allowed length. The name itself is too long to report.
pub fn name(what: &str, name: &str) -> Result<(), String> {
    let count = name.chars().count();
    if count <= ID {
        return Ok(());
    }
    Err(format!("{what} has {count} characters, and at most {ID} are allowed"))
}

/// A list that keeps no more than a text can express without repetition.
#[derive(Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Named> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Named> Visitor<'de> for Items<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let (mut items, mut room) = (Vec::new(), 0);
                while let Some(item) = seq.next_element::<T>()? {
                    item.check().map_err(A::Error::custom)?;
                    room += item.room();
                    fits(room).map_err(A::Error::custom)?;
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// Refuses names that take more room than a text has.
///
/// # Errors
/// The allowed amount.
pub fn fits(room: usize) -> Result<(), String> {
    if room <= NAMES {
        return Ok(());
    }
    Err(format!("the names in it have more than {NAMES} bytes: aliases repeat them"))
}
