//! The record that a cluster keeps about itself, so that another process can use it or take it
//! down.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Monitoring;
use crate::workspace;

const FILE: &str = "cluster.json";
const PREFIX: &str = "cluster-";

/// One cluster as recorded in its directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// The part that makes all its names unique.
    pub id: String,
    /// Number of nodes, numbered from 1.
    pub nodes: usize,
    pub starter: u32,
    pub monitoring: Monitoring,
    /// The capacity and the zones that are written on nodes.
    pub capacity: Option<String>,
    pub zones: Vec<String>,
    /// True if it outlives that process.
    pub keep: bool,
    /// The API server's URL from outside the cluster.
    pub server: String,
    /// URLs of what was exposed, by `<namespace>/<service>:<port>`.
    pub exposed: BTreeMap<String, String>,
}

impl State {
    /// Writes it into the cluster's directory.
    pub fn save(&self) -> Result<()> {
        let dir = dir(&self.id);
        fs::create_dir_all(&dir)?;
        workspace::write_whole(&dir.join(FILE), &serde_json::to_vec_pretty(self)?)
    }
}

/// Returns a cluster's directory.
pub(crate) fn dir(id: &str) -> PathBuf {
    workspace::run().join(format!("{PREFIX}{id}"))
}

/// Returns the ids of all clusters that have a directory, running or not.
pub(crate) fn ids() -> Vec<String> {
    workspace::runs(PREFIX)
}

/// Reads the record of a cluster; `None` if its start did not get that far.
pub(crate) fn read(id: &str) -> Option<State> {
    serde_json::from_slice(&fs::read(dir(id).join(FILE)).ok()?).ok()
}

/// Returns the cluster that was started to stay.
pub(crate) fn kept() -> Option<State> {
    ids().iter().filter_map(|id| read(id)).find(|state| state.keep)
}
