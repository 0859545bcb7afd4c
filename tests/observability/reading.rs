//! Alerts, dashboards and documents as the tests read them.
use crate::files::{below, files_in, read, root, yaml};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use traffic_operator::manifests;

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

/// Returns the rules about the operator itself.
pub fn operator_rules() -> Value {
    yaml::<Value>(&root().join("monitoring/prometheusrule.yaml"))["spec"].clone()
}

/// Returns the rules of a `NetworkProber` as shipped.
pub fn prober_rules() -> Value {
    yaml(&root().join("deploy").join(manifests::RULES))
}

/// Returns every rule of a rule file.
pub fn rules(file: &Value) -> Vec<Value> {
    let groups = file["groups"].as_array().expect("groups");
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

fn alerts_of(file: &Value) -> Vec<Alert> {
    let rules = rules(file).into_iter().filter(|rule| rule["alert"].is_string());
    let alerts: Vec<_> =
        rules.map(|rule| serde_json::from_value(rule).expect("an alert")).collect();
    assert!(!alerts.is_empty());
    alerts
}

pub fn operator_alerts() -> Vec<Alert> {
    alerts_of(&operator_rules())
}

pub fn prober_alerts() -> Vec<Alert> {
    alerts_of(&prober_rules())
}

pub fn alerts() -> Vec<Alert> {
    let mut alerts = operator_alerts();
    alerts.extend(prober_alerts());
    alerts
}

/// Returns the promtool tests of all rules.
pub fn alert_tests() -> Vec<AlertTest> {
    let files = files_in("monitoring/tests", "yml");
    files.iter().flat_map(|file| yaml::<AlertTests>(file).tests).collect()
}

/// Returns every dashboard with the name of its file.
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

/// Returns every panel of a dashboard, including those of folded rows, in its place when all rows
/// are unfolded: the file has no room for panels of a folded row, which follow right below it.
pub fn panels(dashboard: &Value) -> Vec<Value> {
    let number = |panel: &Value, key: &str| panel["gridPos"][key].as_u64().expect("a number");
    let bottom = |panel: &Value| number(panel, "y") + number(panel, "h");
    let mut all = Vec::new();
    let mut moved = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        let folded = panel["panels"].as_array().map_or(&[][..], Vec::as_slice);
        for panel in std::iter::once(panel).chain(folded) {
            let mut placed = panel.clone();
            placed["gridPos"]["y"] = (number(panel, "y") + moved).into();
            all.push(placed);
        }
        let end = folded.iter().map(bottom).max();
        moved += end.map_or(0, |end| end - bottom(panel));
    }
    all
}

/// Returns the queries of all panels and annotations, with their places.
pub fn panel_expressions() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |place: String, target: &Value| {
        all.push((place, target["expr"].as_str().unwrap_or_default().to_owned()));
    };
    for (file, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                add(format!("{file}: {}", panel["title"]), target);
            }
        }
        for annotation in dashboard["annotations"]["list"].as_array().into_iter().flatten() {
            add(format!("{file}: annotation {}", annotation["name"]), &annotation["target"]);
        }
    }
    all
}

/// Returns a query of a dashboard with all values of its variables.
pub fn with_all(expression: &str) -> String {
    // $name is a prefix of $namespace.
    [
        ("$__rate_interval", "5m"),
        ("$__interval", "1m"),
        ("$__range", "1h"),
        ("$top", "20"),
        ("$namespace", ".*"),
        ("$cluster", ".*"),
        ("$prober", ".*"),
        ("$name", ".*"),
        ("$node", ".*"),
    ]
    .iter()
    .fold(expression.to_owned(), |text, (variable, value)| text.replace(variable, value))
}

/// Returns every PromQL text that we ship, with its place.
pub fn expressions() -> Vec<(String, String)> {
    let mut all = panel_expressions();
    for (file, dashboard) in dashboards() {
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            if let Some(query) = variable["query"]["query"].as_str() {
                all.push((format!("{file}: {}", variable["name"]), query.to_owned()));
            }
        }
    }
    for rule in rules(&operator_rules()).into_iter().chain(rules(&prober_rules())) {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        all.push((text("alert") + &text("record"), text("expr")));
    }
    all
}

/// Prefixes of the names of our own metrics, and of our recorded series.
const OURS: [&str; 5] =
    ["traffic_operator_", "process_", "netprober_", "netprober:", "swarm_worker_"];

/// Returns the names of our own metrics in a text.
pub fn metric_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| OURS.iter().any(|prefix| word.starts_with(prefix)))
        // A prefix in prose (`traffic_operator_`) is not a name.
        .filter(|word| !word.ends_with(['_', ':']))
        .map(str::to_owned)
        .collect()
}

pub fn documents() -> Vec<PathBuf> {
    let mut files = below(&root().join("docs"), &["md"]);
    files.push(root().join("README.md"));
    files
}
