//! The actions of people on the file and on the `Swarm`.
use std::{collections::BTreeMap, sync::Arc};

use super::{facts::File, moves::Explorer, plot::Hazard, world::World};
use crate::swarm::{
    file,
    handover::{Published, Share},
    watches::MapFacts,
};

impl Explorer<'_> {
    /// The world after a user's action.
    pub(super) fn meddled(&self, world: &World, hazard: Hazard, place: usize) -> Option<World> {
        let mut next = world.clone();
        match hazard {
            Hazard::Edits => {
                let is_head = !self.plot.mounted().contains(&place);
                let key = if is_head { file::STATE_KEY } else { self.key(world) };
                let mut facts = world.maps[place].as_ref()?.facts.clone();
                Arc::make_mut(&mut facts.data).get_mut(key)?.push_str("# by hand\n");
                next.wrote(&self.by_hand(world, place, facts));
            }
            Hazard::Swaps => next.wrote(&self.edited(world, |shares| {
                let mut lists = shares.values_mut();
                let (one, other) = (lists.next()?, lists.next()?);
                std::mem::swap(&mut one.streams, &mut other.streams);
                Some(())
            })?),
            Hazard::Gifts => next.wrote(&self.edited(world, |shares| {
                let mut lists = shares.values_mut();
                let given = lists.next()?.streams.first()?.clone();
                lists.next()?.streams.push(given);
                Some(())
            })?),
            Hazard::Backups => {
                world.maps[0].as_ref()?;
                let older = world.history.iter().rev().skip(1).find(|file| file.epoch > 0)?;
                next.wrote(&self.by_hand(world, 0, older.facts.clone()));
            }
            Hazard::Losses => {
                next.maps[place].take()?;
            }
            Hazard::Reapplied => {
                (next.maps, next.reported) = Default::default();
                // It starts above the versions of the previous one: no word on these counts.
                let waiting = next.pods.iter_mut().flatten().filter(|pod| !pod.heard);
                waiting.for_each(|pod| pod.told = (0, 0));
                next.restarted();
            }
            _ => return None,
        }
        Some(next)
    }

    /// The file after an edit of its lists, in a form that only we write.
    fn edited(
        &self,
        world: &World,
        edit: impl FnOnce(&mut BTreeMap<Arc<str>, Share>) -> Option<()>,
    ) -> Option<Arc<File>> {
        let mut facts = world.maps[0].as_ref()?.facts.clone();
        let config = Arc::make_mut(&mut facts.data).get_mut(self.key(world))?;
        let mut published: Published = file::parse(config, None).ok()?.published;
        edit(&mut published.shares)?;
        *config = file::render(&published).config;
        Some(self.by_hand(world, 0, facts))
    }

    fn by_hand(&self, world: &World, place: usize, facts: MapFacts) -> Arc<File> {
        File::new(world.newest() + 1, place, facts, self.key(world), true)
    }

    fn key(&self, world: &World) -> &str {
        &self.plot.wishes[world.wish].swarm.spec.config_map.key
    }
}
