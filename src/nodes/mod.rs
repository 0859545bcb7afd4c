//! What the operator knows of the nodes: names, labels, addresses. Nothing else of a Node is kept.
mod identity;
mod resource;
mod selector;
mod store;

pub use identity::{Identity, Resolution, host};
pub use resource::NodeObject;
pub use selector::NodeSelector;
pub use store::{Carrier, NodeFacts, NodeStore};
