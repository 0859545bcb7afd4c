//! The API server and the workers of a small world, as a pass meets them.
use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;

use super::world::{Plot, World, Write, facts, worker};
use crate::{
    acknowledgement::Key,
    controller::Error,
    swarm::{
        acknowledge::Answer,
        cluster::{Cluster, Eviction},
        plan::{Immutable, Part, Publish, Scale},
        watches::{PodFacts, WorkloadFacts},
    },
};

/// Between two passes: longer than anything is waited for.
const PAUSE: Duration = Duration::from_hours(1);

/// One pass in a world. It may be killed before one of its writes.
pub(super) struct Small<'a> {
    plot: &'a Plot,
    world: Mutex<&'a mut World>,
    /// The number of writes that are left before it is killed.
    left: Mutex<Cell<Option<usize>>>,
    began: Instant,
}

impl<'a> Small<'a> {
    pub(super) fn new(
        plot: &'a Plot,
        world: &'a mut World,
        began: Instant,
        left: Option<usize>,
    ) -> Self {
        Self { plot, world: Mutex::new(world), left: Mutex::new(Cell::new(left)), began }
    }

    /// Succeeds if the operator still lives; counts its writes.
    fn writes(&self) -> Result<(), Error> {
        let left = self.left.lock().expect("one thread");
        match left.get() {
            Some(0) => return Err(Error::Refused("killed".into())),
            Some(more) => left.set(Some(more - 1)),
            None => {}
        }
        self.world.lock().expect("one thread").writes += 1;
        Ok(())
    }

    fn write(&self, write: &Write) -> Result<bool, Error> {
        self.writes()?;
        Ok(self.world.lock().expect("one thread").take(write))
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

    fn secret(&self) -> Option<Arc<str>> {
        // These workers do not sign.
        None
    }

    async fn ask(&self, pod: &PodFacts, _: Option<&Key>) -> Result<Answer, String> {
        let w = worker(&pod.name);
        let mut world = self.world.lock().expect("one thread");
        let there = world.pods[w].filter(|there| facts(w, there).uid == pod.uid);
        let mut there = there.ok_or("nobody answers")?;
        // A worker that answers has stopped what its part does not list.
        there.run = world.list(there.read, w);
        world.pods[w] = Some(there);
        let version = world.epoch(there.read);
        Ok(Answer { version, jobs: Some(World::streams(there.run)) })
    }

    async fn publish(&self, publish: &Publish) -> Result<Option<ObjectMeta>, Error> {
        let written = self.write(&Write::head(self.plot, publish))?;
        Ok(written.then(ObjectMeta::default))
    }

    fn published(&self, _: &ObjectMeta, _: &Publish) {}

    async fn part(&self, part: &Part) -> Result<bool, Error> {
        self.write(&Write::part(self.plot, part))
    }

    async fn pin(&self, _: Immutable) -> Result<(), Error> {
        unreachable!("a divided file is not immutable")
    }

    async fn pinned(&self) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    async fn unpin(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn evict(&self, _: &str, _: &str) -> Result<Eviction, Error> {
        unreachable!("these workers follow their file")
    }

    async fn nudge(&self, worker: &str, _: &str, epoch: u64) -> Result<bool, Error> {
        // The kubelet delivers the file sooner, which is a move of the world's.
        self.writes()?;
        let w = self::worker(worker);
        let mut world = self.world.lock().expect("one thread");
        Ok(world.pods[w].as_mut().map(|pod| pod.nudged = epoch).is_some())
    }

    async fn scale(&self, _: Scale) -> Result<(), Error> {
        unreachable!("these worlds scale by wishes")
    }
}
