//! The data of a Prometheus for a panel.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde::Deserialize;

use super::Options;
use super::model::{Dashboard, Panel, Target};
use crate::progress;

/// A slower answer counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// The answer to one query.
#[derive(Debug)]
pub(super) struct Answer {
    /// The query's letter.
    pub id: String,
    pub series: Vec<Series>,
    /// Seconds between two points.
    pub step: f64,
}

/// One series.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub labels: BTreeMap<String, String>,
    /// As the legend names it.
    pub name: String,
    /// Unix seconds and value, in the order of time; finite values only.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    pub fn last(&self) -> Option<f64> {
        self.points.last().map(|point| point.1)
    }
}

impl Answer {
    pub fn has_data(&self) -> bool {
        self.series.iter().any(|series| !series.points.is_empty())
    }
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Element>,
}

#[derive(Deserialize)]
struct Element {
    metric: BTreeMap<String, String>,
    value: Option<(f64, String)>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// A Prometheus and the period to draw.
pub(super) struct Prometheus {
    client: reqwest::Client,
    url: String,
    rate_interval: String,
    step: u32,
    pub from: Timestamp,
    pub now: Timestamp,
}

impl Prometheus {
    pub fn new(options: &Options, now: Timestamp, points: u32) -> Result<Self> {
        let seconds = u32::try_from(options.from.as_secs()).context("--from is too long ago")?;
        ensure!(seconds >= 60, "--from: at least a minute, as -15m");
        crate::credentials::install_crypto();
        Ok(Self {
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?,
            url: options.prometheus.trim_end_matches('/').to_owned(),
            rate_interval: format!("{}s", options.rate_interval.as_secs().max(1)),
            step: seconds.div_ceil(points),
            from: now - options.from,
            now,
        })
    }

    /// Runs the queries of a panel, one after the other.
    pub async fn ask(&self, dashboard: &Dashboard, panel: &Panel) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for target in &panel.targets {
            let range = format!("{}s", self.now.duration_since(self.from).as_secs());
            let query = dashboard.substitute(&target.expr, &self.rate_interval, &range);
            ensure!(!query.contains('$'), "a variable that the dashboard does not have: {query}");
            let elements = self.query(target, &query).await.with_context(|| query.clone())?;
            let mut series: Vec<Series> =
                elements.into_iter().map(|element| read(element, &target.legend)).collect();
            series.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
            let answer = Answer { id: target.id.clone(), series, step: f64::from(self.step) };
            if !answer.has_data() {
                progress(&format!("{:?}: no data for query {}: {query}", panel.title, target.id));
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn query(&self, target: &Target, query: &str) -> Result<Vec<Element>> {
        let mut form = vec![("query", query.to_owned())];
        let path = if target.instant {
            form.push(("time", seconds(self.now)));
            "query"
        } else {
            form.push(("start", seconds(self.from)));
            form.push(("end", seconds(self.now)));
            form.push(("step", self.step.to_string()));
            "query_range"
        };
        let url = format!("{}/api/v1/{path}", self.url);
        let answer = self
            .client
            .post(&url)
            .form(&form)
            .send()
            .await
            .with_context(|| format!("asking {url}"))?;
        let status = answer.status();
        let text = answer.text().await?;
        let reply: Reply = serde_json::from_str(&text)
            .with_context(|| format!("{url} answers {status}, and not as Prometheus does"))?;
        match reply.data {
            Some(data) if status.is_success() => Ok(data.result),
            _ => bail!("Prometheus refuses it ({status}): {}", reply.error),
        }
    }
}

fn seconds(time: Timestamp) -> String {
    format!("{}.{:03}", time.as_second(), time.subsec_millisecond())
}

fn read(element: Element, legend: &str) -> Series {
    let name = name(&element.metric, legend);
    let values = element.value.into_iter().chain(element.values);
    let points = values
        .filter_map(|(time, text)| Some((time, text.parse().ok()?)))
        // A quantile of nothing is NaN; Grafana leaves a gap too.
        .filter(|(_, value): &(f64, f64)| value.is_finite())
        .collect();
    Series { labels: element.metric, name, points }
}

/// Puts the labels into the legend's text.
pub(super) fn name(labels: &BTreeMap<String, String>, legend: &str) -> String {
    if legend.is_empty() {
        let pairs: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        return format!("{{{}}}", pairs.join(", "));
    }
    let mut name = String::new();
    let mut rest = legend;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((label, after)) = after.split_once("}}") else { break };
        name += before;
        name += labels.get(label.trim()).map_or("", String::as_str);
        rest = after;
    }
    (name + rest).trim().to_owned()
}
