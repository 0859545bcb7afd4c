//! What the operator knows of the nodes: names, labels, addresses. Nothing else of a Node is kept.
mod identity;
mod resource;
mod store;

pub use identity::{Identity, Resolution, host};
pub use resource::NodeObject;
pub use store::{Carrier, NodeFacts, NodeStore};
