//! What can happen, each at any time.
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use futures::FutureExt;

use super::{
    cluster::Small,
    world::{Decided, Hazard, Plot, Pod, Reported, WORKERS, World},
};
use crate::{
    api::{Swarm, SwarmStatus},
    swarm::{
        file,
        memory::{Memories, Memory},
        pass,
        plan::{self, Observed},
    },
};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The operator observes and decides.
    Look,
    /// It does what it has decided, or is killed before one of its writes.
    Finish(Option<usize>),
    /// It is killed.
    Killed,
    /// The user wants something else.
    Wish(usize),
    /// A kubelet delivers the next version of the file; starts a container; says that it runs.
    Deliver(usize),
    Start(usize),
    Report(usize),
    /// A container ends, and is to be started again.
    Crash(usize),
    /// The workload, or somebody, deletes a pod; its kubelet ends its containers; its object goes.
    Delete(usize),
    End(usize),
    Vanish(usize),
    /// The workload makes a pod.
    Come(usize),
    /// A node is cut off, comes back, or is dead and the user says so.
    Cut(usize),
    Heal(usize),
    Fence(usize),
    /// The operator's watch brings what it is behind with.
    Sync(usize),
    /// Somebody adds a comment to the file; exchanges two lists in it; deletes it; deletes the `Swarm` and
    /// applies it again.
    Edit,
    Swap,
    Lose,
    Reapply,
}

/// The most writes that a pass has: each may be the one before which the operator is killed.
const MOST_WRITES: usize = 3;

/// All that can happen in a plot.
pub(super) fn all(plot: &Plot) -> Vec<Move> {
    let mut all = vec![Move::Look, Move::Finish(None), Move::Killed];
    all.extend((0..MOST_WRITES).map(|writes| Move::Finish(Some(writes))));
    all.extend((0..plot.wishes.len()).map(Move::Wish));
    for w in 0..plot.workers {
        all.extend([Move::Deliver(w), Move::Start(w), Move::Report(w), Move::Crash(w)]);
        all.extend([Move::Delete(w), Move::End(w), Move::Vanish(w), Move::Come(w)]);
        all.extend([Move::Cut(w), Move::Heal(w), Move::Fence(w), Move::Sync(w)]);
    }
    all.extend([Move::Edit, Move::Swap, Move::Lose, Move::Reapply]);
    all
}

/// Worlds of one plot.
pub(super) struct Explorer<'a> {
    pub plot: &'a Plot,
    pub moves: Vec<Move>,
    began: Instant,
}

impl<'a> Explorer<'a> {
    pub(super) fn new(plot: &'a Plot) -> Self {
        Self { plot, moves: all(plot), began: Instant::now() }
    }

    /// The world after this, if it can happen and changes something.
    pub(super) fn after(&self, world: &World, happens: Move) -> Option<World> {
        let mut next = world.clone();
        self.happen(&mut next, happens)?;
        Some(next)
    }

    fn happen(&self, world: &mut World, happens: Move) -> Option<()> {
        let plot = self.plot;
        match happens {
            Move::Look => self.look(world),
            Move::Finish(writes) => self.finish(world, writes),
            Move::Killed => {
                world.crashes = world.crashes.checked_sub(1)?;
                (world.memory, world.decided) = (Memory::default(), None);
                world.cache = world.pods;
                Some(())
            }
            Move::Wish(wish) => {
                (wish != world.wish).then_some(())?;
                world.changes = world.changes.checked_sub(1)?;
                world.wish = wish;
                Some(())
            }
            Move::Sync(w) => {
                (plot.cached && world.cache[w] != world.pods[w]).then_some(())?;
                world.cache[w] = world.pods[w];
                Some(())
            }
            Move::Edit => {
                self.hazard(world, Hazard::Edits)?;
                let mut facts = (**world.map.as_ref()?).clone();
                let key = &self.wish(world).config_map.key;
                Arc::make_mut(&mut facts.data).get_mut(key)?.push_str("# by hand\n");
                world.wrote(facts, key, true);
                Some(())
            }
            Move::Swap => {
                self.hazard(world, Hazard::Swaps)?;
                let mut facts = (**world.map.as_ref()?).clone();
                let key = &self.wish(world).config_map.key;
                let config = Arc::make_mut(&mut facts.data).get_mut(key)?;
                let mut published = file::parse(config, None).ok()?.published;
                let mut lists: Vec<_> = published.shares.values_mut().collect();
                let [one, other] = lists.as_mut_slice() else { return None };
                std::mem::swap(&mut one.streams, &mut other.streams);
                *config = file::render(&published).config;
                world.wrote(facts, key, true);
                Some(())
            }
            Move::Lose => {
                self.hazard(world, Hazard::Losses)?;
                world.map.take().map(drop)
            }
            Move::Reapply => {
                self.hazard(world, Hazard::Reapplied)?;
                (world.map, world.told) = (None, (0, 0));
                (world.memory, world.decided) = (Memory::default(), None);
                Some(())
            }
            _ => self.befall(world, happens),
        }
    }

    /// What happens to pods and nodes.
    fn befall(&self, world: &mut World, happens: Move) -> Option<()> {
        let (newest, replicas) = (world.newest(), self.plot.wishes[world.wish].replicas);
        match happens {
            Move::Deliver(w) => {
                let there = world.map.is_some();
                let pod = world.pods[w].as_mut().filter(|pod| !pod.ended && !pod.cut)?;
                (pod.delivered < newest && there).then_some(())?;
                pod.delivered += 1;
                if pod.running && self.plot.reloads {
                    pod.read = pod.delivered;
                    let read = pod.read;
                    world.start(w, read);
                }
            }
            Move::Start(w) => {
                let pod = world.pods[w].as_mut().filter(|pod| !pod.running && !pod.ended)?;
                // The kubelet that restarts a container may not know yet that its pod is deleted.
                let may = pod.delivered > 0 && (pod.restarted || !pod.terminating && !pod.cut);
                may.then_some(())?;
                (pod.running, pod.read) = (true, pod.delivered);
                if !pod.restarted {
                    pod.reported = Reported::Running;
                }
                let read = pod.read;
                world.start(w, read);
            }
            Move::Report(w) => {
                let pod = world.pods[w].as_mut().filter(|pod| pod.running && !pod.cut)?;
                (pod.reported != Reported::Running).then_some(())?;
                pod.reported = Reported::Running;
            }
            Move::Crash(w) => {
                world.pods[w].filter(|pod| pod.running && !pod.cut)?;
                self.hazard(world, Hazard::Restarts)?;
                let pod = world.pods[w].as_mut()?;
                (pod.running, pod.restarted, pod.run) = (false, true, 0);
                pod.reported = Reported::Terminated;
            }
            Move::Delete(w) => {
                world.pods[w].filter(|pod| !pod.terminating)?;
                if w < replicas {
                    self.hazard(world, Hazard::Deletions)?;
                }
                world.pods[w].as_mut()?.terminating = true;
            }
            Move::End(w) => {
                let pod = world.pods[w].as_mut();
                let pod = pod.filter(|pod| pod.terminating && !pod.ended && !pod.cut)?;
                (pod.running, pod.run, pod.ended) = (false, 0, true);
                if pod.reported == Reported::Running {
                    pod.reported = Reported::Terminated;
                }
            }
            Move::Vanish(w) => {
                world.pods[w].filter(|pod| pod.ended && pod.terminating)?;
                world.pods[w] = None;
            }
            Move::Come(w) => {
                (world.pods[w].is_none() && w < replicas).then_some(())?;
                let delivered = if world.map.is_some() { newest } else { 0 };
                let serial = world.serials[w];
                world.serials[w] = serial.checked_add(1)?;
                world.pods[w] = Some(Pod { serial, delivered, ..Pod::default() });
            }
            Move::Cut(w) => {
                world.pods[w].filter(|pod| !pod.ended && !pod.cut)?;
                self.hazard(world, Hazard::Cuts)?;
                world.pods[w].as_mut()?.cut = true;
            }
            Move::Heal(w) => world.pods[w].as_mut().filter(|pod| pod.cut)?.cut = false,
            Move::Fence(w) => {
                world.pods[w].filter(|pod| pod.cut)?;
                world.pods[w] = None;
            }
            _ => return None,
        }
        Some(())
    }

    /// Takes a fault of this kind from what may still happen.
    fn hazard(&self, world: &mut World, hazard: Hazard) -> Option<()> {
        self.plot.hazards.contains(&hazard).then_some(())?;
        world.faults = world.faults.checked_sub(1)?;
        Some(())
    }

    fn wish(&self, world: &World) -> &crate::api::swarm::SwarmSpec {
        &self.plot.wishes[world.wish].swarm.spec
    }

    /// The `Swarm` as the operator reads it.
    fn swarm(&self, world: &World) -> Swarm {
        let mut swarm = self.plot.wishes[world.wish].swarm.clone();
        let status = || SwarmStatus { epoch: world.told.0, ..SwarmStatus::default() };
        swarm.status = (world.told.1 != 0).then(status);
        swarm
    }

    /// The operator observes, as in the cluster, and decides.
    fn look(&self, world: &mut World) -> Option<()> {
        world.decided.is_none().then_some(())?;
        world.passes += 1;
        let swarm = self.swarm(world);
        let (mut view, mut memory) = (world.view(self.plot), world.memory.clone());
        let small = Small::new(self.plot, world, self.began, None);
        let now = pass::Cluster::now(&small);
        let look = pass::look(&small, &swarm, &mut view, &mut memory);
        let confirmed = look.now_or_never()?.ok()?;
        let observed = Observed {
            now,
            held: None,
            view: Some(view),
            confirmed,
            memory,
            unfit: BTreeSet::new(),
            measuring: None,
        };
        let plan = plan::plan(&swarm, &observed).expect("a spec that can be served");
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", plan.status, plan.conditions).hash(&mut hasher);
        let ready = plan.conditions.iter().find(|verdict| verdict.type_ == "Ready");
        world.complained = ready.is_some_and(|verdict| verdict.status == Some(false));
        let told = (plan.status.epoch, hasher.finish().max(1));
        world.decided = Some(Arc::new(Decided { desired: plan.desired, told }));
        Some(())
    }

    /// It writes, as in the cluster, and tells.
    fn finish(&self, world: &mut World, writes: Option<usize>) -> Option<()> {
        let decided = world.decided.take()?;
        if let Some(writes) = writes {
            // Killed before a write that there is none of: the same as a kill between passes.
            let desired = &decided.desired;
            let all = usize::from(desired.publish.is_some()) + desired.refresh.len();
            (writes < all).then_some(())?;
            world.crashes = world.crashes.checked_sub(1)?;
        }
        let swarm = self.swarm(world);
        let memories = Memories::default();
        memories.put(swarm.key(), world.memory.clone());
        let small = Small::new(self.plot, world, self.began, writes);
        let done = pass::write(&small, &swarm, &memories, decided.desired.clone());
        let done = done.now_or_never()?;
        if writes.is_some() {
            world.memory = Memory::default();
            world.cache = world.pods;
            return Some(());
        }
        done.expect("nobody refuses anything here");
        world.memory = memories.get(&swarm.key());
        if world.told != decided.told {
            world.told = decided.told;
            world.writes += 1;
        }
        Some(())
    }

    /// One round in which everything works that can, and nothing else happens.
    pub(super) fn fair_round(&self, world: &mut World) {
        let mut let_happen = |happens: Move| {
            if let Some(next) = self.after(world, happens) {
                *world = next;
            }
            world.wish
        };
        let wish = let_happen(Move::Finish(None));
        for w in 0..WORKERS.min(self.plot.workers) {
            let_happen(Move::Heal(w));
            if w >= self.plot.wishes[wish].replicas {
                let_happen(Move::Delete(w));
            }
            for happens in [Move::End(w), Move::Vanish(w), Move::Come(w)] {
                let_happen(happens);
            }
            for _ in 0..WORKERS {
                let_happen(Move::Deliver(w));
            }
            for happens in [Move::Start(w), Move::Report(w), Move::Sync(w)] {
                let_happen(happens);
            }
        }
        let_happen(Move::Look);
        let_happen(Move::Finish(None));
    }
}
