//! Comparison of the current and the final assignment, with the reasons for differences.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{Move, Surroundings, Unplaced, WorkerPlan};
use crate::{
    api::swarm::{Policy, Stream},
    swarm::{
        handover::{Cause, Name, Published},
        natural_sort,
        plan::word,
        settings::Settings,
        watches::{PodFacts, WorkloadView},
    },
};

/// The state before and after.
pub(super) struct Compared<'a> {
    pub settings: &'a Settings,
    pub around: &'a Surroundings,
    pub before: &'a Published,
    pub after: &'a Published,
    pub unassigned: &'a [Unplaced],
    /// The simulated cluster, in the end.
    pub last: &'a WorkloadView,
}

/// An index for [`Compared::moves`].
struct Index<'a> {
    after: HashMap<&'a str, &'a Name>,
    unassigned: HashMap<&'a str, &'a Unplaced>,
    /// The dedicated workers at the end, with their streams.
    own: HashMap<&'a str, &'a str>,
    /// Those that have a list in the end.
    wanted: BTreeSet<&'a str>,
}

impl Compared<'_> {
    /// The streams that do not stay, and how many do.
    pub(super) fn moves(&self) -> (Vec<Move>, usize) {
        let index = self.index();
        let mut before: HashMap<&str, Vec<&Name>> = HashMap::new();
        for (stream, worker) in self.before.owners() {
            before.entry(stream).or_default().push(worker);
        }
        let (mut moves, mut stay) = (Vec::new(), 0);
        for stream in &self.settings.streams {
            let id = stream.id.as_str();
            let to = index.after.get(id).copied();
            match (before.remove(id).as_deref(), to) {
                (None, None) => {}
                (None, Some(to)) => moves.push(Move {
                    stream: id.to_owned(),
                    from: None,
                    to: Some(to.to_string()),
                    reason: "added",
                    why: match stream.pin.as_deref() {
                        Some(pin) if *pin == **to => format!("it is pinned to {to}"),
                        _ if stream.dedicated => "it has a dedicated worker".into(),
                        _ => "nobody has it".into(),
                    },
                }),
                (Some(owners), to) => {
                    let stays = to.is_some_and(|to| owners.contains(&to));
                    stay += usize::from(stays);
                    for from in owners.iter().filter(|from| Some(**from) != to) {
                        let (cause, why) = if stays {
                            (Cause::Duplicate, "both have it in the file".to_owned())
                        } else {
                            self.why(&index, stream, from, to)
                        };
                        moves.push(moved(id, from, to, cause, why));
                    }
                }
            }
        }
        let mut rest: Vec<_> = before.into_iter().collect();
        rest.sort_by(|(a, _), (b, _)| natural_sort::compare(a, b));
        for (id, owners) in rest {
            for from in owners {
                let why = "it is not in the spec".to_owned();
                moves.push(moved(id, from, None, Cause::Removed, why));
            }
        }
        (moves, stay)
    }

    fn index(&self) -> Index<'_> {
        let specs: HashMap<_, _> =
            self.settings.streams.iter().map(|stream| (stream.id.as_str(), stream)).collect();
        let owners = self.after.owners();
        let after: HashMap<_, _> = owners.map(|(stream, worker)| (&**stream, worker)).collect();
        let dedicated = after.iter().filter(|(id, _)| specs.get(**id).is_some_and(|s| s.dedicated));
        Index {
            own: dedicated.map(|(id, worker)| (&***worker, *id)).collect(),
            unassigned: self.unassigned.iter().map(|one| (one.id.as_str(), one)).collect(),
            wanted: self.after.shares.keys().map(|worker| &**worker).collect(),
            after,
        }
    }

    /// Why a stream of the spec leaves its worker.
    fn why(
        &self,
        index: &Index<'_>,
        stream: &Stream,
        from: &Name,
        to: Option<&Name>,
    ) -> (Cause, String) {
        if !index.wanted.contains(&**from) {
            return (Cause::Unwanted, format!("{from} is no longer a worker"));
        }
        let Some(to) = to else {
            let reason = index.unassigned.get(stream.id.as_str());
            let why = reason.map_or("no worker can take it", |one| one.meaning);
            return (Cause::Unassigned, why.to_owned());
        };
        (Cause::Moved, self.why_moved(index, stream, from, to))
    }

    fn why_moved(&self, index: &Index<'_>, stream: &Stream, from: &Name, to: &Name) -> String {
        if stream.pin.as_deref() == Some(&**to) {
            return format!("it is pinned to {to}");
        }
        if stream.dedicated {
            return "it has a dedicated worker".into();
        }
        if let Some(node) = self.unfit(from) {
            return format!("node {node} of {from} is unfit");
        }
        if let Some(other) = index.own.get(&**from) {
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

    fn unfit(&self, worker: &str) -> Option<&str> {
        let node = pod(&self.around.view, worker)?.node.as_deref()?;
        self.around.unfit.contains(node).then_some(node)
    }

    /// Returns the changes of each worker.
    pub(super) fn workers(&self, refreshes: &[(Arc<str>, &'static str)]) -> Vec<WorkerPlan> {
        let mut names: Vec<&Name> =
            self.before.shares.keys().chain(self.after.shares.keys()).collect();
        names.sort_by(|a, b| natural_sort::compare(a, b));
        names.dedup();
        let mut done: BTreeMap<&str, (usize, &'static str)> = BTreeMap::new();
        for (worker, how) in refreshes {
            let (times, last) = done.entry(worker).or_default();
            *times += 1;
            *last = how;
        }
        let each = names.into_iter().map(|name| {
            let list = |file: &Published| -> BTreeSet<Name> {
                let share = file.shares.get(name);
                share.into_iter().flat_map(|share| share.streams.iter().cloned()).collect()
            };
            let (now, then) = (list(self.before), list(self.after));
            let (times, refresh) = done.get(&**name).copied().unwrap_or((0, "none"));
            let pod = pod(&self.around.view, name).or_else(|| pod(self.last, name));
            let node = pod.and_then(|pod| pod.node.as_deref()).filter(|node| *node != "?");
            WorkerPlan {
                name: name.to_string(),
                node: node.map(str::to_owned),
                now: now.len(),
                then: then.len(),
                gains: then.difference(&now).count(),
                loses: now.difference(&then).count(),
                refresh,
                times,
            }
        });
        each.collect()
    }
}

fn pod<'a>(view: &'a WorkloadView, worker: &str) -> Option<&'a PodFacts> {
    view.pods.iter().find(|pod| *pod.name == *worker)
}

fn moved(id: &str, from: &Name, to: Option<&Name>, cause: Cause, why: String) -> Move {
    Move {
        stream: id.to_owned(),
        from: Some(from.to_string()),
        to: to.map(ToString::to_string),
        reason: word(cause),
        why,
    }
}
