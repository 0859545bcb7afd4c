//! The mixin, as jsonnet renders it: the dashboards and alerts of the files, and its one setting.
use crate::files::{files_in, read, root, run, tool};
use crate::reading::operator_rules;
use serde_json::{Map, Value, json};

/// Evaluates an expression that names the mixin `mixin`.
fn evaluate(expression: &str) -> Value {
    let code = format!("local mixin = import 'mixin/mixin.libsonnet'; {expression}");
    let root = root();
    let text = run(&tool("jsonnet"), &["--jpath", &root.to_string_lossy(), "--exec", &code]);
    serde_json::from_str(&text).expect("JSON")
}

/// Returns a value with numbers as jsonnet writes them: 0.05 with 17 digits, and 1.0 as 1.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), rounded(value))).collect()
        }
        Value::Array(items) => items.iter().map(rounded).collect(),
        Value::Number(number) => format!("{:.9e}", number.as_f64().expect("a number")).into(),
        _ => value.clone(),
    }
}

fn assert_equal(rendered: &Value, expected: &Value) {
    assert_eq!(rounded(rendered), rounded(expected));
}

/// The alerts of the file with these addresses of runbooks, by the name of the page.
fn alerts(address: impl Fn(&str) -> Option<String>) -> Value {
    let mut alerts = operator_rules();
    for group in alerts["groups"].as_array_mut().expect("groups") {
        for rule in group["rules"].as_array_mut().expect("rules") {
            let page = format!("{}.md", rule["alert"].as_str().expect("an alert"));
            if let Some(address) = address(&page) {
                rule["annotations"]["runbook_url"] = address.into();
            }
        }
    }
    alerts
}

#[test]
fn the_mixin_has_every_dashboard_as_it_is() {
    let expected: Map<String, Value> = files_in("grafana", "json")
        .iter()
        .map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let dashboard = serde_json::from_str(&read(file)).expect("JSON");
            (format!("traffic-operator-{name}"), dashboard)
        })
        .collect();
    assert!(expected.len() > 3, "{} dashboards", expected.len());
    assert_equal(&evaluate("mixin.grafanaDashboards"), &Value::Object(expected));
}

#[test]
fn the_mixin_has_the_alerts_and_puts_the_address_of_the_runbooks_in_front_of_their_pages() {
    // Without an address there is no link.
    assert_equal(&evaluate("mixin.prometheusAlerts"), &alerts(|_| None));
    let expected = alerts(|page| Some(format!("https://runbooks.example.org/traffic/{page}")));
    for end in ["", "/"] {
        let config = format!("runbookUrl: 'https://runbooks.example.org/traffic{end}'");
        let mixin = format!("mixin + {{_config+:: {{trafficOperator+: {{{config}}}}}}}");
        assert_equal(&evaluate(&format!("({mixin}).prometheusAlerts")), &expected);
    }
}

/// As kube-prometheus and others put mixins together: by adding them up.
#[test]
fn the_mixin_takes_nothing_from_others() {
    let other = "local other = {
        _config+:: {clusterLabel: 'cluster'},
        grafanaDashboards+:: {'nodes.json': {}},
        prometheusAlerts+:: {groups+: [{name: 'nodes', rules: []}]},
    };";
    for sum in ["mixin + other", "other + mixin"] {
        let all = evaluate(&format!(
            "{other} local all = {sum};
            {{
                label: all._config.clusterLabel,
                dashboards: std.length(all.grafanaDashboards),
                groups: std.set([group.name for group in all.prometheusAlerts.groups]),
            }}"
        ));
        assert_eq!(all["label"], "cluster", "{sum}");
        assert_eq!(all["dashboards"], files_in("grafana", "json").len() + 1, "{sum}");
        assert_eq!(all["groups"], json!(["nodes", "traffic-operator"]), "{sum}");
    }
}
