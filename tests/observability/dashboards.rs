//! Dashboards: complete, portable, and every query is PromQL.
use crate::files::{OVERLAYS, Scratch, files_in, promtool, read, to_yaml};
use crate::names;
use crate::objects::{has_text, render};
use crate::reading::{dashboards, metric_names, panel_expressions};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn dashboards_fit_every_installation() {
    for (file, dashboard) in dashboards() {
        for key in ["uid", "title", "description"] {
            assert!(has_text(&dashboard[key]), "{file}: no {key}");
        }
        assert_eq!(dashboard["editable"], false, "{file}: editable");
        assert_eq!(dashboard["refresh"], "10s", "{file}: refresh");
        let variables = dashboard["templating"]["list"].as_array().expect("a list of variables");
        let datasource = variables.iter().find(|v| v["name"] == "datasource");
        let datasource = datasource.unwrap_or_else(|| panic!("{file}: no variable datasource"));
        assert_eq!(datasource["type"], "datasource", "{file}");
        assert_eq!(datasource["query"], "prometheus", "{file}");
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
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(!title.is_empty(), "{file}: a panel without title");
            assert!(ids.insert(panel["id"].to_string()), "{file}: {title}: id {}", panel["id"]);
            assert!(titles.insert(title), "{file}: two panels {title}");
            if panel["type"] == "row" {
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

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

#[test]
fn panels_fill_the_grid_without_overlap() {
    for (file, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        let mut end = 0;
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            let grid = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            let (x, y, w, h) = (grid("x"), grid("y"), grid("w"), grid("h"));
            assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{file}: {title}: beyond the grid");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file}: {title}: overlaps at {cell:?}");
            }
            end = end.max(y + h);
        }
        let area = u64::try_from(taken.len()).expect("a number");
        assert_eq!(area, COLUMNS * end, "{file}: there are holes between the panels");
    }
}

#[test]
fn everything_that_is_told_of_a_kind_is_shown() {
    let shown: BTreeSet<_> =
        panel_expressions().iter().flat_map(|(_, text)| metric_names(text)).collect();
    let family =
        |name: &str| ["", "_bucket"].iter().any(|part| shown.contains(&format!("{name}{part}")));
    let kinds = [
        "_trafficwatch_",
        "_networkprober_",
        "_injector_",
        "_swarm_",
        "_routereflector_",
        "netprober",
    ];
    let missing: Vec<_> = names::all()
        .filter(|name| kinds.iter().any(|kind| name.contains(kind)) && !family(name))
        .collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn panels_survive_another_job_name_and_another_leader() {
    for (place, expression) in panel_expressions() {
        // The job of agents is their NetworkProber's name, which the user chooses.
        let expression = expression.replace("job=~\"$prober\"", "");
        for label in ["job=", "job=~", "instance=", "pod="] {
            assert!(!expression.contains(label), "{place}: selects by {label}: {expression}");
        }
        // Without an aggregation the series of the old and of the new leader stand side by side.
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

#[test]
fn promtool_parses_every_panel() {
    let rules: Vec<Value> = panel_expressions()
        .into_iter()
        .enumerate()
        .map(|(i, (_, expression))| {
            let expression = ["namespace", "name", "node", "prober"]
                .iter()
                .fold(expression.replace("$__rate_interval", "5m"), |text, variable| {
                    text.replace(&format!("\"${variable}\""), "\".*\"")
                });
            serde_json::json!({"record": format!("panel:{i}"), "expr": expression})
        })
        .collect();
    assert!(!rules.is_empty());
    let groups = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    let dir = Scratch::new("panels");
    promtool(&["check", "rules", "--lint=none", &dir.write("panels.yml", &to_yaml(&groups))]);
}

#[test]
fn every_dashboard_is_shipped_as_it_is() {
    let overlay = render(OVERLAYS[0]);
    let map = overlay.one("ConfigMap", "traffic-operator-dashboards");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let shipped = map["data"].as_object().expect("data");
    let files = files_in("grafana", "json");
    assert_eq!(shipped.len(), files.len(), "grafana/kustomization.yaml misses a dashboard");
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert_eq!(shipped[&name].as_str(), Some(read(&file).as_str()), "{name}");
    }
}
