//! Series that Prometheus lacks, has twice, or has from jobs that are not accepted.
use super::*;
use crate::{
    api::CAPACITY_ANNOTATION,
    prometheus::{Class, exporters::LinkExporter},
};

#[test]
fn what_prometheus_lacks_is_found_with_its_fix() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "prometheus",
            Fail,
            |f| {
                f.watches = Ok(Listed { read: vec![], unreadable: vec![] });
                f.endpoints[0].answers =
                    Err(QueryError::new(Class::Unauthorized, "HTTP status 401"));
            },
            &["default does not answer: HTTP status 401", "credentials"],
        ),
        (
            "prometheus",
            Warn,
            |f| f.endpoints[0].answers = Err(QueryError::new(Class::Unreachable, "dns error")),
            &["the operator does reach", "port-forward"],
        ),
        ("exporters", Fail, |f| f.endpoints[0].exporters = Ok(vec![]), &["no series", "install"]),
        (
            "exporters",
            Warn,
            |f| f.endpoints[0].exporters = Ok(vec![exporter("node-1"), exporter("10.9.9.9:9100")]),
            &["1 belong to no node", "instance=10.9.9.9:9100", "--node-label"],
        ),
        (
            "exporters",
            Warn,
            |f| {
                f.nodes.as_mut().unwrap().push(node("node-3", "10.0.0.1", json!({})));
            },
            &["1 lead to several nodes with the same address", "10.0.0.1:9100"],
        ),
        (
            "exporters",
            Warn,
            |f| {
                let both = ["node-1.a.example", "node-1.b.example", "node-2"].map(exporter);
                f.endpoints[0].exporters = Ok(both.into());
            },
            &["2 lead to several nodes", "share a short name", "node-1.a.example"],
        ),
        (
            "exporters",
            Fail,
            |f| f.endpoints[0].exporters = Ok(vec![exporter("pod-x")]),
            &["0 of 1 belong to a node", "--node-label"],
        ),
        (
            "nodes",
            Warn,
            |f| f.nodes.as_mut().unwrap().push(node("node-3", "10.0.0.3", json!({}))),
            &["1 of 3 nodes have no series (default/web): node-3", "eth.*"],
        ),
        (
            "nodes",
            Fail,
            |f| f.endpoints[0].asked[0].samples = Ok(vec![]),
            &["2 of 2 nodes have no series"],
        ),
        (
            "nodes",
            Fail,
            |f| {
                f.endpoints[0].asked[0].samples = Ok(vec![]);
                f.endpoints[0].asked[0].others = Ok(vec!["bond0".into(), "bond0.42".into()]);
            },
            &["2 of 2 nodes have no series", "have bond0, bond0.42", "spec.devices"],
        ),
        (
            "link-speed",
            Warn,
            |f| f.endpoints[0].asked[0].speeds = Ok(vec![exporter("node-2")]),
            &[
                "unknown for 1 nodes",
                "kubectl annotate node node-1 traffic.example.com/capacity=10G",
            ],
        ),
        (
            "link-speed",
            Warn,
            |f| {
                let nodes = f.nodes.as_mut().unwrap();
                nodes[1].metadata.annotations =
                    Some([(CAPACITY_ANNOTATION.to_owned(), "10 Gbit".to_owned())].into());
            },
            &["of 1 nodes is no quantity: node-2 (\"10 Gbit\")", "--overwrite node node-2"],
        ),
        (
            "window",
            Warn,
            |f| f.endpoints[0].asked[0].samples.as_mut().unwrap()[1].1 = 2.0,
            &[
                "1 nodes have fewer than 4 samples within 2m (default/web): node-2 (2)",
                "have just started",
            ],
        ),
    ]);
}

#[test]
fn a_capacity_needs_no_link_speed() {
    let speed = |facts: &Facts| {
        checks(facts).into_iter().find(|check| check.name == "link-speed").unwrap().verdict
    };
    let mut facts = healthy();
    facts.endpoints[0].asked[0].speeds = Ok(vec![]);
    assert_eq!(speed(&facts), CheckResult::Warn);
    // Every kubelet annotates its node.
    for node in facts.nodes.as_mut().unwrap() {
        node.metadata.annotations =
            Some([("node.alpha.kubernetes.io/ttl".into(), "0".into())].into());
    }
    assert_eq!(speed(&facts), CheckResult::Warn);
    let good = json!([condition("Ready", "True", "Judged")]);
    facts.watches.as_mut().unwrap().read = vec![watch("web", json!({"capacity": "1G"}), good)];
    assert_eq!(speed(&facts), CheckResult::Ok);
}

/// Returns two series of one device, which differ in one label.
fn twins(label: &str) -> Duplicates {
    let series = |value: &str| {
        let labels =
            [("instance", "node-2"), ("device", "eth0"), ("job", "node-exporter"), (label, value)];
        labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    };
    Duplicates { exporters: 2, series: vec![series("a"), series("b")] }
}

#[test]
fn duplicates_are_found_with_the_label_they_differ_in() {
    use CheckResult::{Fail, Warn};
    found(&[
        (
            "duplicates",
            Warn,
            |f| f.endpoints[0].asked[0].duplicates = Ok(twins("prometheus_replica")),
            &[
                "2 exporters have devices with several series, which differ in prometheus_replica",
                "counts each device once",
                "instance=node-2 device=eth0: prometheus_replica: a, b",
            ],
        ),
        (
            "duplicates",
            Fail,
            |f| {
                let error = QueryError::new(Class::QueryFailed, "HTTP status 422");
                f.endpoints[0].asked[0].duplicates = Err(error);
            },
            &["the query failed: HTTP status 422"],
        ),
    ]);
}

#[test]
fn where_all_have_few_samples_the_window_is_too_short() {
    found(&[(
        "window",
        CheckResult::Warn,
        |f| {
            let samples = f.endpoints[0].asked[0].samples.as_mut().unwrap();
            for (_, count) in samples {
                *count = 2.0;
            }
        },
        &["2 nodes have fewer than 4 samples", "set spec.window to at least four scrape intervals"],
    )]);
}

#[test]
fn an_exporter_that_is_down_is_named_though_it_still_has_series() {
    found(&[(
        "targets",
        CheckResult::Warn,
        |f| f.endpoints[0].down = Ok(vec![exporter("10.0.0.1:9100")]),
        &["1 exporters do not answer (up is 0)", "-> node-1", "Status > Targets"],
    )]);
}

#[test]
fn where_the_nodes_have_another_exporter_its_entry_is_proposed() {
    found(&[(
        "exporters",
        CheckResult::Fail,
        |f| {
            f.endpoints[0].exporters = Ok(vec![]);
            f.endpoints[0].other_exporters = vec![(LinkExporter::Otel, "collectors".into())];
        },
        &[r#"exporter: otel and selector: 'job="collectors"'"#, "spec.capacity"],
    )]);
}

#[test]
fn the_doctor_names_the_jobs_that_are_not_believed() {
    let trust = |facts: &Facts| checks(facts).into_iter().find(|check| check.name == "trust");
    let mut facts = healthy();
    assert_eq!(trust(&facts), None);
    facts.endpoints[0].other_jobs = Ok(vec!["kubernetes-nodes".into(), "team-a/x".into()]);
    let check = trust(&facts).unwrap();
    assert_eq!(check.verdict, CheckResult::Warn);
    let message = "only series that match job=\"node-exporter\" are believed; not those of job \
                   kubernetes-nodes, team-a/x";
    assert_eq!(check.message, message);
    facts.endpoints[0].exporters = Ok(vec![]);
    let check = trust(&facts).unwrap();
    assert_eq!(check.verdict, CheckResult::Fail);
    assert!(check.message.ends_with("jobs that have such series: kubernetes-nodes, team-a/x"));
    let fix = check.fix.unwrap();
    assert!(fix.contains(r#"--node-exporter-selector='job="kubernetes-nodes"'"#), "{fix}");
}
