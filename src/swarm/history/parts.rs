//! The same for a divided file (see [`crate::swarm::file::parts`]): its head and its parts are the
//! record, if every part has the version that the head states.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Evidence, History, Repair, contested, said};
use crate::{
    api::Swarm,
    controller::Error,
    placement::part,
    swarm::{
        file::{
            self, STATE_KEY,
            parts::{Head, unite},
            stored::{Part, fingerprint, read},
        },
        handover::{Epoch, Published},
        memory::Memory,
        watches::WorkloadView,
    },
};

/// Everything that is stored there.
struct Record {
    /// The head as we wrote it, over as many parts.
    head: Option<Head>,
    parts: Vec<Option<Part>>,
}

impl Record {
    fn of(swarm: &Swarm, view: &WorkloadView, memory: &Memory) -> Self {
        let parts = read(swarm, view, &memory.parts);
        let head = view.share.as_ref().and_then(|map| {
            let state = map.data.get(STATE_KEY)?;
            let intact = map.content.as_deref() == Some(&*fingerprint("", state));
            let head = Head::parse(state).ok().filter(|head| head.parts.len() == parts.len());
            head.filter(|_| intact)
        });
        Self { head, parts }
    }

    /// Returns the contents of each part that match the head.
    fn good(&self) -> Vec<Option<Arc<Published>>> {
        let of = |(i, part): (usize, &Option<Part>)| {
            let part = part.as_ref().filter(|part| part.intact)?;
            let wanted = *self.head.as_ref()?.parts.get(i)?;
            part.published.clone().filter(|published| published.epoch == wanted)
        };
        self.parts.iter().enumerate().map(of).collect()
    }

    /// The versions of our own parts that are older than the head states.
    fn behind(&self) -> Vec<Epoch> {
        let Some(head) = &self.head else { return vec![] };
        let there = self.parts.iter().zip(&head.parts);
        let behind = there.filter_map(|(part, wanted)| {
            let part = part.as_ref().filter(|part| part.intact)?;
            Some(part.version()).filter(|version| version < wanted)
        });
        behind.collect()
    }

    /// The readable parts.
    fn readable(&self) -> Published {
        let read = self.parts.iter().flatten().filter_map(|part| part.published.as_deref());
        unite(self.head.as_ref().unwrap_or(&Head::default()), read)
    }

    /// The highest version that anything of ours there is of.
    fn seen(&self) -> Epoch {
        let ours = self.parts.iter().flatten().filter(|part| part.intact);
        let parts = ours.map(Part::version).max().unwrap_or(0);
        self.head.as_ref().map_or(0, |head| head.epoch).max(parts)
    }
}

/// The contents of each part, if they match the head.
pub type Good = Vec<Option<Arc<Published>>>;

/// Reads the record.
///
/// # Errors
/// When a `ConfigMap` that was handed over cannot be read.
pub fn of(
    swarm: &Swarm,
    view: &WorkloadView,
    evidence: Evidence<'_>,
) -> Result<(History, Good), Error> {
    let (memory, reported) = (evidence.memory, evidence.reported);
    let record = Record::of(swarm, view, memory);
    let key = &swarm.spec.config_map.key;
    if view.share.as_ref().is_some_and(|share| share.content.is_none()) {
        // Given to us: the one file of another author.
        let history = super::of(view.share.as_ref(), key, evidence)?;
        return Ok((history, vec![None; record.parts.len()]));
    }
    let good = record.good();
    let current = record.head.as_ref().filter(|head| head.epoch >= reported);
    if let Some(head) = current
        && good.iter().all(Option::is_some)
    {
        let published = unite(head, good.iter().flatten().map(|part| &**part));
        return Ok((History { published, repair: None, edited: None }, good));
    }
    let readable = record.readable();
    let behind = current.is_some() && record.behind().len() + count(&good) == good.len();
    // Apart from missing parts, one that is neither current nor behind is not ours.
    let there = record.parts.iter().flatten().count();
    let damaged =
        view.share.is_some() && current.is_none() || there > count(&good) + record.behind().len();
    let seen = record.seen().max(reported);
    // A process that remembers less than what is stored was not the last writer.
    let known = memory.published.as_deref().filter(|known| known.epoch >= seen).cloned();
    let edited = damaged.then(|| readable.clone());
    let highest = record.parts.iter().flatten().map(Part::version).max().unwrap_or(0).max(seen);
    let (mut published, repair, edited) = match known {
        Some(known) if behind => (known, Repair::Fence, None),
        Some(known) if damaged => (known, Repair::Undo, edited),
        Some(known) => (known, Repair::Restore, None),
        None if behind => (readable, Repair::Fence, None),
        None => {
            let published = lists(&record, view, key, readable, &evidence);
            let first = if evidence.unknown_pods { Repair::Barrier } else { Repair::First };
            (published, first, None)
        }
    };
    if repair == Repair::First {
        published.releasing = BTreeMap::new();
        published.barrier = None;
    }
    if repair == Repair::Barrier || repair == Repair::First {
        published.epoch = published.epoch.max(evidence.made);
    }
    published.epoch = published.epoch.max(highest);
    Ok((History { published, repair: Some(repair), edited }, good))
}

fn count(good: &Good) -> usize {
    good.iter().flatten().count()
}

/// Combines the lists from all sources: the parts; the one file that existed before them; the
/// workers. What a worker says counts where nothing can be read of its part, and contests what
/// another part says.
fn lists(
    record: &Record,
    view: &WorkloadView,
    key: &str,
    readable: Published,
    evidence: &Evidence<'_>,
) -> Published {
    let data = view.share.as_ref().map(|share| &share.data);
    let one = data
        .and_then(|data| file::parse(data.get(key)?, data.get(STATE_KEY).map(String::as_str)).ok());
    if readable.shares.is_empty()
        && let Some(one) = one
    {
        return contested(one.published, evidence.running);
    }
    let count = u32::try_from(record.parts.len()).unwrap_or(u32::MAX);
    let is_gone = |worker: &str| {
        let part = record.parts.get(part::of(worker, count) as usize);
        part.is_none_or(|part| part.as_ref().is_none_or(|part| part.published.is_none()))
    };
    // A list that can be read says whose a stream is, unless its worker says otherwise.
    let listed: BTreeSet<_> = readable.owners().map(|(stream, _)| Arc::clone(stream)).collect();
    let mut all = readable;
    for (worker, answer) in evidence.running {
        if listed.is_empty() || is_gone(worker) {
            let (worker, mut share) = said(worker, answer);
            share.streams.retain(|stream| !listed.contains(stream));
            all.shares.entry(worker).or_insert(share);
        }
    }
    contested(all, evidence.running)
}

/// The last file, for questions to workers: of an epoch that every part has reached, because a pod
/// of a part that is behind has not read a newer one.
#[must_use]
pub fn published(swarm: &Swarm, view: &WorkloadView, memory: &Memory) -> Option<Arc<Published>> {
    let record = Record::of(swarm, view, memory);
    let known = memory.published.as_ref();
    let behind = record.behind().into_iter().min();
    if behind.is_none() && known.is_some_and(|known| known.epoch >= record.seen()) {
        return known.cloned();
    }
    let mut published = match known {
        Some(known) if known.epoch >= record.seen() => Published::clone(known),
        _ if record.parts.iter().all(Option::is_none) => return known.cloned(),
        _ => record.readable(),
    };
    published.epoch = behind.unwrap_or(published.epoch).min(published.epoch);
    Some(Arc::new(published))
}

#[cfg(test)]
mod tests;
