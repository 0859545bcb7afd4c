//! The operator's knowledge of the nodes: names, labels, taints, addresses, readiness, and Calico's
//! data on them. Nothing else of a Node is kept.
mod facts;
mod patch;
mod resource;
mod state;
mod store;

pub use facts::{
    Carrier, Census, Incarnation, Marked, NodeFacts, Offer, SortedCursor, Speaker, Taint, Texts,
    is_same,
};
pub use resource::{NodeObject, Readiness};
pub use store::{NodeStore, Selection};
pub use traffic_operator_core::identity::{Identity, Resolution, ShortNames, Trail, host};
