//! Bandwidth that the scheduler counts: what each node offers as an extended resource.
//!
//! | file | holds |
//! |---|---|
//! | `terms`, `amount` | the spec; the amount of one node (pure arithmetic) |
//! | `observe` | what nodes offer and pods request |
//! | `plan` | what each node should offer |
//! | `leaving` | resources that are taken away |
//! | `memory`, `report` | figures of each node; conditions, events and status |
use std::sync::Arc;

use super::{requests::Requested, retries::FailedWrites};
use crate::{
    api::traffic_watch::ReservationStatus,
    controller::{Notice, Verdict},
    nodes::{Incarnation, Offer},
};

mod amount;
mod leaving;
mod memory;
mod observe;
mod plan;
mod report;
mod terms;

pub use memory::{Figures, Memory};
pub(super) use plan::{paused, plan, removed};
pub use terms::Terms;

/// The present offers of nodes and requests of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The older object that offers the same resource, if there is one.
    pub holder: Option<String>,
    /// The class of devices that stands for the resource, if there is one.
    pub device_class: Option<String>,
    /// Offers of the resource, by the name of the node.
    pub offers: Vec<(Arc<str>, Offer)>,
    /// Requests of pods for it; `None` while they are not known.
    pub requested: Option<Requested>,
    /// What each pod that has no node yet requests of it.
    pub waiting: Vec<u64>,
    /// The resources that this object offered before.
    pub leaving: Vec<Leaving>,
    /// Nodes whose last write failed.
    pub failed: Arc<FailedWrites>,
}

/// A resource that nodes have to stop offering.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaving {
    /// Its name.
    pub resource: Arc<str>,
    /// Offers of it, by the name of the node.
    pub offers: Vec<(Arc<str>, Offer)>,
    /// Requests of pods for it; `None` while they are not known.
    pub requested: Option<Requested>,
}

/// The change of one extended resource of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferWrite {
    /// Name of the node.
    pub node: Arc<str>,
    /// The one of this name that was judged; `None` if the resource leaves every node.
    pub incarnation: Option<Incarnation>,
    /// Name of the resource.
    pub resource: Arc<str>,
    /// The amount to offer; `None` removes the resource.
    pub amount: Option<u64>,
}

/// The decision of one pass.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The writes that are due.
    pub writes: Vec<OfferWrite>,
    /// The failed writes that are still needed.
    pub failed: Arc<FailedWrites>,
    /// The figures of each node, for the next pass and for display.
    pub memory: Option<Arc<Memory>>,
    /// The status.
    pub status: Option<ReservationStatus>,
    /// Reasons for not being Ready, the gravest first.
    pub verdicts: Vec<Verdict>,
    /// Events.
    pub notices: Vec<Notice>,
}
