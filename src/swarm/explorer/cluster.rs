//! The API server and the workers of a small world, as a pass meets them.
use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;

use super::world::{Plot, World, facts, streams, worker};
use crate::{
    acknowledgement::Key,
    controller::Error,
    swarm::{
        acknowledge::Answer,
        ground::{MapFacts, PodFacts, WorkloadFacts},
        live::file_object,
        pass::{Cluster, Eviction},
        plan::{Immutable, Publish},
    },
};

/// Between two passes: longer than anything is waited for.
const PAUSE: Duration = Duration::from_hours(1);

/// One pass in a world. It may be killed before one of its writes.
pub(super) struct Small<'a> {
    plot: &'a Plot,
    world: Mutex<&'a mut World>,
    /// How many writes are left before it is killed.
    writes: Mutex<Cell<Option<usize>>>,
    began: Instant,
}

impl<'a> Small<'a> {
    pub(super) fn new(
        plot: &'a Plot,
        world: &'a mut World,
        began: Instant,
        writes: Option<usize>,
    ) -> Self {
        Self { plot, world: Mutex::new(world), writes: Mutex::new(Cell::new(writes)), began }
    }

    /// Whether the operator still lives; a write of it is counted.
    fn writes(&self) -> Result<(), Error> {
        let writes = self.writes.lock().expect("one thread");
        match writes.get() {
            Some(0) => return Err(Error::Refused("killed".into())),
            Some(left) => writes.set(Some(left - 1)),
            None => {}
        }
        self.world.lock().expect("one thread").writes += 1;
        Ok(())
    }
}

impl Cluster for Small<'_> {
    fn now(&self) -> Instant {
        self.began + PAUSE * self.world.lock().expect("one thread").passes
    }

    async fn pod(&self, name: &str) -> Result<Option<PodFacts>, Error> {
        let w = worker(name);
        Ok(self.world.lock().expect("one thread").pods[w].map(|pod| facts(w, &pod)))
    }

    async fn pods(&self, _: &WorkloadFacts) -> Result<Vec<PodFacts>, Error> {
        let pods = self.world.lock().expect("one thread").pods;
        let each = pods.iter().enumerate().filter_map(|(w, pod)| Some(facts(w, pod.as_ref()?)));
        Ok(each.collect())
    }

    async fn ask(&self, pod: &PodFacts, _: Option<&Key>) -> Result<Answer, String> {
        let w = worker(&pod.name);
        let mut world = self.world.lock().expect("one thread");
        let there = world.pods[w].filter(|there| facts(w, there).uid == pod.uid);
        let Some(mut there) = there.filter(|there| there.running && !there.cut) else {
            return Err("nobody answers".into());
        };
        if self.plot.silent {
            return Err("it answers nothing".into());
        }
        // Whoever answers has stopped what the file does not list.
        there.run = world.list(there.read, w);
        let epoch = world.history[usize::from(there.read)].epoch;
        world.pods[w] = Some(there);
        let version = Some(epoch).filter(|version| *version > 0);
        Ok(Answer { version, jobs: streams(there.run) })
    }

    fn secret(&self) -> Option<Arc<str>> {
        // These workers do not sign.
        None
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        self.writes()?;
        let mut world = self.world.lock().expect("one thread");
        let swarm = &self.plot.wishes[world.wish].swarm;
        let on = world.map.as_ref().map(|map| map.resource_version.clone());
        if on != publish.on {
            return Ok(None);
        }
        let object = file_object(swarm, publish);
        let metadata: ObjectMeta =
            serde_json::from_value(object["metadata"].clone()).expect("metadata");
        let facts = MapFacts::new(&metadata, Arc::new(publish.data.clone()));
        world.wrote(facts, &swarm.spec.config_map.key, false);
        Ok(Some(metadata))
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn pin(&self, _: Immutable) -> Result<(), Error> {
        unreachable!("these worlds have no immutable files")
    }

    async fn evict(&self, worker: &str, uid: &str) -> Result<Eviction, Error> {
        self.writes()?;
        let w = self::worker(worker);
        let mut world = self.world.lock().expect("one thread");
        match &mut world.pods[w] {
            Some(pod) if *facts(w, pod).uid == *uid => {
                pod.terminating = true;
                Ok(Eviction::Done)
            }
            _ => Ok(Eviction::Gone),
        }
    }

    async fn nudge(&self, worker: &str, uid: &str, epoch: u64) -> Result<bool, Error> {
        // The kubelet delivers the file sooner, which is a move of the world's.
        self.writes()?;
        let w = self::worker(worker);
        let mut world = self.world.lock().expect("one thread");
        let pod = world.pods[w].as_mut().filter(|pod| *facts(w, pod).uid == *uid);
        Ok(pod.map(|pod| pod.nudged = epoch).is_some())
    }

    async fn scale(&self, _: u32) -> Result<(), Error> {
        unreachable!("these worlds scale by wishes")
    }
}
