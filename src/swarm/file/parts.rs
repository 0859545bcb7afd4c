//! A file that is divided among several `ConfigMap`s.
//!
//! Each *part* contains the lists of the workers that [`part`] assigns to it, in the format of an
//! undivided file, with two more lines: its index, and the number of parts. The streams that these
//! workers release are stored beside it. Its version is that of the *head* with which it was last
//! written, and no worker needs to read another part.
//!
//! The head is the `ConfigMap` that would hold the undivided file, and contains only a state:
//!
//! ```yaml
//! epoch: 14
//! parts:
//! - 14
//! - 9
//! ```
//!
//! The head is written first, by compare-and-swap, so that one operator decides each epoch; then
//! the parts that the head assigns to this epoch, each by its own compare-and-swap. So only the
//! writer of the head of an epoch writes parts of it, and a part has one content at each version. A
//! part that is older than its head states was decided and not written, or may still arrive from an
//! operator that hangs: it is rewritten under the next head before anything relies on it, and late
//! writes fail.
use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Files, Malformed, Version, render_part, yaml};
use crate::{
    placement::part,
    swarm::handover::{Epoch, Name, Published},
};

/// The contents of the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version of the whole.
    pub epoch: Epoch,
    /// As of the one file.
    pub barrier: Option<Epoch>,
    /// At which version each part was last written.
    pub parts: Vec<Epoch>,
}

impl Head {
    /// Its text, under [`STATE_KEY`](super::STATE_KEY).
    #[must_use]
    pub fn render(&self) -> String {
        yaml(&Text { epoch: self.epoch, barrier: self.barrier, parts: self.parts.clone() })
    }

    /// Parses the text.
    ///
    /// # Errors
    /// When it has an invalid format, with the line.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let read: Read = serde_yaml::from_str(text).map_err(Malformed::State)?;
        Ok(Self {
            epoch: read.epoch.0,
            barrier: read.barrier.map(|version| version.0),
            parts: read.parts.into_iter().map(|version| version.0).collect(),
        })
    }
}

#[derive(Serialize)]
struct Text {
    epoch: Epoch,
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier: Option<Epoch>,
    parts: Vec<Epoch>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map with `epoch` and `parts`")]
struct Read {
    epoch: Version,
    barrier: Option<Version>,
    parts: Vec<Version>,
}

/// Divides a file into its parts.
#[must_use]
pub fn divide(published: &Published, parts: u32) -> Vec<Published> {
    let empty = Published { epoch: published.epoch, ..Published::default() };
    let mut all = vec![empty; parts.max(1) as usize];
    let of = |worker: &Name| part::of(worker, parts) as usize;
    for (worker, share) in &published.shares {
        all[of(worker)].shares.insert(worker.clone(), share.clone());
    }
    for (key, since) in &published.releasing {
        all[of(&key.1)].releasing.insert(key.clone(), *since);
    }
    for (worker, streams) in &published.next {
        all[of(worker)].next.insert(worker.clone(), streams.clone());
    }
    for (worker, uid) in &published.outdated {
        all[of(worker)].outdated.insert(worker.clone(), uid.clone());
    }
    all
}

/// The parts put together again, under a head.
#[must_use]
pub fn unite<'a>(head: &Head, parts: impl IntoIterator<Item = &'a Published>) -> Published {
    let mut all = Published { epoch: head.epoch, barrier: head.barrier, ..Published::default() };
    for part in parts {
        all.shares.extend(clones(&part.shares));
        all.next.extend(clones(&part.next));
        all.releasing.extend(clones(&part.releasing));
        all.outdated.extend(clones(&part.outdated));
    }
    all
}

fn clones<K: Clone, V: Clone>(map: &BTreeMap<K, V>) -> impl Iterator<Item = (K, V)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone()))
}

/// The writes for a new file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The new head.
    pub head: Head,
    /// The parts that change, by number, each at the version of the head.
    pub parts: Vec<(u32, Published)>,
}

/// The difference between a file and the contents of its parts, as far as these are right.
#[must_use]
pub fn change(next: &Published, there: &[Option<Arc<Published>>], parts: u32) -> Change {
    let head = Head { epoch: next.epoch, barrier: next.barrier, parts: vec![] };
    let mut change = Change { head, parts: vec![] };
    for (part, i) in divide(next, parts).into_iter().zip(0..) {
        let stands = there.get(i as usize).and_then(Option::as_ref).filter(|there| {
            // Workers that wait for a barrier must find a version from there on in their part.
            there.epoch >= next.barrier.unwrap_or(0)
                && there.shares == part.shares
                && there.next == part.next
                && there.releasing == part.releasing
                && there.outdated == part.outdated
        });
        change.head.parts.push(stands.map_or(next.epoch, |there| there.epoch));
        if stands.is_none() {
            change.parts.push((i, part));
        }
    }
    change
}

/// The texts of one part.
#[must_use]
pub fn render(published: &Published, part: u32, parts: u32) -> Files {
    render_part(published, Some((part, parts)))
}

/// Returns the number of parts into which a file must be divided so that each, with this many
/// further bytes, has at most `most`; `None` if that takes more parts than allowed.
#[must_use]
pub fn needed(published: &Published, most: usize, from: u32) -> Option<u32> {
    (from.max(2)..=MOST).find(|parts| {
        let mut divided = divide(published, *parts).into_iter().zip(0..);
        divided.all(|(published, part)| {
            let Files { config, state } = render(&published, part, *parts);
            config.len() + state.len() <= most
        })
    })
}

/// The most parts: as many watches and, under a barrier, as many writes. 32 MiB are a million
/// streams.
pub const MOST: u32 = 32;

#[cfg(test)]
mod tests;
