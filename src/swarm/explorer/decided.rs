//! The memory and the decision of the operator of a small world, between two passes.
use std::sync::Arc;

use crate::swarm::{memory::Memory, plan::Desired};

/// The memory, with a fingerprint of all inputs of a decision.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub memory: Memory,
    pub hash: u64,
}

/// A decision.
#[derive(Debug)]
pub(super) struct Decided {
    pub desired: Desired,
    /// The desired contents of the status.
    pub reported: (i64, u64),
    pub hash: u64,
    /// Why Ready is False.
    pub complaint: Option<Arc<str>>,
    /// What is wrong with the streams that will come.
    pub next: Option<String>,
}
