//! The answers of the Prometheus HTTP API, read without trusting them.
//!
//! Shapes: <https://prometheus.io/docs/prometheus/latest/querying/api/>; what real servers, proxies
//! and gateways answer beside them is in the tests.
use std::{borrow::Cow, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{Class, QueryError};

/// One element of an instant vector.
#[derive(Debug)]
pub struct Series<'a> {
    /// The labels, in the order of the answer.
    pub labels: Labels<'a>,
    /// The value: `NaN` and infinities are values. `None` is a native histogram.
    pub value: Option<f64>,
}

/// Labels borrowed from the answer's text.
#[derive(Debug, Default)]
pub struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Labels<'_> {
    /// The value of one label; absent and empty are the same to Prometheus.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_ref())
    }
}

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (i, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}={value:?}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

/// Reads the body of an instant query's answer: gives its elements to `take`, in no particular
/// order, and returns what the server warned of (the answer may be partial).
///
/// One element at a time: the answer about 5,000 nodes has 20,000 of them, and together they would
/// be the peak of the process' memory.
///
/// # Errors
/// When it is no success, or no vector, or `take` refuses an element.
pub fn vector<'a>(
    status: u16,
    content_type: &str,
    body: &'a [u8],
    mut take: impl FnMut(Series<'a>) -> Result<(), QueryError>,
) -> Result<Vec<String>, QueryError> {
    let json = content_type.trim_start().to_ascii_lowercase().starts_with("application/json");
    if !json {
        return Err(not_json(status, content_type));
    }
    let answer: Answer<'a> = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(_) if status != 200 => return Err(by_status(status, String::new())),
        Err(error) => {
            return Err(QueryError::new(
                Class::BadAnswer,
                format!("answer is not readable: {error}"),
            ));
        }
    };
    if answer.status != "success" || status != 200 {
        return Err(failure(status, &answer));
    }
    let data = answer
        .data
        .ok_or_else(|| QueryError::new(Class::BadAnswer, "answer is a success without data"))?;
    if data.result_type != "vector" {
        return Err(QueryError::new(
            Class::BadAnswer,
            format!(
                "answer is a {}, where one value per node (an instant vector) is needed",
                data.result_type
            ),
        ));
    }
    // A truncated vector is a vector with nodes missing for no reason of theirs.
    if let Some(warning) = answer.warnings.iter().find(|w| w.contains("results truncated")) {
        return Err(QueryError::new(Class::BadAnswer, warning.clone()));
    }
    let mut refused = None;
    let mut elements = serde_json::Deserializer::from_str(data.result.get());
    let each = |element: Element<'a>| {
        if refused.is_none() {
            let value = element.value.map(|v| v.1.0);
            refused = take(Series { labels: element.metric, value }).err();
        }
    };
    elements.deserialize_seq(Each(each, PhantomData)).map_err(|error| {
        QueryError::new(Class::BadAnswer, format!("vector is not readable: {error}"))
    })?;
    refused.map_or(Ok(answer.warnings), Err)
}

/// Visits the elements of a list without keeping them.
struct Each<'a, F>(F, PhantomData<&'a ()>);

impl<'de, F: FnMut(Element<'de>)> Visitor<'de> for Each<'de, F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            self.0(element);
        }
        Ok(())
    }
}

/// Something between us and Prometheus answered, or Prometheus is not ready.
fn not_json(status: u16, content_type: &str) -> QueryError {
    match status {
        // 200 with HTML is a login page.
        200..=299 => QueryError::new(
            Class::BadAnswer,
            format!(
                "answer is {content_type:?}, not JSON: is this URL the Prometheus API, or a proxy's login page?"
            ),
        ),
        _ => by_status(status, String::new()),
    }
}

fn failure(status: u16, answer: &Answer<'_>) -> QueryError {
    let text = answer.error.as_deref().unwrap_or("no reason given");
    let class = match answer.error_type.as_deref() {
        Some("bad_data") => Class::QueryInvalid,
        Some("execution") => Class::QueryFailed,
        Some("timeout") => Class::Timeout,
        Some("canceled" | "internal" | "unavailable") => Class::Unavailable,
        _ => return by_status(status, text.to_owned()),
    };
    QueryError::new(class, format!("Prometheus says: {text}"))
}

fn by_status(status: u16, text: String) -> QueryError {
    let class = match status {
        400 => Class::QueryInvalid,
        401 | 403 => Class::Unauthorized,
        422 => Class::QueryFailed,
        429 | 499 | 500..=599 => Class::Unavailable,
        _ => Class::BadAnswer,
    };
    let text = if text.is_empty() { text } else { format!(": {text}") };
    QueryError::new(class, format!("HTTP status {status}{text}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default, borrow)]
    data: Option<Data<'a>>,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(borrow)]
    result_type: Cow<'a, str>,
    // Read in a second step, when its type is known.
    #[serde(borrow)]
    result: &'a serde_json::value::RawValue,
}

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow)]
    metric: Labels<'a>,
    /// Absent in a native histogram.
    #[serde(default)]
    value: Option<(IgnoredAny, Number)>,
}

/// A sample's value: a number written as a string.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Number;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number written as a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                // "+Inf", "-Inf" and "NaN" are accepted by Rust's parser in any case.
                text.parse().map(Number).map_err(|_| E::custom(format!("{text:?} is no number")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Labels<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels<'de>, A::Error> {
                let mut labels = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some((key, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
                    labels.push((key.0, value.0));
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// Borrowed where the JSON string has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JSON: &str = "application/json";

    type Elements = Vec<(String, Option<f64>)>;

    /// The elements and the warnings.
    fn read(
        status: u16,
        content_type: &str,
        body: &[u8],
    ) -> Result<(Elements, Vec<String>), QueryError> {
        let mut series = Vec::new();
        let warnings = vector(status, content_type, body, |one| {
            series.push((one.labels.to_string(), one.value));
            Ok(())
        })?;
        Ok((series, warnings))
    }

    fn class(status: u16, content_type: &str, body: &str) -> Class {
        read(status, content_type, body.as_bytes()).unwrap_err().class
    }

    #[test]
    fn reads_a_vector() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"instance":"a","device":"eth\u0030"},"value":[1.5,"8"]},
            {"metric":{},"value":[1,"NaN"]},
            {"metric":{"instance":"b"},"value":[1,"+Inf"],"future":{}},
            {"metric":{"instance":"c"},"histogram":[1,{"count":"1"}]}]},
            "warnings":["partial"],"infos":["x"]}"#;
        let (series, warnings) = read(200, JSON, body.as_bytes()).unwrap();
        let [a, nan, inf, histogram] = &series[..] else { panic!("{series:?}") };
        assert_eq!(*a, (r#"{instance="a",device="eth0"}"#.into(), Some(8.0)));
        assert!(nan.1.unwrap().is_nan());
        assert_eq!(inf.1, Some(f64::INFINITY));
        assert_eq!(histogram.1, None);
        assert_eq!(warnings, ["partial"]);
    }

    #[test]
    fn labels_are_found_and_empty_ones_are_absent() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"a":"1","b":""},"value":[0,"1"]}]}}"#;
        vector(200, JSON, body.as_bytes(), |one| {
            assert_eq!((one.labels.get("a"), one.labels.get("b")), (Some("1"), None));
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn an_empty_vector_is_an_answer() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(
            read(200, "application/json; charset=utf-8", body.as_bytes()),
            Ok((vec![], vec![]))
        );
    }

    #[test]
    fn every_other_answer_has_its_class() {
        let success = |kind, result| {
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
        };
        let error = |kind| format!(r#"{{"status":"error","errorType":"{kind}","error":"e"}}"#);
        for (status, content_type, body, expected) in [
            (200, JSON, success("matrix", "[]"), Class::BadAnswer),
            (200, JSON, success("scalar", r#"[1,"NaN"]"#), Class::BadAnswer),
            (200, JSON, success("string", r#"[1,"x"]"#), Class::BadAnswer),
            (200, JSON, success("vector", r#"[{"metric":{},"value":[1,"x"]}]"#), Class::BadAnswer),
            (200, JSON, r#"{"status":"success"}"#.into(), Class::BadAnswer),
            (200, JSON, "{\"status\":".into(), Class::BadAnswer),
            (200, JSON, error("bad_data"), Class::QueryInvalid),
            (200, "text/html; charset=utf-8", "<html>login".into(), Class::BadAnswer),
            (204, "", String::new(), Class::BadAnswer),
            (400, JSON, error("bad_data"), Class::QueryInvalid),
            (422, JSON, error("execution"), Class::QueryFailed),
            (503, JSON, error("timeout"), Class::Timeout),
            (499, JSON, error("canceled"), Class::Unavailable),
            (500, JSON, error("internal"), Class::Unavailable),
            (503, "text/plain", "Service Unavailable".into(), Class::Unavailable),
            (502, "text/html", "<html>".into(), Class::Unavailable),
            (401, "text/html", "<html>".into(), Class::Unauthorized),
            (403, "text/plain", "no".into(), Class::Unauthorized),
            (404, "text/plain", "404 page not found".into(), Class::BadAnswer),
            (302, "text/html", String::new(), Class::BadAnswer),
            (429, JSON, "[]".into(), Class::Unavailable),
        ] {
            assert_eq!(
                class(status, content_type, &body),
                expected,
                "{status} {content_type} {body}"
            );
        }
    }

    #[test]
    fn a_truncated_vector_is_no_answer() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[]},
            "warnings":["results truncated due to limit"]}"#;
        assert_eq!(class(200, JSON, body), Class::BadAnswer);
    }

    #[test]
    fn the_servers_own_words_reach_the_user() {
        let body =
            r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unexpected )"}"#;
        let error = read(400, JSON, body.as_bytes()).unwrap_err();
        assert_eq!(error.message, "Prometheus says: 1:5: parse error: unexpected )");
    }

    proptest! {
        #[test]
        fn never_panics_on_any_bytes(status: u16, body: Vec<u8>) {
            let _ = read(status, JSON, &body);
        }

        #[test]
        fn never_panics_on_mutated_answers(cut in 0usize..160, insert in ".{0,4}") {
            let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"a","device":"eth0"},"value":[1.5,"8"]}]},"warnings":["w"]}"#;
            let cut = body.floor_char_boundary(cut.min(body.len()));
            let mutated = format!("{}{insert}{}", &body[..cut], &body[cut..]);
            let _ = read(200, JSON, mutated.as_bytes());
        }

        #[test]
        fn values_survive_the_text(x: f64) {
            let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[0,"{x}"]}}]}}}}"#);
            let (series, _) = read(200, JSON, body.as_bytes()).unwrap();
            prop_assert_eq!(series[0].1.map(f64::to_bits), Some(x).map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }));
        }
    }
}
