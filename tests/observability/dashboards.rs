//! Dashboards: complete, portable, and every query is PromQL.
use crate::files::{
    OVERLAYS, Scratch, documents_of, files_in, promtool, read, root, run, to_yaml, tool,
};
use crate::objects::{has_text, name, render};
use crate::reading::{
    dashboards, metric_names, operator_alerts, panel_expressions, panels, with_all,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn every_dashboard_is_what_its_source_renders() {
    let sources = files_in("grafana", "jsonnet");
    let rendered: Vec<_> = sources.iter().map(|source| source.with_extension("json")).collect();
    assert_eq!(rendered, files_in("grafana", "json"));
    for (source, file) in sources.iter().zip(&rendered) {
        let code = format!("std.manifestJsonEx(import '{}', '  ')", source.display());
        let text = run(&tool("jsonnet"), &["--string", "--exec", &code]);
        assert!(text == read(file), "{} is not up to date: run `make generate`", file.display());
    }
}

#[test]
fn dashboards_fit_every_installation() {
    for (file, dashboard) in dashboards() {
        for key in ["uid", "title", "description"] {
            assert!(has_text(&dashboard[key]), "{file}: no {key}");
        }
        assert_eq!(dashboard["editable"], true, "{file}: editable");
        assert_eq!(dashboard["refresh"], "30s", "{file}: refresh");
        let variables = dashboard["templating"]["list"].as_array().expect("a list of variables");
        let datasource = variables.iter().find(|v| v["name"] == "datasource");
        let datasource = datasource.unwrap_or_else(|| panic!("{file}: no variable datasource"));
        assert_eq!(datasource["type"], "datasource", "{file}");
        assert_eq!(datasource["query"], "prometheus", "{file}");
        // Without that label, every series matches.
        let cluster = variables.iter().find(|v| v["name"] == "cluster");
        let cluster = cluster.unwrap_or_else(|| panic!("{file}: no variable cluster"));
        assert_eq!(cluster["allValue"], ".*", "{file}: cluster");
        assert_eq!(cluster["current"]["value"][0], "$__all", "{file}: cluster");
        for variable in variables.iter().filter(|v| v["type"] == "query") {
            assert_eq!(
                variable["datasource"]["uid"], "${datasource}",
                "{file}: {}",
                variable["name"]
            );
            // New nodes appear in an open dashboard.
            assert_eq!(variable["refresh"], 2, "{file}: {}", variable["name"]);
        }
    }
}

#[test]
fn every_panel_is_complete() {
    for (file, dashboard) in dashboards() {
        let mut ids = BTreeSet::new();
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(!title.is_empty(), "{file}: a panel without title");
            assert!(ids.insert(panel["id"].to_string()), "{file}: {title}: id {}", panel["id"]);
            let row = panel["type"] == "row";
            assert!(titles.insert((row, title.to_owned())), "{file}: two panels {title}");
            if row {
                continue;
            }
            assert!(has_text(&panel["description"]), "{file}: {title}: no description");
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(has_text(unit), "{file}: {title}: no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {title}");
            let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(!targets.is_empty(), "{file}: {title}: no query");
            for target in targets {
                assert!(has_text(&target["expr"]), "{file}: {title}: an empty query");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{file}: {title}");
            }
        }
    }
}

/// Whoever reads an alert of the operator finds its numbers over time.
#[test]
fn every_metric_of_an_alert_is_shown() {
    let shown: BTreeSet<_> =
        panel_expressions().iter().flat_map(|(_, text)| metric_names(text)).collect();
    let asked: BTreeSet<_> =
        operator_alerts().iter().flat_map(|alert| metric_names(&alert.expr)).collect();
    let missing: Vec<_> = asked.difference(&shown).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn panels_survive_another_job_name_and_another_leader() {
    for (place, expression) in panel_expressions() {
        // The job of agents is the name of their NetworkProber, which the user chooses.
        let expression = expression.replace("job=~\"$prober\"", "");
        for label in ["job=", "job=~", "instance=", "pod="] {
            assert!(!expression.contains(label), "{place}: selects by {label}: {expression}");
        }
        // Without an aggregation, the series of the old and of the new leader appear side by side.
        if expression.contains("traffic_operator_") {
            let aggregated = ["sum", "max", "min by"].iter().any(|op| expression.contains(op));
            assert!(aggregated, "{place}: not aggregated over the pods: {expression}");
        }
        for name in metric_names(&expression).iter().filter(|name| name.ends_with("_total")) {
            let counted = ["rate(", "increase("].iter().any(|function| {
                expression.split(function).skip(1).any(|rest| rest.trim_start().starts_with(name))
            });
            assert!(counted, "{place}: {name} without rate or increase");
        }
        if expression.contains("rate(") {
            assert!(expression.contains("[$__rate_interval]"), "{place}: {expression}");
        }
    }
}

/// The variable `cluster` chooses among several clusters in one Prometheus.
#[test]
fn every_series_is_selected_by_cluster() {
    for (place, expression) in panel_expressions() {
        for name in metric_names(&expression).into_iter().chain(["ALERTS".to_owned()]) {
            for rest in expression.split(name.as_str()).skip(1) {
                // Not a prefix of a longer name.
                if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let matcher = "{cluster=~\"$cluster\"";
                assert!(rest.starts_with(matcher), "{place}: {name} of all clusters: {expression}");
            }
        }
    }
}

/// The table with every node that is not fit: the limit of each TrafficWatch bounds the unfit ones,
/// and on call, all of them must be visible.
const WHOLE_TABLE: &str = "Unfit and unknown nodes";

/// A hundred lines are indistinguishable, and a browser takes minutes to draw five thousand. A
/// table of five thousand rows costs as much, and nobody reads it.
#[test]
fn lines_and_rows_of_nodes_are_limited() {
    let of_nodes = ["{{node}}", "{{dst_node}}", "{{worker}}"];
    let by_node = ["node,", "node)", "worker,", "worker)"];
    let mut limited = BTreeMap::new();
    for (file, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap_or_default();
            let kind = panel["type"].as_str().unwrap_or_default();
            for target in panel["targets"].as_array().into_iter().flatten() {
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                let expression = target["expr"].as_str().unwrap_or_default();
                let has_nodes = match kind {
                    "table" => by_node.iter().any(|label| expression.contains(label)),
                    _ => of_nodes.iter().any(|label| legend.contains(label)),
                };
                if !has_nodes || title == WHOLE_TABLE {
                    continue;
                }
                let of_variable = ["topk($top, ", "bottomk($top, "];
                let is_limited = match kind {
                    "timeseries" => of_variable.iter().any(|limit| expression.starts_with(limit)),
                    _ => {
                        expression.contains("topk(10, ")
                            || of_variable.iter().any(|limit| expression.contains(limit))
                    }
                };
                assert!(is_limited, "{file}: {title}: {expression}");
                *limited.entry(kind.to_owned()).or_insert(0) += 1;
            }
        }
    }
    for (kind, least) in [("timeseries", 10), ("table", 10), ("state-timeline", 1)] {
        assert!(limited.get(kind).is_some_and(|count| *count >= least), "{limited:?}");
    }
}

/// Links lead to dashboards and variables that exist.
#[test]
fn dashboards_lead_to_each_other() {
    let all = dashboards();
    let variables: BTreeMap<_, _> = all
        .iter()
        .map(|(_, dashboard)| {
            let list = dashboard["templating"]["list"].as_array().into_iter().flatten();
            let names: BTreeSet<_> = list.filter_map(|v| v["name"].as_str()).collect();
            (dashboard["uid"].as_str().expect("uid"), names)
        })
        .collect();
    for (file, dashboard) in &all {
        let own = dashboard["uid"].as_str().expect("uid");
        let mut led_to = BTreeSet::from([own]);
        for link in dashboard["links"].as_array().into_iter().flatten() {
            let url = link["url"].as_str().expect("url");
            let uid = url.strip_prefix("/d/").and_then(|rest| rest.split('?').next());
            led_to.insert(uid.expect("a dashboard"));
        }
        assert!(led_to.iter().eq(variables.keys()), "{file} leads to {led_to:?}");
        let text = dashboard.to_string();
        for rest in text.split("/d/").skip(1) {
            let url = rest.split('"').next().unwrap_or_default();
            let (uid, query) = url.split_once('?').expect("variables");
            let known = variables.get(uid).unwrap_or_else(|| panic!("{file}: no {uid}"));
            for part in query.split('&').filter_map(|part| part.strip_prefix("var-")) {
                let name = part.split('=').next().unwrap_or_default();
                assert!(known.contains(name), "{file}: {uid} has no variable {name}");
            }
            for own in ["datasource", "cluster"] {
                let passed = format!("${{{own}:queryparam}}");
                assert!(query.contains(&passed), "{file}: {url} loses {own}");
            }
        }
    }
}

#[test]
fn promtool_parses_every_panel() {
    let rules: Vec<Value> = panel_expressions()
        .into_iter()
        .enumerate()
        .map(|(i, (place, expression))| {
            let expression = with_all(&expression);
            assert!(!expression.contains('$'), "{place}: an unknown variable: {expression}");
            serde_json::json!({"record": format!("panel:{i}"), "expr": expression})
        })
        .collect();
    assert!(!rules.is_empty());
    let groups = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    let dir = Scratch::new("panels");
    promtool(&["check", "rules", "--lint=none", &dir.write("panels.yml", &to_yaml(&groups))]);
}

/// `kubectl apply` stores the applied object in an annotation; all annotations of an object
/// together have at most this many bytes.
const ANNOTATION: usize = 262_144;

#[test]
fn every_dashboard_is_shipped_as_it_is() {
    let overlay = render(OVERLAYS[0]);
    let files = files_in("grafana", "json");
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.trim_end_matches(".json");
        let map = overlay.one("ConfigMap", &format!("traffic-operator-dashboard-{stem}"));
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        assert_eq!(map["data"].as_object().map(Map::len), Some(1), "{name}");
        assert_eq!(map["data"][&name].as_str(), Some(read(file).as_str()), "{name}");
        let size = map.to_string().len();
        assert!(size < ANNOTATION * 9 / 10, "{name}: {size} bytes");
    }
    let maps = overlay.all("ConfigMap").into_iter();
    let maps = maps.filter(|map| map["metadata"]["labels"]["grafana_dashboard"] == "1");
    assert_eq!(maps.count(), files.len());
}

/// The Deployment of kube-prometheus, as far as it matters here.
const GRAFANA: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: grafana, namespace: monitoring}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: grafana}}
  template:
    metadata: {labels: {app.kubernetes.io/name: grafana}}
    spec:
      containers:
        - name: grafana
          image: grafana/grafana
          volumeMounts:
            - {mountPath: /grafana-dashboard-definitions/0/nodes, name: grafana-dashboard-nodes}
      volumes:
        - {configMap: {name: grafana-dashboard-nodes}, name: grafana-dashboard-nodes}
";

#[test]
fn make_grafana_adds_every_dashboard_to_that_of_kube_prometheus_and_nothing_the_second_time() {
    let dir = Scratch::new("grafana");
    let patched = |name: &str, deployment: &str| {
        let file = dir.write(name, deployment);
        let patch = root().join("grafana/kube-prometheus.yaml");
        let patch = patch.to_string_lossy();
        let arguments = ["patch", "--local", "-f", &*file, "--patch-file", &*patch, "-o", "yaml"];
        run(&tool("kubectl"), &arguments)
    };
    let once = patched("once.yaml", GRAFANA);
    assert_eq!(patched("twice.yaml", &once), once);
    let deployment = &documents_of(&once)[0];
    let pod = &deployment["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
    assert_eq!((pod["containers"].as_array().map(Vec::len), mounts.len()), (Some(1), 2), "{once}");
    let volumes = pod["volumes"].as_array().expect("volumes");
    let ours = volumes.iter().find(|v| v["name"] == "traffic-operator-dashboards").expect("ours");
    let mounted: BTreeSet<_> = ours["projected"]["sources"]
        .as_array()
        .expect("sources")
        .iter()
        // Grafana also starts without the operator.
        .filter(|source| source["configMap"]["optional"] == true)
        .filter_map(|source| source["configMap"]["name"].as_str())
        .collect();
    let shipped = render("grafana");
    let shipped: BTreeSet<_> = shipped.all("ConfigMap").into_iter().map(name).collect();
    assert_eq!(mounted, shipped);
}
