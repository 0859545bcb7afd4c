//! A Prometheus that answers what a test tells it: for the faults that a real one cannot be brought
//! to on purpose.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::header, response::IntoResponse};
use serde_json::{Value, json};

/// What is said about one node.
#[derive(Clone, Debug)]
pub struct Sample {
    pub percent: Option<&'static str>,
    pub bytes: Option<&'static str>,
    pub age: Option<&'static str>,
}

impl Sample {
    /// A fresh sample of `percent` of the link's speed.
    pub fn percent(percent: &'static str) -> Self {
        Self { percent: Some(percent), bytes: Some("1000"), age: Some("1") }
    }
}

/// How it answers.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// With the samples.
    #[default]
    Samples,
    /// With this, whatever was asked.
    Raw(u16, &'static str, String),
    /// Not at all.
    Hang,
}

#[derive(Default)]
struct Inner {
    samples: BTreeMap<String, Sample>,
    /// By the query's text, what it says of each node.
    own: BTreeMap<String, BTreeMap<String, &'static str>>,
    scrapes: Option<&'static str>,
    mode: Mode,
    requests: Vec<String>,
}

/// Shared by the server and the test.
#[derive(Clone, Default)]
pub struct Prometheus {
    inner: Arc<Mutex<Inner>>,
    pub url: String,
}

impl Prometheus {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let this = Self { url, ..Self::default() };
        let router = Router::new().fallback(answer).with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        this
    }

    pub fn set(&self, instance: &str, sample: Sample) {
        self.inner.lock().expect("lock").samples.insert(instance.to_owned(), sample);
    }

    /// Sets what a query of an author's own says of one node.
    pub fn own(&self, query: &str, instance: &str, value: &'static str) {
        let mut inner = self.inner.lock().expect("lock");
        inner.own.entry(query.to_owned()).or_default().insert(instance.to_owned(), value);
    }

    /// Sets how many scrapes the window holds.
    pub fn scrapes(&self, count: &'static str) {
        self.inner.lock().expect("lock").scrapes = Some(count);
    }

    pub fn remove(&self, instance: &str) {
        self.inner.lock().expect("lock").samples.remove(instance);
    }

    pub fn answer(&self, mode: Mode) {
        self.inner.lock().expect("lock").mode = mode;
    }

    /// The queries so far.
    pub fn requests(&self) -> Vec<String> {
        self.inner.lock().expect("lock").requests.clone()
    }
}

async fn answer(State(this): State<Prometheus>, body: Bytes) -> impl IntoResponse {
    let form = format!("http://form/?{}", String::from_utf8_lossy(&body));
    let form = reqwest::Url::parse(&form).expect("a form");
    let query = form.query_pairs().find(|(key, _)| key == "query");
    let query = query.map(|(_, text)| text.into_owned()).unwrap_or_default();
    let (mode, vector) = {
        let mut inner = this.inner.lock().expect("lock");
        inner.requests.push(String::from_utf8_lossy(&body).into_owned());
        let vector = match inner.own.get(&query) {
            Some(values) => own(values),
            None => vector(&inner.samples, inner.scrapes),
        };
        (inner.mode.clone(), vector)
    };
    let (status, content_type, body) = match mode {
        Mode::Samples => (200, "application/json", vector.to_string()),
        Mode::Raw(status, content_type, body) => (status, content_type, body),
        Mode::Hang => {
            // Longer than every deadline, so that it is theirs that ends it.
            tokio::time::sleep(Duration::from_mins(2)).await;
            (200, "application/json", String::new())
        }
    };
    let status = axum::http::StatusCode::from_u16(status).expect("status");
    (status, [(header::CONTENT_TYPE, content_type)], body)
}

fn own(values: &BTreeMap<String, &'static str>) -> Value {
    let result: Vec<_> = values
        .iter()
        .map(|(instance, value)| json!({"metric": {"instance": instance}, "value": [0, value]}))
        .collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

fn vector(samples: &BTreeMap<String, Sample>, scrapes: Option<&str>) -> Value {
    let scrapes =
        scrapes.map(|count| json!({"metric": {"measure": "scrapes"}, "value": [0, count]}));
    let mut result: Vec<_> = scrapes.into_iter().collect();
    for (instance, sample) in samples {
        let mut add = |measure: &str, value: Option<&str>| {
            let Some(value) = value else { return };
            let mut metric = json!({"instance": instance, "measure": measure});
            if measure.ends_with("percent") {
                metric["device"] = "eth0".into();
            }
            result.push(json!({"metric": metric, "value": [0, value]}));
        };
        add("transmit_percent", sample.percent);
        add("transmit_bytes", sample.bytes);
        add("total", Some("281814"));
        add("age", sample.age);
    }
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}
