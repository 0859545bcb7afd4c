//! Alerts: their texts, and promtool's tests that each fires, stays silent and resolves.
use crate::files::{Scratch, files_in, promtool, read, root, to_yaml};
use crate::objects::{name, render};
use crate::reading::{
    alert_tests, alerts, operator_alerts, operator_rules, prober_alerts, prober_rules, rules,
};
use std::collections::BTreeSet;

#[test]
fn every_alert_says_what_to_do() {
    for alert in alerts() {
        let name = &alert.name;
        for key in ["summary", "description"] {
            assert!(
                alert.annotations.get(key).is_some_and(|text| !text.trim().is_empty()),
                "{name}: no annotation {key}"
            );
        }
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        let page = format!("docs/runbooks/{name}.md");
        // A link that leads nowhere would be worse than none.
        assert_eq!(alert.annotations.get("runbook_url"), None, "{name}");
        let text = read(&root().join(&page));
        for heading in ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"] {
            assert!(text.contains(heading), "{page}: no {heading}");
        }
        assert!(text.starts_with(&format!("# {name}\n")), "{page}: not about {name}");
    }
}

/// The address is set in one place, for the installed rules and for those that the operator writes.
/// Without it no alert has a link.
#[test]
fn one_setting_says_where_the_runbooks_are() {
    const URL: &str = "https://runbooks.example.org/traffic-operator";
    let rendered = render("tests/observability/kustomize/runbooks");
    let rule = rendered.one("PrometheusRule", "traffic-operator");
    let alerts = rules(&rule["spec"]);
    assert!(!alerts.is_empty());
    for alert in alerts {
        let page = format!("{URL}/{}.md", alert["alert"].as_str().expect("a name"));
        assert_eq!(alert["annotations"]["runbook_url"], page);
    }
    let operator = rendered.one("Deployment", "traffic-operator");
    let env = operator["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let flag = env.expect("env").iter().find(|v| v["name"] == "TRAFFIC_OPERATOR_RUNBOOK_URL");
    assert_eq!(flag.expect("the variable")["value"], URL);
    let bare = render("deploy/overlays/kube-prometheus");
    for alert in rules(&bare.one("PrometheusRule", "traffic-operator")["spec"]) {
        assert!(alert["annotations"]["runbook_url"].is_null(), "{alert}");
    }
    assert!(rendered.all("ConfigMap").iter().all(|map| !name(map).contains("runbooks")));
}

/// One Prometheus may have the series of several clusters, whose objects and nodes have the same
/// names.
#[test]
fn every_alert_keeps_clusters_apart() {
    for alert in alerts() {
        let name = &alert.name;
        for word in [" by (", " on ("] {
            for labels in alert.expr.split(word).skip(1) {
                let labels = labels.split(')').next().unwrap_or_default();
                // `or on ()` applies only without series of any cluster.
                let kept = labels.split(", ").any(|label| label == "cluster");
                assert!(kept || labels.is_empty(), "{name}: {word}{labels}");
            }
        }
        // Those are functions and not aggregations.
        let expr = alert.expr.replace("clamp_min(", "").replace("clamp_max(", "");
        for function in ["sum(", "max(", "min(", "count(", "group(", "avg("] {
            assert!(!expr.contains(function), "{name}: {function} over all clusters");
        }
    }
}

/// A rule with a fixed range is wrong for a TrafficWatch with another interval.
#[test]
fn rules_about_evaluations_ask_for_the_interval() {
    for alert in operator_alerts() {
        let about = ["_evaluations_total", "_last_success_timestamp_seconds"];
        if about.iter().any(|metric| alert.expr.contains(metric)) {
            let interval = "traffic_operator_trafficwatch_interval_seconds";
            assert!(alert.expr.contains(interval), "{}: {}", alert.name, alert.expr);
        }
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

/// The page of alerts lists each with its severity, and links to its runbook.
#[test]
fn every_alert_is_on_the_page_of_alerts() {
    let page = read(&root().join("docs/reference/alerts.md"));
    for alert in alerts() {
        let (name, severity) = (&alert.name, &alert.labels["severity"]);
        let row = format!("| [{name}](../runbooks/{name}.md) | {severity} | ");
        assert!(page.contains(&row), "docs/reference/alerts.md lacks {row}");
    }
}

/// Only the leader exports decisions, and an alert outlives the name of a pod.
#[test]
fn every_alert_survives_a_change_of_leader() {
    let tests = alert_tests();
    for alert in operator_alerts() {
        let name = &alert.name;
        for label in ["job=", "job=~", "instance=", "pod=", "pod)", "pod,"] {
            assert!(!alert.expr.contains(label), "{name}: depends on {label}: {}", alert.expr);
        }
        let aggregated =
            ["sum by", "max by", "min by", "absent("].iter().any(|op| alert.expr.contains(op));
        assert!(aggregated, "{name}: not aggregated over the pods: {}", alert.expr);
        let tested = tests.iter().any(|test| {
            test.name.starts_with(name.as_str())
                && test.name.contains("change of leader")
                && test.alert_rule_test.iter().any(|expected| expected.alertname == *name)
        });
        assert!(tested, "{name}: no test with a change of leader");
    }
}

/// Fires, does not fire and resolves: each alert has a test that expects it, a test that never
/// expects it, and a test that first expects it and later does not.
#[test]
fn every_alert_is_tested_three_ways() {
    let tests = alert_tests();
    for alert in alerts() {
        // One list per test: whether the alert is expected, in order of time.
        let runs: Vec<Vec<bool>> = tests
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

/// Each prober has rules of its own in the same Prometheus.
#[test]
fn every_alert_of_a_prober_names_it() {
    for alert in prober_alerts() {
        assert_eq!(alert.labels["prober"], "default/networkprober-sample", "{}", alert.name);
        assert_eq!(alert.labels["namespace"], "default", "{}", alert.name);
        assert!(
            !alert.expr.contains("instance"),
            "{}: a pod's address: {}",
            alert.name,
            alert.expr
        );
    }
}

#[test]
fn promtool_accepts_and_tests_the_rules() {
    for (test, rules) in [
        ("alerts_test.yml", operator_rules()),
        ("networkprober_test.yml", prober_rules()),
        ("swarm_test.yml", operator_rules()),
        ("routereflector_test.yml", operator_rules()),
    ] {
        let dir = Scratch::new(test);
        let rules = dir.write("rules.yml", &to_yaml(&rules));
        promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules]);
        let text = read(&root().join("monitoring/tests").join(test));
        promtool(&["test", "rules", &dir.write(test, &text)]);
    }
    assert_eq!(files_in("monitoring/tests", "yml").len(), 4, "a file of tests that is never run");
}
