//! Refusals of the API server, and their messages.
use serde_json::{Value, json};

use super::{selector, with};
use crate::bench::run;

/// Original 2.3 #14: bad ports and periods became apparent only when pods could not be created.
#[test]
fn mistakes_are_refused_with_a_reason() {
    run(async |bench| {
        let app = || json!({"matchLabels": {"app": "a"}});
        let cases: &[(Value, &str)] = &[
            (json!({"podSelector": {}}), "an empty selector selects every pod"),
            (json!({"podSelector": {"matchLabels": {}}}), "an empty selector selects every pod"),
            (
                json!({"podSelector": app(), "selectAll": true}),
                "cannot be combined with a selector",
            ),
            (json!({"podSelector": app(), "httpPort": "http"}), "httpPort must be a port"),
            (json!({"podSelector": app(), "httpPort": 0}), "httpPort must be a port"),
            (json!({"podSelector": app(), "httpPort": "65536"}), "httpPort must be a port"),
            (
                json!({"podSelector": app(), "httpPrometheusPort": "08"}),
                "httpPrometheusPort must be a port",
            ),
            (json!({"podSelector": app(), "httpPort": "22112"}), "must differ from spec.httpPort"),
            (
                json!({"podSelector": app(), "pollingPeriod": "0s"}),
                "pollingPeriod must be a duration",
            ),
            (
                json!({"podSelector": app(), "pollingPeriod": "abc"}),
                "pollingPeriod must be a duration",
            ),
            (
                json!({"podSelector": app(), "pollingPeriod": "-10s"}),
                "pollingPeriod must be a duration",
            ),
            (
                json!({"podSelector": app(), "pollingPeriod": "99ms"}),
                "pollingPeriod must be a duration",
            ),
            (json!({"podSelector": app(), "agentImage": ""}), "agentImage"),
            (json!({"podSelector": app(), "agentImage": "a b"}), "agentImage must be an image"),
            (
                json!({"podSelector": app(), "pollingPeriod": "1s", "timeout": "2s"}),
                "must not be longer than spec.pollingPeriod",
            ),
            (json!({"podSelector": app(), "probes": []}), "probes"),
            (json!({"podSelector": app(), "probes": ["ICMP"]}), "Unsupported value: \"ICMP\""),
            (json!({"podSelector": app(), "probes": ["TCP", "TCP"]}), "Duplicate value"),
            (
                json!({"podSelector": app(), "delivery": "Push"}),
                "delivery must be Pull or ConfigMap",
            ),
            (
                json!({"podSelector": app(), "neighbors": {"inZone": -1}}),
                "should be greater than or equal to 0",
            ),
            (
                json!({"podSelector": app(), "neighbors": {"inZone": 101}}),
                "should be less than or equal to 100",
            ),
            (
                json!({"podSelector": app(), "monitoring": {"interval": "0s"}}),
                "interval must be a duration",
            ),
            (
                json!({"podSelector": app(), "mode": "DaemonSet", "namespaceSelector": {}}),
                "runs in the namespace of this object",
            ),
            (
                json!({"mode": "DaemonSet", "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
                "matchLabels alone",
            ),
            (json!({"podSelector": app(), "httpport": "1"}), "unknown field"),
            (json!({}), "podSelector: Required value"),
        ];
        for (spec, text) in cases {
            let error = bench.try_prober("default", "bad", spec.clone()).await.err();
            let error = error.unwrap_or_else(|| panic!("accepted: {spec}")).to_string();
            assert!(error.contains(text), "{spec}: {error}");
        }
        let long = "a".repeat(161);
        let error = bench.try_prober("default", &long, selector()).await.expect_err("too long");
        assert!(error.to_string().contains("at most 160 characters"), "{error}");
    });
}

/// Accepts a valid spec, with each form of a port.
#[test]
fn every_form_of_a_right_spec_is_accepted() {
    run(async |bench| {
        for (i, change) in [
            json!({"httpPort": 8080, "httpPrometheusPort": "2112"}),
            json!({"httpPort": "1", "httpPrometheusPort": 65535}),
            json!({"podSelector": {"matchLabels": null}, "selectAll": true}),
            json!({"pollingPeriod": "1m30s", "timeout": "250ms"}),
            json!({"delivery": "ConfigMap", "probes": ["UDP", "HTTP", "TCP"]}),
            json!({"mode": "DaemonSet", "originalMetrics": false}),
            json!({"neighbors": {"inZone": 0, "perOtherZone": 0}}),
            json!({"neighbors": {}}),
            json!({"neighbors": null, "neighbours": {"inZone": 4}}),
            json!({"injection": {"failurePolicy": "Fail", "resources": {"limits": {"memory": "32Mi"}}}}),
            json!({"monitoring": {"podMonitor": false, "interval": "5s", "labels": {"release": "prometheus"}}}),
            json!({"timeout": null, "delivery": null, "agentImage": null}),
        ]
        .into_iter()
        .enumerate()
        {
            let spec = with(selector(), &change);
            let name = format!("right-{i}");
            if let Err(error) = bench.try_prober("default", &name, spec.clone()).await {
                panic!("{spec}: {error}");
            }
        }
    });
}
