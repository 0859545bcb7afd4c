//! Converts the numbers of a node into evidence, or the reason why there is none.
use std::{sync::Arc, time::Duration};

use super::{
    query::Measure,
    reading::{NodeMeasurement, Value},
};
use crate::api::traffic_watch::Direction;

mod absence;
mod maybe;

pub use absence::NoEvidence;
pub use maybe::Maybe;

/// The speed that a link of unknown speed is taken to have when its traffic is weighed, in bits per
/// second: 100 Mbit/s, the slowest that network cards and management ports of servers still have.
/// Traffic below the threshold on such a link is below it on any faster link.
const SLOWEST_LINK: f64 = 100e6;

/// The evidence of a measurement about one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The value that is compared with the threshold, in the measure's unit.
    pub value: f64,
    /// Percent of capacity in use, if that is known.
    pub percent: Maybe,
    /// The busiest link, if the link speeds are known.
    pub device: Option<Arc<str>>,
    /// Bytes sent since the counters began.
    pub total: Maybe,
    /// Seconds since the sample; of queries of the author's known only of selectors.
    pub age: Maybe,
    /// Bits per second over all links, of the busier direction; unknown where the value cannot be
    /// converted.
    pub bits: Maybe,
    /// Bits per second that the node can carry, if that is known: as configured, or of its fastest
    /// link where the speed was queried.
    pub capacity: Maybe,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evaluation {
    /// Nodes were judged.
    Ok,
    /// Too few nodes had data.
    LowCoverage,
    /// The request failed.
    Failed,
}

impl Evaluation {
    /// The metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LowCoverage => "low_coverage",
            Self::Failed => "failed",
        }
    }
}

/// The unit of a measure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent of link capacity.
    Percent,
    /// Bits per second, from `maxBandwidth`.
    BitsPerSecond,
    /// The author knows.
    Own,
}

impl Unit {
    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::BitsPerSecond => "bits_per_second",
            Self::Own => "",
        }
    }
}

/// The rules of evidence for one measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The unit of its threshold.
    pub unit: Unit,
    /// The direction of the built-in measurement; `None` for a custom query.
    pub direction: Option<Direction>,
    /// The oldest sample that counts, where its age is known.
    pub max_age: Duration,
    /// The thresholds, in the unit: above the first a node is unfit, at or below the second fit
    /// whichever it was.
    pub thresholds: (f64, f64),
}

impl Rules {
    /// Derives the evidence from the numbers of one node. `capacity` is in bits per second; an
    /// error is one that was configured but cannot be read.
    ///
    /// # Errors
    /// Why they prove nothing.
    pub fn evidence(
        &self,
        reading: Option<NodeMeasurement<'_>>,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        let reading = reading.ok_or(NoEvidence::NoSample)?;
        match self.direction {
            Some(direction) => self.built_in(direction, reading, capacity),
            None => self.own(reading, capacity),
        }
    }

    /// A query of the author's: one number. How old it is says only whether it was seen before,
    /// where it is known at all: the author knows how often there is another.
    fn own(
        &self,
        reading: NodeMeasurement<'_>,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        let (value, device) = number(reading.get(Measure::Own))?.ok_or(NoEvidence::NoSample)?;
        let percent = match self.unit {
            Unit::Percent => Some(value),
            Unit::BitsPerSecond => capacity.ok().flatten().map(|capacity| value / capacity * 100.0),
            Unit::Own => None,
        };
        let age = match reading.get(Measure::OwnAge) {
            Value::One(age, _) if age.is_finite() => Some(age.max(0.0)),
            _ => None,
        };
        let capacity = capacity.ok().flatten();
        let bits = match self.unit {
            Unit::Percent => capacity.map(|capacity| value / 100.0 * capacity),
            Unit::BitsPerSecond => Some(value),
            Unit::Own => None,
        };
        Ok(Evidence {
            value,
            percent: percent.into(),
            device: device.cloned(),
            total: Maybe::default(),
            age: age.into(),
            bits: bits.into(),
            capacity: capacity.into(),
        })
    }

    fn built_in(
        &self,
        direction: Direction,
        reading: NodeMeasurement<'_>,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        /// Value, percentage of the link, device.
        type Load<'a> = (f64, Option<f64>, Option<&'a Arc<str>>);
        let mut worst: Option<Load<'_>> = None;
        let (mut hidden, mut most_bits) = (false, 0.0_f64);
        let (max, fit) = self.thresholds;
        for (percent, bytes, without_speed) in directions(direction) {
            // Both directions are required: the missing one may be the busy one.
            let bits = number(reading.get(*bytes))?.ok_or(NoEvidence::NoSample)?.0 * 8.0;
            most_bits = most_bits.max(bits);
            let link = number(reading.get(*percent));
            let (value, percent, device) = match (self.unit, capacity) {
                (Unit::Percent, Err(())) => return Err(NoEvidence::InvalidCapacity),
                // The link still identifies the busy device, if its speed is known.
                (unit, Ok(Some(capacity))) => {
                    let percent = bits / capacity * 100.0;
                    let device = link.ok().flatten().and_then(|(_, device)| device);
                    (if unit == Unit::Percent { percent } else { bits }, Some(percent), device)
                }
                (Unit::Percent, Ok(None)) => {
                    let (percent, device) = link?.ok_or(NoEvidence::SpeedUnknown)?;
                    let other = number(reading.get(*without_speed))?.map_or(0.0, |(b, _)| b * 8.0);
                    hidden |= other / SLOWEST_LINK * 100.0 > fit;
                    (percent, Some(percent), device)
                }
                // An absolute threshold needs neither speed nor capacity.
                _ => {
                    let (percent, device) = link.ok().flatten().unzip();
                    (bits, percent, device.flatten())
                }
            };
            if worst.is_none_or(|(most, ..)| value > most) {
                worst = Some((value, percent, device));
            }
        }
        let (value, percent, device) = worst.ok_or(NoEvidence::NoSample)?;
        // Fit is a statement about every link; unfit is one about the link that is known to be
        // full.
        if hidden && value <= max {
            return Err(NoEvidence::SpeedUnknown);
        }
        // bytes / capacity may overflow though both were finite.
        if !value.is_finite() {
            return Err(NoEvidence::InvalidSample);
        }
        let age = match reading.get(Measure::Age) {
            Value::One(age, _) if age.is_finite() => age,
            Value::Absent => return Err(NoEvidence::StaleSample),
            _ => return Err(NoEvidence::InvalidSample),
        };
        // A sample from the future comes from a clock that is wrong by this difference.
        if age.abs() > self.max_age.as_secs_f64() {
            return Err(NoEvidence::StaleSample);
        }
        let total = number(reading.get(Measure::Total)).ok().flatten().map(|(total, _)| total);
        let percent = percent.filter(|percent| percent.is_finite());
        let speed =
            number(reading.get(Measure::Speed)).ok().flatten().map(|(bytes, _)| bytes * 8.0);
        Ok(Evidence {
            value,
            percent: percent.into(),
            device: device.cloned(),
            total: total.into(),
            age: Some(age.max(0.0)).into(),
            bits: Some(most_bits).filter(|bits| bits.is_finite()).into(),
            capacity: capacity.ok().flatten().or(speed).filter(|bits| bits.is_finite()).into(),
        })
    }

    /// Reports whether the answer has data about this node at all; what coverage counts.
    #[must_use]
    pub fn has_data(&self, reading: NodeMeasurement<'_>) -> bool {
        match self.direction {
            None => reading.has(Measure::Own),
            Some(direction) => {
                directions(direction).iter().all(|(_, bytes, _)| reading.has(*bytes))
            }
        }
    }
}

/// The share, the rate, and the rate without a speed, of each direction that counts.
fn directions(direction: Direction) -> &'static [(Measure, Measure, Measure)] {
    const BOTH: &[(Measure, Measure, Measure)] = &[
        (Measure::TransmitPercent, Measure::TransmitBytes, Measure::TransmitWithoutSpeed),
        (Measure::ReceivePercent, Measure::ReceiveBytes, Measure::ReceiveWithoutSpeed),
    ];
    match direction {
        Direction::Transmit => &BOTH[..1],
        Direction::Receive => &BOTH[1..],
        Direction::Busiest => BOTH,
    }
}

/// A number, and the device it is about.
type Number<'a> = (f64, Option<&'a Arc<str>>);

/// A usable number, or none, or one that proves nothing.
fn number(value: Value<&Arc<str>>) -> Result<Option<Number<'_>>, NoEvidence> {
    match value {
        Value::Absent => Ok(None),
        Value::One(number, device) if number.is_finite() && number >= 0.0 => {
            Ok(Some((number, device)))
        }
        Value::One(..) | Value::Unusable => Err(NoEvidence::InvalidSample),
    }
}

#[cfg(test)]
mod tests;
