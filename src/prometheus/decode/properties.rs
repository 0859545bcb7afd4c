//! Properties of every answer, from any sender.
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::{any_json, prometheus::MESSAGE};

const JSON: &str = "application/json";

type Samples = Vec<(String, Vec<(f64, u64)>)>;

/// The series of a range query's answer and its warnings; numbers by their bits, so that NaN equals
/// itself.
fn series(status: u16, body: &[u8]) -> Result<(Samples, Vec<String>), QueryError> {
    let mut all = Vec::new();
    let warnings = matrix(status, JSON, body, |one| {
        let samples = one.samples.iter().map(|(time, value)| (*time, value.to_bits()));
        all.push((one.labels.to_string(), samples.collect()));
        Ok(())
    })?;
    Ok((all, warnings))
}

/// The number of elements of an instant query's answer, and its warnings.
fn count(status: u16, body: &[u8]) -> Result<(usize, Vec<String>), QueryError> {
    let mut count = 0;
    let warnings = vector(status, JSON, body, |_| {
        count += 1;
        Ok(())
    })?;
    Ok((count, warnings))
}

/// Any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let texts = ["NaN", "+Inf", "8", "vector", "matrix", "success"];
    any_json::of("metric value values resultType result x", &texts)
}

fn text(number: f64) -> String {
    if number == f64::INFINITY { "+Inf".into() } else { number.to_string() }
}

/// Labels as JSON, and samples.
fn any_series() -> impl Strategy<Value = (Value, Vec<(u32, f64)>)> {
    let labels = collection::btree_map("[a-z_]{1,6}", ".{0,8}", 0..4).prop_map(|all| json!(all));
    (labels, collection::vec((any::<u32>(), any::<f64>()), 0..5))
}

fn answer(kind: &str, result: &Value) -> String {
    json!({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": ["w"]})
        .to_string()
}

/// A person reads it, so it says something, on one line.
fn is_legible(error: &QueryError) -> bool {
    let text = &error.message;
    !text.trim().is_empty()
        && text.len() <= MESSAGE + '…'.len_utf8()
        && !text.contains(char::is_control)
}

proptest! {
    #[test]
    fn samples_over_time_survive_the_text(all in collection::vec(any_series(), 0..4)) {
        let result: Vec<_> = all.iter().map(|(labels, samples)| {
            let samples: Vec<_> =
                samples.iter().map(|(time, value)| json!([time, text(*value)])).collect();
            json!({"metric": labels, "values": samples})
        }).collect();
        let (read, warnings) = series(200, answer("matrix", &json!(result)).as_bytes()).unwrap();
        prop_assert_eq!(warnings, ["w"]);
        prop_assert_eq!(read.len(), all.len());
        for ((labels, samples), (given, expected)) in read.iter().zip(&all) {
            let names = given.as_object().unwrap().iter();
            let names = names.map(|(name, value)| {
                format!("{name}={:?}", value.as_str().unwrap_or_default())
            });
            prop_assert_eq!(labels, &format!("{{{}}}", names.collect::<Vec<_>>().join(",")));
            // Every NaN is one and the same text.
            let bits = |value: f64| text(value).parse::<f64>().map(f64::to_bits).unwrap();
            let expected: Vec<_> =
                expected.iter().map(|(time, value)| (f64::from(*time), bits(*value))).collect();
            prop_assert_eq!(samples, &expected);
        }
    }

    /// A connection that breaks off must not look like a smaller cluster.
    #[test]
    fn no_beginning_of_an_answer_is_an_answer(
        all in collection::vec(any_series(), 1..3), cut: prop::sample::Index,
    ) {
        let values: Vec<_> = all.iter().map(|(labels, samples)| {
            let values: Vec<_> = samples.iter().map(|(time, v)| json!([time, text(*v)])).collect();
            json!({"metric": labels, "values": values})
        }).collect();
        let value: Vec<_> =
            all.iter().map(|(labels, _)| json!({"metric": labels, "value": [1, "8"]})).collect();
        for (kind, result) in [("matrix", json!(values)), ("vector", json!(value))] {
            let body = answer(kind, &result);
            let begun = &body.as_bytes()[..cut.index(body.len())];
            let read = if kind == "matrix" {
                series(200, begun).map(|_| ())
            } else {
                count(200, begun).map(|_| ())
            };
            let error = read.unwrap_err();
            prop_assert_eq!(error.class, Class::BadAnswer);
            prop_assert!(is_legible(&error), "{:?}", error.message);
        }
    }

    /// Whatever the elements are, all of them are read, or the answer is refused with the reason.
    #[test]
    fn an_answer_is_read_as_a_whole_or_refused(
        list in collection::vec(anything(), 0..4), other in anything(), status: u16,
    ) {
        let all = [("matrix", json!(list)), ("vector", json!(list)), ("vector", other)];
        for (kind, result) in all {
            let body = answer(kind, &result);
            let length = result.as_array().map(Vec::len);
            let read = if kind == "matrix" {
                series(200, body.as_bytes()).map(|(all, _)| all.len())
            } else {
                count(200, body.as_bytes()).map(|(count, _)| count)
            };
            match read {
                Ok(read) => prop_assert_eq!(Some(read), length),
                Err(error) => {
                    prop_assert!(is_legible(&error), "{:?}", error.message);
                    prop_assert!(error.message.contains("is not readable"), "{}", error.message);
                }
            }
            // By any other status it is none.
            if status != 200 {
                prop_assert!(is_legible(&count(status, body.as_bytes()).unwrap_err()));
            }
        }
    }

    #[test]
    fn every_error_of_a_server_has_a_class_and_a_line(
        status: u16, kind in "[a-z_]{0,12}", words in "(.|\n|\u{1b}){0,40}", often in 1..100_usize,
        known in prop::sample::select(
            &["bad_data", "execution", "timeout", "canceled", "internal", "unavailable", ""][..]),
    ) {
        for kind in [kind.as_str(), known] {
            let body = json!({"status": "error", "errorType": kind, "error": words.repeat(often)});
            let error = count(status, body.to_string().as_bytes()).unwrap_err();
            prop_assert!(is_legible(&error), "{:?}", error.message);
            let expected = match kind {
                "bad_data" => Some(Class::QueryInvalid),
                "execution" => Some(Class::QueryFailed),
                "timeout" => Some(Class::Timeout),
                "canceled" | "internal" | "unavailable" => Some(Class::Unavailable),
                _ => None,
            };
            prop_assert!(expected.is_none_or(|class| class == error.class), "{error:?}");
        }
    }

    #[test]
    fn warnings_are_few_and_short_and_one_that_it_is_cut_is_never_lost(
        warnings in collection::vec(".{0,300}", 0..20), place in 0..20_usize, cut: bool,
        before in ".{0,300}",
    ) {
        let mut warnings = warnings;
        if cut {
            warnings.insert(place.min(warnings.len()), format!("{before}{TRUNCATED}"));
        }
        let body = json!({
            "status": "success", "data": {"resultType": "vector", "result": []},
            "warnings": warnings,
        });
        let read = count(200, body.to_string().as_bytes());
        prop_assert_eq!(read.is_err(), cut, "{:?}", read);
        if let Ok((_, read)) = read {
            prop_assert_eq!(read.len(), warnings.len().min(WARNINGS.0));
            prop_assert!(read.iter().all(|text| text.len() <= WARNINGS.1 + '…'.len_utf8()));
        }
    }
}
