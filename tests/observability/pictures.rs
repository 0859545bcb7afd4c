//! Pictures in the documentation: those of dashboards show the panels that the dashboards have.
use crate::files::{read, root};
use crate::reading::panels;
use serde_json::Value;

/// Returns the titles of rows and panels in a picture that `lab draw` made, in their order.
fn drawn(svg: &str) -> Vec<String> {
    let title = |line: &str| {
        let row = line.strip_suffix("</text>").and_then(|rest| rest.split_once("class=\"row\">"));
        let panel = line.strip_prefix("<g><title>").and_then(|rest| rest.split_once(": "));
        row.map(|(_, title)| title.to_owned()).or_else(|| panel.map(|(title, _)| title.to_owned()))
    };
    svg.lines().filter_map(title).map(|title| title.replace("&amp;", "&")).collect()
}

#[test]
fn the_picture_of_the_dashboard_has_its_panels() {
    let dashboard = read(&root().join("grafana/trafficwatch.json"));
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let shown: Vec<_> = panels(&dashboard)
        .iter()
        .map(|p| p["title"].as_str().expect("a title").to_owned())
        .collect();
    let picture = drawn(&read(&root().join("docs/images/dashboard.svg")));
    assert_eq!(
        picture, shown,
        "draw it again: lab draw grafana/trafficwatch.json --out docs/images/dashboard.svg"
    );
}
