//! The actions of people on the file and on the `Swarm`.
use std::{collections::BTreeMap, sync::Arc};

use super::{facts::File, moves::Explorer, plot::Hazard, world::World};
use crate::swarm::{
    file,
    handover::{Published, Share},
};

impl Explorer<'_> {
    /// The world after a user's action.
    pub(super) fn meddled(&self, world: &World, hazard: Hazard) -> Option<World> {
        let mut next = world.clone();
        match hazard {
            Hazard::Edits => {
                let key = &self.plot.wishes[world.wish].swarm.spec.config_map.key;
                let mut facts = world.map.as_ref()?.facts.clone();
                Arc::make_mut(&mut facts.data).get_mut(key)?.push_str("# by hand\n");
                next.wrote(&File::new(world.newest() + 1, facts, key, true));
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
                let key = &self.plot.wishes[world.wish].swarm.spec.config_map.key;
                world.map.as_ref()?;
                let older = world.history.iter().rev().skip(1).find(|file| file.epoch > 0)?;
                let facts = older.facts.clone();
                next.wrote(&File::new(world.newest() + 1, facts, key, true));
            }
            Hazard::Losses => {
                next.map.take()?;
            }
            Hazard::Reapplied => {
                (next.map, next.reported) = (None, (0, 0));
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
        let key = &self.plot.wishes[world.wish].swarm.spec.config_map.key;
        let mut facts = world.map.as_ref()?.facts.clone();
        let config = Arc::make_mut(&mut facts.data).get_mut(key)?;
        let mut published: Published = file::parse(config, None).ok()?.published;
        edit(&mut published.shares)?;
        *config = file::render(&published).config;
        Some(File::new(world.newest() + 1, facts, key, true))
    }
}
