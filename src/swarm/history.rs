//! The known owners of streams, from the objects in the API server.
//!
//! The `ConfigMap` is the record: file and handovers change in one write. Where it was lost,
//! replaced or edited, and this process does not remember what it wrote, any worker may run
//! anything: then every worker has to acknowledge a new file before anything is given to another (a
//! *barrier*).
use std::{collections::BTreeSet, sync::Arc};

use super::{
    acknowledge::Answer,
    file::{self, STATE_KEY, stored::fingerprint},
    handover::{BELIEVED_EPOCH, Epoch, Published, Share, believed},
    memory::Memory,
    watches::MapFacts,
};
use crate::{api::Swarm, controller::Error};

pub(crate) mod parts;

/// The known history.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The last file.
    pub published: Published,
    /// The file must be written though nothing changes: it is missing, or differs from ours.
    pub repair: Option<Repair>,
    /// The foreign contents in its place, if they can be read.
    pub edited: Option<Published>,
}

/// Why a file is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It was never written, so no worker can have read one.
    First,
    /// It was deleted, and what we wrote is known.
    Restore,
    /// It was edited, and what we wrote is known.
    Undo,
    /// Some parts do not have the version that the head states.
    Fence,
    /// It is not known what workers have read.
    Barrier,
}

impl Repair {
    /// Reports whether it repairs what another client did.
    #[must_use]
    pub fn is_of_others(self) -> bool {
        matches!(self, Self::Restore | Self::Undo)
    }
}

/// The knowledge of a pass besides the `ConfigMap`.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The memory of this process.
    pub memory: &'a Memory,
    /// The version in the status.
    pub reported: Epoch,
    /// The creation time of the `Swarm` as a version ([`made`]): without a record no version is
    /// below it.
    pub made: Epoch,
    /// True if a pod may run streams of an unknown file: it has started, and has not reported that
    /// it runs nothing.
    pub unknown_pods: bool,
    /// The reports of workers about what they run.
    pub running: &'a [(Arc<str>, Arc<Answer>)],
}

/// The creation time of a `Swarm`, in seconds since 1970; 0 if it is missing. A recreated one
/// starts above the versions of the previous one, as long as that has written less than a file a
/// second on average: then a fencing token never decreases, though nothing of the old one is left.
#[must_use]
pub fn made(swarm: &Swarm) -> Epoch {
    let time = swarm.metadata.creation_timestamp.as_ref();
    let seconds = time.map_or(0, |time| time.0.as_second());
    believed(Epoch::try_from(seconds).unwrap_or(0))
}

/// Reads the record.
///
/// # Errors
/// When a `ConfigMap` that was handed over cannot be read.
pub fn of(share: Option<&MapFacts>, key: &str, evidence: Evidence<'_>) -> Result<History, Error> {
    let memory = evidence.memory;
    let Some(share) = share else {
        return Ok(lost(None, evidence));
    };
    let config = share.data.get(key).map_or("", String::as_str);
    let state = share.data.get(STATE_KEY).map(String::as_str);
    let read = file::parse(config, state).map(|parsed| parsed.published);
    let Some(content) = &share.content else {
        // Given to us, and never written by us: the original's, or an empty place for it.
        let mut published = read.map_err(|error| {
            let text = format!("the ConfigMap of spec.configMap, key {key:?}: {error}");
            Error::Invalid(text)
        })?;
        published.barrier = None;
        if published.epoch > BELIEVED_EPOCH {
            return Err(Error::Invalid(format!(
                "the ConfigMap of spec.configMap, key {key:?}: version {} is above {BELIEVED_EPOCH}",
                published.epoch
            )));
        }
        published.epoch = published.epoch.max(evidence.made).max(evidence.reported);
        if config.is_empty() && !evidence.unknown_pods {
            return Ok(History { published, repair: Some(Repair::First), edited: None });
        }
        return Ok(History { published, repair: Some(Repair::Barrier), edited: None });
    };
    let intact = *content == fingerprint(config, state.unwrap_or_default());
    match read {
        Ok(published) if intact && published.epoch >= evidence.reported => {
            Ok(History { published, repair: None, edited: None })
        }
        read => Ok(match &memory.published {
            Some(known) => {
                let mut known = Published::clone(known);
                // Workers may have read the edited file: the next file is newer than both.
                let edited = read.ok();
                let epoch = edited.as_ref().map_or(0, |edited| believed(edited.epoch));
                known.epoch = known.epoch.max(epoch).max(evidence.reported);
                History { published: known, repair: Some(Repair::Undo), edited }
            }
            None => lost(read.ok(), evidence),
        }),
    }
}

/// Without a record that can be trusted.
fn lost(read: Option<Published>, evidence: Evidence<'_>) -> History {
    if let Some(known) = &evidence.memory.published {
        let mut known = Published::clone(known);
        known.epoch = known.epoch.max(evidence.reported);
        return History { published: known, repair: Some(Repair::Restore), edited: None };
    }
    // Without any record, workers own the streams that they report: nothing is stopped because a
    // record is missing.
    let mut published = read.map_or_else(
        || Published {
            shares: evidence.running.iter().map(|(worker, answer)| said(worker, answer)).collect(),
            ..Published::default()
        },
        |read| contested(read, evidence.running),
    );
    published.epoch = believed(published.epoch).max(evidence.reported).max(evidence.made);
    let repair = if evidence.unknown_pods { Repair::Barrier } else { Repair::First };
    if repair == Repair::First {
        published.releasing.clear();
    }
    History { published, repair: Some(repair), edited: None }
}

/// A file that may not be the last one, compared with the workers' reports: a stream that a worker
/// reports without having it in its list belongs to that worker until the worker releases it. It
/// stays in the list of another worker only if that one runs it too: a worker that reads the list
/// for the first time would start it a second time.
fn contested(mut file: Published, running: &[(Arc<str>, Arc<Answer>)]) -> Published {
    let says = |worker: &Arc<str>, stream: &str| {
        let mut answers = running.iter().filter(|(name, _)| name == worker);
        answers.any(|(_, answer)| answer.jobs().iter().any(|job| job == stream))
    };
    let each = running.iter().flat_map(|(worker, answer)| {
        answer.jobs().iter().map(move |job| (worker, Arc::<str>::from(job.as_str())))
    });
    for (worker, stream) in each {
        let listed = file.shares.get(worker).is_some_and(|share| share.streams.contains(&stream));
        if listed {
            continue;
        }
        file.releasing.entry((Arc::clone(&stream), Arc::clone(worker))).or_default();
        for (owner, share) in &mut file.shares {
            if share.streams.contains(&stream) && !says(owner, &stream) {
                share.streams.retain(|known| *known != stream);
                file.releasing.entry((Arc::clone(&stream), Arc::clone(owner))).or_default();
            }
        }
    }
    file
}

fn said(worker: &Arc<str>, answer: &Answer) -> (Arc<str>, Share) {
    let streams = answer.jobs().iter().map(|job| job.as_str().into()).collect();
    (Arc::clone(worker), Share { streams, version: answer.version.unwrap_or(0) })
}

impl History {
    /// The file that repairs the record: the lists as they are known, under a new version that
    /// every worker has to acknowledge where it matters.
    #[must_use]
    pub fn repaired(&self, highest: Epoch) -> Published {
        if self.repair == Some(Repair::Barrier) {
            return self.published.distrusted(highest);
        }
        let mut next = self.published.clone();
        next.epoch = next.next_epoch(highest);
        if self.repair == Some(Repair::Undo) {
            // A list that was edited may have been read; so may a version, which acknowledges
            // nothing.
            let edited = |worker: &Arc<str>| self.edited.as_ref()?.shares.get(worker);
            for (worker, share) in &mut next.shares {
                let same = edited(worker).is_some_and(|other| same_set(share, other));
                if !same {
                    share.version = next.epoch;
                }
            }
            next.releasing.values_mut().for_each(|epoch| *epoch = next.epoch);
            self.take_back(&mut next);
        }
        next
    }
}

impl History {
    /// Leaves streams that an edit gave to other workers with these until they release them: the
    /// previous worker may have stopped them, and would start them a second time.
    fn take_back(&self, next: &mut Published) {
        let Some(edited) = &self.edited else { return };
        for (worker, share) in &edited.shares {
            for stream in &share.streams {
                let listed = |share: &Share| share.streams.contains(stream);
                if next.shares.get(worker).is_some_and(listed) {
                    continue;
                }
                next.releasing.insert((Arc::clone(stream), Arc::clone(worker)), next.epoch);
                for (owner, share) in &mut next.shares {
                    if listed(share) {
                        share.streams.retain(|known| known != stream);
                        share.version = next.epoch;
                        let key = (Arc::clone(stream), Arc::clone(owner));
                        next.releasing.insert(key, next.epoch);
                    }
                }
            }
        }
    }
}

fn same_set(one: &Share, other: &Share) -> bool {
    let set = |share: &Share| share.streams.iter().cloned().collect::<BTreeSet<_>>();
    set(one) == set(other)
}

#[cfg(test)]
mod tests;
