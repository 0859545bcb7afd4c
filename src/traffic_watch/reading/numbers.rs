//! The numbers of one node.
use std::sync::Arc;

use super::super::{evidence::NoEvidence, query::Measure};

/// Maximum number of links of a node: more than a node has pods. It bounds the work for an answer
/// that names others.
const LINKS: usize = 1024;

/// The numbers of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMeasurement {
    links: Vec<Link>,
    own: Value,
    /// True if there are more than [`LINKS`].
    too_many: bool,
}

/// The numbers of one link; those of the node itself belong to a link without a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub device: Option<Arc<str>>,
    /// By [`Measure::index`], as the two sets say.
    numbers: [f64; Measure::ALL.len()],
    /// The measures that have a number, usable or not.
    present: u16,
    /// The measures with two numbers, or with one that proves nothing.
    unusable: u16,
}

/// The number of a node, of a query of the author's.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// There was none.
    #[default]
    Absent,
    /// This one, and the device that the series names.
    One(f64, Option<Arc<str>>),
    /// Two series claim the place, or the value is not a number.
    Unusable,
}

impl Link {
    fn of(device: Option<Arc<str>>) -> Self {
        Self { device, numbers: [0.0; _], present: 0, unusable: 0 }
    }

    fn put(&mut self, measure: Measure, number: Option<f64>) {
        let bit = 1 << measure.index();
        // One target that answers is enough.
        if measure == Measure::Up && self.has(measure) {
            self.numbers[measure.index()] =
                self.numbers[measure.index()].max(number.unwrap_or_default());
            return;
        }
        // An age is that of a clock, which may be ahead.
        let signed = matches!(measure, Measure::Age | Measure::AgeBefore | Measure::OwnAge);
        let usable = number.filter(|number| number.is_finite() && (signed || *number >= 0.0));
        if self.present & bit != 0 || usable.is_none() {
            self.unusable |= bit;
        }
        self.present |= bit;
        self.numbers[measure.index()] = usable.unwrap_or_default();
    }

    /// Reports whether there is a number, usable or not.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        self.present & (1 << measure.index()) != 0
    }

    /// Returns a number; none if there is none.
    ///
    /// # Errors
    /// When it proves nothing: two series claim its place, or it is no number.
    pub fn number(&self, measure: Measure) -> Result<Option<f64>, NoEvidence> {
        if self.unusable & (1 << measure.index()) != 0 {
            return Err(NoEvidence::InvalidSample);
        }
        Ok(self.has(measure).then(|| self.numbers[measure.index()]))
    }
}

impl NodeMeasurement {
    /// Stores a number; a second one makes it unusable.
    pub fn put(&mut self, measure: Measure, number: Option<f64>, device: Option<Arc<str>>) {
        if measure == Measure::Own {
            self.own = match (number, &self.own) {
                (Some(number), Value::Absent) => Value::One(number, device),
                _ => Value::Unusable,
            };
            return;
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.device == device) {
            link.put(measure, number);
        } else if self.links.len() < LINKS {
            // Nearly every node has one or two.
            self.links.reserve_exact(1 + self.links.len() / 2);
            self.links.push(Link::of(device));
            self.put(measure, number, self.links[self.links.len() - 1].device.clone());
        } else {
            self.too_many = true;
        }
    }

    /// Returns its links.
    ///
    /// # Errors
    /// When there are too many of them.
    pub fn links(&self) -> Result<&[Link], NoEvidence> {
        if self.too_many { Err(NoEvidence::InvalidSample) } else { Ok(&self.links) }
    }

    /// Returns the result of a query of the author's.
    #[must_use]
    pub fn own(&self) -> &Value {
        &self.own
    }

    /// Reports whether any link has a number, usable or not.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        match measure {
            Measure::Own => self.own != Value::Absent,
            measure => self.links.iter().any(|link| link.has(measure)),
        }
    }

    /// Reports whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.own == Value::Absent
    }
}

#[cfg(test)]
impl NodeMeasurement {
    /// The same with these numbers of a link.
    pub fn with(mut self, device: &str, numbers: &[(Measure, f64)]) -> Self {
        for (measure, number) in numbers {
            self.put(*measure, Some(*number), (!device.is_empty()).then(|| device.into()));
        }
        self
    }

    /// The same with a link that sent this many bytes per second throughout a window of two minutes,
    /// by a sample of this age.
    pub fn sending(self, device: &str, bytes: f64, age: f64) -> Self {
        use Measure::{Age, AgeBefore, TransmitRate, TransmitTotal, TransmitTotalBefore};
        let rate = [(TransmitRate, bytes), (TransmitTotal, 7.0), (TransmitTotalBefore, 7.0)];
        self.with(device, &rate).with(device, &[(Age, age), (AgeBefore, 120.0)])
    }
}
