//! One scrape counts once, and the next one does.
use serde_json::json;

use super::*;

#[test]
fn one_scrape_counts_once_however_often_it_is_judged() {
    let mut w = World::new(&["a", "b"], json!({"interval": "1s"}));
    w.judge(&[Percent(1.0); 2]);
    w.judge(&[Percent(1.0); 2]);
    let mut judge = |age: f64| {
        w.tick += 1;
        w.second += 1;
        let mut nodes = BTreeMap::new();
        for (name, percent) in [("a", 99.0), ("b", 1.0)] {
            nodes.insert(name.into(), sending(percent, age));
        }
        w.pass(vec![Ok(Measurement::of(nodes))]);
        w.label("a").map(str::to_owned)
    };
    // Scraped once, judged five times.
    for age in [0.0, 1.0, 2.0, 3.0, 4.0] {
        assert_eq!(judge(age).as_deref(), Some("false"), "at an age of {age} s");
    }
    assert_eq!(judge(0.0).as_deref(), Some("true"), "another scrape");
}

/// An answer may take a second longer than the one before it, and so may a request; and the age of
/// a sample counts from when Prometheus computed it.
#[test]
fn one_scrape_counts_once_though_requests_and_answers_take_different_times() {
    /// The time of the evaluation as the answer has it.
    type Evaluated = fn(f64) -> Option<f64>;
    // Each with the age of its sample, and how long the answer and the request took.
    let labels = |evaluated: Evaluated, answers: [(f64, f64, f64); 3]| {
        let mut w = World::new(&["a", "b"], json!({}));
        w.judge(&[Percent(1.0); 2]);
        w.judge(&[Percent(1.0); 2]);
        answers.map(|(age, took, late)| {
            w.tick += 1;
            w.second += 10;
            let nodes = [("a".into(), sending(99.0, age)), ("b".into(), sending(1.0, age))];
            let mut reading = Measurement::of(BTreeMap::from(nodes));
            #[expect(clippy::cast_precision_loss, reason = "a time")]
            let asked = w.second as f64 - took;
            (reading.asked, reading.evaluated) = (Some(asked), evaluated(asked + late));
            w.pass(vec![Ok(reading)]);
            w.label("a").map(str::to_owned)
        })
    };
    // One scrape twice, and then another.
    let once = ["false", "false", "true"].map(|label| Some(label.to_owned()));
    let answers = [(1.0, 0.1, 0.0), (10.1, 1.0, 0.0), (1.0, 0.1, 0.0)];
    let requests = [(1.0, 0.1, 0.0), (13.0, 0.1, 2.0), (1.0, 0.1, 0.0)];
    assert_eq!(labels(|_| None, answers), once);
    for clock in [Some, |at| Some(at + 30.0)] as [Evaluated; 2] {
        assert_eq!(labels(clock, answers), once);
        assert_eq!(labels(clock, requests), once);
    }
    // A server that sends a constant is judged by the time of the request.
    assert_eq!(labels(|_| Some(0.0), answers), once);
}

/// With an interval of a second, exporters may be scraped more than once in half a second.
#[test]
fn a_sample_a_quarter_of_an_interval_later_is_of_another_scrape() {
    for (later, states) in [(0.2, [Fit, Fit]), (0.25, [Unfit, Fit])] {
        let mut w = World::new(&["a", "b"], json!({"interval": "1s"}));
        let mut judge = |percent: f64, age: f64| {
            w.tick += 1;
            let nodes = [("a".into(), sending(percent, age)), ("b".into(), sending(1.0, age))];
            w.pass(vec![Ok(Measurement::of(nodes.into()))]).states
        };
        judge(1.0, 9.0);
        judge(1.0, 5.0);
        judge(99.0, 1.0);
        assert_eq!(judge(99.0, 1.0 - later), states, "{later} s later");
    }
}
