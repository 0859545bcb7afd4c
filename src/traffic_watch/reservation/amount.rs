//! The amount that one node offers. Pure arithmetic.
use super::Terms;
use crate::{
    extended_resources::{number, whole},
    nodes::Offer,
};

/// The part of a unit that rounding may cost: 540 units that are computed as 539.999999999 are 540.
const ROUNDING: f64 = 1e-6;

/// The load of a node, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// The node is marked unfit: it gets no more pods.
    Unfit,
    /// There is no evidence now: its offer stays.
    Unknown,
    /// It is measured; both in bits per second.
    Measured {
        /// Limit for pods and everything else together.
        limit: f64,
        /// Their use now.
        measured: f64,
    },
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Its load.
    pub load: Load,
    /// The sum of what its pods request, in units.
    pub requested: u64,
    /// Its present offer.
    pub offer: Option<Offer>,
    /// False while its requests rose so recently that the measurement cannot show it.
    pub settled: bool,
}

impl Terms {
    /// Returns the load that no pod declared, in bits per second.
    #[must_use]
    pub fn foreign(&self, measured: f64, requested: u64) -> f64 {
        (measured - number(requested) * self.unit).max(0.0)
    }

    /// Returns the units that are left beside the load that no pod declared.
    #[must_use]
    pub fn left(&self, limit: f64, measured: f64, requested: u64) -> u64 {
        whole((limit - self.foreign(measured, requested)) / self.unit + ROUNDING)
    }

    /// Reports whether more is promised and used on a node than it may carry. A node that is
    /// (`already`) stays so until a step is free again.
    #[must_use]
    pub fn is_over(&self, limit: f64, measured: f64, requested: u64, already: bool) -> bool {
        let used = measured.max(number(requested) * self.unit);
        let end = if already { limit * (1.0 - self.step) } else { limit };
        requested > 0 && used > end
    }

    /// Returns the amount that the node has to offer; `None` if it offers nothing at all.
    ///
    /// - Never less than its pods request: a kubelet that restarts admits them again, and refuses
    ///   those that do not fit.
    /// - Without evidence, the amount stays.
    /// - A change of less than a step is none. The band is around the amount that is offered, so
    ///   that no load lies on a border: one that swings by less than a step writes once at most.
    /// - The load of a pod shows only after some time. Until then, its request would hide as much
    ///   foreign load, and the node would offer that again: nothing grows meanwhile.
    #[must_use]
    pub fn amount(&self, node: &Standing) -> Option<u64> {
        let (requested, offered) = (node.requested, node.offer.map(Offer::amount));
        let (limit, measured) = match node.load {
            Load::Unfit => return Some(requested),
            Load::Unknown => {
                let any = offered.or((requested > 0).then_some(requested));
                return any.map(|amount| amount.max(requested));
            }
            Load::Measured { limit, measured } => (limit, measured),
        };
        let target = self.left(limit, measured, requested).max(requested);
        let Some(offered) = offered else {
            return Some(if node.settled { target } else { requested });
        };
        let grows = target > offered;
        if grows && !node.settled {
            return Some(offered.max(requested));
        }
        let band = whole((limit / self.unit * self.step).ceil()).max(1);
        let moves = target.abs_diff(offered) >= band || offered < requested;
        Some(if moves { target } else { offered })
    }
}

#[cfg(test)]
mod tests;
