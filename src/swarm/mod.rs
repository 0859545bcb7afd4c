//! Serves `Swarm`.
pub mod ground;
