//! The possible events, each at any time.
use std::sync::Arc;

use super::{
    facts::{File, id_of},
    operator::{MOST_WRITES, Operator},
    plot::{Hazard, Old, Plot},
    pod::{Pod, Reported, has},
    world::World,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The operator observes and decides.
    Look,
    /// It executes its decision, or is killed before one of its writes.
    Finish(Option<usize>),
    Killed,
    /// Another process becomes the leader; this one still executes its decision, write by write.
    Depose,
    Late,
    /// The user changes the desired state.
    Wish(usize),
    /// A pod without a node gets one.
    Schedule(usize),
    /// A kubelet delivers the next version of the file, starts a container, or reports that it
    /// runs.
    Deliver(usize),
    Start(usize),
    Report(usize),
    /// A worker that never answers stops the streams that its file does not list.
    Stop(usize),
    /// A worker has prepared the streams that will come, or hears the operator's word on a file.
    Prepare(usize),
    Told(usize),
    /// A container ends, and its kubelet must restart it.
    Crash(usize),
    /// The workload, or a user, deletes a pod; its kubelet ends its containers; its object is
    /// removed.
    Delete(usize),
    End(usize),
    Vanish(usize),
    /// The workload creates a pod.
    Come(usize),
    /// A node is cut off, comes back, or is dead and the user confirms it.
    Cut(usize),
    Heal(usize),
    Fence(usize),
    /// The operator's watches deliver late events: of a pod, of the file.
    Sync(usize),
    Hear,
    /// The workload's controller sees the new template.
    Observe,
    /// A user changes the file, the head or a part of it, or the `Swarm`.
    Meddle(Hazard, usize),
}

/// All that can happen in a plot.
fn all(plot: &Plot) -> Vec<Move> {
    let mut all = vec![Move::Look, Move::Finish(None)];
    all.extend((0..plot.wishes.len()).map(Move::Wish));
    if plot.crashes > 0 {
        all.push(Move::Killed);
        all.extend((0..MOST_WRITES + plot.maps() - 1).map(|writes| Move::Finish(Some(writes))));
    }
    for w in 0..plot.workers {
        all.extend([Move::Deliver(w), Move::Start(w), Move::Delete(w), Move::End(w)]);
        all.extend([Move::Vanish(w), Move::Come(w)]);
        all.extend(has(plot.pending, w).then_some(Move::Schedule(w)));
        all.extend(has(plot.silent, w).then_some(Move::Stop(w)));
        if has(plot.prepares, w) {
            all.extend([Move::Prepare(w), Move::Told(w)]);
        }
        all.extend(plot.cached.then_some(Move::Sync(w)));
        let hazards = plot.hazards.iter().flat_map(|hazard| match hazard {
            Hazard::Restarts => vec![Move::Crash(w), Move::Report(w)],
            Hazard::Cuts => vec![Move::Cut(w), Move::Heal(w), Move::Fence(w)],
            _ => vec![],
        });
        all.extend(hazards);
    }
    all.extend(plot.cached.then_some(Move::Hear));
    all.extend(plot.immutable().then_some(Move::Observe));
    all.extend(plot.hazards.iter().flat_map(|hazard| match hazard {
        Hazard::Restarts | Hazard::Cuts | Hazard::Deletions => vec![],
        Hazard::Deposed => vec![Move::Depose, Move::Late],
        hazard => (0..plot.maps()).map(|map| Move::Meddle(*hazard, map)).collect(),
    }));
    all
}

/// Worlds of one plot.
pub(super) struct Explorer<'a> {
    pub plot: &'a Plot,
    pub moves: Vec<Move>,
    pub operator: Operator<'a>,
}

impl<'a> Explorer<'a> {
    pub(super) fn new(plot: &'a Plot) -> Self {
        Self { plot, moves: all(plot), operator: Operator::new(plot) }
    }

    /// The world after this, if it can happen and changes something.
    pub(super) fn after(&self, world: &World, happens: Move) -> Option<World> {
        let mut next = world.clone();
        self.happen(&mut next, happens)?;
        Some(next)
    }

    fn happen(&self, world: &mut World, happens: Move) -> Option<()> {
        match happens {
            Move::Look => self.operator.look(world, false)?,
            Move::Finish(writes) => self.operator.finish(world, writes)?,
            Move::Killed => {
                world.crashes = world.crashes.checked_sub(1)?;
                world.restarted();
            }
            Move::Depose => {
                world.decided.as_ref()?;
                self.hazard(world, Hazard::Deposed)?;
                // One that was deposed before is dead.
                world.deposed = world.decided.take().map(|decided| (decided, 0));
                world.restarted();
            }
            Move::Late => self.operator.finish_late(world)?,
            Move::Wish(wish) => {
                (wish != world.wish).then_some(())?;
                world.changes = world.changes.checked_sub(1)?;
                world.wish = wish;
            }
            Move::Sync(w) => {
                (world.cached && world.cache[w] != world.pods[w]).then_some(())?;
                world.cache[w] = world.pods[w];
            }
            Move::Hear => {
                let (heard, there) = (world.heard.as_ref(), world.maps[0].as_ref());
                let hash = |file: Option<&Arc<File>>| file.map(|file| file.hash);
                (world.cached && hash(heard) != hash(there)).then_some(())?;
                world.heard.clone_from(&world.maps[0]);
            }
            Move::Observe => {
                (world.observed != world.template).then_some(())?;
                world.observed = world.template;
            }
            Move::Meddle(hazard, map) => {
                let next = self.meddled(world, hazard, map)?;
                *world = next;
                self.hazard(world, hazard)?;
            }
            _ => self.befall(world, happens)?,
        }
        Some(())
    }

    /// Applies an event of pods and nodes.
    fn befall(&self, world: &mut World, happens: Move) -> Option<()> {
        match happens {
            Move::Schedule(w) => {
                let pod = world.pods[w].filter(|pod| !pod.scheduled)?;
                let delivered = self.mounted(world, pod.id).1;
                let pod = world.pods[w].as_mut()?;
                (pod.scheduled, pod.delivered) = (true, delivered);
            }
            Move::Deliver(w) => {
                let pod = world.pods[w].filter(|pod| !pod.ended && !pod.cut)?;
                (pod.scheduled && pod.mounts == 0).then_some(())?;
                let delivered = world.next(self.plot, &pod)?;
                world.pods[w] = Some(Pod { delivered, ..pod });
                if pod.running && self.plot.reloads {
                    world.read(w, delivered);
                    self.eager(world, w);
                }
            }
            Move::Prepare(w) => {
                let pod = world.pods[w].filter(|pod| pod.running && !self.plot.in_vain)?;
                let prepared = world.coming(&pod);
                (pod.prepared != prepared).then_some(())?;
                world.pods[w] = Some(Pod { prepared, ..pod });
            }
            Move::Told(w) => {
                world.pods[w].filter(|pod| pod.running && pod.told.0 > 0 && !pod.heard)?;
                world.hear(w);
            }
            Move::Start(w) => {
                let pod = world.pods[w].as_mut().filter(|pod| !pod.running && !pod.ended)?;
                // The kubelet that restarts a container may not know yet that its pod is deleted.
                let may = pod.delivered > 0 && (pod.restarted || !pod.terminating && !pod.cut);
                may.then_some(())?;
                pod.running = true;
                if !pod.restarted {
                    pod.reported = Reported::Running;
                }
                let delivered = pod.delivered;
                world.read(w, delivered);
                self.eager(world, w);
            }
            Move::Report(w) => {
                let pod = world.pods[w].as_mut().filter(|pod| pod.running && !pod.cut)?;
                (pod.reported != Reported::Running).then_some(())?;
                pod.reported = Reported::Running;
            }
            Move::Stop(w) => {
                let pod = world.pods[w].filter(|pod| pod.running)?;
                (pod.run != world.wanted(&pod)).then_some(())?;
                world.stop(w);
            }
            Move::Crash(w) => {
                world.pods[w].filter(|pod| pod.running && !pod.cut)?;
                self.hazard(world, Hazard::Restarts)?;
                let pod = world.pods[w]?.stopped();
                let reported = Reported::Terminated;
                world.pods[w] = Some(Pod { restarted: true, reported, ..pod });
            }
            Move::Delete(w) => {
                world.pods[w].filter(|pod| !pod.terminating)?;
                if !self.is_too_much(world, w) {
                    self.hazard(world, Hazard::Deletions)?;
                }
                world.delete(w);
            }
            Move::End(w) => {
                let pod = world.pods[w].as_mut();
                let pod = pod.filter(|pod| pod.terminating && !pod.ended && !pod.cut)?;
                *pod = Pod { ended: true, ..pod.stopped() };
                if pod.reported == Reported::Running {
                    pod.reported = Reported::Terminated;
                }
            }
            Move::Vanish(w) => {
                world.pods[w].filter(|pod| pod.ended && pod.terminating)?;
                world.pods[w] = None;
            }
            Move::Come(w) => self.come(world, w)?,
            Move::Cut(w) => {
                world.pods[w].filter(|pod| !pod.ended && !pod.cut && pod.scheduled)?;
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

    /// A worker that takes what will come for its own starts it, too.
    fn eager(&self, world: &mut World, w: usize) {
        if self.plot.old == Some(Old::Eager)
            && let Some(pod) = world.pods[w]
        {
            world.pods[w] = Some(Pod { told: (u8::MAX, world.coming(&pod)), ..pod });
            world.hear(w);
        }
    }

    /// Reports whether the workload must delete this pod.
    fn is_too_much(&self, world: &World, w: usize) -> bool {
        let replicas = self.plot.wishes[world.wish].replicas;
        if self.plot.deployment { world.staying() > replicas } else { w >= replicas }
    }

    fn come(&self, world: &mut World, w: usize) -> Option<()> {
        let replicas = self.plot.wishes[world.wish].replicas;
        let wanted = if self.plot.deployment { world.staying() < replicas } else { w < replicas };
        (world.pods[w].is_none() && wanted && !has(self.plot.absent, w)).then_some(())?;
        let serial = world.serials[w];
        let id = id_of(self.plot, w, serial)?;
        world.serials[w] = serial.checked_add(1)?;
        let (mounts, version) = self.mounted(world, id);
        let scheduled = !has(self.plot.pending, w);
        let delivered = if scheduled { version } else { 0 };
        world.pods[w] = Some(Pod { id, serial, scheduled, delivered, mounts, ..Pod::default() });
        Some(())
    }

    /// Returns the object that a new pod mounts, and the version that its kubelet finds there.
    fn mounted(&self, world: &World, id: u8) -> (u8, u8) {
        let immutable = world.version_of(world.observed).filter(|_| world.observed > 0);
        let first = || world.first(self.plot, id).unwrap_or(0);
        (world.observed, immutable.unwrap_or_else(first))
    }

    /// Uses up a fault of this kind among those that may still happen.
    fn hazard(&self, world: &mut World, hazard: Hazard) -> Option<()> {
        self.plot.hazards.contains(&hazard).then_some(())?;
        world.faults = world.faults.checked_sub(1)?;
        Some(())
    }

    /// One round in which everything works that can, and nothing else happens.
    pub(super) fn fair_round(&self, world: &mut World) {
        let mut happens = |happens: Move| {
            let next = self.after(world, happens);
            next.map(|next| *world = next).is_some()
        };
        happens(Move::Finish(None));
        while happens(Move::Late) {}
        happens(Move::Observe);
        // Of a Deployment's pods, the last is deleted first.
        for w in (0..self.plot.workers).rev() {
            if !self.plot.lasting {
                happens(Move::Heal(w));
            }
            happens(Move::Delete(w));
        }
        for w in 0..self.plot.workers {
            happens(Move::End(w));
            happens(Move::Vanish(w));
            happens(Move::Come(w));
            while happens(Move::Deliver(w)) {}
            for end in [Move::Start(w), Move::Report(w), Move::Stop(w), Move::Sync(w)] {
                happens(end);
            }
            happens(Move::Prepare(w));
            happens(Move::Told(w));
        }
        happens(Move::Hear);
        self.operator.look(world, true);
        self.operator.finish(world, None);
    }
}
