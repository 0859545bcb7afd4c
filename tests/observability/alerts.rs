//! Alerts: what they say, and that promtool has seen each fire, stay silent and resolve.
use crate::files::{Scratch, files_in, promtool, read, root, to_yaml, yaml};
use crate::reading::{AlertTests, alerts, rule_spec};
use std::collections::BTreeSet;

#[test]
fn every_alert_says_what_to_do() {
    for alert in alerts() {
        let name = &alert.name;
        for key in ["summary", "description", "runbook_url"] {
            assert!(
                alert.annotations.get(key).is_some_and(|text| !text.trim().is_empty()),
                "{name}: no annotation {key}"
            );
        }
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        let page = format!("docs/runbooks/{name}.md");
        assert!(alert.annotations["runbook_url"].ends_with(&page), "{name}: not {page}");
        let text = read(&root().join(&page));
        for heading in ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"] {
            assert!(text.contains(heading), "{page}: no {heading}");
        }
        assert!(text.starts_with(&format!("# {name}\n")), "{page}: not about {name}");
    }
}

#[test]
fn every_runbook_belongs_to_an_alert() {
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    for file in files_in("docs/runbooks", "md") {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        assert!(names.contains(&stem), "{}: there is no such alert", file.display());
    }
}

/// Fires, does not fire and resolves: each alert has a test that expects it, a test that never
/// expects it, and a test that expects it and later does not.
#[test]
fn every_alert_is_tested_three_ways() {
    let file: AlertTests = yaml(&root().join("monitoring/tests/alerts_test.yml"));
    for alert in alerts() {
        // One list per test: whether the alert is expected, in the order of time as written.
        let runs: Vec<Vec<bool>> = file
            .tests
            .iter()
            .map(|test| {
                let of_alert = test.alert_rule_test.iter().filter(|t| t.alertname == alert.name);
                of_alert.map(|t| !t.exp_alerts.is_empty()).collect()
            })
            .filter(|run: &Vec<bool>| !run.is_empty())
            .collect();
        let name = &alert.name;
        assert!(runs.iter().any(|run| run.contains(&true)), "{name}: no test that it fires");
        assert!(
            runs.iter().any(|run| !run.contains(&true)),
            "{name}: no test in which it does not fire"
        );
        assert!(
            runs.iter().any(|run| run.windows(2).any(|pair| pair == [true, false])),
            "{name}: no test that it resolves"
        );
    }
}

#[test]
fn promtool_accepts_and_tests_the_rules() {
    let dir = Scratch::new("rules");
    let rules = dir.write("rules.yml", &to_yaml(&rule_spec()));
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules]);
    let tests = read(&root().join("monitoring/tests/alerts_test.yml"));
    promtool(&["test", "rules", &dir.write("alerts_test.yml", &tests)]);
}
