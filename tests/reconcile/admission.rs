//! Bad input: refused with the field and the remedy, and nothing else is disturbed.
use kube::core::Status;
use serde_json::{Value, json};

use crate::{
    bench::{Bench, run},
    traffic_watch::judging::{deployment, three_nodes},
};

mod ready_condition;
mod reservations;

/// A TrafficWatch with exactly this spec.
pub fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// Returns the API server's message for a spec that it refuses.
async fn refusal(bench: &Bench, spec: &Value) -> String {
    match bench.dry_run(object("bad", spec)).await {
        Err(kube::Error::Api(status)) => {
            let Status { code, message, .. } = *status;
            assert!(code == 422 || code == 400, "{spec}: {code} {message}");
            message
        }
        other => panic!("{spec} was accepted: {other:?}"),
    }
}

/// Asserts the message for each bad value of each field, in a spec that is good without it.
async fn refused(bench: &Bench, good: &Value, table: &[(&str, Value, &str)]) {
    for (path, value, fix) in table {
        let mut spec = good.clone();
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let (parent, key) = pointer.rsplit_once('/').expect("a path");
        match spec.pointer_mut(parent).expect(path) {
            Value::Object(map) => drop(map.insert(key.into(), value.clone())),
            Value::Array(items) => items[key.parse::<usize>().expect(path)] = value.clone(),
            other => panic!("{path}: {other}"),
        }
        let message = refusal(bench, &spec).await;
        let path = format!("spec.{path}");
        assert!(message.contains(&path) || fix.contains(&path), "{path}={value}: {message}");
        assert!(message.contains(fix), "{path}={value}: {message}");
    }
}

#[test]
fn each_bad_value_is_refused_with_its_field_and_the_fix() {
    run(async |bench| {
        let percent = "must be a number greater than 0 and at most 100, e.g. \"60\"";
        let long = "a".repeat(234);
        let capacity = "capacity must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"10G\"";
        let interval = "interval must be a duration from 1s to 24h, e.g. \"10s\"";
        let window = "window must be a duration from 2s to 24h and at least four scrape intervals";
        let age = "maxSampleAge must be a duration from 1s to 24h, e.g. \"90s\"";
        let label = "label must be a DNS subdomain";
        let (least, most) =
            ("should be greater than or equal to 1", "should be less than or equal to");
        let supported = "supported values:";
        let full = json!({
            "maxBandwidthPercent": "60", "consecutive": {},
        });
        refused(
            &bench,
            &full,
            &[
                ("maxBandwidthPercent", json!("abc"), percent),
                ("maxBandwidthPercent", json!(""), percent),
                ("maxBandwidthPercent", json!("NaN"), percent),
                ("maxBandwidthPercent", json!("Inf"), percent),
                ("maxBandwidthPercent", json!("-1"), percent),
                ("maxBandwidthPercent", json!("0"), percent),
                ("maxBandwidthPercent", json!("1e-999"), percent),
                ("maxBandwidthPercent", json!("100.1"), percent),
                ("maxBandwidthPercent", json!("60%"), percent),
                ("maxBandwidthPercent", json!(60), "must be of type string"),
                ("maxBandwidthPercent", json!("1".repeat(65)), "may not be more than 64"),
                ("label", json!("Not Valid"), label),
                ("label", json!("-a"), label),
                ("label", json!("a/b"), label),
                ("label", json!("ümlaut"), label),
                ("label", json!(long), "may not be more than 233"),
                ("label", json!(""), "should be at least 1 chars long"),
                ("window", json!("1s"), window),
                ("window", json!("2 minutes"), window),
                ("window", json!("25h"), window),
                ("window", json!(120), "must be of type string"),
                ("interval", json!("500ms"), interval),
                ("interval", json!("1d"), interval),
                ("interval", json!("10"), interval),
                ("interval", json!("25h"), interval),
                ("interval", json!("1".repeat(33)), "may not be more than 32"),
                ("maxSampleAge", json!("-5s"), age),
                ("maxSampleAge", json!("999ms"), age),
                ("devices", json!("eth("), "RE2"),
                ("devices", json!("(?=eth)"), "RE2"),
                ("devices", json!(""), "should be at least 1 chars long"),
                ("devices", json!("e".repeat(1025)), "may not be more than 1024"),
                ("capacity", json!("fast"), capacity),
                ("capacity", json!("0"), capacity),
                ("capacity", json!(0), capacity),
                ("capacity", json!("1GB"), capacity),
                ("capacity", json!("10m"), capacity),
                ("capacity", json!(1.5), "must be of type integer,string"),
                ("recoverPercent", json!(0), least),
                ("recoverPercent", json!(101), most),
                ("recoverPercent", json!("90"), "must be of type integer"),
                ("recoverPercent", json!(90.5), "must be of type integer"),
                ("consecutive.unfit", json!(0), least),
                ("consecutive.fit", json!(1001), most),
                ("consecutive", json!(2), "must be of type object"),
                ("direction", json!("Both"), supported),
                ("mode", json!("DryRun"), supported),
                ("placement", json!("Hard"), supported),
                ("taint", json!("NoExecute"), "taint must be PreferNoSchedule or NoSchedule"),
                ("paused", json!("yes"), "must be of type boolean"),
            ],
        )
        .await;
    });
}

#[test]
fn bad_policies_are_refused_with_their_field_and_the_fix() {
    run(async |bench| {
        let share = "must be a number from 0 to 2147483647 or a percentage from 0% to 100%, e.g.";
        let after = "after must be a duration of at most 168h, e.g. \"10m\"";
        let endpoint = "prometheus must be the name of an endpoint in the operator's configuration";
        let (least, most) =
            ("should be greater than or equal to 1", "should be less than or equal to");
        let full = json!({
            "maxBandwidthPercent": "60", "onUnknown": {}, "eviction": {}, "nodeSelector": {},
            "deployment": deployment(),
        });
        refused(
            &bench,
            &full,
            &[
                ("maxUnfit", json!("101%"), share),
                ("maxUnfit", json!("50"), share),
                ("maxUnfit", json!("-1%"), share),
                ("maxUnfit", json!("5.5%"), share),
                ("maxUnfit", json!(-1), share),
                ("maxUnfit", json!(3_000_000_000_u32), share),
                ("maxUnfit", json!(0.5), "must be of type integer,string"),
                ("minFit", json!("half"), share),
                ("minFit", json!(-1), share),
                ("minFit", json!(2_147_483_648_u32), share),
                ("onUnknown.after", json!("169h"), after),
                ("onUnknown.after", json!("1w"), after),
                ("onUnknown.after", json!("-1s"), after),
                ("onUnknown.action", json!("Ignore"), "supported values:"),
                ("prometheus", json!("http://prometheus:9090"), "a URL is not accepted"),
                ("prometheus", json!("Default"), endpoint),
                ("prometheus", json!("a.b"), endpoint),
                ("prometheus", json!(""), "should be at least 1 chars long"),
                ("prometheus", json!("a".repeat(64)), "may not be more than 63"),
                ("eviction.after", json!("0"), after),
                ("eviction.after", json!("200h"), after),
                ("eviction.maxPerPass", json!(0), least),
                ("eviction.maxPerPass", json!(101), most),
                ("nodeSelector.matchLabels", json!(["a"]), "must be of type object"),
                (
                    "nodeSelector.matchExpressions",
                    json!([{"key": "a"}]),
                    "operator: Required value",
                ),
                ("deployment", json!({"replicas": 1}), "Required value"),
                ("deployment", Value::Null, "spec.eviction: needs spec.deployment"),
                ("query", json!(""), "should be at least 1 chars long"),
                ("query", json!("é".repeat(16_385)), "may not be more than 16384"),
                (
                    "maxBandwidth",
                    json!("1G"),
                    "cannot be set together with spec.maxBandwidthPercent; set one of them",
                ),
                ("speed", json!(1), "unknown field"),
            ],
        )
        .await;
    });
}

#[test]
fn an_absolute_threshold_and_measures_of_the_authors_are_checked_as_well() {
    run(async |bench| {
        let quantity = "maxBandwidth must be a quantity of bits per second greater than 0, without the suffix m (a thousandth), e.g. \"800M\"";
        refused(
            &bench,
            &json!({}),
            &[
                ("maxBandwidth", json!("fast"), quantity),
                ("maxBandwidth", json!("0"), quantity),
                ("maxBandwidth", json!("-1G"), quantity),
                ("maxBandwidth", json!(-1), quantity),
                ("maxBandwidth", json!("1 G"), quantity),
                ("maxBandwidth", json!("800m"), quantity),
                ("maxBandwidth", json!(true), "must be of type integer,string"),
            ],
        )
        .await;
        let name =
            "name must be a DNS label (lower case letters, digits and '-', at most 63 characters)";
        let max = "max must be a quantity that is not negative, e.g. \"0.01\"";
        let loss = json!({"name": "loss", "query": "loss", "max": 1});
        let two = json!({"criteria": [loss, {"name": "errors", "query": "errors", "max": "0.01"}]});
        let many: Vec<_> =
            (0..11).map(|i| json!({"name": format!("m-{i}"), "query": "x", "max": 1})).collect();
        refused(
            &bench,
            &two,
            &[
                ("criteria[1].name", json!("bandwidth"), name),
                ("criteria[1].name", json!("Loss"), name),
                ("criteria[1].name", json!("a_b"), name),
                ("criteria[1].name", json!("a".repeat(64)), "may not be more than 63"),
                ("criteria[1]", loss.clone(), "Duplicate value"),
                (
                    "criteria[1]",
                    json!({"name": "x", "max": 1}),
                    "spec.criteria[1].query: Required value",
                ),
                (
                    "criteria[1]",
                    json!({"name": "x", "query": "x"}),
                    "spec.criteria[1].max: Required value",
                ),
                ("criteria[1].query", json!(""), "should be at least 1 chars long"),
                ("criteria[1].max", json!(-1), max),
                ("criteria[1].max", json!("-1m"), max),
                ("criteria[1].max", json!("much"), max),
                ("criteria[1].max", json!(0.01), "must be of type integer,string"),
                ("criteria[1].recoverPercent", json!(101), "should be less than or equal to 100"),
                ("criteria[1].recoverPercent", json!(0), "should be greater than or equal to 1"),
                ("criteria", json!(many), "must have at most 10 items"),
            ],
        )
        .await;
    });
}

#[test]
fn fields_that_do_not_go_together_are_refused_with_the_rule() {
    run(async |bench| {
        let none = "spec: at least one of maxBandwidthPercent, maxBandwidth and criteria is needed";
        let built_in = "belong to the built-in measurement, which spec.query replaces and which \
            spec.criteria alone does not use; leave them out";
        let query = "spec.query: needs spec.maxBandwidthPercent (then its values are percent) or \
            spec.maxBandwidth (bits per second)";
        let eviction = "spec.eviction: needs spec.deployment";
        let criteria = json!([{"name": "loss", "query": "loss", "max": 1}]);
        let own =
            |field: &str, value: Value| json!({"maxBandwidth": "1G", "query": "x", field: value});
        let only = |field: &str, value: Value| json!({"criteria": criteria, field: value});
        for (spec, rule) in [
            (json!({}), none),
            (json!({"criteria": []}), none),
            (json!({"maxBandwidthPercent": null}), none),
            (
                json!({"maxBandwidthPercent": "60", "maxBandwidth": "1G"}),
                "spec.maxBandwidth: cannot be set together",
            ),
            (json!({"query": "x"}), none),
            (json!({"query": "x", "criteria": criteria}), query),
            (own("capacity", json!("1G")), built_in),
            (own("devices", json!("eth0")), built_in),
            (own("direction", json!("Receive")), built_in),
            (own("window", json!("3m")), built_in),
            (own("maxSampleAge", json!("1m")), built_in),
            (only("capacity", json!(1)), built_in),
            (only("devices", json!("eth0")), built_in),
            (only("direction", json!("Busiest")), built_in),
            (only("window", json!("1m")), built_in),
            (only("maxSampleAge", json!("1m")), built_in),
            (json!({"maxBandwidthPercent": "60", "eviction": {}}), eviction),
            (
                only("reservation", json!({"resource": "example.com/mbps"})),
                "spec.reservation: needs spec.maxBandwidthPercent or spec.maxBandwidth",
            ),
        ] {
            let message = refusal(&bench, &spec).await;
            assert!(message.contains(rule), "{spec}: {message}");
        }
    });
}

#[test]
fn good_values_of_every_form_are_accepted() {
    run(async |bench| {
        let criterion = |max: Value| json!([{"name": "loss", "query": "loss", "max": max}]);
        for spec in [
            json!({"maxBandwidthPercent": "1.5e-03"}),
            json!({"maxBandwidthPercent": ".5", "recoverPercent": 100}),
            json!({"maxBandwidthPercent": "+7", "interval": "1m30s", "window": "1h"}),
            json!({"maxBandwidthPercent": "5.", "interval": "1.5s", "maxSampleAge": "1500ms"}),
            json!({"maxBandwidthPercent": "60", "capacity": "2.5G", "devices": "bond[0-9]+|ens.*"}),
            json!({"maxBandwidthPercent": "60", "capacity": 1_000_000_000, "direction": "Busiest"}),
            json!({"maxBandwidth": "800M", "label": "team-a.blue"}),
            json!({"maxBandwidth": 800_000_000, "maxUnfit": "0%", "minFit": "100%"}),
            json!({"maxBandwidth": "1e9", "maxUnfit": 0, "minFit": 0, "recoverPercent": 1}),
            json!({"maxBandwidth": ".5Gi", "maxUnfit": i32::MAX, "minFit": i32::MAX}),
            json!({"maxBandwidth": "1G", "query": "sum by (node) (rate(x[1m])) * 8"}),
            json!({"maxBandwidthPercent": "60", "query": "x", "direction": "Transmit", "window": "120s",
                   "maxSampleAge": "1m30s", "devices": traffic_operator::api::traffic_watch::DEFAULT_DEVICES}),
            json!({"criteria": criterion(json!(0))}),
            json!({"criteria": criterion(json!("0.01")), "onUnknown": {"after": "0s", "action": "Fit"}}),
            json!({"criteria": criterion(json!("200m")), "onUnknown": {"after": "168h", "action": "Unfit"}}),
            json!({"maxBandwidth": "1G", "criteria": [
                {"name": "a".repeat(63), "query": "x", "max": 1, "recoverPercent": 100},
                {"name": "0", "query": "x", "max": "1.5G", "recoverPercent": null}]}),
            json!({"maxBandwidthPercent": "60", "onUnknown": {"action": "RemoveLabel"}, "onUnknown": {}}),
            json!({"maxBandwidthPercent": "60", "taint": "PreferNoSchedule", "mode": "Observe"}),
            json!({"maxBandwidthPercent": "60", "taint": "NoSchedule", "paused": true}),
            json!({"maxBandwidthPercent": "60", "deployment": deployment(), "placement": "Preferred",
                   "eviction": {"after": "0s", "maxPerPass": 100}}),
            json!({"maxBandwidthPercent": "60", "deployment": deployment(), "eviction": {}}),
            json!({"maxBandwidthPercent": "60", "prometheus": "thanos-0", "consecutive": {"fit": 1000}}),
            json!({"maxBandwidthPercent": "60", "nodeSelector": {"matchLabels": {"a": "b"},
                   "matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        ] {
            if let Err(error) = bench.dry_run(object("good", &spec)).await {
                panic!("{spec}: {error}");
            }
        }
    });
}

#[test]
fn a_name_too_long_for_a_label_needs_a_label() {
    run(async |bench| {
        let name = "n".repeat(250);
        let error = bench.watch_in("default", &name, json!({})).await.unwrap_err().to_string();
        assert!(error.contains("set spec.label to a shorter one"), "{error}");
        bench.watch_in("default", &name, json!({"label": "short"})).await.expect("accepted");
    });
}

#[test]
fn the_original_samples_are_accepted_by_strict_clients_and_become_ready() {
    for file in ["trafficwatch.yaml", "trafficwatch-labeled.yaml"] {
        run(async |bench| sample_becomes_ready(&bench, file).await);
    }
}

async fn sample_becomes_ready(bench: &Bench, file: &str) {
    three_nodes(bench).await;
    let path = format!("{}/deploy/samples/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("sample");
    let mut sample: Value = serde_yaml::from_str(&text).expect("YAML");
    sample["metadata"]["namespace"] = "default".into();
    let name = sample["metadata"]["name"].as_str().expect("name").to_owned();
    let labels = sample["spec"]["deployment"]["template"]["metadata"]["labels"].clone();
    assert!(labels.is_object());
    let stored = bench.create(sample).await.expect("accepted");
    let kept = &stored.data["spec"]["deployment"]["template"]["metadata"]["labels"];
    assert_eq!(*kept, labels, "the template's metadata was pruned");
    let _operator = bench.operator();
    // The samples' interval is the default, 10 s: two judgments.
    bench.condition(&name, "Ready", "True", "Judged").await;
    let child = bench.deployments().get(&name).await.expect("the Deployment");
    assert_eq!(child.spec.expect("spec").replicas, Some(2));
}
