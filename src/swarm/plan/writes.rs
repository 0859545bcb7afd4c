//! The writes of a plan.
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    controller::Notice,
    swarm::handover::{Epoch, Published},
};

/// A file to write.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Its contents.
    pub published: Arc<Published>,
    /// The data of the `ConfigMap`.
    pub data: BTreeMap<String, String>,
    /// The version on which it is based; `None`: there is no `ConfigMap` yet.
    pub on: Option<String>,
    /// The parts of a divided file that change with it, written after it.
    pub parts: Vec<Part>,
    /// The notices to publish after the write.
    pub notices: Vec<Notice>,
    /// Moves to count once it is written, by reason.
    pub moves: BTreeMap<&'static str, u64>,
}

/// A part to write.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// Contents of the `ConfigMap`, by key.
    pub data: BTreeMap<String, String>,
    /// The version on which it is based; `None`: there is no such `ConfigMap` yet.
    pub on: Option<String>,
}

/// A change of the number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The number that was read.
    pub from: u32,
    /// The desired number.
    pub to: u32,
}

/// An immutable file.
#[derive(Clone, Debug)]
pub struct Immutable {
    /// The name of its `ConfigMap`.
    pub name: String,
    /// Its version.
    pub epoch: Epoch,
    /// Contents of the `ConfigMap`, by key.
    pub data: BTreeMap<String, String>,
    /// The volumes of the template to point to it.
    pub volumes: Vec<Box<str>>,
}
