//! Tests of the evidence in numbers.
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
    let without_age = reading(&[(Measure::TransmitPercent, 1.0), (Measure::TransmitBytes, 1.0)]);
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
    for (capacity, percent) in [(Ok(None), None), (Ok(Some(1e9)), Some(80.0)), (Err(()), None)] {
        let evidence = absolute.evidence(Some(without_speed.reading()), capacity).unwrap();
        assert_eq!((evidence.value, evidence.percent.get()), (8e8, percent));
    }
}

#[test]
fn the_load_and_the_capacity_are_known_in_bits() {
    let evidence = |rules: Rules, speed: Option<f64>, capacity| {
        let mut reading = sent(8.0, 1e8, 1.0);
        if let Some(speed) = speed {
            reading.put(Measure::Speed, Value::One(speed, None));
        }
        let evidence = rules.evidence(Some(reading.reading()), capacity).unwrap();
        (evidence.bits.get(), evidence.capacity.get())
    };
    let absolute = Rules { unit: Unit::BitsPerSecond, ..TRANSMIT };
    for rules in [TRANSMIT, absolute] {
        assert_eq!(evidence(rules, None, Ok(None)), (Some(8e8), None));
        assert_eq!(evidence(rules, Some(1.25e9), Ok(None)), (Some(8e8), Some(1e10)));
        // The configured speed takes precedence over the speed of the link.
        assert_eq!(evidence(rules, Some(1.25e9), Ok(Some(2e9))), (Some(8e8), Some(2e9)));
    }
    let own = |unit, capacity| {
        let rules = Rules { unit, direction: None, ..TRANSMIT };
        let evidence =
            rules.evidence(Some(reading(&[(Measure::Own, 40.0)]).reading()), capacity).unwrap();
        evidence.bits.get()
    };
    assert_eq!(own(Unit::Percent, Ok(None)), None);
    assert_eq!(own(Unit::Percent, Ok(Some(1e9))), Some(4e8));
    assert_eq!(own(Unit::BitsPerSecond, Ok(None)), Some(40.0));
    assert_eq!(own(Unit::Own, Ok(Some(1e9))), None);
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
    let own =
        Rules { unit: Unit::Own, direction: None, max_age: Duration::MAX, thresholds: (1.0, 0.9) };
    let evidence =
        own.evidence(Some(reading(&[(Measure::Own, 0.02)]).reading()), Ok(None)).unwrap();
    assert_eq!((evidence.value, evidence.percent.get(), evidence.age.get()), (0.02, None, None));
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
            prop_assert!(evidence.age.get().is_some_and(|age| (0.0..=90.0).contains(&age)));
        }
    }
}

#[test]
fn the_share_of_an_authors_bits_is_one_of_the_capacity() {
    let rules = Rules { unit: Unit::BitsPerSecond, direction: None, ..TRANSMIT };
    let own = reading(&[(Measure::Own, 40.0)]);
    let percent = |capacity| rules.evidence(Some(own.reading()), capacity).unwrap().percent.get();
    assert_eq!(percent(Ok(Some(160.0))), Some(25.0));
    assert_eq!((percent(Ok(None)), percent(Err(()))), (None, None));
}

#[test]
fn an_age_that_is_no_number_is_unknown() {
    let own = Rules { unit: Unit::Own, direction: None, ..TRANSMIT };
    let age = |age: f64| {
        let reading = reading(&[(Measure::Own, 1.0), (Measure::OwnAge, age)]);
        own.evidence(Some(reading.reading()), Ok(None)).unwrap().age.get()
    };
    assert_eq!(age(7.0), Some(7.0));
    assert_eq!(age(-7.0), Some(0.0));
    assert_eq!([f64::NAN, f64::INFINITY].map(age), [None, None]);
}

#[test]
fn a_sample_of_exactly_the_oldest_age_counts() {
    for age in [90.0, -90.0] {
        let reading = sent(8.0, 1.0, age);
        assert!(TRANSMIT.evidence(Some(reading.reading()), Ok(None)).is_ok(), "{age}");
    }
}

#[test]
fn of_two_directions_that_are_equally_busy_the_first_names_the_device() {
    let busiest = Rules { direction: Some(Direction::Busiest), ..TRANSMIT };
    let mut both = sent(70.0, 1.0, 1.0);
    both.put(Measure::ReceivePercent, Value::One(70.0, Some("eth1".into())));
    both.put(Measure::ReceiveBytes, Value::One(2.0, None));
    let evidence = busiest.evidence(Some(both.reading()), Ok(None)).unwrap();
    assert_eq!((evidence.value, evidence.device.as_deref()), (70.0, Some("eth0")));
}

#[test]
fn a_node_has_data_if_there_is_a_rate_of_each_direction_that_counts() {
    let own = Rules { unit: Unit::Own, direction: None, ..TRANSMIT };
    let busiest = Rules { direction: Some(Direction::Busiest), ..TRANSMIT };
    for (rules, measures, has) in [
        (TRANSMIT, &[Measure::Age, Measure::TransmitPercent] as &[_], false),
        (TRANSMIT, &[Measure::ReceiveBytes], false),
        (TRANSMIT, &[Measure::TransmitBytes], true),
        (busiest, &[Measure::TransmitBytes], false),
        (busiest, &[Measure::TransmitBytes, Measure::ReceiveBytes], true),
        (own, &[Measure::TransmitBytes, Measure::OwnAge], false),
        (own, &[Measure::Own], true),
    ] {
        let values: Vec<_> = measures.iter().map(|measure| (*measure, 1.0)).collect();
        assert_eq!(rules.has_data(reading(&values).reading()), has, "{measures:?}");
    }
}

#[test]
fn the_labels_of_metrics_are_the_documented_ones() {
    let evaluations = [Evaluation::Ok, Evaluation::LowCoverage, Evaluation::Failed];
    assert_eq!(evaluations.map(Evaluation::as_str), ["ok", "low_coverage", "failed"]);
    let units = [Unit::Percent, Unit::BitsPerSecond, Unit::Own];
    assert_eq!(units.map(Unit::as_str), ["percent", "bits_per_second", ""]);
}
