//! Alerts, dashboards and documents as the tests read them.
use crate::files::{files_in, read, root, yaml};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use traffic_operator::metrics::NAMES;

#[derive(Deserialize)]
pub struct Alert {
    #[serde(rename = "alert")]
    pub name: String,
    pub expr: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub struct AlertTests {
    pub tests: Vec<AlertTest>,
}

#[derive(Deserialize)]
pub struct AlertTest {
    pub name: String,
    #[serde(default)]
    pub alert_rule_test: Vec<AlertExpectation>,
}

#[derive(Deserialize)]
pub struct AlertExpectation {
    pub alertname: String,
    #[serde(default)]
    pub exp_alerts: Vec<Value>,
}

pub fn rule_spec() -> Value {
    yaml::<Value>(&root().join("monitoring/prometheusrule.yaml"))["spec"].clone()
}

pub fn alerts() -> Vec<Alert> {
    let groups = rule_spec()["groups"].as_array().expect("groups").clone();
    let rules =
        groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
    let alerts: Vec<Alert> = rules
        .filter(|rule| rule["alert"].is_string())
        .map(|rule| serde_json::from_value(rule).expect("an alert"))
        .collect();
    assert!(!alerts.is_empty());
    alerts
}

/// Every dashboard with the name of its file.
pub fn dashboards() -> Vec<(String, Value)> {
    let files = files_in("grafana", "json");
    assert!(!files.is_empty());
    files
        .into_iter()
        .map(|file| {
            let value = serde_json::from_str(&read(&file))
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            (file.display().to_string(), value)
        })
        .collect()
}

/// The queries of all panels, with the place where each stands.
pub fn panel_expressions() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (file, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let place = format!("{file}: {}", panel["title"]);
                all.push((place, target["expr"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    all
}

/// Every PromQL text that we ship, with the place where it stands.
pub fn expressions() -> Vec<(String, String)> {
    let mut all = panel_expressions();
    for (file, dashboard) in dashboards() {
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            if let Some(query) = variable["query"]["query"].as_str() {
                all.push((format!("{file}: {}", variable["name"]), query.to_owned()));
            }
        }
    }
    all.extend(alerts().into_iter().map(|alert| (alert.name, alert.expr)));
    all
}

/// The names of our own metrics in a text: `traffic_operator_*` and `process_*`.
pub fn metric_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.starts_with("traffic_operator_") || word.starts_with("process_"))
        // A prefix in prose (`traffic_operator_`) is no name.
        .filter(|word| !word.ends_with('_'))
        .map(str::to_owned)
        .collect()
}

pub fn is_exported(name: &str) -> bool {
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .filter(|family| family.ends_with("_seconds"));
    NAMES.contains(&name) || histogram.is_some_and(|family| NAMES.contains(&family))
}

pub fn documents() -> Vec<PathBuf> {
    let mut files = files_in("docs", "md");
    files.extend(files_in("docs/runbooks", "md"));
    files.push(root().join("README.md"));
    files
}
