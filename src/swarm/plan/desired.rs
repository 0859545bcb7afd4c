//! What a plan asks apply to do.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    controller::Notice,
    swarm::{
        handover::{Epoch, Published, Refresh},
        memory::Memory,
    },
};

/// What there is to do.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// The next file.
    pub publish: Option<Publish>,
    /// The file that an immutable `ConfigMap` and the template are to have.
    pub immutable: Option<Immutable>,
    /// What is to be done to pods.
    pub refresh: Vec<Refresh>,
    /// How many workers there are to be.
    pub scale: Option<u32>,
    /// Immutable files that nobody mounts any more.
    pub obsolete: Vec<String>,
    /// For how long streams had no worker that have one now.
    pub gaps: Vec<Duration>,
    /// What is remembered.
    pub memory: Option<Memory>,
}

/// A file to write.
#[derive(Clone, Debug)]
pub struct Publish {
    /// What it says.
    pub published: Arc<Published>,
    /// The data of the `ConfigMap`.
    pub data: BTreeMap<String, String>,
    /// The version it stands on; `None`: there is no `ConfigMap` yet.
    pub on: Option<String>,
    /// The parts of a divided file that change with it, written after it.
    pub parts: Vec<Part>,
    /// What to tell once it is written.
    pub notices: Vec<Notice>,
    /// Moves to count once it is written, by reason.
    pub moves: BTreeMap<&'static str, u64>,
}

/// A part to write.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// The data.
    pub data: BTreeMap<String, String>,
    /// The version it stands on; `None`: there is no such `ConfigMap` yet.
    pub on: Option<String>,
}

/// An immutable file.
#[derive(Clone, Debug)]
pub struct Immutable {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// Its version.
    pub epoch: Epoch,
    /// The data.
    pub data: BTreeMap<String, String>,
    /// The volumes of the template that are to point at it.
    pub volumes: Vec<Box<str>>,
}
