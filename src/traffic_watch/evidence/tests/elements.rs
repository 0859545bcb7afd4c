//! What an answer proves: tables over its elements, as Prometheus sends them.
use serde_json::json;

use super::{
    super::super::{
        query::Question,
        reading::{Measurement, Names},
    },
    *,
};
use crate::nodes::Identity;

/// An element: the measure, the device, the value.
type Element = (&'static str, &'static str, f64);

/// One link through a whole window: 80 MB/s by its samples, and 100 MB/s by its counter.
const FULL: [Element; 6] = [
    ("transmit_rate", "eth0", 8e7),
    ("transmit_total", "eth0", 120e8),
    ("transmit_total_before", "eth0", 0.0),
    ("age", "eth0", 5.0),
    ("age_before", "eth0", 125.0),
    ("speed", "eth0", 1.25e9),
];

fn judge(rules: &Rules, elements: &[Element]) -> Result<Evidence, NoEvidence> {
    let element = |(measure, device, value): &Element| {
        json!({
            "metric": {"instance": "a:9100", "device": device, "measure": measure},
            "value": [1000, value.to_string()],
        })
    };
    let result: Vec<_> = elements.iter().map(element).collect();
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    let identity = Identity::new(vec![("a".into(), &[])]);
    let names = Names { identity: &identity, labels: &[] };
    let question = Question::BuiltIn {
        devices: "eth.*".into(),
        direction: rules.direction.unwrap(),
        window: rules.window,
    };
    let body = body.to_string();
    let reading =
        Measurement::read(200, "application/json", body.as_bytes(), &question, names).unwrap();
    rules.evidence(reading.get("a"), Ok(None), reading.is_partial())
}

/// The elements with some of them replaced, by measure and device, or left out.
fn but(all: &[Element], changes: &[(&'static str, &'static str, Option<f64>)]) -> Vec<Element> {
    let mut all = all.to_vec();
    for (measure, device, value) in changes {
        all.retain(|(known, of, _)| (known, of) != (measure, device));
        all.extend(value.map(|value| (*measure, *device, value)));
    }
    all
}

/// The value, and whether the load is known exactly.
fn value(elements: &[Element]) -> Result<(f64, bool), NoEvidence> {
    judge(&TRANSMIT, elements).map(|e| (e.value, e.bits.get().is_some()))
}

#[test]
fn a_window_that_is_covered_partly_is_a_lower_bound() {
    let partly = Err(NoEvidence::PartialWindow);
    for (name, changes, expected) in [
        ("the counter says what samples in the window do not", &[] as &[_], Ok((8.0, true))),
        (
            "a counter that began again, and has passed its old value",
            &[("transmit_rate", "eth0", Some(1.5e8))],
            Ok((12.0, true)),
        ),
        ("a new target", &[("transmit_total_before", "eth0", None)], partly),
        ("a new target, by its age", &[("age_before", "eth0", None)], partly),
        (
            "a new target that is full already",
            &[("transmit_total_before", "eth0", None), ("transmit_rate", "eth0", Some(1e9))],
            Ok((80.0, false)),
        ),
        (
            "a single sample",
            &[("transmit_rate", "eth0", None), ("age_before", "eth0", None)],
            partly,
        ),
        ("no two samples within the window", &[("transmit_rate", "eth0", None)], Ok((8.0, true))),
        ("the same sample twice", &[("age_before", "eth0", Some(5.0))], partly),
        ("a counter that began again", &[("transmit_total_before", "eth0", Some(121e8))], partly),
        // All of 12 GB may have been sent within the 115 seconds.
        (
            "a gap at the beginning of the window",
            &[("age_before", "eth0", Some(151.0))],
            Ok((12e9 / 115.0 / 1.25e9 * 100.0, false)),
        ),
        (
            "the same on a link that may have been full",
            &[("age_before", "eth0", Some(151.0)), ("speed", "eth0", Some(1.5e8))],
            partly,
        ),
        ("a quarter of the window is a scrape", &[("age_before", "eth0", Some(150.0))], {
            Ok((12e9 / 145.0 / 1.25e9 * 100.0, true))
        }),
        ("late samples", &[("age", "eth0", Some(60.0))], Ok((12e9 / 65.0 / 1.25e9 * 100.0, true))),
        ("samples older than half of the window", &[("age", "eth0", Some(61.0))], partly),
        ("a clock that is ahead", &[("age", "eth0", Some(-5.0))], Ok((7.68, true))),
        (
            "a counter that jumps",
            &[("transmit_total", "eth0", Some(1e18)), ("transmit_rate", "eth0", Some(8e15))],
            Err(NoEvidence::InvalidSample),
        ),
        (
            "a counter that goes back a little",
            &[("transmit_rate", "eth0", Some(1.26e10))],
            Err(NoEvidence::InvalidSample),
        ),
        (
            "a virtual link that reports too low a speed",
            &[("speed", "eth0", Some(1e7))],
            Ok((1000.0, true)),
        ),
        // Another link.
        (
            "a link that was there and is missing",
            &[("transmit_total_before", "eth1", Some(1.0))],
            partly,
        ),
        (
            "the same beside a full one",
            &[("transmit_total_before", "eth1", Some(1.0)), ("transmit_rate", "eth0", Some(1e9))],
            Ok((80.0, false)),
        ),
        ("a link that has just come", &[("transmit_total", "eth1", Some(1.0))], partly),
        ("a speed without a link", &[("speed", "eth1", Some(1.0))], Ok((8.0, true))),
    ] {
        let mut elements = but(&FULL, changes);
        if name.starts_with("the counter says") {
            elements.reverse();
        }
        // Rates are computed in floating point.
        let round = |(value, exact): (f64, bool)| ((value * 1e6).round(), exact);
        assert_eq!(value(&elements).map(round), expected.map(round), "{name}");
    }
}

/// Between 115 and 145 seconds before the sample there were 11 GB, and there are 12 now.
#[test]
fn a_scrape_that_failed_at_the_beginning_of_the_window_costs_precision() {
    for (speed, expected) in [
        (1.25e9, Ok((1e9 / 115.0 / 1.25e9 * 100.0, false))),
        (1.4e7, Err(NoEvidence::PartialWindow)),
        (1e7, Ok((1e9 / 145.0 / 1e7 * 100.0, false))),
    ] {
        let changes = [
            ("transmit_total_before", "eth0", None),
            ("transmit_total_earlier", "eth0", Some(11e9)),
            ("transmit_rate", "eth0", Some(0.0)),
            ("speed", "eth0", Some(speed)),
        ];
        let round = |(value, exact): (f64, bool)| ((value * 1e6).round(), exact);
        let found = value(&but(&FULL, &changes)).map(round);
        assert_eq!(found, expected.map(round), "{speed}");
    }
}

#[test]
fn nothing_is_known_of_an_exporter_that_is_down() {
    // It has an age while its series have no end.
    let down =
        [("transmit_total_before", "eth0", 0.0), ("age", "eth0", 60.0), ("speed", "eth0", 1.0)];
    assert_eq!(value(&down), Err(NoEvidence::NoSample));
    assert_eq!(value(&[]), Err(NoEvidence::NoSample));
}

#[test]
fn f4_up_says_why_there_is_no_sample() {
    let up = |value: f64, elements: &[Element]| {
        let mut all = elements.to_vec();
        all.push(("up", "", value));
        self::value(&all)
    };
    assert_eq!(up(1.0, &FULL), Ok((8.0, true)));
    assert_eq!(up(0.0, &FULL), Err(NoEvidence::ExporterDown));
    assert_eq!(up(0.0, &[]), Err(NoEvidence::ExporterDown));
    assert_eq!(up(1.0, &[]), Err(NoEvidence::NoDevice));
    // Of two targets one is enough.
    assert_eq!(up(0.0, &[&FULL[..], &[("up", "", 1.0)]].concat()[..]), Ok((8.0, true)));
    // Its devices have just gone.
    assert_eq!(up(1.0, &FULL[2..5]), Err(NoEvidence::NoSample));
}

/// A second link with these bytes per second, through a whole window.
fn beside(device: &'static str, bytes: f64, speed: Option<f64>) -> Vec<Element> {
    let mut all = FULL.map(|(measure, _, value)| (measure, device, value)).to_vec();
    for element in &mut all[..3] {
        element.2 = if element.0 == "transmit_total" { 120.0 * bytes } else { 0.0 };
    }
    all.pop();
    all.extend(speed.map(|speed| ("speed", device, speed)));
    [FULL.to_vec(), all].concat()
}

#[test]
fn the_fullest_link_counts_and_bytes_are_those_of_all() {
    let unknown = Err(NoEvidence::SpeedUnknown);
    for (name, elements, expected) in [
        (
            "the smaller one is the fuller one",
            beside("eth1", 5e7, Some(1.25e8)),
            Ok((40.0, "eth1", 1.2e9)),
        ),
        ("a bond and its member", beside("bond0", 1e8, Some(2.5e9)), Ok((8.0, "eth0", 1.6e9))),
        (
            "a link without a speed that idles",
            beside("eth1", 1e3, None),
            Ok((8.0, "eth0", 800_008_000.0)),
        ),
        ("a link without a speed that may be full", beside("eth1", 5e7, None), unknown),
        ("no speed at all", but(&FULL, &[("speed", "eth0", None)]), unknown),
        ("a speed of 0", but(&FULL, &[("speed", "eth0", Some(0.0))]), unknown),
    ] {
        let found = judge(&TRANSMIT, &elements);
        let found =
            found.as_ref().map(|e| (e.value, e.device.as_deref().unwrap(), e.bits.get().unwrap()));
        assert_eq!(found.map_err(|why| *why), expected, "{name}");
    }
    // The capacity is that of the fastest link: a pod's traffic leaves by one of them.
    let evidence = judge(&TRANSMIT, &beside("eth1", 5e7, Some(1.25e8))).unwrap();
    assert_eq!((evidence.capacity.get(), evidence.total.get()), (Some(1e10), Some(18e9)));
}

#[test]
fn a_link_without_a_speed_whose_load_is_not_known_may_be_the_fullest() {
    let mut elements = beside("eth1", 0.0, None);
    elements.retain(|element| *element != ("age_before", "eth1", 125.0));
    assert_eq!(value(&elements), Err(NoEvidence::PartialWindow));
}

#[test]
fn both_directions_are_needed_and_the_fuller_one_counts() {
    let both = |received: f64| {
        let mut elements = FULL.to_vec();
        elements.extend([
            ("receive_rate", "eth0", 0.0),
            ("receive_total", "eth0", 120.0 * received),
            ("receive_total_before", "eth0", 0.0),
        ]);
        elements
    };
    let value = |elements: &[Element]| judge(&BUSIEST, elements).map(|e| (e.value, e.bits.get()));
    assert_eq!(value(&FULL), Err(NoEvidence::NoSample));
    assert_eq!(value(&both(5e8)), Ok((40.0, Some(4e9))));
    assert_eq!(value(&both(5e7)), Ok((8.0, Some(8e8))));
    let partly = but(&both(5e7), &[("receive_total_before", "eth0", None)]);
    assert_eq!(value(&partly), Err(NoEvidence::PartialWindow));
    let receive = Rules { direction: Some(Direction::Receive), ..TRANSMIT };
    let total = but(&both(5e8), &[("total", "", Some(7.0))]);
    let evidence = judge(&receive, &total).unwrap();
    assert_eq!((evidence.value, evidence.total.get()), (40.0, Some(7.0)));
}
