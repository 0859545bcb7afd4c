//! The operator of a small world: the very functions that observe, confirm, decide and write.
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use futures::FutureExt;

use super::{
    cluster::Small,
    world::{Decided, Plot, Weak, World, Write},
};
use crate::{
    controller::Error,
    swarm::{
        apply, cluster,
        memory::{Memories, Memory},
        observe,
        plan::{self, Observed},
    },
};

impl World {
    /// It observes and decides.
    pub(super) fn look(&mut self, plot: &Plot) -> Option<()> {
        self.decided.is_none().then_some(())?;
        self.passes += 1;
        let swarm = self.swarm(plot);
        let (mut view, mut memory) = (self.view(plot), self.memory.clone());
        let small = Small::new(plot, self, plot.began, None);
        let now = cluster::Cluster::now(&small);
        let look = observe::look(&small, &swarm, &mut view, &mut memory);
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
        let reported = (plan.status.epoch, hasher.finish().max(1));
        self.decided = Some(Arc::new(Decided { desired: plan.desired, reported }));
        Some(())
    }

    /// It writes; if it is killed, the remaining writes may still arrive.
    pub(super) fn finish(&mut self, plot: &Plot, left: Option<usize>) -> Option<()> {
        let decided = self.decided.take()?;
        let desired = decided.desired.clone();
        let mut writes: Vec<_> = desired.publish.iter().map(|p| Write::head(plot, p)).collect();
        let parts = desired.publish.iter().flat_map(|publish| &publish.parts);
        writes.extend(parts.map(|part| Write::part(plot, part)));
        if plot.weak == Weak::HeadLast {
            let head = usize::from(!writes.is_empty());
            writes.rotate_left(head);
        }
        if let Some(left) = left {
            (left < writes.len() + desired.refresh.len()).then_some(())?;
            self.crashes = self.crashes.checked_sub(1)?;
        }
        let (swarm, before) = (self.swarm(plot), self.versions);
        let memories = Memories::default();
        memories.put(swarm.key(), self.memory.clone());
        if plot.weak == Weak::HeadLast && !writes.is_empty() {
            let here = left.unwrap_or(writes.len());
            let done = writes.iter().take(here).all(|write| self.take(write));
            self.writes += 1;
            if let (true, Some(publish)) = (done, &desired.publish) {
                let mut memory = desired.memory.clone()?;
                memory.published = Some(Arc::clone(&publish.published));
                memories.put(swarm.key(), memory);
            }
        } else {
            let small = Small::new(plot, self, plot.began, left);
            let done = apply::apply(&small, &swarm, &memories, desired);
            let done = done.now_or_never()?;
            let outpaced = matches!(done, Err(Error::Outpaced));
            assert!(left.is_some() || outpaced || done.is_ok(), "no write is refused here");
        }
        if let Some(left) = left {
            self.memory = Memory::default();
            // After a failed write, it would not have continued.
            let here = left.min(writes.len());
            let taken = usize::try_from(self.versions - before).expect("few");
            self.late = if taken == here { writes.split_off(here) } else { vec![] };
            return Some(());
        }
        self.memory = memories.get(&swarm.key());
        if self.reported != decided.reported {
            self.reported = decided.reported;
            self.writes += 1;
        }
        Some(())
    }
}
