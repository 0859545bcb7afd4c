//! The figures of each node: for the next pass, and for metrics, status page and commands.
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::Terms;
use crate::{extended_resources::number, nodes::Offer};

/// One object's resource on all judged nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Name of the resource.
    pub resource: Arc<str>,
    /// Bits per second of one unit.
    pub unit: f64,
    /// Pods without a node that request more than any node has free.
    pub waiting: usize,
    /// By the name of the node.
    nodes: Box<[(Arc<str>, Figures)]>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Bits per second that pods and everything else may use together, if that is known now.
    pub limit: Option<f64>,
    /// Bits per second that they use, if that is known now.
    pub measured: Option<f64>,
    /// Sum of what its pods request, in units.
    pub requested: u64,
    /// The amount that it has to offer, in units.
    pub amount: Option<u64>,
    /// Its offer at the time of the pass.
    pub(super) offer: Option<Offer>,
    /// True if more is promised and used than it may carry.
    pub over: bool,
    /// True if its links, each of which is fit, carry more together than the limit, which is that of
    /// one link.
    pub(super) summed: bool,
    /// The time at which its requests last rose.
    pub(super) rose: Option<Timestamp>,
}

/// The urgency of a write, the most urgent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// More is offered.
    Grows,
    /// Less is offered.
    Shrinks,
    /// Less is offered than pods request.
    Short,
}

impl Memory {
    /// Figures of nodes that are sorted by name.
    pub(super) fn new(terms: &Terms, nodes: Vec<(Arc<str>, Figures)>, waiting: &[u64]) -> Self {
        debug_assert!(nodes.is_sorted_by(|(a, _), (b, _)| a < b), "sorted by name");
        let most = nodes.iter().map(|(_, figures)| figures.free()).max().unwrap_or_default();
        Self {
            resource: Arc::clone(&terms.resource),
            unit: terms.unit,
            waiting: waiting.iter().filter(|amount| **amount > most).count(),
            nodes: nodes.into(),
        }
    }

    /// Returns the figures of one node.
    #[must_use]
    pub fn get(&self, node: &str) -> Option<&Figures> {
        let place = self.nodes.binary_search_by(|(name, _)| (**name).cmp(node)).ok()?;
        self.nodes.get(place).map(|(_, figures)| figures)
    }

    /// Returns all of them, by the name of the node.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Figures)> {
        self.nodes.iter().map(|(name, figures)| (name, figures))
    }

    /// Converts units to bits per second.
    #[must_use]
    pub fn bits(&self, units: u64) -> f64 {
        number(units) * self.unit
    }

    /// Returns the load of a node that no pod declared, in bits per second.
    #[must_use]
    pub fn foreign(&self, figures: &Figures) -> Option<f64> {
        Some((figures.measured? - self.bits(figures.requested)).max(0.0))
    }
}

impl Figures {
    /// Returns the units that it offers and that no pod requests.
    fn free(&self) -> u64 {
        self.amount.unwrap_or_default().saturating_sub(self.requested)
    }

    /// Reports whether the node has to be written.
    pub(super) fn differs(&self) -> bool {
        self.amount.map(Offer::of) != self.offer
    }

    /// Returns the urgency of its write.
    pub(super) fn urgency(&self) -> Urgency {
        let offered = self.offer.map_or(0, Offer::amount);
        if offered < self.requested {
            Urgency::Short
        } else if self.amount.unwrap_or_default() < offered {
            Urgency::Shrinks
        } else {
            Urgency::Grows
        }
    }
}
