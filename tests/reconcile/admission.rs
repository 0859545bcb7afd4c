//! Bad input: refused with the field and the fix, nothing else disturbed.
use kube::core::Status;
use serde_json::{Value, json};

use crate::bench::{Bench, run};
use crate::judging::{KEY, deployment, three_nodes};

async fn refusal(bench: &Bench, spec: Value) -> String {
    match bench.watch_in("default", "bad", spec.clone()).await {
        Err(kube::Error::Api(status)) => {
            let Status { code, message, .. } = *status;
            assert!(code == 422 || code == 400, "{spec}: {code} {message}");
            message
        }
        other => panic!("{spec} was accepted: {other:?}"),
    }
}

#[test]
fn each_bad_value_is_refused_with_its_field_and_the_fix() {
    run(async |bench| {
        let percent = "must be a number greater than 0 and at most 100, e.g. \"60\"";
        let duration = "must be a duration from";
        let long = "a".repeat(234);
        for (field, value, fix) in [
            ("maxBandwidthPercent", json!("abc"), percent),
            ("maxBandwidthPercent", json!("NaN"), percent),
            ("maxBandwidthPercent", json!("Inf"), percent),
            ("maxBandwidthPercent", json!("-1"), percent),
            ("maxBandwidthPercent", json!("0"), percent),
            ("maxBandwidthPercent", json!("100.1"), percent),
            ("maxBandwidthPercent", json!(60), "must be of type string"),
            ("label", json!("Not Valid"), "label must be a DNS subdomain"),
            ("label", json!("-a"), "label must be a DNS subdomain"),
            ("label", json!("a/b"), "label must be a DNS subdomain"),
            ("label", json!(long), "may not be more than 233"),
            ("label", json!(""), "should be at least 1 chars long"),
            ("window", json!("1s"), "window must be a duration from 2s"),
            ("window", json!("2 minutes"), duration),
            ("interval", json!("500ms"), "interval must be a duration from 1s"),
            ("interval", json!("1d"), duration),
            ("maxSampleAge", json!("-5s"), duration),
            ("devices", json!("eth("), "RE2"),
            ("devices", json!("(?=eth)"), "RE2"),
            ("capacity", json!("fast"), "capacity must be a quantity of bits per second"),
            ("capacity", json!("0"), "capacity must be a quantity of bits per second"),
            ("recoverPercent", json!(0), "should be greater than or equal to 1"),
            ("recoverPercent", json!(101), "should be less than or equal to 100"),
            ("consecutive", json!({"unfit": 0}), "should be greater than or equal to 1"),
            ("direction", json!("Both"), "supported values"),
            ("mode", json!("DryRun"), "supported values"),
            ("placement", json!("Hard"), "supported values"),
            ("deployment", json!({"replicas": 1}), "Required value"),
        ] {
            let message = refusal(&bench, json!({ field: value })).await;
            assert!(message.contains(field), "{field}={value}: {message}");
            assert!(message.contains(fix), "{field}={value}: {message}");
        }
    });
}

#[test]
fn good_values_of_every_form_are_accepted() {
    run(async |bench| {
        for (i, spec) in [
            json!({"maxBandwidthPercent": "1.5e-03"}),
            json!({"maxBandwidthPercent": ".5", "recoverPercent": 100}),
            json!({"maxBandwidthPercent": "+7", "interval": "1m30s", "window": "1h"}),
            json!({"capacity": "2.5G", "devices": "bond[0-9]+|ens.*", "direction": "Busiest"}),
            json!({"capacity": 1_000_000_000, "label": "team-a.blue"}),
            json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        ]
        .into_iter()
        .enumerate()
        {
            bench.watch_in("default", &format!("good-{i}"), spec).await.expect("accepted");
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
fn what_only_the_operator_can_see_is_told_in_the_ready_condition() {
    run(async |bench| {
        three_nodes(&bench).await;
        let mut mismatch = deployment();
        mismatch["selector"] = json!({"matchLabels": {"app": "other"}});
        bench.watch("mismatch", json!({"deployment": mismatch})).await;
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]});
        bench.watch("selector", json!({"nodeSelector": bad})).await;
        let mut misspelt = deployment();
        misspelt["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never".into();
        bench.watch("misspelt", json!({"deployment": misspelt})).await;
        bench.watch("web", json!({})).await;
        let _operator = bench.operator();
        for (name, texts) in [
            ("mismatch", ["spec.deployment.selector", "add app: other to the template"]),
            ("selector", ["spec.nodeSelector.matchExpressions[0].operator", "In, NotIn"]),
            ("misspelt", ["spec.deployment", "imagePullPolice"]),
        ] {
            let message = bench.condition(name, "Ready", "False", "InvalidSpec").await;
            for text in texts {
                assert!(message.contains(text), "{name}: {message}");
            }
        }
        // Nobody else is disturbed, and a refused Deployment stops no judgement.
        bench.until_label("node-1", KEY, Some("false")).await;
        bench.until_label("node-1", "misspelt.traffic.example.com/unfit", Some("false")).await;
        // A mended spec is served at once.
        let patch = kube::api::Patch::Merge(json!({"spec": {"deployment": deployment()}}));
        let api = bench.watches("default");
        api.patch("misspelt", &kube::api::PatchParams::default(), &patch).await.unwrap();
        let fixed = kube::api::Patch::Merge(json!({"spec": {"deployment": {"template": {"spec":
            {"containers": [{"name": "c", "image": "busybox:1.35"}]}}}}}));
        api.patch("misspelt", &kube::api::PatchParams::default(), &fixed).await.unwrap();
        bench.condition("misspelt", "Ready", "True", "Judged").await;
    });
}

#[test]
fn the_original_samples_are_accepted_by_strict_clients_and_become_ready() {
    for file in ["trafficwatch.yaml", "trafficwatch-labelled.yaml"] {
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
    // The samples' interval is the default, 10 s: two judgements.
    bench.condition(&name, "Ready", "True", "Judged").await;
    let child = bench.deployments().get(&name).await.expect("the Deployment");
    assert_eq!(child.spec.expect("spec").replicas, Some(2));
}
