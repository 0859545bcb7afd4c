//! The number of reflectors.
use crate::election::{Rounding, Scope};

use super::{Ratio, Refusal};

/// `spec.count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Scope of the number: the cluster or each zone.
    pub scope: Scope,
    /// Reflectors per node.
    pub ratio: Ratio,
    /// The minimum.
    pub min: usize,
    /// The maximum.
    pub max: usize,
    /// The rounding of a fraction.
    pub rounding: Rounding,
    /// A table in place of the ratio: up to this many nodes, this many reflectors.
    pub steps: Vec<(usize, usize)>,
}

impl Count {
    /// Returns the number for this many nodes, never more than there are nodes.
    #[must_use]
    pub fn of(&self, nodes: usize) -> usize {
        self.wanted(nodes).min(nodes)
    }

    /// Returns the number for this many nodes, whether they exist or not; `max` wins over `min`.
    pub(super) fn wanted(&self, nodes: usize) -> usize {
        let row = |steps: &[(usize, usize)]| {
            let mut rows: Vec<_> = steps.to_vec();
            rows.sort_unstable();
            let found = rows.iter().find(|(most, _)| nodes <= *most).or(rows.last()).copied();
            found.map(|(_, count)| count)
        };
        let raw = row(&self.steps).unwrap_or_else(|| self.ratio.of(nodes, self.rounding));
        raw.max(self.min).min(self.max)
    }

    /// Returns the desired number of reflectors, from the current number. Between the number for
    /// the ready nodes and the number for all of them, it stays unchanged: nodes that are not ready
    /// neither add nor remove a reflector.
    pub(super) fn desired(&self, now: usize, nodes: &Nodes) -> usize {
        let low = self.of(nodes.ready).min(nodes.usable);
        let high = self.of(nodes.all).min(nodes.suitable).max(low);
        now.clamp(low, high)
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.min > self.max {
            return Err(Refusal::MinAboveMax { min: self.min, max: self.max });
        }
        if self.min == 0 {
            return Err(Refusal::NoMin);
        }
        let mut rows = self.steps.clone();
        rows.sort_unstable();
        for pair in rows.windows(2) {
            let [(few, before), (many, after)] = *pair else { continue };
            if few == many {
                return Err(Refusal::StepTwice { nodes: few });
            }
            // A node that goes away would add a reflector.
            if after < before {
                return Err(Refusal::StepDown { few, before, many, after });
            }
        }
        Ok(())
    }
}

/// The nodes of the cluster or of a zone, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// All: each is a client or a reflector.
    pub all: usize,
    /// Those that are ready.
    pub ready: usize,
    /// Those that may be reflectors once they are ready and open.
    pub suitable: usize,
    /// Those that could be reflectors now.
    pub usable: usize,
}
