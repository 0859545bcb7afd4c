//! What the operator knows of the nodes: names, labels, taints, addresses, whether they are Ready, and
//! what Calico keeps on them. Nothing else of a Node is kept.
mod identity;
mod resource;
mod store;

pub use identity::{Identity, Resolution, host};
pub use resource::{NodeObject, Readiness};
pub use store::{Carrier, NodeFacts, NodeStore, Speaker, Taint, Texts};
