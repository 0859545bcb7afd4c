//! A simulated Prometheus with a history that a test writes: instant and range queries, and the
//! limits of a real one.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, Uri, header},
    response::IntoResponse,
};
use serde_json::{Value, json};

use crate::program::{listen, serve};

/// The beginning of the history, in Unix seconds.
pub const START: i64 = 1_790_000_000;

/// Seconds between two samples of the history.
pub const STEP: i64 = 10;

/// The maximum number of points of a series: more are refused, as by a real Prometheus.
const MAX_POINTS: i64 = 11_000;

#[derive(Default)]
struct Inner {
    /// Percent of each instance, one every [`STEP`]; `None` is a gap.
    history: BTreeMap<String, Vec<Option<f64>>>,
    /// Answers to queries that contain a text: labels and values.
    answers: Vec<(String, Vec<(Value, f64)>)>,
    ranges: Vec<(i64, i64)>,
    refusals: usize,
}

/// Shared by the server and the test.
#[derive(Clone, Default)]
pub struct Prometheus {
    inner: Arc<Mutex<Inner>>,
    pub url: String,
}

impl Prometheus {
    /// Serves until the process ends.
    pub fn start() -> Self {
        let (listener, url) = listen();
        let this = Self { url, ..Self::default() };
        serve(listener, Router::new().fallback(answer).with_state(this.clone()));
        this
    }

    pub fn history(&self, instance: &str, percents: impl IntoIterator<Item = Option<f64>>) {
        let percents = percents.into_iter().collect();
        self.inner.lock().expect("lock").history.insert(instance.into(), percents);
    }

    /// Sets the answer to queries that contain `text`.
    pub fn answer(&self, text: &str, rows: Vec<(Value, f64)>) {
        self.inner.lock().expect("lock").answers.push((text.into(), rows));
    }

    /// Refuses the next range queries like one that loads too many samples.
    pub fn refuse(&self, count: usize) {
        self.inner.lock().expect("lock").refusals = count;
    }

    /// Returns start and number of points of each answered range query.
    pub fn ranges(&self) -> Vec<(i64, i64)> {
        self.inner.lock().expect("lock").ranges.clone()
    }
}

async fn answer(State(this): State<Prometheus>, uri: Uri, body: Bytes) -> impl IntoResponse {
    let form: BTreeMap<String, String> = parse(&String::from_utf8_lossy(&body));
    let mut inner = this.inner.lock().expect("lock");
    let (status, body) = match uri.path() {
        "/api/v1/query" => (200, instant(&inner, &form)),
        "/api/v1/query_range" => range(&mut inner, &form),
        _ => (404, json!({"status": "error", "errorType": "not_found", "error": "404"})),
    };
    let status = StatusCode::from_u16(status).expect("status");
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string())
}

/// Parses a form, as far as the client uses the format.
fn parse(body: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'+' => bytes.push(b' '),
                b'%' => {
                    let hex = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                    let hex = String::from_utf8_lossy(&hex).into_owned();
                    bytes.push(u8::from_str_radix(&hex, 16).expect("escape"));
                }
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).expect("text")
    };
    body.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (decode(k), decode(v)))
        .collect()
}

/// The measures of one instance that uses `percent` of a link of 1 Gbit/s.
fn measures(instance: &str, percent: f64) -> [(Value, f64); 6] {
    let bytes = percent / 100.0 * 125e6;
    [
        ("transmit_rate", bytes),
        ("transmit_total", 1e6),
        ("transmit_total_before", 1e6),
        ("speed", 125e6),
        ("age", 1.0),
        ("age_before", 121.0),
    ]
    .map(|(measure, value)| {
        (json!({"instance": instance, "measure": measure, "device": "eth0"}), value)
    })
}

fn instant(inner: &Inner, form: &BTreeMap<String, String>) -> Value {
    let query = &form["query"];
    let known = inner.answers.iter().find(|(text, _)| query.contains(text));
    let result: Vec<_> = if let Some((_, rows)) = known {
        let rows = rows.iter();
        rows.map(|(labels, v)| json!({"metric": labels, "value": [0, v.to_string()]})).collect()
    } else {
        let last = inner.history.iter().filter_map(|(i, all)| Some((i, (*all.last()?)?)));
        last.flat_map(|(i, percent)| measures(i, percent))
            .map(|(metric, value)| json!({"metric": metric, "value": [0, value.to_string()]}))
            .collect()
    };
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

fn range(inner: &mut Inner, form: &BTreeMap<String, String>) -> (u16, Value) {
    let seconds = |name: &str| -> i64 {
        let text = form[name].as_str();
        text.split_once('.').map_or(text, |(whole, _)| whole).parse().expect("whole seconds")
    };
    let (start, end, step) = (seconds("start"), seconds("end"), seconds("step"));
    let points = (end - start) / step + 1;
    if points > MAX_POINTS {
        let text = "exceeded maximum resolution of 11,000 points per timeseries";
        return (400, json!({"status": "error", "errorType": "bad_data", "error": text}));
    }
    if inner.refusals > 0 {
        inner.refusals -= 1;
        let text = "query processing would load too many samples into memory";
        return (422, json!({"status": "error", "errorType": "execution", "error": text}));
    }
    inner.ranges.push((start, points));
    let mut result: Vec<Value> = Vec::new();
    for (instance, percents) in &inner.history {
        let mut series = measures(instance, 0.0).map(|(metric, _)| (metric, Vec::<Value>::new()));
        for i in 0..points {
            let time = start + i * step;
            let place = usize::try_from((time - START).div_euclid(STEP)).ok();
            let Some(percent) = place.and_then(|place| *percents.get(place)?) else { continue };
            for (series, (_, value)) in series.iter_mut().zip(measures(instance, percent)) {
                series.1.push(json!([time, value.to_string()]));
            }
        }
        let some = series.into_iter().filter(|(_, values)| !values.is_empty());
        result.extend(some.map(|(metric, values)| json!({"metric": metric, "values": values})));
    }
    (200, json!({"status": "success", "data": {"resultType": "matrix", "result": result}}))
}
