//! `doctor` without a cluster.
use crate::{program::run, prometheus::Prometheus};

#[test]
fn without_a_cluster_it_reports_it_and_still_looks_at_prometheus() {
    let prometheus = Prometheus::start();
    let outcome = run(&["doctor", "--prometheus-url", &prometheus.url]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.out.starts_with("FAIL  api-server  not reachable: no cluster"), "{outcome:?}");
    assert!(outcome.out.contains("ok    prometheus  default (http://127.0.0.1:"), "{outcome:?}");
    let outcome = run(&["doctor", "--prometheus-config", "/nonexistent.yaml"]);
    assert!(outcome.err.contains("/nonexistent.yaml"), "{outcome:?}");
}
