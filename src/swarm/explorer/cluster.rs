//! The API server and the workers of a small world, as a pass meets them.
use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use kube::core::ObjectMeta;
use serde_json::{Value, from_value};

use super::{
    facts::{File, facts, streams, uid},
    plot::{Old, Plot},
    pod::{Pod, Set, has},
    world::World,
};
use crate::{
    acknowledgement::Key,
    api::Swarm,
    controller::Error,
    swarm::{
        acknowledge::Answer,
        cluster::{Cluster, Eviction},
        live::{file_object, part_object},
        plan::{Handed, Immutable, Part, Publish, Scale},
        watches::{MapFacts, PodFacts, WorkloadFacts},
        workers::epoch_of,
    },
};

/// An effect of a pass on a world.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// A worker was asked, and before its answer has stopped the streams that its file does not
    /// list.
    Asked(usize),
    Wrote(Arc<File>),
    Pinned(u8),
    Evicted(usize),
    Nudged(usize, u8),
    /// The operator tells a worker that the file of this version gives it these streams.
    Told(usize, u8, Set),
}

impl World {
    /// Something is done to it.
    pub(super) fn suffer(&mut self, effect: &Effect) {
        match effect {
            Effect::Asked(w) => self.stop(*w),
            Effect::Wrote(file) => {
                self.wrote(file);
                // The answer to a write is as good as the watch.
                self.heard = self.cached.then(|| Arc::clone(file));
            }
            Effect::Pinned(epoch) => self.template = *epoch,
            Effect::Evicted(w) => self.delete(*w),
            Effect::Nudged(w, epoch) => {
                self.pods[*w].iter_mut().for_each(|pod| pod.nudged = *epoch);
            }
            Effect::Told(w, epoch, streams) => {
                let pod = self.pods[*w].iter_mut();
                pod.for_each(|pod| (pod.told, pod.heard) = ((*epoch, *streams), false));
            }
        }
    }

    /// A worker has stopped what its file does not list.
    pub(super) fn stop(&mut self, w: usize) {
        let Some(pod) = self.pods[w] else { return };
        self.pods[w] = Some(Pod { run: self.wanted(&pod), ..pod });
    }

    /// A user deletes a pod: one without a node is gone at once.
    pub(super) fn delete(&mut self, w: usize) {
        let Some(pod) = self.pods[w] else { return };
        self.pods[w] = pod.scheduled.then_some(Pod { terminating: true, ..pod });
    }
}

/// One pass in a world. It makes these of its writes; it is killed before the others, or has made
/// them before.
pub(super) struct Small<'a> {
    plot: &'a Plot,
    world: &'a World,
    now: Instant,
    makes: Range<usize>,
    done: Mutex<Done>,
}

/// The actions of a pass.
#[derive(Default)]
pub(super) struct Done {
    /// The number of writes so far, and of those that it made.
    tried: usize,
    pub writes: u32,
    pub effects: Vec<Effect>,
}

impl<'a> Small<'a> {
    pub(super) fn new(plot: &'a Plot, world: &'a World, now: Instant, makes: Range<usize>) -> Self {
        Self { plot, world, now, makes, done: Mutex::default() }
    }

    pub(super) fn done(self) -> Done {
        self.done.into_inner().expect("one thread")
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().expect("one thread")
    }

    /// Succeeds if the operator still lives; returns false if it has made this write before.
    fn writes(&self) -> Result<bool, Error> {
        let mut done = self.lock();
        if done.tried == self.makes.end {
            return Err(Error::Refused("killed".into()));
        }
        done.tried += 1;
        let now = done.tried > self.makes.start;
        done.writes += u32::from(now);
        Ok(now)
    }

    /// Replaces a `ConfigMap`, over the very version that this write is based on.
    fn put(&self, place: usize, object: &Value) -> Result<Option<ObjectMeta>, Error> {
        let metadata: ObjectMeta = from_value(object["metadata"].clone()).expect("metadata");
        if !self.writes()? {
            return Ok(Some(metadata));
        }
        let there = self.world.maps[place].as_ref().map(|file| &file.facts.resource_version);
        if there != metadata.resource_version.as_ref() {
            return Ok(None);
        }
        let data = from_value(object["data"].clone()).expect("data");
        let facts = MapFacts::new(&metadata, Arc::new(data));
        let mut done = self.lock();
        let wrote = |effect: &&Effect| matches!(effect, Effect::Wrote(_));
        let wrote = u8::try_from(done.effects.iter().filter(wrote).count()).expect("few");
        let version = self.world.newest() + 1 + wrote;
        let key = &self.swarm().spec.config_map.key;
        done.effects.push(Effect::Wrote(File::new(version, place, facts, key, false)));
        Ok(Some(metadata))
    }

    fn put_part(&self, part: &Part) -> Result<bool, Error> {
        let place = self.swarm().parts().iter().position(|name| *name == part.name);
        let object = part_object(self.swarm(), part);
        Ok(self.put(1 + place.expect("a part"), &object)?.is_some())
    }

    fn swarm(&self) -> &Swarm {
        &self.plot.wishes[self.world.wish].swarm
    }

    fn does(&self, effect: Effect) {
        self.lock().effects.push(effect);
    }

    /// The place of this pod, if it is still there.
    fn place(&self, uid: &str) -> Option<usize> {
        let mut pods = self.world.pods.iter();
        pods.position(|pod| pod.is_some_and(|pod| self::uid(&pod) == uid))
    }
}

impl Cluster for Small<'_> {
    fn now(&self) -> Instant {
        self.now
    }

    async fn pod(&self, name: &str) -> Result<Option<PodFacts>, Error> {
        let mut pods = self.world.pods.iter().flatten();
        let pod = pods.find(|pod| *super::facts::name(pod.id) == *name);
        Ok(pod.map(|pod| facts(self.plot, pod)))
    }

    async fn pods(&self, _: &WorkloadFacts) -> Result<Vec<PodFacts>, Error> {
        Ok(self.world.pods.iter().flatten().map(|pod| facts(self.plot, pod)).collect())
    }

    async fn ask(&self, pod: &PodFacts, _: Option<&Key>) -> Result<Answer, String> {
        let place = self.place(&pod.uid).and_then(|w| Some((w, self.world.pods[w]?)));
        let Some((w, there)) = place.filter(|(_, pod)| pod.running && !pod.cut) else {
            return Err("nobody answers".into());
        };
        if has(self.plot.silent, w) {
            return Err("it answers nothing".into());
        }
        self.does(Effect::Asked(w));
        let epoch = self.world.history[usize::from(there.read)].epoch;
        let version = Some(epoch).filter(|version| *version > 0);
        let prepared = has(self.plot.prepares, w);
        let prepared = prepared.then(|| streams(there.prepared & self.world.coming(&there)));
        Ok(Answer { version, jobs: Some(streams(self.world.wanted(&there))), prepared })
    }

    fn secret(&self) -> Option<Arc<str>> {
        // These workers do not sign.
        None
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        if self.plot.old == Some(Old::HeadLast) {
            for part in &publish.parts {
                if !self.put_part(part)? {
                    return Ok(None);
                }
            }
        }
        self.put(0, &file_object(self.swarm(), publish))
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn part(&self, part: &Part) -> Result<bool, Error> {
        Ok(self.plot.old == Some(Old::HeadLast) || self.put_part(part)?)
    }

    async fn pin(&self, immutable: Immutable) -> Result<(), Error> {
        let epoch = epoch_of(&self.swarm().config_map(), &immutable.name).expect("an epoch");
        if self.writes()? {
            self.does(Effect::Pinned(u8::try_from(epoch).expect("small epochs")));
        }
        Ok(())
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    async fn unpin(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn evict(&self, _: &str, uid: &str) -> Result<Eviction, Error> {
        let now = self.writes()?;
        Ok(match self.place(uid).filter(|_| now) {
            Some(w) => {
                self.does(Effect::Evicted(w));
                Eviction::Done
            }
            None => Eviction::Gone,
        })
    }

    async fn nudge(&self, _: &str, uid: &str, epoch: u64) -> Result<bool, Error> {
        // The kubelet delivers the file sooner, which is a move of the world's.
        let now = self.writes()?;
        let place = self.place(uid).filter(|_| now);
        let epoch = u8::try_from(epoch).expect("small epochs");
        Ok(place.map(|w| self.does(Effect::Nudged(w, epoch))).is_some())
    }

    async fn grant(&self, handed: &Handed, version: u64, _: Option<&Key>) {
        let Some(w) = self.place(&handed.pod.uid) else { return };
        let set =
            handed.streams.iter().fold(0, |set, stream| set | 1 << super::facts::place(stream));
        self.does(Effect::Told(w, u8::try_from(version).expect("small epochs"), set));
    }

    async fn scale(&self, _: Scale) -> Result<(), Error> {
        unreachable!("these worlds scale by wishes")
    }
}
