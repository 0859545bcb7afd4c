//! The writes: files (in one `ConfigMap` or in several), and actions on pods and on the workload.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Decision, Handed, Immutable, Part, Publish, REFUSED, Scale};
use crate::{
    acknowledgement::KEY_FILE,
    controller::{Error, Verdict, contest::Rounds, verdict},
    swarm::{
        file::{
            self, STATE_KEY,
            parts::{self, Change},
        },
        handover::{Cause, Epoch, Published, Refresh, Step, Turn, Turns},
        history::Repair,
        memory::Pinned,
        report::notice,
        secret,
        settings::LARGEST_MAP,
        workers::{epoch_of, immutable_name},
    },
};

/// Number of immutable files that are kept besides the current one and the mounted ones.
const KEEP: Epoch = 2;

impl Decision<'_> {
    /// While writes of the record fail: the time until the next attempt, and what the condition
    /// says. The head of a divided file would be written without end for a part that cannot be.
    pub(super) fn held(&self) -> Option<(Duration, Verdict)> {
        let repair = self.history.repair.filter(|_| self.writes())?;
        let now = self.observed.now;
        let unwritten = self.memory.unwritten.as_ref();
        let unwritten = unwritten.and_then(|it| Some((it.rests(now)?, it.verdict.clone())));
        unwritten.or_else(|| self.contested(repair))
    }

    /// Another client changes the file again and again. Each restored file is a new version, for
    /// which workers are refreshed: so it is restored ever less often.
    fn contested(&self, repair: Repair) -> Option<(Duration, Verdict)> {
        let (rounds, at) = self.memory.restored.filter(|_| repair.is_of_others())?;
        let left = rounds.left(self.observed.now.saturating_duration_since(at))?;
        let (namespace, _) = self.swarm.key();
        let text = format!(
            "another client changes or deletes ConfigMap {namespace}/{} again and again, so that workers may read \
             lists of theirs; it is restored ever less often. kubectl get configmap --show-managed-fields \
             shows who writes it",
            self.swarm.config_map()
        );
        (!left.is_zero()).then(|| (left, verdict("Ready", None, "Contested", text)))
    }

    /// Counts the times at which the file is restored.
    pub(super) fn restores(&mut self) {
        if self.history.repair.is_some_and(Repair::is_of_others) {
            let now = self.observed.now;
            let rounds = self.memory.restored.map_or_else(Rounds::default, |(rounds, at)| {
                rounds.again(now.saturating_duration_since(at))
            });
            self.memory.restored = Some((rounds, now));
        }
    }

    fn data(&self, published: &Published) -> BTreeMap<String, String> {
        let file::Files { config, state } = file::render(published);
        let files =
            [(self.swarm.spec.config_map.key.clone(), config), (STATE_KEY.to_owned(), state)];
        files.into_iter().chain(self.key()).collect()
    }

    /// The key for answers, as stored next to the file.
    fn key(&self) -> Option<(String, String)> {
        self.memory.secret.text().map(|key| (KEY_FILE.to_owned(), key.to_string()))
    }

    /// Republishes the file unchanged if the key for answers is missing beside it: an older
    /// operator wrote it, or the key was removed.
    pub(super) fn keyed(&self) -> Option<Publish> {
        let share = self.view.share.as_ref().filter(|_| self.history.repair.is_none())?;
        let missing = secret::standing(self.view).is_none();
        self.memory.secret.text().filter(|_| missing)?;
        Some(Publish {
            published: Arc::new(self.history.published.clone()),
            data: self.texts(&self.history.published).ok()?.0,
            on: Some(share.resource_version.clone()),
            parts: vec![],
            notices: vec![],
            moves: BTreeMap::new(),
            grants: vec![],
        })
    }

    /// Pods that answer nothing and have not been refreshed since their list changed, this file's
    /// changes among them.
    fn outdated(&self, next: &Published) -> BTreeMap<Arc<str>, Arc<str>> {
        let pods =
            self.workers.all.iter().filter_map(|worker| Some((worker, worker.pod.as_ref()?)));
        let outdated = pods.filter(|(worker, pod)| {
            let known = self.memory.reports.get(&pod.uid).is_some_and(|r| r.loaded.is_some());
            let changed =
                next.shares.get(&worker.name).is_some_and(|share| share.version == next.epoch);
            let before = next.outdated.get(&worker.name) == Some(&pod.uid);
            // Pods that wait for the first file have mounted nothing before it.
            let waits =
                !pod.started && self.memory.born.get(&pod.uid).is_none_or(|born| *born == 0);
            let mounts = pod.started || pod.node.is_some() && !waits;
            mounts && !pod.stopped && !known && (changed || before)
        });
        outdated.map(|(worker, pod)| (Arc::clone(&worker.name), Arc::clone(&pod.uid))).collect()
    }

    /// The whole contents of a next file.
    pub(super) fn complete(&self, next: &Published) -> Published {
        Published { outdated: self.outdated(next), ..next.clone() }
    }

    pub(super) fn publish(&self, step: &Step) -> Result<Option<Publish>, Error> {
        let Some(next) = &step.publish else { return Ok(None) };
        let next = &self.complete(next);
        let (data, parts) = self.texts(next)?;
        let mut notices = Vec::new();
        match self.history.repair {
            Some(Repair::Undo) => {
                let note = "someone else wrote to the ConfigMap with the lists of streams; it was restored";
                notices.push(notice(true, "ForeignEdit", note.into()));
            }
            Some(Repair::Restore) => {
                let note = "the ConfigMap with the lists of streams was deleted; it was restored";
                notices.push(notice(true, "ConfigMapRestored", note.into()));
            }
            Some(Repair::Barrier) => {
                let note = "it is unknown what workers have read: all of them must acknowledge a \
                            new file before any stream moves";
                notices.push(notice(true, "HistoryUnknown", note.into()));
            }
            Some(Repair::First | Repair::Fence) | None => {}
        }
        let mut moves: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (_, _, cause) in &step.revoked {
            *moves.entry(word(*cause)).or_default() += 1;
        }
        if !moves.is_empty() {
            let by: Vec<_> = moves.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            let note =
                format!("version {}: streams that leave a worker: {}", next.epoch, by.join(", "));
            notices.push(notice(false, "Revoked", note));
        }
        if !step.granted.is_empty() {
            let note = format!(
                "version {}: {} streams assigned to a worker",
                next.epoch,
                step.granted.len()
            );
            notices.push(notice(false, "Granted", note));
        }
        Ok(Some(Publish {
            published: Arc::new(next.clone()),
            data,
            parts,
            on: self.view.share.as_ref().map(|share| share.resource_version.clone()),
            notices,
            moves,
            grants: self.grants(step),
        }))
    }

    /// Returns the granted streams that their workers have prepared.
    fn grants(&self, step: &Step) -> Vec<Handed> {
        let mut streams: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (stream, worker) in &step.granted {
            streams.entry(worker).or_default().push(stream);
        }
        let each = self.workers.all.iter().filter_map(|worker| {
            let (pod, granted) = (worker.pod.as_ref()?, streams.remove(&worker.name)?);
            let prepared = worker.handover.pod.as_ref()?.prepared.as_ref()?;
            let granted = granted.into_iter().filter(|stream| prepared.contains(*stream));
            let streams: Vec<_> = granted.cloned().collect();
            (!streams.is_empty()).then(|| Handed { pod: pod.clone(), streams })
        });
        each.collect()
    }

    /// The immutable file of the current version, unless the template has it.
    pub(super) fn immutable(&self, current: &Published) -> Option<Immutable> {
        let (share, workload) = (self.swarm.config_map(), self.view.workload.as_ref()?);
        let name = immutable_name(&share, current.epoch);
        let ours = |map: &str| map == share || epoch_of(&share, map).is_some();
        let volumes: Vec<_> = workload
            .mounts
            .iter()
            .filter(|(volume, map)| ours(map) && **map != *name && workload.plain.contains(volume))
            .map(|(volume, _)| volume.clone())
            .collect();
        let data = self.data(current);
        (!volumes.is_empty()).then_some(Immutable { name, epoch: current.epoch, data, volumes })
    }

    /// Immutable files that no pod mounts and that are older than those that are kept.
    pub(super) fn obsolete(&mut self) -> Vec<String> {
        let Some(Pinned { epoch, maps }) = self.memory.pinned.take() else { return vec![] };
        let share = self.swarm.config_map();
        let mounted = |name: &str| {
            self.view.pods.iter().any(|pod| pod.mounts.iter().any(|mount| **mount == *name))
        };
        // The one before may be in the hands of a controller that has not seen the new template.
        let old = |name: &str| epoch_of(&share, name).is_some_and(|of| of + KEEP < epoch);
        maps.into_iter().filter(|name| !mounted(name) && old(name)).collect()
    }

    /// The workers that wait for their next eviction, so that the others have the budget. So do
    /// those that may still say what they have read.
    pub(super) fn turns(&self) -> Turns {
        let now = self.observed.now;
        let mut turns = self.memory.evictions.turns(now);
        for worker in &self.workers.all {
            if worker.pod.as_ref().is_some_and(|pod| self.memory.may_answer(pod)) {
                let turn = turns.entry(Arc::clone(&worker.name)).or_default();
                *turn = Turn { rests: true, silent_since: None, ..*turn };
            }
        }
        for (worker, at) in &self.memory.refused {
            if now.saturating_duration_since(*at) < REFUSED {
                let turn = turns.entry(Arc::clone(worker)).or_default();
                *turn = Turn { rests: true, silent_since: None, ..*turn };
            }
        }
        turns
    }

    /// Returns the actions on pods. A pod that has its annotation is not written again.
    pub(super) fn refresh(&self, step: &Step) -> Vec<Refresh> {
        let nudged = |worker: &Arc<str>, epoch: Epoch| {
            let known = self.workers.all.iter().find(|known| known.name == *worker);
            let nudged = known.and_then(|known| known.pod.as_ref()?.nudged);
            nudged.is_some_and(|nudged| nudged >= epoch)
        };
        let due = step.refresh.iter().filter(|refresh| match refresh {
            Refresh::Evict { .. } => true,
            Refresh::Nudge { worker, epoch, .. } => !nudged(worker, *epoch),
        });
        due.cloned().collect()
    }

    /// Returns the number of workers that the streams need: a dedicated stream has one for itself,
    /// the others share theirs by weight and number, and a pinned one needs its own to exist.
    fn needed(&self, per_worker: f64) -> u32 {
        let (mut total, mut ordinary, mut dedicated) = (0.0, 0_usize, 0_u32);
        for (stream, weight) in self.settings.streams.iter().zip(&self.weights) {
            if stream.dedicated {
                dedicated += 1;
            } else {
                total += weight;
                ordinary += 1;
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 0, and the cast saturates"
        )]
        let by_weight = (total / per_worker).ceil().max(0.0) as u32;
        let most = self.settings.max_per_worker;
        let by_number = most.map_or(0, |most| ordinary.div_ceil(most.max(1)));
        let shared = by_weight
            .max(u32::try_from(by_number).unwrap_or(u32::MAX))
            // Streams that weigh nothing need a worker all the same.
            .max(u32::from(ordinary > 0));
        let start = self.view.workload.as_ref().map_or(0, |workload| workload.start);
        let prefix = format!("{}-", self.settings.workload);
        let pins = self.settings.streams.iter().filter_map(|stream| stream.pin.as_deref());
        let last = pins.filter_map(|pin| pin.strip_prefix(&prefix)?.parse::<u32>().ok()).max();
        let pinned = last.map_or(0, |last| last.saturating_add(1).saturating_sub(start));
        shared.saturating_add(dedicated).max(pinned)
    }

    /// Returns the change of the number of workers, if autoscaling is on and the number differs.
    pub(super) fn scale(&mut self) -> Option<Scale> {
        let now = self.observed.now;
        let replicas = self.view.workload.as_ref()?.replicas;
        let changed = self.memory.replicas.is_none_or(|(known, _)| known != replicas);
        if changed {
            // After a start the last change is unknown: it may have been a moment ago.
            self.memory.replicas = Some((replicas, now));
        }
        let rules = self.settings.autoscale.as_ref()?;
        // Scaled to nothing is switched off, as for the horizontal pod autoscaler.
        if replicas == 0 {
            return None;
        }
        let wanted = self.needed(rules.per_worker).clamp(rules.min, rules.max.max(rules.min));
        let (_, since) = self.memory.replicas?;
        let rests = now.saturating_duration_since(since) < rules.cooldown;
        // Weights that could not be measured are no reason.
        (wanted != replicas && !rests && !self.is_blind())
            .then_some(Scale { from: replicas, to: wanted })
    }
}

/// The reason why a stream left its worker, as a label of the metric.
pub(in crate::swarm) fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Moved => "moved",
        Cause::Unwanted => "unwanted",
        Cause::Unassigned => "unassigned",
        Cause::Removed => "removed",
        Cause::Duplicate => "duplicate",
    }
}

type Data = BTreeMap<String, String>;

impl Decision<'_> {
    /// Returns the contents for the `ConfigMap` of the file, and for the parts that change with it.
    pub(super) fn texts(&self, next: &Published) -> Result<(Data, Vec<Part>), Error> {
        let names = self.swarm.parts();
        if names.is_empty() {
            let data = self.data(next);
            let size = size(&data);
            return if size > LARGEST_MAP {
                Err(self.too_long(next, size))
            } else {
                Ok((data, vec![]))
            };
        }
        let files = self.swarm.spec.config_map.files;
        let Change { head, parts } = parts::change(next, &self.parts, files);
        let mut written = Vec::with_capacity(parts.len());
        for (i, part) in parts {
            let file::Files { config, state } = parts::render(&part, i, files);
            let key = self.swarm.spec.config_map.key.clone();
            let data = Data::from([(key, config), (STATE_KEY.to_owned(), state)]);
            let size = size(&data);
            if size > LARGEST_MAP {
                return Err(self.too_long(next, size));
            }
            let map = self.view.parts.get(i as usize).and_then(Option::as_ref);
            let on = map.map(|map| map.resource_version.clone());
            written.push(Part { name: names[i as usize].clone(), data, on });
        }
        let state = (STATE_KEY.to_owned(), head.render());
        Ok(([state].into_iter().chain(self.key()).collect(), written))
    }

    fn too_long(&self, next: &Published, size: usize) -> Error {
        let config_map = &self.swarm.spec.config_map;
        let names = config_map.key.len() + STATE_KEY.len();
        let room = LARGEST_MAP.saturating_sub(names);
        let needed = parts::needed(next, room, config_map.files.saturating_add(1));
        let advice = match needed.filter(|_| !self.settings.immutable) {
            Some(files) => format!(
                "divide it with spec.configMap.files, at least {files}; that cannot change, so delete \
                 the Swarm with --cascade=orphan and apply it again"
            ),
            None => "divide the streams among several Swarms, each with a separate workload".into(),
        };
        Error::Invalid(format!(
            "spec: the file of {} streams would have {size} bytes in one ConfigMap, which holds \
             {LARGEST_MAP}: {advice}; workers keep what they have",
            self.ids.len()
        ))
    }
}

fn size(data: &Data) -> usize {
    data.iter().map(|(key, value)| key.len() + value.len()).sum()
}
