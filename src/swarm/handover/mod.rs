//! The exclusivity protocol.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The version of a file.
pub type Epoch = u64;

/// What the `ConfigMap` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The version.
    pub epoch: Epoch,
    /// The lists.
    pub shares: BTreeMap<Arc<str>, Share>,
    /// Stream and worker that is to let go of it: the version that said so.
    pub releasing: BTreeMap<(Arc<str>, Arc<str>), Epoch>,
    /// Everybody has to acknowledge this version first.
    pub barrier: Option<Epoch>,
}

/// One list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The streams.
    pub streams: Vec<Arc<str>>,
    /// When it last changed.
    pub version: Epoch,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// UID.
    pub uid: Arc<str>,
    /// Ready.
    pub ready: bool,
    /// Being deleted.
    pub terminating: bool,
    /// Never runs anything again.
    pub stopped: bool,
    /// Acknowledged.
    pub loaded: Option<Epoch>,
    /// The file was at least at this version when it was created.
    pub born: Option<Epoch>,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// Is to have streams.
    pub wanted: bool,
    /// Its pod.
    pub pod: Option<Pod>,
    /// What later pods read at least.
    pub successor: Option<Epoch>,
}

/// How workers learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Eviction.
    DeletePod,
    /// Annotation.
    HotReload,
    /// Nothing.
    None,
}

/// Rules.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Two phases.
    pub exclusive: bool,
    /// How workers learn.
    pub strategy: Strategy,
    /// How many may be unavailable.
    pub max_unavailable: usize,
    /// Wait for others on their way to the same worker.
    pub gather: bool,
    /// Wait for targets.
    pub await_targets: bool,
}

/// Where streams are to be.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// In the order of the spec.
    pub owner: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// Why a stream leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No stream any more.
    Removed,
    /// Its worker is not wanted.
    Gone,
    /// Elsewhere.
    Balance,
}

impl Reason {
    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Gone => "gone",
            Self::Balance => "balance",
        }
    }
}

/// To a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Evict.
    Evict {
        /// Worker.
        worker: Arc<str>,
        /// UID.
        uid: Arc<str>,
    },
    /// Annotate.
    Nudge {
        /// Worker.
        worker: Arc<str>,
        /// UID.
        uid: Arc<str>,
        /// Version.
        epoch: Epoch,
    },
}

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The next file.
    pub publish: Option<Published>,
    /// Let go.
    pub freed: Vec<(Arc<str>, Arc<str>)>,
    /// Taken.
    pub revoked: Vec<(Arc<str>, Arc<str>, Reason)>,
    /// Given.
    pub granted: Vec<(Arc<str>, Arc<str>)>,
    /// To pods.
    pub refresh: Vec<Refresh>,
    /// Nobody's.
    pub free: Vec<Arc<str>>,
}

/// One step.
#[must_use]
pub fn step(
    published: &Published,
    target: &Target,
    workers: &BTreeMap<Arc<str>, Worker>,
    highest: Epoch,
    rules: &Rules,
) -> Step {
    let mut step = Step::default();
    let epoch = published.epoch.max(highest) + 1;
    let acked = |pod: &Pod, at: Epoch| pod.loaded.is_some_and(|l| l >= at && l <= published.epoch);
    let mut next = published.clone();
    next.releasing.retain(|(stream, name), at| {
        let worker = workers.get(name);
        let successor = worker.and_then(|w| w.successor).is_none_or(|s| s >= *at);
        let freed = match worker.and_then(|w| w.pod.as_ref()) {
            None => successor,
            Some(pod) => (pod.stopped && successor) || acked(pod, *at),
        };
        if freed {
            step.freed.push((Arc::clone(stream), Arc::clone(name)));
        }
        !freed
    });
    if let Some(at) = next.barrier {
        let all = workers.values().filter_map(|w| w.pod.as_ref()).filter(|pod| !pod.stopped);
        let all = all.into_iter().all(|pod| acked(pod, at));
        if all {
            next.barrier = None;
        }
    }
    let wanted = |name: &Arc<str>| workers.get(name).is_some_and(|w| w.wanted);
    let ready = |name: &Arc<str>| {
        workers.get(name).and_then(|w| w.pod.as_ref()).is_some_and(|p| p.ready && !p.terminating)
    };
    let goal: BTreeMap<_, _> = target.owner.iter().cloned().collect();
    let mut lists: BTreeMap<Arc<str>, Vec<Arc<str>>> =
        next.shares.iter().map(|(name, share)| (Arc::clone(name), share.streams.clone())).collect();
    let hold = rules.strategy == Strategy::DeletePod
        && rules.await_targets
        && target.owner.iter().any(|(s, to)| {
            to.as_ref().is_some_and(|to| {
                wanted(to)
                    && !ready(to)
                    && published
                        .shares
                        .iter()
                        .any(|(n, share)| n != to && wanted(n) && share.streams.contains(s))
            })
        });
    let mut moving = Vec::new();
    for (name, list) in &mut lists {
        list.retain(|stream| {
            let reason = match goal.get(stream) {
                None | Some(None) => Some(Reason::Removed),
                Some(Some(_)) if !wanted(name) => Some(Reason::Gone),
                Some(Some(to)) if to != name && wanted(to) && ready(to) && !hold => {
                    Some(Reason::Balance)
                }
                Some(_) => None,
            };
            let Some(reason) = reason else { return true };
            moving.push((Arc::clone(stream), Arc::clone(name), reason));
            false
        });
    }
    for (stream, name, reason) in moving {
        next.releasing.insert((Arc::clone(&stream), Arc::clone(&name)), epoch);
        step.revoked.push((stream, name, reason));
    }
    let owned: BTreeSet<Arc<str>> = lists.values().flatten().cloned().collect();
    let let_go: BTreeSet<Arc<str>> = next.releasing.keys().map(|(s, _)| Arc::clone(s)).collect();
    for (stream, to) in &target.owner {
        let Some(to) = to.as_ref().filter(|to| wanted(to)) else { continue };
        if owned.contains(stream) || (rules.exclusive && let_go.contains(stream)) {
            continue;
        }
        let more = rules.gather
            && rules.strategy == Strategy::DeletePod
            && workers.get(to).and_then(|w| w.pod.as_ref()).is_some_and(|pod| pod.loaded.is_some())
            && let_go.iter().any(|other| goal.get(other).is_some_and(|t| t.as_ref() == Some(to)));
        if next.barrier.is_some() || more {
            step.free.push(Arc::clone(stream));
            continue;
        }
        lists.entry(Arc::clone(to)).or_default().push(Arc::clone(stream));
        step.granted.push((Arc::clone(stream), Arc::clone(to)));
    }
    for (name, worker) in workers {
        if worker.wanted {
            lists.entry(Arc::clone(name)).or_default();
        }
    }
    lists.retain(|name, list| wanted(name) || !list.is_empty());
    let place: BTreeMap<_, _> = target.owner.iter().enumerate().map(|(i, (s, _))| (s, i)).collect();
    next.shares = lists
        .into_iter()
        .map(|(name, mut streams)| {
            let old = published.shares.get(&name);
            let same = old.is_some_and(|old| {
                old.streams.iter().collect::<BTreeSet<_>>() == streams.iter().collect()
            });
            if same {
                return (name, old.cloned().unwrap_or_default());
            }
            streams.sort_by_key(|stream| place.get(stream));
            (name, Share { streams, version: epoch })
        })
        .collect();
    if next != *published {
        next.epoch = epoch;
        step.publish = Some(next);
    }
    let current = step.publish.as_ref().unwrap_or(published);
    let mut away = workers
        .values()
        .filter(|w| w.wanted && !w.pod.as_ref().is_some_and(|p| p.ready && !p.terminating))
        .count();
    let mut due: Vec<_> = workers
        .iter()
        .filter_map(|(name, worker)| {
            let pod = worker.pod.as_ref().filter(|p| !p.terminating && !p.stopped)?;
            let at = current.shares.get(name)?.version;
            let behind = match (pod.loaded, pod.born) {
                (Some(loaded), _) => loaded < at,
                (None, Some(born)) => born < at,
                (None, None) => true,
            };
            let holds = current.releasing.keys().any(|(_, n)| n == name);
            (behind && worker.wanted).then_some((!holds, name, pod))
        })
        .collect();
    due.sort_by_key(|(last, name, _)| (*last, Arc::clone(name)));
    for (_, name, pod) in due {
        match rules.strategy {
            Strategy::HotReload => step.refresh.push(Refresh::Nudge {
                worker: Arc::clone(name),
                uid: Arc::clone(&pod.uid),
                epoch: current.epoch,
            }),
            Strategy::DeletePod if !pod.ready && pod.loaded.is_some() => {
                step.refresh
                    .push(Refresh::Evict { worker: Arc::clone(name), uid: Arc::clone(&pod.uid) });
            }
            Strategy::DeletePod if pod.ready && away < rules.max_unavailable => {
                away += 1;
                step.refresh
                    .push(Refresh::Evict { worker: Arc::clone(name), uid: Arc::clone(&pod.uid) });
            }
            _ => {}
        }
    }
    step
}
