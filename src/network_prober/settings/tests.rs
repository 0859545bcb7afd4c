//! Settings from specs.
use super::*;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn read(spec: serde_json::Value) -> Result<Settings, Error> {
    let prober: NetworkProber = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "np", "namespace": "team"}, "spec": spec,
    }))
    .unwrap();
    Settings::of(&prober, &Tenancy::of("traffic-operator-system"))
}

/// An object that was stored before the field had its American spelling keeps its value.
#[test]
fn neighbors_have_two_spellings_and_the_new_one_wins() {
    let numbers = |more: serde_json::Value| {
        let mut spec = serde_json::json!({"podSelector": {"matchLabels": {"app": "a"}}});
        json_patch::merge(&mut spec, &more);
        let of = read(spec).unwrap().neighbors;
        (of.in_zone, of.per_other_zone)
    };
    let (new, old) = ("neighbors", "neighbours");
    for (spec, expected) in [
        (serde_json::json!({}), (8, 2)),
        (serde_json::json!({new: {"inZone": 0, "perOtherZone": 0}}), (0, 0)),
        (serde_json::json!({old: {"inZone": 0, "perOtherZone": 0}}), (0, 0)),
        (serde_json::json!({old: {"inZone": 4}}), (4, 2)),
        (serde_json::json!({new: {"inZone": 3}, old: {"inZone": 4, "perOtherZone": 1}}), (3, 2)),
    ] {
        assert_eq!(numbers(spec.clone()), expected, "{spec}");
    }
}

/// The original's sample, word for word.
#[test]
fn the_original_sample_is_read_with_the_original_delivery() {
    let settings = read(serde_json::json!({
        "podSelector": {"matchLabels": {"app": "net-prober"}}, "httpPort": "9090",
        "pollingPeriod": "10s", "httpPrometheusPort": "1222",
        "agentImage": "bigmikes/kube-net-prober:test-version-v8"
    }))
    .unwrap();
    assert_eq!((settings.http_port, settings.prometheus_port), (9090, 1222));
    assert_eq!(settings.delivery, Delivery::ConfigMap);
    assert_eq!((settings.period.as_secs(), settings.timeout.as_secs()), (10, 1));
    let own = read(serde_json::json!({"podSelector": {"matchLabels": {"app": "a"}}})).unwrap();
    assert_eq!((own.delivery, own.http_port, own.prometheus_port), (Delivery::Pull, 22080, 22112));
    // The original's metric is half of a scrape: who names no image of another does not need it.
    let original = |more: serde_json::Value| {
        let mut spec = serde_json::json!({"podSelector": {"matchLabels": {"app": "a"}}});
        json_patch::merge(&mut spec, &more);
        read(spec).unwrap().original_metrics
    };
    assert!(settings.original_metrics && !own.original_metrics);
    assert!(original(serde_json::json!({"originalMetrics": true})));
    let off = serde_json::json!({"originalMetrics": false, "agentImage": "a"});
    assert!(!original(off));
}

/// The API server refuses these values too; this check is for objects that are older than the
/// schema.
#[test]
fn bad_values_are_named_by_their_path() {
    let app = serde_json::json!({"matchLabels": {"app": "a"}});
    let labels: BTreeMap<_, _> = (0..33).map(|n| (format!("a{n}"), "b")).collect();
    let expression = |count: usize| {
        let values: Vec<_> = (0..count).map(|n| format!("v{n}")).collect();
        serde_json::json!({"key": "a", "operator": "In", "values": values})
    };
    for (change, path) in [
        (serde_json::json!({"podSelector": {}}), "spec.podSelector"),
        (
            serde_json::json!({"podSelector": {"matchLabels": labels}}),
            "spec.podSelector.matchLabels: has 33 entries; the limit is 32",
        ),
        (
            serde_json::json!({"namespaceSelector": {"matchExpressions": vec![expression(1); 33]}}),
            "spec.namespaceSelector.matchExpressions: has 33 entries; the limit is 32",
        ),
        (
            serde_json::json!({"podSelector": {"matchExpressions": [expression(64), expression(65)]}}),
            "spec.podSelector.matchExpressions[1].values: has 65 entries; the limit is 64",
        ),
        (serde_json::json!({"httpPort": "http"}), "spec.httpPort"),
        (serde_json::json!({"httpPort": 0}), "spec.httpPort"),
        (serde_json::json!({"httpPrometheusPort": "70000"}), "spec.httpPrometheusPort"),
        (serde_json::json!({"httpPrometheusPort": 22080}), "spec.httpPrometheusPort"),
        (serde_json::json!({"pollingPeriod": "0s"}), "spec.pollingPeriod"),
        (serde_json::json!({"pollingPeriod": "1s", "timeout": "2s"}), "spec.timeout"),
        (serde_json::json!({"agentImage": " "}), "spec.agentImage"),
        (
            serde_json::json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
            "spec.podSelector.matchExpressions[0]",
        ),
    ] {
        let mut spec = serde_json::json!({"podSelector": app});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = read(spec).unwrap_err().to_string();
        assert!(error.starts_with(path), "{error}");
    }
}

/// The API server would refuse the pod together with its agent, whatever the failurePolicy.
#[test]
fn no_resources_of_an_agent_make_the_api_server_refuse_a_pod() {
    let with = |resources: &serde_json::Value| {
        read(serde_json::json!({
            "podSelector": {"matchLabels": {"app": "a"}}, "injection": {"resources": resources},
        }))
    };
    let (pages, device) = ("hugepages-2Mi", "example.com/device");
    for (resources, path) in [
        // Above the default limit, and below the default request.
        (serde_json::json!({"requests": {"memory": "128Mi"}}), "requests.memory"),
        (serde_json::json!({"limits": {"cpu": "5m"}}), "requests.cpu"),
        (serde_json::json!({"limits": {"memory": "64MB"}}), "limits.memory"),
        (serde_json::json!({"requests": {"memroy": "64Mi"}}), "requests.memroy"),
        (serde_json::json!({"requests": {"cpu": "-1m"}}), "requests.cpu"),
        (serde_json::json!({"requests": {"cpu": "1.0000000000000001"}}), "requests.cpu"),
        (serde_json::json!({"requests": {device: "1"}}), "requests.example.com/device"),
        (
            serde_json::json!({"requests": {device: "1"}, "limits": {device: "2"}}),
            "requests.example.com/device",
        ),
        (serde_json::json!({"limits": {device: "500m"}}), "limits.example.com/device"),
        (serde_json::json!({"limits": {"kubernetes.io/a": "1"}}), "limits.kubernetes.io/a"),
        (serde_json::json!({"limits": {"Example.com/a": "1"}}), "limits.Example.com/a"),
        (serde_json::json!({"limits": {"example.com/": "1"}}), "limits.example.com/"),
        (serde_json::json!({"requests": {"cpu": "1m", pages: "2Mi"}}), "requests.hugepages-2Mi"),
        (serde_json::json!({"limits": {pages: "3Mi"}}), "limits.hugepages-2Mi"),
        (serde_json::json!({"limits": {"hugepages-0": "0"}}), "limits.hugepages-0"),
        (serde_json::json!({"requests": {}, "limits": {pages: "2Mi"}}), "limits.hugepages-2Mi"),
    ] {
        let error = with(&resources).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.injection.resources.{path}: ")), "{error}");
    }
    let both = with(&serde_json::json!({"requests": {"memory": "128Mi"}})).unwrap_err();
    let text = both.to_string();
    assert!(text.contains("it is 128Mi and the limit is 64Mi"), "{text}");
    for resources in [
        serde_json::json!({}),
        serde_json::json!({"requests": {}, "limits": {}}),
        serde_json::json!({"requests": {"cpu": "0.3"}, "limits": {"cpu": "300m"}}),
        serde_json::json!({"requests": {"cpu": "2"}}),
        serde_json::json!({"limits": {"ephemeral-storage": "1Gi", device: "2", pages: "4Mi"}}),
        serde_json::json!({"requests": {device: "1"}, "limits": {device: "1"}}),
    ] {
        with(&resources).unwrap_or_else(|error| panic!("{resources}: {error}"));
    }
}

#[test]
fn targets_are_read_with_their_phases() {
    let targets = serde_json::json!([
        {"name": "name", "dns": "kubernetes.default"},
        {"name": "own", "service": {"name": "web", "port": 8080}},
        {"name": "other", "service": {"name": "web", "namespace": "shop", "port": 80}},
        {"name": "plain", "url": "http://example.com"},
        {"name": "tls", "url": "https://[fd00::1]:8443/healthz?x=1"},
        {"name": "api", "apiServer": true},
    ]);
    let selector = serde_json::json!({"matchLabels": {"app": "a"}});
    let of = |targets: &serde_json::Value| {
        read(serde_json::json!({"podSelector": selector, "targets": targets}))
    };
    let read = of(&targets).unwrap();
    let to = |name: &str, host: &str, port: Option<u16>, tls: bool, path: Option<&str>| {
        let (name, host, path) = (name.into(), host.into(), path.map(Into::into));
        Destination { name, host, port, tls, path }
    };
    let expected = [
        to("name", "kubernetes.default", None, false, None),
        to("own", "web.team.svc", Some(8080), false, None),
        to("other", "web.shop.svc", Some(80), false, None),
        to("plain", "example.com", Some(80), false, Some("/")),
        to("tls", "fd00::1", Some(8443), true, Some("/healthz?x=1")),
        to("api", "kubernetes.default.svc", Some(443), true, Some("/readyz")),
    ];
    assert_eq!(read.targets, expected);
    assert_eq!(read.targets_in.as_deref(), Some("team"));

    // The API server refuses these too.
    let many: Vec<_> =
        (0..9).map(|i| serde_json::json!({"name": format!("t{i}"), "dns": "a"})).collect();
    for (targets, path) in [
        (serde_json::json!(many), "spec.targets: has 9 entries; the limit is 8"),
        (serde_json::json!([{"name": "a"}]), "spec.targets[0].name: exactly one"),
        (
            serde_json::json!([{"name": "a", "apiServer": false}]),
            "spec.targets[0].name: exactly one",
        ),
        (serde_json::json!([{"name": "a", "dns": "10.0.0.1"}]), "spec.targets[0].dns: "),
        (
            serde_json::json!([{"name": "a", "dns": "a"}, {"name": "a", "dns": "b"}]),
            "spec.targets[1].name: is also",
        ),
    ] {
        let error = of(&targets).unwrap_err().to_string();
        assert!(error.starts_with(path), "{error}");
    }
    for url in [
        "ftp://a/",
        "a",
        "http://",
        "http://me@a/",
        "http://a:0/",
        "http://a:99999/",
        "http://a/#x",
        "http://a:/",
    ] {
        let error = of(&serde_json::json!([{"name": "a", "url": url}])).unwrap_err().to_string();
        assert!(error.starts_with("spec.targets[0].url: must be"), "{url}: {error}");
    }
}
