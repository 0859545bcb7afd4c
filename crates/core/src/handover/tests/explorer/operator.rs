//! The operator of the small worlds: the real `step`, applied to its observations.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use super::model::{File, STREAMS, Set, State, WORKERS, World, has};
use crate::handover::{
    Epoch, Name, Pod, Published, Refresh, Rules, Share, Step, Target, Worker, step,
};

/// The function used for `step`: the original, or one with a weakened rule.
pub(super) type StepFunction =
    fn(&Published, &Target, &BTreeMap<Name, Worker>, Epoch, &Rules) -> Step;

const WORKER: [&str; WORKERS] = ["w-0", "w-1", "w-2"];
const STREAM: [&str; STREAMS] = ["a", "b", "c"];

/// The decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decided {
    pub write: Option<File>,
    pub evict: Set,
}

/// The known facts about one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    wanted: bool,
    pod: Option<SeenPod>,
    confirmed: u8,
    successor: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SeenPod {
    ready: bool,
    terminating: bool,
    stopped: bool,
    loaded: Option<u8>,
    born: Option<u8>,
}

type View = (File, u8, u8, [Seen; WORKERS]);

pub(super) struct Operator<'a> {
    step: &'a StepFunction,
    rules: Rules,
    decided: RefCell<HashMap<View, Decided>>,
    /// The kinds of actions that it has taken.
    pub done: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Operator<'a> {
    pub(super) fn new(step: &'a StepFunction, rules: Rules) -> Self {
        Self { step, rules, decided: RefCell::default(), done: RefCell::default() }
    }

    pub(super) fn decide(&self, world: &World<'_>, state: &State) -> Decided {
        let view = Self::view(world, state);
        if let Some(decided) = self.decided.borrow().get(&view) {
            return *decided;
        }
        let (_, to) = world.wish(state);
        let names = STREAM.into_iter().zip(to.chars()).filter(|(_, place)| *place != 'x');
        let target: Vec<(Name, Option<Name>)> = names
            .map(|(stream, place)| {
                let worker = place.to_digit(10).and_then(|w| usize::try_from(w).ok());
                (stream.into(), worker.map(|w| WORKER[w].into()))
            })
            .collect();
        let seen = WORKER.into_iter().zip(view.3).take(world.plot.workers);
        let workers = seen.map(|(name, seen)| (name.into(), seen.worker())).collect();
        let published = published(&state.file);
        let step = (self.step)(&published, &target, &workers, state.highest.into(), &self.rules);
        self.note(&published, &step, &workers);
        let decided = Decided {
            write: step.publish.as_ref().map(file),
            evict: step.refresh.iter().fold(0, |set, refresh| match refresh {
                Refresh::Evict { worker, .. } => set | 1 << place(&WORKER, worker),
                Refresh::Nudge { .. } => set,
            }),
        };
        self.decided.borrow_mut().insert(view, decided);
        decided
    }

    fn view(world: &World<'_>, state: &State) -> View {
        let plot = &world.plot;
        let seen = std::array::from_fn(|w| {
            let cached = state.cache[w];
            let pod = if plot.cached { cached.pod } else { state.pods[w] };
            let live = pod.is_some_and(|pod| !pod.terminating && !pod.stopped);
            let in_range = w < world.wish(state).0;
            Seen {
                wanted: if plot.deployment { live } else { in_range },
                pod: pod.map(|pod| SeenPod {
                    ready: !pod.cut && !pod.stopped,
                    terminating: pod.terminating,
                    stopped: pod.stopped,
                    loaded: if plot.immutable { Some(pod.read) } else { pod.reported },
                    born: pod.born,
                }),
                confirmed: if plot.cached { cached.at } else { state.file.epoch },
                successor: plot.immutable.then_some(state.observed),
            }
        });
        (state.file, state.wish, state.highest, seen)
    }

    /// Records the kinds of actions.
    fn note(&self, published: &Published, step: &Step, workers: &BTreeMap<Name, Worker>) {
        let mut done = self.done.borrow_mut();
        for (_, worker) in &step.freed {
            done.insert(match workers[worker].pod {
                None => "freed: no pod",
                Some(Pod { stopped: true, .. }) => "freed: stopped",
                Some(Pod { terminating: true, .. }) => "freed: acknowledged, terminating",
                Some(_) => "freed: acknowledged",
            });
        }
        if step.granted.iter().any(|granted| published.releasing.contains_key(granted)) {
            done.insert("given back");
        }
        done.extend(step.revoked.iter().map(|(_, _, cause)| match format!("{cause:?}").as_str() {
            "Moved" => "moved",
            "Unwanted" => "unwanted",
            "Removed" => "removed",
            "Unassigned" => "unassigned",
            _ => "duplicate",
        }));
        done.extend(step.publish.as_ref().filter(|_| step.granted.is_empty()).map(|_| "no grant"));
        done.extend((!step.refresh.is_empty()).then_some("refreshed"));
        done.extend((step.refresh.len() > 1).then_some("two refreshed"));
        let cleared = step.publish.as_ref().is_some_and(|next| next.barrier.is_none());
        done.extend((published.barrier.is_some() && cleared).then_some("barrier cleared"));
        let barred = step.publish.as_ref().is_some_and(|next| next.barrier.is_some());
        done.extend((published.barrier.is_none() && barred).then_some("barrier set"));
    }
}

impl Seen {
    fn worker(self) -> Worker {
        let pod = self.pod.map(|pod| Pod {
            uid: "uid".into(),
            ready: pod.ready,
            terminating: pod.terminating,
            stopped: pod.stopped,
            loaded: pod.loaded.map(Into::into),
            heir: None,
            born: pod.born.map(Into::into),
        });
        let successor = self.successor.map(Into::into);
        Worker { wanted: self.wanted, pod, confirmed: self.confirmed.into(), successor }
    }
}

fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap()
}

fn published(file: &File) -> Published {
    let mut published = Published {
        epoch: file.epoch.into(),
        barrier: Some(file.barrier.into()).filter(|barrier| *barrier > 0),
        ..Published::default()
    };
    for (w, worker) in WORKER.into_iter().enumerate() {
        if has(file.entries, w) {
            let listed = STREAM.into_iter().enumerate().filter(|(s, _)| has(file.lists[w], *s));
            let streams = listed.map(|(_, stream)| stream.into()).collect();
            let share = Share { streams, version: file.versions[w].into() };
            published.shares.insert(worker.into(), share);
        }
        for (stream, since) in STREAM.into_iter().zip(file.releasing[w]).filter(|(_, r)| *r > 0) {
            published.releasing.insert((stream.into(), worker.into()), since.into());
        }
    }
    published
}

fn file(published: &Published) -> File {
    let small = |epoch: Epoch| u8::try_from(epoch).unwrap();
    let barrier = published.barrier.map_or(0, small);
    let mut file = File { epoch: small(published.epoch), barrier, ..File::default() };
    for (worker, share) in &published.shares {
        let w = place(&WORKER, worker);
        file.entries |= 1 << w;
        file.versions[w] = small(share.version);
        for stream in &share.streams {
            file.lists[w] |= 1 << place(&STREAM, stream);
        }
    }
    for ((stream, worker), since) in &published.releasing {
        file.releasing[place(&WORKER, worker)][place(&STREAM, stream)] = small(*since);
    }
    file
}

/// The unchanged `step`.
pub(super) const STEP: StepFunction = step;
