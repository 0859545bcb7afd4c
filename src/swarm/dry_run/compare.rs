//! Comparison of the current and the final assignment, with the reasons for differences.
use std::collections::{BTreeSet, HashMap};

use super::{DryRun, Move, Surroundings, Unplaced, WorkerPlan, refreshed};
use crate::{
    api::swarm::{Policy, Stream},
    swarm::{
        handover::{Cause, Name, Published},
        natural_sort,
        plan::word,
        settings::Settings,
    },
};

pub(super) struct Compared<'a> {
    run: &'a DryRun,
    settings: &'a Settings,
    around: &'a Surroundings,
    before: &'a Published,
    after: &'a Published,
    /// The final worker of each stream.
    owners: HashMap<&'a str, &'a Name>,
    unassigned: HashMap<&'a str, &'a Unplaced>,
    /// The dedicated workers at the end, with their streams.
    dedicated: HashMap<&'a str, &'a str>,
}

impl<'a> Compared<'a> {
    pub(super) fn new(
        run: &'a DryRun,
        settings: &'a Settings,
        around: &'a Surroundings,
        after: &'a Published,
    ) -> Self {
        let owners: HashMap<_, _> =
            after.owners().map(|(stream, worker)| (&**stream, worker)).collect();
        let dedicated = settings.streams.iter().filter(|stream| stream.dedicated);
        let dedicated =
            dedicated.filter_map(|stream| Some((&***owners.get(&*stream.id)?, &*stream.id)));
        Self {
            run,
            settings,
            around,
            before: &run.published,
            after,
            dedicated: dedicated.collect(),
            owners,
            unassigned: run.unassigned.iter().map(|one| (&*one.id, one)).collect(),
        }
    }

    /// The streams that do not stay, and how many do.
    pub(super) fn moves(&self) -> (Vec<Move>, usize) {
        let mut before: HashMap<&str, Vec<&Name>> = HashMap::new();
        for (stream, worker) in self.before.owners() {
            before.entry(stream).or_default().push(worker);
        }
        let (mut moves, mut stay) = (Vec::new(), 0);
        for stream in &self.settings.streams {
            let id = stream.id.as_str();
            let to = self.owners.get(id).copied();
            let Some(owners) = before.remove(id) else {
                moves.extend(to.map(|to| added(stream, to)));
                continue;
            };
            let stays = to.is_some_and(|to| owners.contains(&to));
            stay += usize::from(stays);
            for from in owners.into_iter().filter(|from| Some(*from) != to) {
                let (cause, why) = if stays {
                    (Cause::Duplicate, "both have it in the file".to_owned())
                } else {
                    self.why(stream, from, to)
                };
                moves.push(moved(id, Some(from), to, word(cause), why));
            }
        }
        let mut rest: Vec<_> = before.into_iter().collect();
        rest.sort_by(|(a, _), (b, _)| natural_sort::compare(a, b));
        for (id, owners) in rest {
            let why = || "it is not in the spec".to_owned();
            let removed = |from| moved(id, Some(from), None, word(Cause::Removed), why());
            moves.extend(owners.into_iter().map(removed));
        }
        (moves, stay)
    }

    /// Why a stream of the spec leaves its worker.
    fn why(&self, stream: &Stream, from: &Name, to: Option<&Name>) -> (Cause, String) {
        if !self.after.shares.contains_key(from) {
            return (Cause::Unwanted, format!("{from} is no longer a worker"));
        }
        let Some(to) = to else {
            let reason = self.unassigned.get(stream.id.as_str());
            let why = reason.map_or("no worker can take it", |one| one.meaning);
            return (Cause::Unassigned, why.to_owned());
        };
        (Cause::Moved, self.why_moved(stream, from, to))
    }

    fn why_moved(&self, stream: &Stream, from: &Name, to: &Name) -> String {
        if let Some(why) = chosen(stream, to) {
            return why;
        }
        if let Some(node) = self.node(from).filter(|node| self.around.unfit.contains(*node)) {
            return format!("node {node} of {from} is unfit");
        }
        if let Some(other) = self.dedicated.get(&**from) {
            return format!("{from} is dedicated to {other}");
        }
        let had = self.before.shares.get(from).map_or(0, |share| share.streams.len());
        if let Some(most) = self.settings.max_per_worker.filter(|most| had > *most) {
            return format!("{from} has more than maxStreamsPerWorker: {most}");
        }
        match self.settings.policy {
            Policy::Sticky => "balance".into(),
            Policy::Stateless => "policy Stateless places it there".into(),
            Policy::Contiguous => "policy Contiguous places it there".into(),
        }
    }

    fn node(&self, worker: &str) -> Option<&str> {
        self.around.view.pods.iter().find(|pod| *pod.name == *worker)?.node.as_deref()
    }

    /// Returns the changes of each worker.
    pub(super) fn workers(&self) -> Vec<WorkerPlan> {
        let mut names: Vec<&Name> =
            self.before.shares.keys().chain(self.after.shares.keys()).collect();
        names.sort_by(|a, b| natural_sort::compare(a, b));
        names.dedup();
        let each = names.into_iter().map(|name| {
            let list = |file: &'a Published| -> BTreeSet<&'a Name> {
                file.shares.get(name).into_iter().flat_map(|share| &share.streams).collect()
            };
            let (now, then) = (list(self.before), list(self.after));
            WorkerPlan {
                name: name.to_string(),
                node: self.node(name).map(str::to_owned),
                now: now.len(),
                then: then.len(),
                gains: then.difference(&now).count(),
                loses: now.difference(&then).count(),
                refresh: refreshed(&self.run.at_once.refresh, name),
            }
        });
        each.collect()
    }
}

fn added(stream: &Stream, to: &Name) -> Move {
    let why = chosen(stream, to).unwrap_or_else(|| "nobody has it".into());
    moved(&stream.id, None, Some(to), "added", why)
}

/// What the spec says about the worker of this stream.
fn chosen(stream: &Stream, to: &Name) -> Option<String> {
    if stream.pin.as_deref() == Some(&**to) {
        return Some(format!("it is pinned to {to}"));
    }
    stream.dedicated.then(|| "it has a dedicated worker".into())
}

fn moved(
    id: &str,
    from: Option<&Name>,
    to: Option<&Name>,
    reason: &'static str,
    why: String,
) -> Move {
    let (from, to) = (from.map(ToString::to_string), to.map(ToString::to_string));
    Move { stream: id.to_owned(), from, to, reason, why }
}
