//! The operator's knowledge of the nodes: names, labels, taints, addresses, readiness, and Calico's
//! data on them. Nothing else of a Node is kept.
mod facts;
mod patch;
mod resource;
mod selection;
mod sorted_cursor;
mod state;
mod store;
mod texts;

pub use facts::{Carrier, Census, Incarnation, Marked, NodeFacts, Offer, Speaker, Taint};
pub use resource::{NodeObject, Readiness};
pub use selection::Selection;
pub use sorted_cursor::{SortedCursor, is_same};
pub use store::NodeStore;
pub use texts::Texts;
pub use traffic_operator_core::identity::{Identity, Resolution, ShortNames, Trail, host};
