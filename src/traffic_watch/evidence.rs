//! From the numbers of a node to what they prove, or why they prove nothing.
use std::{sync::Arc, time::Duration};

use super::{
    query::Measure,
    reading::{NodeMeasurement, Value},
};
use crate::api::traffic_watch::Direction;

mod absence;

pub use absence::NoEvidence;

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
    pub percent: Option<f64>,
    /// The busiest link, if the link speeds are known.
    pub device: Option<Arc<str>>,
    /// Bytes sent since the counters began.
    pub total: Option<f64>,
    /// Seconds since the sample; of queries of the author's known only of selectors.
    pub age: Option<f64>,
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
        Ok(Evidence { value, percent, device: device.cloned(), total: None, age })
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
        let mut hidden = false;
        let (max, fit) = self.thresholds;
        for (percent, bytes, without_speed) in directions(direction) {
            // Both directions must be there: the missing one may be the busy one.
            let bits = number(reading.get(*bytes))?.ok_or(NoEvidence::NoSample)?.0 * 8.0;
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
            if worst.as_ref().is_none_or(|(most, ..)| value > *most) {
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
            Value::One(age, _) if age.is_finite() => *age,
            Value::Absent => return Err(NoEvidence::StaleSample),
            _ => return Err(NoEvidence::InvalidSample),
        };
        // A sample from the future comes from a clock that is as wrong as this says.
        if age.abs() > self.max_age.as_secs_f64() {
            return Err(NoEvidence::StaleSample);
        }
        let total = number(reading.get(Measure::Total)).ok().flatten().map(|(total, _)| total);
        let percent = percent.filter(|percent| percent.is_finite());
        Ok(Evidence { value, percent, device: device.cloned(), total, age: Some(age.max(0.0)) })
    }

    /// Reports whether the answer has data about this node at all; what coverage counts.
    #[must_use]
    pub fn has_data(&self, reading: NodeMeasurement<'_>) -> bool {
        match self.direction {
            None => *reading.get(Measure::Own) != Value::Absent,
            Some(direction) => directions(direction)
                .iter()
                .all(|(_, bytes, _)| *reading.get(*bytes) != Value::Absent),
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
fn number(value: &Value) -> Result<Option<Number<'_>>, NoEvidence> {
    match value {
        Value::Absent => Ok(None),
        Value::One(number, device) if number.is_finite() && *number >= 0.0 => {
            Ok(Some((*number, device.as_ref())))
        }
        Value::One(..) | Value::Unusable => Err(NoEvidence::InvalidSample),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::reading::OneNode, *};

    const TRANSMIT: Rules = Rules {
        unit: Unit::Percent,
        direction: Some(Direction::Transmit),
        max_age: Duration::from_secs(90),
        thresholds: (60.0, 54.0),
    };

    fn reading(values: &[(Measure, f64)]) -> OneNode {
        let mut reading = OneNode::default();
        for (measure, value) in values {
            let device = (*measure == Measure::TransmitPercent).then(|| "eth0".into());
            reading.put(*measure, Value::One(*value, device));
        }
        reading
    }

    fn sent(percent: f64, bytes: f64, age: f64) -> OneNode {
        reading(&[
            (Measure::TransmitPercent, percent),
            (Measure::TransmitBytes, bytes),
            (Measure::Age, age),
        ])
    }

    #[test]
    fn the_link_speed_counts_unless_a_capacity_is_given() {
        let reading = sent(8.0, 1e8, 1.0);
        let evidence = TRANSMIT.evidence(Some(reading.reading()), Ok(None)).unwrap();
        assert_eq!((evidence.value, evidence.device.as_deref()), (8.0, Some("eth0")));
        // 100 MB/s of 1 Gbit/s.
        let evidence = TRANSMIT.evidence(Some(reading.reading()), Ok(Some(1e9))).unwrap();
        assert_eq!((evidence.value, evidence.device.as_deref()), (80.0, Some("eth0")));
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
            ("empty", Some(OneNode::default()), Ok(None), No::NoSample),
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
            assert_eq!(
                TRANSMIT.evidence(reading.as_ref().map(OneNode::reading), capacity),
                Err(expected),
                "{name}"
            );
        }
        assert!(TRANSMIT.evidence(Some(without_speed.reading()), Ok(Some(1e9))).is_ok());
    }

    #[test]
    fn busiest_needs_both_directions_and_takes_the_larger() {
        let busiest = Rules { direction: Some(Direction::Busiest), ..TRANSMIT };
        let mut both = sent(8.0, 1.0, 1.0);
        assert_eq!(busiest.evidence(Some(both.reading()), Ok(None)), Err(NoEvidence::NoSample));
        both.put(Measure::ReceivePercent, Value::One(70.0, Some("eth1".into())));
        both.put(Measure::ReceiveBytes, Value::One(2.0, None));
        let evidence = busiest.evidence(Some(both.reading()), Ok(None)).unwrap();
        assert_eq!((evidence.value, evidence.device.as_deref()), (70.0, Some("eth1")));
    }

    #[test]
    fn an_absolute_threshold_needs_no_link_speed() {
        let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
        let without_speed = reading(&[(Measure::TransmitBytes, 1e8), (Measure::Age, 1.0)]);
        for (capacity, percent) in [(Ok(None), None), (Ok(Some(1e9)), Some(80.0)), (Err(()), None)]
        {
            let evidence = absolute.evidence(Some(without_speed.reading()), capacity).unwrap();
            assert_eq!((evidence.value, evidence.percent), (8e8, percent));
        }
    }

    #[test]
    fn t08_a_link_without_a_speed_may_be_the_fullest() {
        let evidence = |percent: f64, bytes: f64, rules: Rules, capacity| {
            let mut reading = sent(percent, bytes, 1.0);
            reading.put(Measure::TransmitWithoutSpeed, Value::One(bytes, None));
            rules.evidence(Some(reading.reading()), capacity).map(|evidence| evidence.value)
        };
        let hidden = Err(NoEvidence::SpeedUnknown);
        // 800 Mbit/s on a link of unknown speed beside one at 8 %.
        assert_eq!(evidence(8.0, 1e8, TRANSMIT, Ok(None)), hidden);
        // Just above 54 Mbit/s, at which a link of 100 Mbit/s would not be fit again.
        assert_eq!(evidence(8.0, 6.76e6, TRANSMIT, Ok(None)), hidden);
        // At most that much, and a link that is down or idles, change nothing.
        for bytes in [6.75e6, 1e3, 0.0] {
            assert_eq!(evidence(8.0, bytes, TRANSMIT, Ok(None)), Ok(8.0), "{bytes}");
        }
        // A link that is known to be full is enough.
        assert_eq!(evidence(60.1, 1e8, TRANSMIT, Ok(None)), Ok(60.1));
        assert_eq!(evidence(60.0, 1e8, TRANSMIT, Ok(None)), hidden);
        // With a capacity, or an absolute threshold, all links are counted together.
        assert_eq!(evidence(8.0, 1e8, TRANSMIT, Ok(Some(10e9))), Ok(8.0));
        let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
        assert_eq!(evidence(8.0, 1e8, absolute, Ok(None)), Ok(8e8));
    }

    #[test]
    fn t08_a_full_link_of_either_direction_is_enough() {
        let busiest = Rules { direction: Some(Direction::Busiest), ..TRANSMIT };
        let mut both = sent(80.0, 1.0, 1.0);
        both.put(Measure::ReceivePercent, Value::One(1.0, None));
        both.put(Measure::ReceiveBytes, Value::One(1e8, None));
        both.put(Measure::ReceiveWithoutSpeed, Value::One(1e8, None));
        assert_eq!(busiest.evidence(Some(both.reading()), Ok(None)).map(|e| e.value), Ok(80.0));
        both.put(Measure::ReceiveWithoutSpeed, Value::One(1.0, None));
        let unusable = busiest.evidence(Some(both.reading()), Ok(None)).unwrap_err();
        assert_eq!(unusable, NoEvidence::InvalidSample);
    }

    #[test]
    fn a_query_of_the_authors_is_evidence_by_presence_alone() {
        use NoEvidence as No;
        let own = Rules {
            unit: Unit::Own,
            direction: None,
            max_age: Duration::MAX,
            thresholds: (1.0, 0.9),
        };
        let evidence =
            own.evidence(Some(reading(&[(Measure::Own, 0.02)]).reading()), Ok(None)).unwrap();
        assert_eq!((evidence.value, evidence.percent, evidence.age), (0.02, None, None));
        for (value, expected) in [(f64::NAN, No::InvalidSample), (-1.0, No::InvalidSample)] {
            let reading = reading(&[(Measure::Own, value)]);
            assert_eq!(own.evidence(Some(reading.reading()), Ok(None)), Err(expected));
        }
        assert_eq!(own.evidence(Some(OneNode::default().reading()), Ok(None)), Err(No::NoSample));
    }

    proptest! {
        #[test]
        fn evidence_is_always_a_finite_share(
            percent: f64, bytes: f64, age: f64, capacity in proptest::option::of(1e-3..1e15f64),
        ) {
            let reading = sent(percent, bytes, age);
            if let Ok(evidence) = TRANSMIT.evidence(Some(reading.reading()), Ok(capacity)) {
                prop_assert!(evidence.value.is_finite() && evidence.value >= 0.0);
                prop_assert!(evidence.age.is_some_and(|age| (0.0..=90.0).contains(&age)));
            }
        }
    }
}
