//! From the numbers of a node to what they prove, or why they prove nothing.
use std::{sync::Arc, time::Duration};

use super::{
    query::Measure,
    reading::{NodeReading, Value},
};
use crate::api::traffic_watch::Direction;

/// What a measurement proves about one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Percent of capacity in use.
    pub percent: f64,
    /// The busiest link, if the link speeds are known.
    pub device: Option<Arc<str>>,
    /// Bytes sent since the counters began.
    pub total: Option<f64>,
    /// Seconds since the sample.
    pub age: f64,
}

/// Why there is no evidence about a node. The words stand in status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoEvidence {
    /// The request failed.
    MetricsUnavailable,
    /// Fewer than half of the nodes have data: the measurement is broken, not the nodes.
    LowCoverage,
    /// Nothing in the answer is about this node, or its exporter does not answer.
    NoSample,
    /// The link speed is not known, and no capacity is configured.
    SpeedUnknown,
    /// The capacity annotation is no quantity.
    InvalidCapacity,
    /// `NaN`, infinite, negative, or two values.
    InvalidSample,
    /// Older than `maxSampleAge`.
    StaleSample,
}

impl NoEvidence {
    /// The reason in status and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::MetricsUnavailable => "MetricsUnavailable",
            Self::LowCoverage => "LowCoverage",
            Self::NoSample => "NoSample",
            Self::SpeedUnknown => "SpeedUnknown",
            Self::InvalidCapacity => "InvalidCapacity",
            Self::InvalidSample => "InvalidSample",
            Self::StaleSample => "StaleSample",
        }
    }
}

/// What counts as evidence for one `TrafficWatch`.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Which direction.
    pub direction: Direction,
    /// The oldest sample that counts.
    pub max_age: Duration,
}

impl Rules {
    /// What the numbers of one node prove. `capacity` is in bits per second; an error is one that
    /// was configured but cannot be read.
    ///
    /// # Errors
    /// Why they prove nothing.
    pub fn evidence(
        &self,
        reading: Option<&NodeReading>,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        let reading = reading.ok_or(NoEvidence::NoSample)?;
        let directions: &[(Measure, Measure)] = match self.direction {
            Direction::Transmit => &[(Measure::TransmitPercent, Measure::TransmitBytes)],
            Direction::Receive => &[(Measure::ReceivePercent, Measure::ReceiveBytes)],
            Direction::Busiest => &[
                (Measure::TransmitPercent, Measure::TransmitBytes),
                (Measure::ReceivePercent, Measure::ReceiveBytes),
            ],
        };
        let capacity = capacity.map_err(|()| NoEvidence::InvalidCapacity)?;
        let mut worst: Option<Number> = None;
        for (percent, bytes) in directions {
            // Both directions must be there: the missing one may be the busy one.
            let bytes = number(reading.get(*bytes))?.ok_or(NoEvidence::NoSample)?.0;
            let link = number(reading.get(*percent));
            let (percent, device) = match capacity {
                // The link still tells which device is the busy one, if its speed is known.
                Some(capacity) => {
                    (bytes * 8.0 / capacity * 100.0, link.ok().flatten().and_then(|l| l.1))
                }
                None => link?.ok_or(NoEvidence::SpeedUnknown)?,
            };
            if worst.as_ref().is_none_or(|(most, _)| percent > *most) {
                worst = Some((percent, device));
            }
        }
        let (percent, device) = worst.ok_or(NoEvidence::NoSample)?;
        // bytes / capacity may overflow though both were finite.
        if !percent.is_finite() {
            return Err(NoEvidence::InvalidSample);
        }
        let age = match reading.get(Measure::Age) {
            Value::One(age, _) if age.is_finite() => *age,
            Value::Absent => return Err(NoEvidence::StaleSample),
            _ => return Err(NoEvidence::InvalidSample),
        };
        // A sample from the future comes from a clock that is as wrong as this says.
        if age.abs() > self.max_age.as_secs_f64() {
            return Err(NoEvidence::StaleSample);
        }
        let total = number(reading.get(Measure::Total)).ok().flatten().map(|(total, _)| total);
        Ok(Evidence { percent, device, total, age: age.max(0.0) })
    }

    /// Whether the answer has data about this node at all; what coverage counts.
    #[must_use]
    pub fn has_data(&self, reading: &NodeReading) -> bool {
        let measures: &[Measure] = match self.direction {
            Direction::Transmit => &[Measure::TransmitBytes],
            Direction::Receive => &[Measure::ReceiveBytes],
            Direction::Busiest => &[Measure::TransmitBytes, Measure::ReceiveBytes],
        };
        measures.iter().all(|measure| *reading.get(*measure) != Value::Absent)
    }
}

/// A number, and the device it is about.
type Number = (f64, Option<Arc<str>>);

/// A usable number, or none, or one that proves nothing.
fn number(value: &Value) -> Result<Option<Number>, NoEvidence> {
    match value {
        Value::Absent => Ok(None),
        Value::One(number, device) if number.is_finite() && *number >= 0.0 => {
            Ok(Some((*number, device.clone())))
        }
        Value::One(..) | Value::Unusable => Err(NoEvidence::InvalidSample),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRANSMIT: Rules =
        Rules { direction: Direction::Transmit, max_age: Duration::from_secs(90) };

    fn reading(values: &[(Measure, f64)]) -> NodeReading {
        let mut reading = NodeReading::default();
        for (measure, value) in values {
            let device = (*measure == Measure::TransmitPercent).then(|| "eth0".into());
            reading.put(*measure, Value::One(*value, device));
        }
        reading
    }

    fn sent(percent: f64, bytes: f64, age: f64) -> NodeReading {
        reading(&[
            (Measure::TransmitPercent, percent),
            (Measure::TransmitBytes, bytes),
            (Measure::Age, age),
        ])
    }

    #[test]
    fn the_link_speed_counts_unless_a_capacity_is_given() {
        let reading = sent(8.0, 1e8, 1.0);
        let evidence = TRANSMIT.evidence(Some(&reading), Ok(None)).unwrap();
        assert_eq!((evidence.percent, evidence.device.as_deref()), (8.0, Some("eth0")));
        // 100 MB/s of 1 Gbit/s.
        let evidence = TRANSMIT.evidence(Some(&reading), Ok(Some(1e9))).unwrap();
        assert_eq!((evidence.percent, evidence.device.as_deref()), (80.0, Some("eth0")));
    }

    #[test]
    fn absence_is_never_a_verdict() {
        use NoEvidence as No;
        let without_speed = reading(&[(Measure::TransmitBytes, 1e8), (Measure::Age, 1.0)]);
        let without_age =
            reading(&[(Measure::TransmitPercent, 1.0), (Measure::TransmitBytes, 1.0)]);
        let mut twice = sent(8.0, 1.0, 1.0);
        twice.put(Measure::TransmitPercent, Value::One(8.0, None));
        for (name, reading, capacity, expected) in [
            ("no series", None, Ok(None), No::NoSample),
            ("empty", Some(NodeReading::default()), Ok(None), No::NoSample),
            ("no speed", Some(without_speed.clone()), Ok(None), No::SpeedUnknown),
            ("bad annotation", Some(sent(8.0, 1.0, 1.0)), Err(()), No::InvalidCapacity),
            ("NaN", Some(sent(f64::NAN, 1.0, 1.0)), Ok(None), No::InvalidSample),
            ("NaN bytes", Some(sent(1.0, f64::NAN, 1.0)), Ok(None), No::InvalidSample),
            ("+Inf", Some(sent(f64::INFINITY, 1.0, 1.0)), Ok(None), No::InvalidSample),
            ("-Inf", Some(sent(f64::NEG_INFINITY, 1.0, 1.0)), Ok(None), No::InvalidSample),
            ("counter reset", Some(sent(-7.4e-4, 1.0, 1.0)), Ok(None), No::InvalidSample),
            ("duplicate", Some(twice), Ok(None), No::InvalidSample),
            ("old", Some(sent(8.0, 1.0, 91.0)), Ok(None), No::StaleSample),
            ("future", Some(sent(8.0, 1.0, -91.0)), Ok(None), No::StaleSample),
            ("age missing", Some(without_age), Ok(None), No::StaleSample),
            ("age NaN", Some(sent(8.0, 1.0, f64::NAN)), Ok(None), No::InvalidSample),
        ] {
            assert_eq!(TRANSMIT.evidence(reading.as_ref(), capacity), Err(expected), "{name}");
        }
        assert!(TRANSMIT.evidence(Some(&without_speed), Ok(Some(1e9))).is_ok());
    }

    #[test]
    fn busiest_needs_both_directions_and_takes_the_larger() {
        let busiest = Rules { direction: Direction::Busiest, ..TRANSMIT };
        let mut both = sent(8.0, 1.0, 1.0);
        assert_eq!(busiest.evidence(Some(&both), Ok(None)), Err(NoEvidence::NoSample));
        both.put(Measure::ReceivePercent, Value::One(70.0, Some("eth1".into())));
        both.put(Measure::ReceiveBytes, Value::One(2.0, None));
        let evidence = busiest.evidence(Some(&both), Ok(None)).unwrap();
        assert_eq!((evidence.percent, evidence.device.as_deref()), (70.0, Some("eth1")));
    }

    proptest! {
        #[test]
        fn evidence_is_always_a_finite_share(
            percent: f64, bytes: f64, age: f64, capacity in proptest::option::of(1e-3..1e15f64),
        ) {
            let reading = sent(percent, bytes, age);
            if let Ok(evidence) = TRANSMIT.evidence(Some(&reading), Ok(capacity)) {
                prop_assert!(evidence.percent.is_finite() && evidence.percent >= 0.0);
                prop_assert!(evidence.age >= 0.0 && evidence.age <= 90.0);
            }
        }
    }
}
