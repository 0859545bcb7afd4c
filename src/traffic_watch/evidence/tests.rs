//! Tests of the evidence in numbers.
use proptest::prelude::*;

use super::*;

mod elements;

const TRANSMIT: Rules = Rules {
    unit: Unit::Percent,
    direction: Some(Direction::Transmit),
    window: Duration::from_mins(2),
    max_age: Duration::from_secs(90),
    thresholds: (60.0, 54.0),
};

const BUSIEST: Rules = Rules { direction: Some(Direction::Busiest), ..TRANSMIT };

impl Rules {
    /// Evidence of a whole answer.
    fn of(
        &self,
        reading: &NodeMeasurement,
        capacity: Result<Option<f64>, ()>,
    ) -> Result<Evidence, NoEvidence> {
        self.evidence(Some(reading), capacity, false)
    }
}

/// A node whose only link sends so many bytes per second, which are so many percent of its speed.
fn sent(percent: f64, bytes: f64, age: f64) -> NodeMeasurement {
    let speed = [(Measure::Speed, bytes / percent * 100.0)];
    NodeMeasurement::default().sending("eth0", bytes, age).with("eth0", &speed)
}

/// The same with a link that also receives so many bytes per second.
fn receiving(node: NodeMeasurement, device: &str, bytes: f64) -> NodeMeasurement {
    use Measure::{Age, AgeBefore, ReceiveRate, ReceiveTotal, ReceiveTotalBefore};
    let node = if node.links().unwrap().iter().any(|link| link.device.as_deref() == Some(device)) {
        node
    } else {
        node.with(device, &[(Age, 1.0), (AgeBefore, 120.0)])
    };
    node.with(device, &[(ReceiveRate, bytes), (ReceiveTotal, 7.0), (ReceiveTotalBefore, 7.0)])
}

fn own(value: f64) -> NodeMeasurement {
    NodeMeasurement::default().with("", &[(Measure::Own, value)])
}

#[test]
fn the_link_speed_counts_unless_a_capacity_is_given() {
    let reading = sent(8.0, 1e8, 1.0);
    let evidence = TRANSMIT.of(&reading, Ok(None)).unwrap();
    assert_eq!((evidence.value, evidence.device.as_deref()), (8.0, Some("eth0")));
    // 100 MB/s of 1 Gbit/s.
    let evidence = TRANSMIT.of(&reading, Ok(Some(1e9))).unwrap();
    assert_eq!((evidence.value, evidence.device.as_deref()), (80.0, Some("eth0")));
}

#[test]
fn u1_a_load_of_a_multiple_of_the_capacity_is_evidence_of_a_wrong_capacity() {
    let value = |rules: Rules, capacity: f64| {
        rules.of(&sent(8.0, 1e8, 1.0), Ok(Some(capacity))).map(|evidence| evidence.value)
    };
    // Written as 10 for 10G.
    assert_eq!(value(TRANSMIT, 10.0), Err(NoEvidence::InvalidCapacity));
    assert_eq!(value(TRANSMIT, 8e7), Ok(1000.0));
    // An absolute threshold needs none.
    assert_eq!(value(Rules { unit: Unit::BitsPerSecond, ..TRANSMIT }, 10.0), Ok(8e8));
}

#[test]
fn absence_is_never_a_verdict() {
    use NoEvidence as No;
    let node = NodeMeasurement::default;
    let without_speed = node().sending("eth0", 1e8, 1.0);
    let no_age = node().with("eth0", &[(Measure::TransmitRate, 1.0), (Measure::Speed, 100.0)]);
    let twice = sent(8.0, 1.0, 1.0).with("eth0", &[(Measure::TransmitRate, 8.0)]);
    let two_speeds = sent(8.0, 1.0, 1.0).with("eth0", &[(Measure::Speed, 8.0)]);
    let crowd = (0..2000).fold(node(), |node, i| node.sending(&format!("veth{i}"), 1.0, 1.0));
    for (name, reading, capacity, expected) in [
        ("empty", node(), Ok(None), No::NoSample),
        ("no speed", without_speed.clone(), Ok(None), No::SpeedUnknown),
        ("bad annotation", sent(8.0, 1.0, 1.0), Err(()), No::InvalidCapacity),
        ("NaN", sent(8.0, f64::NAN, 1.0), Ok(None), No::InvalidSample),
        ("+Inf", sent(8.0, f64::INFINITY, 1.0), Ok(None), No::InvalidSample),
        ("-Inf", sent(8.0, f64::NEG_INFINITY, 1.0), Ok(None), No::InvalidSample),
        ("negative", sent(8.0, -7.4e-4, 1.0), Ok(None), No::InvalidSample),
        ("duplicate", twice, Ok(None), No::InvalidSample),
        ("two speeds", two_speeds.clone(), Ok(None), No::InvalidSample),
        ("more links than a node has", crowd, Ok(None), No::InvalidSample),
        ("old", sent(8.0, 1.0, 91.0), Ok(None), No::StaleSample),
        ("future", sent(8.0, 1.0, -91.0), Ok(None), No::StaleSample),
        ("age missing", no_age, Ok(None), No::StaleSample),
        ("age NaN", sent(8.0, 1.0, f64::NAN), Ok(None), No::InvalidSample),
    ] {
        assert_eq!(TRANSMIT.of(&reading, capacity), Err(expected), "{name}");
    }
    assert_eq!(TRANSMIT.evidence(None, Ok(None), false), Err(No::NoSample));
    for reading in [without_speed, two_speeds] {
        assert!(TRANSMIT.of(&reading, Ok(Some(1e9))).is_ok());
    }
}

#[test]
fn busiest_needs_both_directions_and_takes_the_larger() {
    let both = sent(8.0, 1.0, 1.0);
    assert_eq!(BUSIEST.of(&both, Ok(None)), Err(NoEvidence::NoSample));
    let both = receiving(both, "eth1", 2.0).with("eth1", &[(Measure::Speed, 2.0 / 0.7)]);
    let evidence = BUSIEST.of(&both, Ok(None)).unwrap();
    assert_eq!((evidence.value.round(), evidence.device.as_deref()), (70.0, Some("eth1")));
}

#[test]
fn an_absolute_threshold_needs_no_link_speed() {
    let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
    let without_speed = NodeMeasurement::default().sending("eth0", 1e8, 1.0);
    for (capacity, percent) in [(Ok(None), None), (Ok(Some(1e9)), Some(80.0)), (Err(()), None)] {
        let evidence = absolute.of(&without_speed, capacity).unwrap();
        assert_eq!((evidence.value, evidence.percent.get()), (8e8, percent));
    }
}

#[test]
fn the_load_and_the_capacity_are_known_in_bits() {
    let evidence = |rules: Rules, speed: f64, capacity| {
        let reading = sent(1e10 / speed, 1e8, 1.0);
        let evidence = rules.of(&reading, capacity).unwrap();
        (evidence.bits.get(), evidence.capacity.get())
    };
    let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
    for rules in [TRANSMIT, absolute] {
        assert_eq!(evidence(rules, 1.25e9, Ok(None)), (Some(8e8), Some(1e10)));
        // The configured speed takes precedence over the speed of the link.
        assert_eq!(evidence(rules, 1.25e9, Ok(Some(2e9))), (Some(8e8), Some(2e9)));
    }
    let own = |unit, capacity| {
        let rules = Rules { unit, direction: None, ..TRANSMIT };
        rules.of(&own(40.0), capacity).unwrap().bits.get()
    };
    assert_eq!(own(Unit::Percent, Ok(None)), None);
    assert_eq!(own(Unit::Percent, Ok(Some(1e9))), Some(4e8));
    assert_eq!(own(Unit::BitsPerSecond, Ok(None)), Some(40.0));
    assert_eq!(own(Unit::Own, Ok(Some(1e9))), None);
}

#[test]
fn a_link_without_a_speed_may_be_the_fullest() {
    let evidence = |percent: f64, other: f64, rules: Rules, capacity| {
        let reading = sent(percent, 1e7, 1.0).sending("eth1", other, 1.0);
        rules.of(&reading, capacity).map(|evidence| evidence.value)
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
    assert_eq!(evidence(62.5, 1e8, TRANSMIT, Ok(None)), Ok(62.5));
    assert_eq!(evidence(50.0, 1e8, TRANSMIT, Ok(None)), hidden);
    // With a capacity, or an absolute threshold, all links are counted together.
    assert_eq!(evidence(8.0, 9e7, TRANSMIT, Ok(Some(10e9))), Ok(8.0));
    let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
    assert_eq!(evidence(8.0, 9e7, absolute, Ok(None)), Ok(8e8));
}

#[test]
fn a_full_link_of_either_direction_is_enough() {
    let both = receiving(sent(80.0, 8.0, 1.0), "eth0", 0.1);
    let hidden = receiving(both.clone(), "eth1", 1e8);
    assert_eq!(BUSIEST.of(&hidden, Ok(None)).map(|e| e.value), Ok(80.0));
    let unusable = both.with("eth0", &[(Measure::ReceiveRate, 1.0)]);
    assert_eq!(BUSIEST.of(&unusable, Ok(None)), Err(NoEvidence::InvalidSample));
}

#[test]
fn a_query_of_the_authors_is_evidence_by_presence_alone() {
    use NoEvidence as No;
    let rules = Rules {
        unit: Unit::Own,
        direction: None,
        max_age: Duration::MAX,
        thresholds: (1.0, 0.9),
        ..TRANSMIT
    };
    let evidence = rules.of(&own(0.02), Ok(None)).unwrap();
    assert_eq!((evidence.value, evidence.percent.get(), evidence.age.get()), (0.02, None, None));
    for (value, expected) in [(f64::NAN, No::InvalidSample), (-1.0, No::InvalidSample)] {
        assert_eq!(rules.of(&own(value), Ok(None)), Err(expected));
    }
    assert_eq!(rules.of(&NodeMeasurement::default(), Ok(None)), Err(No::NoSample));
    // A partial answer may lack the rest.
    let partial = |value| rules.evidence(Some(&own(value)), Ok(None), true).map(|e| e.value);
    assert_eq!((partial(0.02), partial(1.5)), (Err(No::PartialWindow), Ok(1.5)));
}

proptest! {
    #[test]
    fn evidence_is_always_a_finite_share(
        percent: f64, bytes: f64, age: f64, capacity in proptest::option::of(1e-3..1e15f64),
        partial: bool,
    ) {
        let reading = sent(percent, bytes, age);
        if let Ok(evidence) = TRANSMIT.evidence(Some(&reading), Ok(capacity), partial) {
            prop_assert!(evidence.value.is_finite() && evidence.value >= 0.0);
            prop_assert!(evidence.age.get().is_some_and(|age| (0.0..=90.0).contains(&age)));
        }
    }
}

#[test]
fn the_share_of_an_authors_bits_is_one_of_the_capacity() {
    let rules = Rules { unit: Unit::BitsPerSecond, direction: None, ..TRANSMIT };
    let percent = |capacity| rules.of(&own(40.0), capacity).unwrap().percent.get();
    assert_eq!(percent(Ok(Some(160.0))), Some(25.0));
    assert_eq!((percent(Ok(None)), percent(Err(()))), (None, None));
}

#[test]
fn an_age_that_is_no_number_is_unknown() {
    let rules = Rules { unit: Unit::Own, direction: None, ..TRANSMIT };
    let age = |age: f64| {
        let reading = own(1.0).with("", &[(Measure::OwnAge, age)]);
        rules.of(&reading, Ok(None)).unwrap().age.get()
    };
    assert_eq!(age(7.0), Some(7.0));
    assert_eq!(age(-7.0), Some(0.0));
    assert_eq!([f64::NAN, f64::INFINITY].map(age), [None, None]);
}

#[test]
fn a_sample_of_exactly_the_oldest_age_counts() {
    let rules = Rules { max_age: Duration::from_secs(30), ..TRANSMIT };
    for age in [30.0, -30.0] {
        assert!(rules.of(&sent(8.0, 1.0, age), Ok(None)).is_ok(), "{age}");
    }
}

#[test]
fn of_two_directions_that_are_equally_busy_the_first_names_the_device() {
    let both = receiving(sent(70.0, 1.0, 1.0), "eth1", 1.0);
    let both = both.with("eth1", &[(Measure::Speed, 1.0 / 70.0 * 100.0)]);
    let evidence = BUSIEST.of(&both, Ok(None)).unwrap();
    assert_eq!((evidence.value.round(), evidence.device.as_deref()), (70.0, Some("eth0")));
}

#[test]
fn a_node_has_data_if_there_is_a_rate_or_a_counter_of_each_direction_that_counts() {
    let own = Rules { unit: Unit::Own, direction: None, ..TRANSMIT };
    for (rules, measures, has) in [
        (TRANSMIT, &[Measure::Age, Measure::TransmitTotalBefore] as &[_], false),
        (TRANSMIT, &[Measure::ReceiveRate], false),
        (TRANSMIT, &[Measure::TransmitRate], true),
        (TRANSMIT, &[Measure::TransmitTotal], true),
        (BUSIEST, &[Measure::TransmitRate], false),
        (BUSIEST, &[Measure::TransmitRate, Measure::ReceiveRate], true),
        (own, &[Measure::TransmitRate, Measure::OwnAge], false),
        (own, &[Measure::Own], true),
    ] {
        let values: Vec<_> = measures.iter().map(|measure| (*measure, 1.0)).collect();
        let reading = NodeMeasurement::default().with("eth0", &values);
        assert_eq!(rules.has_data(&reading), has, "{measures:?}");
    }
}

#[test]
fn the_labels_of_metrics_are_the_documented_ones() {
    let evaluations = [Evaluation::Ok, Evaluation::LowCoverage, Evaluation::Failed];
    assert_eq!(evaluations.map(Evaluation::as_str), ["ok", "low_coverage", "failed"]);
    let units = [Unit::Percent, Unit::BitsPerSecond, Unit::Own];
    assert_eq!(units.map(Unit::as_str), ["percent", "bits_per_second", ""]);
}
