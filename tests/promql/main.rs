//! The text of the built-in request, evaluated by promtool on series with a known answer.
//!
//! The cases are data (`measures.yml`): bonds, virtual devices, unknown speeds, dead exporters,
//! resets, duplicates. Prometheus itself computes the answers.
mod accepted;
mod exporter;
mod measuring;
mod monitor;
mod probing;
mod recorded;
mod scraping;
mod server;
mod servers;
mod sessions;
mod trusting;

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use traffic_operator::{
    api::traffic_watch::{DEFAULT_DEVICES, Direction},
    prometheus::{
        Exporters,
        exporters::{LinkExporter, Links, OTHER_JOB},
    },
    traffic_watch::query::{MEASURE, Measure, Question, Request, SCRAPES},
};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// A description for readers.
    #[serde(default, rename = "why")]
    _why: String,
    #[serde(default)]
    direction: Direction,
    #[serde(default = "default_window")]
    window: String,
    #[serde(default = "default_devices")]
    devices: String,
    /// The value of `--node-exporter-selector`, or of `selector` if there is an exporter; by default
    /// every series matches.
    #[serde(default)]
    believed: String,
    /// The `exporter` of the endpoint, if it names one.
    exporter: Option<String>,
    input_series: Vec<Value>,
    eval_time: String,
    expect: BTreeMap<String, Vec<Sample>>,
}

#[derive(Deserialize)]
struct Sample {
    labels: String,
    value: f64,
}

fn default_window() -> String {
    "2m".into()
}

fn default_devices() -> String {
    DEFAULT_DEVICES.into()
}

#[test]
fn the_request_answers_every_case() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/promql/measures.yml")).expect("the cases");
    let file: File = serde_yaml::from_str(&text).expect("cases");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("promql");
    fs::create_dir_all(&scratch).expect("a directory for promtool");
    let promtool = lab::tools::ensure("promtool").unwrap_or_else(|error| panic!("{error:#}"));
    // promtool takes many files at once; one for each case, because each has its own rules.
    let tests: Vec<_> = file
        .cases
        .iter()
        .enumerate()
        .map(|(i, case)| {
            let rules = format!("case-{i}-rules.yml");
            write(&scratch.join(&rules), &case.rules());
            let path = scratch.join(format!("case-{i}.yml"));
            write(&path, &case.test(&rules));
            path
        })
        .collect();
    assert!(tests.len() > 20, "{} cases", tests.len());
    let output = Command::new(promtool).args(["test", "rules"]).args(tests).output();
    let output = output.expect("promtool");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

impl Case {
    fn rules(&self) -> Value {
        let question = Question::BuiltIn {
            devices: self.devices.as_str().into(),
            direction: self.direction,
            window: self
                .window
                .parse::<traffic_operator::api::Duration>()
                .map(Duration::from)
                .expect("window"),
        };
        // The defaults of --node-label.
        let mut exporters =
            Exporters::any(&["node", "nodename", "kubernetes_node", "k8s_node_name", "host_name"]);
        match &self.exporter {
            None => exporters.node_exporter = self.believed.parse().expect("matchers"),
            Some(name) => {
                let named = LinkExporter::ALL.into_iter().find(|known| known.name() == name);
                let exporter = named.unwrap_or_else(|| panic!("{}: {name}", self.name));
                let believed = self.believed.parse().expect("matchers");
                exporters.links = [("default".into(), Links { exporter, believed })].into();
            }
        }
        let request = Request { endpoint: "default".into(), question };
        json!({"groups": [{"name": "request", "rules": [
            {"record": "answer", "expr": request.promql(&exporters)},
        ]}]})
    }

    fn test(&self, rules: &str) -> Value {
        let expressions: Vec<_> = self
            .expect
            .iter()
            .map(|(measure, samples)| {
                let known = Measure::from_name(measure).is_some()
                    || [SCRAPES, OTHER_JOB].contains(&measure.as_str());
                assert!(known, "{}: {measure}", self.name);
                let selector = format!("{MEASURE}=\"{measure}\"");
                let samples: Vec<_> = samples
                    .iter()
                    .map(|sample| {
                        // An element that belongs to no node has only its name as a label.
                        let comma = if sample.labels.is_empty() { "" } else { "," };
                        let labels = format!("answer{{{}{comma}{selector}}}", sample.labels);
                        json!({"labels": labels, "value": sample.value})
                    })
                    .collect();
                json!({
                    "eval_time": self.eval_time,
                    "expr": format!("answer{{{selector}}}"),
                    "exp_samples": samples,
                })
            })
            .collect();
        assert!(!expressions.is_empty(), "{}: expects nothing", self.name);
        json!({
            "rule_files": [rules],
            "evaluation_interval": "15s",
            // Rates are computed in floating point.
            "fuzzy_compare": true,
            "tests": [{
                "name": self.name,
                "interval": "15s",
                "input_series": self.input_series,
                "promql_expr_test": expressions,
            }],
        })
    }
}

fn write(path: &Path, value: &Value) {
    let text = serde_yaml::to_string(value).expect("YAML of JSON");
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
