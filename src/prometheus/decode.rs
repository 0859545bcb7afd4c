//! The answers of the Prometheus HTTP API, read without trusting them.
//!
//! The formats are in <https://prometheus.io/docs/prometheus/latest/querying/api/>; the tests
//! contain other answers of real servers, proxies and gateways.
use std::{borrow::Cow, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{Class, QueryError, shortened};

mod pieces;

pub use pieces::Pieces;
pub use traffic_operator_core::series::{Labels, Series};

/// Maximum number of warnings of an answer, and of bytes of each: Prometheus itself sends at most
/// ten; they appear in a condition.
const WARNINGS: (usize, usize) = (10, 200);

/// The warning of a server that leaves out elements.
const TRUNCATED: &str = "results truncated";

/// One series of a matrix.
#[derive(Debug)]
pub struct RangeSeries<'a> {
    /// The labels, in the order of the answer.
    pub labels: Labels<'a>,
    /// Time (Unix seconds) and value, by time. Empty if all samples are native histograms.
    pub samples: Vec<(f64, f64)>,
}

/// Reads the body of an instant query's answer: passes its elements to `take`, in no particular
/// order, and returns the warnings of the server (the answer may be partial).
///
/// One element at a time: the answer about 5,000 nodes has 20,000 of them, and together they would
/// be the peak of the process' memory.
///
/// # Errors
/// When it is not a success, or not a vector, or `take` refuses an element.
pub fn vector<'a>(
    status: u16,
    content_type: &str,
    body: &'a [u8],
    mut take: impl FnMut(Series<'a>) -> Result<(), QueryError>,
) -> Result<Vec<String>, QueryError> {
    let wanted = ("vector", "one value per node (an instant vector) is needed");
    elements(status, content_type, body, wanted, |element: Element<'a>| take(element.into()))
}

/// Refuses an answer of which its server warns: what it lacks may well exist.
///
/// For decisions about all elements together. Where each element decides about itself, those that
/// are there count.
///
/// # Errors
/// When there is a warning.
pub fn whole(warnings: &[String]) -> Result<(), QueryError> {
    warnings.first().map_or(Ok(()), |warning| {
        let message = format!("the server warns of its own answer: {warning}");
        Err(QueryError::new(Class::BadAnswer, message))
    })
}

/// Reads the body of a range query's answer like [`vector`], one series at a time.
///
/// # Errors
/// When it is not a success, or not a matrix, or `take` refuses a series.
pub fn matrix<'a>(
    status: u16,
    content_type: &str,
    body: &'a [u8],
    mut take: impl FnMut(RangeSeries<'a>) -> Result<(), QueryError>,
) -> Result<Vec<String>, QueryError> {
    let wanted = ("matrix", "values over time (a matrix) are needed");
    elements(status, content_type, body, wanted, |element: RangeElement<'a>| {
        let samples = element.values.into_iter().map(|(time, value)| (time, value.0)).collect();
        take(RangeSeries { labels: element.metric, samples })
    })
}

/// Reads an answer with a list of elements as its data; `wanted` is its type, and the same in
/// words.
fn elements<'a, E: Deserialize<'a>>(
    status: u16,
    content_type: &str,
    body: &'a [u8],
    wanted: (&str, &str),
    mut take: impl FnMut(E) -> Result<(), QueryError>,
) -> Result<Vec<String>, QueryError> {
    if !is_json(content_type) {
        return Err(not_json(status, content_type, body));
    }
    let bad = |message| QueryError::new(Class::BadAnswer, message);
    let answer: Answer<'a> = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(_) if status != 200 => return Err(by_status(status, String::new())),
        Err(error) => return Err(bad(format!("answer is not readable: {error}"))),
    };
    if answer.status != "success" || status != 200 {
        return Err(failure(status, &answer));
    }
    let data = answer.data.ok_or_else(|| bad("answer is a success without data".into()))?;
    let (kind, words) = wanted;
    if data.result_type != kind {
        let message = format!("the query gives a {}, where {words}", data.result_type);
        return Err(QueryError::new(Class::QueryInvalid, message));
    }
    let mut warnings = answer.warnings.0;
    // In a truncated vector, nodes are missing that may well have data.
    if let Some(warning) = warnings.iter().find(|w| w.contains(TRUNCATED)) {
        return Err(bad(warning.clone()));
    }
    // VictoriaMetrics reports in this way that one of its storage nodes did not answer.
    if answer.is_partial == Some(true) {
        warnings.push("partial answer".into());
    }
    let mut refused = None;
    let mut list = serde_json::Deserializer::from_str(data.result.get());
    let each = |element: E| {
        if refused.is_none() {
            refused = take(element).err();
        }
    };
    list.deserialize_seq(Each(each, PhantomData))
        .map_err(|error| bad(format!("{kind} is not readable: {error}")))?;
    refused.map_or(Ok(warnings), Err)
}

fn is_json(content_type: &str) -> bool {
    content_type.trim_start().to_ascii_lowercase().starts_with("application/json")
}

/// Visits the elements of a list without keeping them.
struct Each<E, F>(F, PhantomData<E>);

impl<'de, E: Deserialize<'de>, F: FnMut(E)> Visitor<'de> for Each<E, F> {
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

/// Returns the error for an answer that is not JSON: it came from a proxy or another part of the
/// server, or Prometheus is not ready. It judges no query.
fn not_json(status: u16, content_type: &str, body: &[u8]) -> QueryError {
    // 200 with HTML is a login page.
    if (200..300).contains(&status) {
        let message = format!(
            "answer is {content_type:?}, not JSON: is this URL the Prometheus API, or a proxy's login page?"
        );
        return QueryError::new(Class::BadAnswer, message);
    }
    let is_text = content_type.trim_start().to_ascii_lowercase().starts_with("text/plain");
    let text = if is_text { String::from_utf8_lossy(body) } else { Cow::default() };
    let mut error = by_status(status, text.trim().to_owned());
    if error.class == Class::QueryInvalid {
        error.class = Class::BadAnswer;
    }
    error
}

fn failure(status: u16, answer: &Answer<'_>) -> QueryError {
    let text = answer.error.as_deref().unwrap_or("no reason given");
    if text == "unavailable with Prometheus Agent" {
        let message = "this Prometheus runs in agent mode, which answers no query: name the server \
                       that it writes to";
        return QueryError::new(Class::BadAnswer, message);
    }
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
    let hint = match status {
        _ if text.contains("no org id") => {
            "; the server wants a tenant: set headers: {X-Scope-OrgID: NAME} of this endpoint"
        }
        404 => "; is this the address to which /api/v1/query belongs?",
        _ => "",
    };
    let text = if text.is_empty() { text } else { format!(": {text}") };
    QueryError::new(class, format!("HTTP status {status}{text}{hint}"))
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
    warnings: Warnings,
    #[serde(default)]
    is_partial: Option<bool>,
}

/// The first few warnings, shortened; they always include a warning that the answer is truncated.
#[derive(Default)]
struct Warnings(Vec<String>);

impl<'de> Deserialize<'de> for Warnings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kept = Vec::new();
        let take = |text: Text<'de>| {
            let truncated = text.0.contains(TRUNCATED);
            let mut text = shortened(text.0.into_owned(), WARNINGS.1);
            if truncated && !text.contains(TRUNCATED) {
                TRUNCATED.clone_into(&mut text);
            }
            if kept.len() < WARNINGS.0 {
                kept.push(text);
            } else if truncated {
                kept.truncate(WARNINGS.0 - 1);
                kept.push(text);
            }
        };
        deserializer.deserialize_seq(Each(take, PhantomData))?;
        Ok(Self(kept))
    }
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
    value: Option<(f64, Number)>,
}

impl<'a> From<Element<'a>> for Series<'a> {
    fn from(element: Element<'a>) -> Self {
        let (time, value) = element.value.map(|(time, value)| (time, value.0)).unzip();
        Self { labels: element.metric, time, value }
    }
}

#[derive(Deserialize)]
struct RangeElement<'a> {
    #[serde(borrow)]
    metric: Labels<'a>,
    /// Absent if all samples are native histograms.
    #[serde(default)]
    values: Vec<(f64, Number)>,
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

/// A text, borrowed if the JSON string has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
