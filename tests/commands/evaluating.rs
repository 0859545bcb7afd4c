//! `evaluate`: one judgment without a cluster.
use std::path::Path;

use serde_json::{Value, json};

use crate::{
    program::{run, run_with_env, run_with_input},
    prometheus::Prometheus,
};

fn watch(spec: &str) -> String {
    format!(
        "apiVersion: traffic.example.com/v1alpha1\nkind: TrafficWatch\n\
         metadata: {{name: web}}\nspec: {{{spec}}}\n"
    )
}

/// Three nodes: one above 60 percent, one in between, one below.
pub fn three() -> Prometheus {
    let prometheus = Prometheus::start();
    for (instance, percent) in [("node-1:9100", 8.0), ("node-2:9100", 71.5), ("node-3:9100", 58.0)]
    {
        prometheus.history(instance, [Some(percent)]);
    }
    prometheus
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_table_has_the_decisions_and_what_was_left_out() {
    let prometheus = three();
    let spec = watch("maxBandwidthPercent: \"60\", consecutive: {unfit: 1, fit: 1}");
    let outcome =
        run_with_input(&["evaluate", "-f", "-", "--prometheus-url", &prometheus.url], &spec);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let expected = "\
default/web
  warning: nodes are read from the series, without labels, addresses and annotations; --cluster reads them from the API server
NODE    STATE  MEASURE    VALUE   THRESHOLD  DEVICE  REMARK
node-2  Unfit  bandwidth  71.5 %  60 %       eth0    above the threshold
node-1  Fit    bandwidth  8 %     60 %       eth0    at or below recovery (54 %)
node-3  Fit    bandwidth  58 %    60 %       eth0    between recovery (54 %) and threshold: stays as it is
1 of 3 nodes that can take pods may be unfit
Ready=True Judged: every node with data has been judged
MetricsAvailable=True Available
PlacementLimited=False WithinLimits
";
    assert_eq!(outcome.out, expected);
}

#[test]
fn colors_are_there_only_where_they_are_wanted() {
    let prometheus = three();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("colored.yaml");
    std::fs::write(&file, watch("maxBandwidthPercent: \"60\", consecutive: {unfit: 1, fit: 1}"))
        .expect("a file");
    let file = file.to_str().expect("a path");
    let all = ["evaluate", "-f", file, "--prometheus-url", &prometheus.url];
    let force = ("CLICOLOR_FORCE", "1");
    for (more, env, colored) in [
        (&[][..], &[][..], false),
        (&["--color", "always"], &[], true),
        (&["--color", "never"], &[force], false),
        (&[], &[force], true),
        (&[], &[force, ("NO_COLOR", "1")], false),
        (&[], &[force, ("TERM", "dumb")], false),
        (&["--color", "always", "-o", "json"], &[], false),
    ] {
        let outcome = run_with_env(&[&all[..], more].concat(), env);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        // Red around the word, which is also there without color.
        let red = outcome.out.contains("\u{1b}[31mUnfit\u{1b}[0m  bandwidth");
        assert_eq!((red, outcome.out.contains('\u{1b}')), (colored, colored), "{more:?} {env:?}");
        assert!(outcome.out.contains("Unfit"), "{outcome:?}");
    }
}

#[test]
fn json_has_the_whole_judgment() {
    let prometheus = three();
    let spec = watch("maxBandwidthPercent: \"60\"");
    let args = ["evaluate", "-f", "-", "-o", "json", "--prometheus-url", &prometheus.url];
    let evaluation = json_of(&run_with_input(&args, &spec).out)["evaluations"][0].clone();
    let node =
        evaluation["nodes"].as_array().unwrap().iter().find(|n| n["name"] == "node-2").unwrap();
    // The outcome, and not what one judgment of the two that are required would make of it.
    assert_eq!(node["state"], "Unfit");
    assert_eq!(evaluation["consecutive"], json!({"unfit": 2, "fit": 2}));
    assert_eq!(evaluation["measures"][0]["max"], 60.0);
    assert!(evaluation["measures"][0]["query"].as_str().unwrap().contains("node_network"));
}

#[test]
fn an_error_is_reported_with_its_place() {
    let prometheus = three();
    let url = prometheus.url.as_str();
    for (spec, args, expected) in [
        (watch("maxBandwith: 60"), &[][..], "spec.maxBandwith: unknown field"),
        (
            watch("maxBandwidthPercent: \"60\", prometheus: far"),
            &[],
            "no endpoint \"far\" is configured",
        ),
        (watch("maxBandwidthPercent: \"60\""), &["--cluster"], "/nonexistent/kubeconfig"),
        (watch("maxBandwidthPercent: \"60\""), &["--node-label", "a-b"], "--node-label"),
    ] {
        let args = [&["evaluate", "-f", "-", "--prometheus-url", url], args].concat();
        let outcome = run_with_input(&args, &spec);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
    let outcome = run(&["evaluate", "-f", "/nonexistent.yaml", "--prometheus-url", url]);
    assert!(outcome.err.contains("/nonexistent.yaml"), "{}", outcome.err);
}

#[test]
fn no_measurement_is_a_failure_that_shows_the_conditions() {
    let spec = watch("maxBandwidthPercent: \"60\"");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let outcome = run_with_input(&["evaluate", "-f", "-", "--prometheus-url", &url], &spec);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.err.contains("no measurement") && outcome.err.contains("refused"),
        "{}",
        outcome.err
    );
    assert!(outcome.out.contains("Ready=False PrometheusUnreachable: "), "{}", outcome.out);
    assert!(!outcome.out.contains("nodeSelector"), "{}", outcome.out);
}

#[test]
fn what_nodes_offer_and_how_many_pods_fit() {
    let prometheus = three();
    let spec = watch(
        "maxBandwidthPercent: \"60\", capacity: 1G, \
         reservation: {resource: traffic.example.com/egress-mbps, reserve: \"0%\"}",
    );
    let args = ["evaluate", "-f", "-", "--prometheus-url", &prometheus.url];
    let outcome = run_with_input(&[&args[..], &["--pod-request", "200"]].concat(), &spec);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let expected = "\
NODE    OFFERED  PODS
node-1  520      2
node-2  0        0
node-3  20       0
540 traffic.example.com/egress-mbps offered (room for 2 pods with 200 each)
";
    assert!(outcome.out.contains(expected), "{}", outcome.out);
    assert!(outcome.out.contains("warning: spec.reservation: what pods request is not read"));
    let outcome = run_with_input(&[&args[..], &["--pod-request", "0"]].concat(), &spec);
    assert!(outcome.err.contains("--pod-request"), "{outcome:?}");
}
