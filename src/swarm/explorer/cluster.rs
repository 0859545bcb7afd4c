//! The API server and the workers of a small world, as a pass meets them.
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use kube::core::ObjectMeta;

use super::{
    facts::{File, facts, streams, uid},
    plot::Plot,
    pod::{Pod, has},
    world::World,
};
use crate::{
    acknowledgement::Key,
    controller::Error,
    swarm::{
        acknowledge::Answer,
        cluster::{Cluster, Eviction},
        live::file_object,
        plan::{Immutable, Part, Publish, Scale},
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
        }
    }

    /// A worker has stopped what its file does not list.
    pub(super) fn stop(&mut self, w: usize) {
        let Some(pod) = self.pods[w] else { return };
        self.pods[w] = Some(Pod { run: self.list(pod.read, &pod), ..pod });
    }

    /// A user deletes a pod: one without a node is gone at once.
    pub(super) fn delete(&mut self, w: usize) {
        let Some(pod) = self.pods[w] else { return };
        self.pods[w] = pod.scheduled.then_some(Pod { terminating: true, ..pod });
    }
}

/// One pass in a world. It may be killed before one of its writes.
pub(super) struct Small<'a> {
    plot: &'a Plot,
    world: &'a World,
    now: Instant,
    done: Mutex<Done>,
}

/// The actions of a pass.
#[derive(Default)]
pub(super) struct Done {
    /// The number of writes that are left before it is killed.
    left: Option<usize>,
    pub writes: u32,
    pub effects: Vec<Effect>,
}

impl<'a> Small<'a> {
    pub(super) fn new(
        plot: &'a Plot,
        world: &'a World,
        now: Instant,
        writes: Option<usize>,
    ) -> Self {
        let done = Done { left: writes, ..Done::default() };
        Self { plot, world, now, done: Mutex::new(done) }
    }

    pub(super) fn done(self) -> Done {
        self.done.into_inner().expect("one thread")
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().expect("one thread")
    }

    /// Succeeds if the operator still lives; counts its writes.
    fn writes(&self) -> Result<(), Error> {
        let mut done = self.lock();
        match &mut done.left {
            Some(0) => return Err(Error::Refused("killed".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        done.writes += 1;
        Ok(())
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
        Ok(Answer { version, jobs: Some(streams(self.world.list(there.read, &there))) })
    }

    fn secret(&self) -> Option<Arc<str>> {
        // These workers do not sign.
        None
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        self.writes()?;
        let swarm = &self.plot.wishes[self.world.wish].swarm;
        let on = self.world.map.as_ref().map(|map| map.facts.resource_version.clone());
        if on != publish.on {
            return Ok(None);
        }
        let object = file_object(swarm, publish);
        let metadata: ObjectMeta =
            serde_json::from_value(object["metadata"].clone()).expect("metadata");
        let facts = MapFacts::new(&metadata, Arc::new(publish.data.clone()));
        let key = &swarm.spec.config_map.key;
        self.does(Effect::Wrote(File::new(self.world.newest() + 1, facts, key, false)));
        Ok(Some(metadata))
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn part(&self, _: &Part) -> Result<bool, Error> {
        unreachable!("in these worlds one file holds all")
    }

    async fn pin(&self, immutable: Immutable) -> Result<(), Error> {
        self.writes()?;
        let swarm = &self.plot.wishes[self.world.wish].swarm;
        let epoch = epoch_of(&swarm.config_map(), &immutable.name).expect("an epoch");
        self.does(Effect::Pinned(u8::try_from(epoch).expect("small epochs")));
        Ok(())
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    async fn unpin(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn evict(&self, _: &str, uid: &str) -> Result<Eviction, Error> {
        self.writes()?;
        Ok(match self.place(uid) {
            Some(w) => {
                self.does(Effect::Evicted(w));
                Eviction::Done
            }
            None => Eviction::Gone,
        })
    }

    async fn nudge(&self, _: &str, uid: &str, epoch: u64) -> Result<bool, Error> {
        // The kubelet delivers the file sooner, which is a move of the world's.
        self.writes()?;
        let place = self.place(uid);
        let epoch = u8::try_from(epoch).expect("small epochs");
        Ok(place.map(|w| self.does(Effect::Nudged(w, epoch))).is_some())
    }

    async fn scale(&self, _: Scale) -> Result<(), Error> {
        unreachable!("these worlds scale by wishes")
    }
}
