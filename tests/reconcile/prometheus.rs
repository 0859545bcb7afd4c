//! A Prometheus with scripted answers, for faults that a real one cannot be made to show.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::header, response::IntoResponse};
use serde_json::{Value, json};

/// Samples about one node.
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

/// Ways in which it answers.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    #[default]
    Samples,
    /// Answers with this status, content type and body, whatever the query is.
    Raw(u16, &'static str, String),
    /// Does not answer.
    Hang,
}

/// A function that computes the answer to a query.
type Script = Arc<dyn Fn(&str) -> Value + Send + Sync>;

#[derive(Default)]
struct Inner {
    /// The script for queries that contain this text.
    script: Option<(&'static str, Script)>,
    samples: BTreeMap<String, Sample>,
    /// By the query's text, the value of each node.
    own: BTreeMap<String, BTreeMap<String, &'static str>>,
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

    /// Sets the value of one node for an author's own query.
    pub fn own(&self, query: &str, instance: &str, value: &'static str) {
        let mut inner = self.inner.lock().expect("lock");
        inner.own.entry(query.to_owned()).or_default().insert(instance.to_owned(), value);
    }

    /// Lets `script` answer the queries that hold `text`.
    pub fn script(
        &self,
        text: &'static str,
        script: impl Fn(&str) -> Value + Send + Sync + 'static,
    ) {
        self.inner.lock().expect("lock").script = Some((text, Arc::new(script)));
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
        let vector = match (&inner.script, inner.own.get(selected(&query))) {
            (Some((text, script)), _) if query.contains(text) => script(&query),
            (_, Some(values)) => own(values),
            _ => vector(&inner, &query),
        };
        (inner.mode.clone(), vector)
    };
    let (status, content_type, body) = match mode {
        Mode::Samples => (200, "application/json", vector.to_string()),
        Mode::Raw(status, content_type, body) => (status, content_type, body),
        Mode::Hang => {
            // Longer than every deadline, so that the deadline ends the request.
            tokio::time::sleep(Duration::from_mins(2)).await;
            (200, "application/json", String::new())
        }
    };
    let status = axum::http::StatusCode::from_u16(status).expect("status");
    (status, [(header::CONTENT_TYPE, content_type)], body)
}

/// Returns the author's query: a selector is sent with a query for the age of its samples, which
/// are absent here.
fn selected(query: &str) -> &str {
    query.split_once("\nor label_replace(time() - timestamp(").map_or(query, |(own, _)| own)
}

fn own(values: &BTreeMap<String, &'static str>) -> Value {
    let result: Vec<_> = values
        .iter()
        .map(|(instance, value)| json!({"metric": {"instance": instance}, "value": [0, value]}))
        .collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

/// Returns the samples of the measures that the query names: each node has one link, which carried
/// the same throughout the window.
fn vector(inner: &Inner, query: &str) -> Value {
    let mut result = Vec::new();
    // Queries other than the built-in request name no measure, and get all samples.
    let all = !query.contains("\"measure\"");
    let mut add = |measure: &str, instance: &str, value: Option<String>| {
        let asked = all || query.contains(&format!("\"{measure}\""));
        let (true, Some(value)) = (asked, value) else { return };
        let mut metric = json!({"measure": measure});
        if !instance.is_empty() {
            metric["instance"] = instance.into();
            metric["device"] = "eth0".into();
        }
        result.push(json!({"metric": metric, "value": [0, value]}));
    };
    let text = |text: Option<&'static str>| text.map(str::to_owned);
    for (instance, sample) in &inner.samples {
        let share = sample.percent.and_then(|percent| percent.parse::<f64>().ok());
        let share = share.filter(|percent| percent.is_finite() && *percent > 0.0);
        let bytes = sample.bytes.unwrap_or("1000");
        let speed = share.zip(bytes.parse::<f64>().ok());
        let speed = speed.map(|(percent, bytes)| (bytes / percent * 100.0).to_string());
        // A percentage that is none makes the rate as odd as it is.
        let rate = if share.is_some() { Some(bytes) } else { sample.percent.or(sample.bytes) };
        let total = || text(rate.and(Some("281814")));
        add("transmit_rate", instance, text(rate));
        add("transmit_total", instance, total());
        add("transmit_total_before", instance, total());
        let odd = || sample.percent.filter(|_| share.is_none()).map(|_| "1".to_owned());
        add("speed", instance, speed.or_else(odd));
        add("total", instance, text(Some("281814")));
        add("age", instance, text(sample.age));
        add("age_before", instance, sample.age.map(|_| window(query).to_string()));
    }
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

/// Returns the seconds of the window of a query.
fn window(query: &str) -> f64 {
    let (_, rest) = query.split_once(" offset ").unwrap_or_default();
    rest.split_once("ms")
        .and_then(|(window, _)| window.parse().ok())
        .map_or(120.0, |ms: f64| ms / 1e3)
}
