//! The stand-in for Calico's confd: from what is configured to what the BIRDs run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::Result;

use super::ground::Ground;
use super::history::{History, Version};
use super::machine::Machine;
use super::render::texts;
use super::world::World;
use crate::wait::lock;

/// Configures the nodes of a ground, and remembers how.
#[derive(Debug, Clone)]
pub struct Confd {
    ground: Arc<Ground>,
    history: Arc<Mutex<History>>,
}

impl Confd {
    /// One that has configured nothing yet.
    pub fn new(ground: Arc<Ground>) -> Self {
        let history = History::new(World::default());
        Self { ground, history: Arc::new(Mutex::new(history)) }
    }

    /// Configures all nodes at once, and only those that are configured differently. Returns their
    /// names.
    pub fn apply(&self, world: World) -> Result<BTreeSet<String>> {
        let version = self.remember(world);
        self.ground.configure(&texts(&version.world, &version.sessions))
    }

    /// Returns the configurations so far.
    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }

    /// Returns the current configuration.
    pub fn last(&self) -> Version {
        lock(&self.history).last().clone()
    }

    /// A node to configure.
    pub(super) fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        self.ground.machine(name)
    }

    /// From now on this is what is configured.
    pub(super) fn remember(&self, world: World) -> Version {
        let mut history = lock(&self.history);
        history.push(world);
        history.last().clone()
    }
}
