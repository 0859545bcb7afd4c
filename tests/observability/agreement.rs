//! Metrics, rules, dashboards and documentation agree, and the documentation is complete.
use crate::files::{read, root};
use crate::names;
use crate::reading::{documents, expressions, metric_names};
use serde_json::Value;
use traffic_operator::api::KINDS;
use traffic_operator::webhook::injection::SkipReason;

#[test]
fn only_exported_metrics_are_asked_for() {
    for (place, expression) in expressions() {
        for name in metric_names(&expression) {
            assert!(names::is_known(&name), "{place} asks for {name}, which no process exports");
        }
    }
}

#[test]
fn only_exported_metrics_are_documented() {
    for file in documents() {
        for name in metric_names(&read(&file)) {
            assert!(
                names::is_known(&name),
                "{} names {name}, which no process exports",
                file.display()
            );
        }
    }
}

#[test]
fn every_exported_metric_is_documented() {
    let page = read(&root().join("docs/reference/metrics.md"));
    let missing: Vec<_> =
        names::all().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md lacks {missing:?}");
}

/// Returns the schema of a field of the spec, by its path as the pages write it:
/// `streams[].weight`.
fn field<'a>(spec: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(spec, |schema, part| match part.strip_suffix("[]") {
        Some(part) => &schema["properties"][part]["items"],
        None => &schema["properties"][part],
    })
}

/// Reports whether this is the default as a page writes it: YAML, and a duration of 600s as `10m`.
fn is_written(default: &Value, shown: &str) -> bool {
    let duration = |text: &str| humantime::parse_duration(text).ok();
    serde_yaml::from_str::<Value>(shown).is_ok_and(|shown| shown == *default)
        || duration(shown).is_some_and(|shown| default.as_str().and_then(duration) == Some(shown))
}

/// The row of a field ends its second cell with the default.
#[test]
fn the_defaults_on_the_page_of_each_kind_are_those_of_its_definition() {
    for kind in KINDS {
        let crd = serde_json::to_value((kind.crd)()).expect("JSON");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let page = format!("docs/reference/{}.md", kind.name().to_lowercase());
        let mut count = 0;
        for row in read(&root().join(&page)).lines() {
            let mut cells = row.trim_start_matches("| `").split(" | ");
            let (Some(path), Some(cell)) = (cells.next(), cells.next()) else { continue };
            let default =
                &field(&schema["properties"]["spec"], path.trim_end_matches('`'))["default"];
            let shown = cell.strip_suffix('`').and_then(|cell| cell.rsplit('`').next());
            let (Some(shown), false) = (shown, default.is_null()) else { continue };
            assert!(is_written(default, shown), "{page}: {path} is {default} by default: {cell}");
            count += 1;
        }
        assert!(count >= 4, "{page}: {count} defaults");
    }
}

/// Every reason for a pod without an agent has a row on the page, with the remedy.
#[test]
fn every_reason_to_have_no_agent_is_documented() {
    let page = read(&root().join("docs/reference/networkprober.md"));
    for reason in SkipReason::ALL {
        assert!(page.contains(&format!("\n| {reason} | ")), "no row for {reason}");
    }
}

/// The index leads to every page but the runbooks, to which the page of alerts leads.
#[test]
fn every_page_is_in_the_index() {
    let docs = root().join("docs");
    let index = read(&docs.join("README.md"));
    for page in documents() {
        let Ok(path) = page.strip_prefix(&docs) else { continue };
        let path = path.display().to_string();
        if path != "README.md" && !path.starts_with("runbooks/") {
            assert!(index.contains(&format!("({path})")), "docs/README.md does not lead to {path}");
        }
    }
}
