//! Serves `Swarm`.
pub mod acknowledge;
pub mod claims;
pub mod ground;
pub mod settings;
