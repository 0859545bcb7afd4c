//! The values of the chart: each has an effect, and a wrong one is refused with its path.
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use traffic_operator::api::KINDS;

use crate::rendering::{NAMESPACE, chart, id, read, root, template};

fn schema() -> Value {
    let text = read(&root().join("deploy/chart/values.schema.json"));
    serde_json::from_str(&text).expect("JSON")
}

fn resolved<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).expect(reference),
        None => node,
    }
}

/// Calls back for each value of the schema, with its path: `/image/tag`.
fn each(schema: &Value, node: &Value, path: &str, found: &mut dyn FnMut(&str, &Value)) {
    let node = resolved(schema, node);
    found(path, node);
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        each(schema, property, &format!("{path}/{name}"), found);
    }
}

/// Returns every value that the chart knows, each different from its default. `global` is Helm's
/// own.
pub fn all_values() -> Value {
    let process = |name: &str| {
        json!({
            "replicas": 3,
            "resources": {
                "requests": {"cpu": "50m", "memory": "48Mi"},
                "limits": {"memory": "1Gi", "cpu": 2},
            },
            "nodeSelector": {"kubernetes.io/os": "linux", "pool": name},
            "tolerations": [{"key": name, "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [
                        {"key": "metadata.name", "operator": "In", "values": [name]},
                    ]}],
                }},
                "podAffinity": {},
                "podAntiAffinity": {},
            },
            "priorityClassName": "system-cluster-critical",
            "extraArgs": [format!("--log-level={name}")],
            "extraVolumes": [{"name": name, "emptyDir": {}}],
            "extraVolumeMounts": [{"name": name, "mountPath": "/extra"}],
        })
    };
    let mut webhook = process("webhook");
    webhook["hostNetwork"] = true.into();
    json!({
        "global": {"any": "thing"},
        "image": {
            "repository": "registry.example.com/traffic-operator",
            "tag": "9.9.9",
            "digest": format!("sha256:{}", "0".repeat(64)),
            "pullPolicy": "Always",
        },
        "imagePullSecrets": [{"name": "registry"}],
        "kinds": ["NetworkProber", "TrafficWatch"],
        "crds": {"install": true, "keep": false},
        "rbac": {"aggregateToEdit": true},
        "flowSchemas": {"enabled": true},
        "prometheus": {
            "setup": "kube-prometheus-stack",
            "url": "http://thanos.metrics.svc:10902",
            "namespace": "metrics",
            "release": "stack",
            "podLabels": {"app": "thanos"},
            "port": 10902,
            "images": {
                "prometheus": "registry.example.com/prometheus:1",
                "nodeExporter": "registry.example.com/node-exporter:2",
            },
        },
        "serviceMonitor": {"enabled": true, "labels": {"team": "a"}, "interval": "30s"},
        "prometheusRule": {"enabled": true, "labels": {"team": "b"}},
        "runbookUrl": "https://runbooks.example.com/net",
        "dashboards": {
            "enabled": true,
            "namespace": "grafana",
            "labels": {"dashboards": "yes"},
            "annotations": {"grafana_folder": "Network"},
        },
        "networkPolicies": {"enabled": true},
        "controller": process("controller"),
        "webhook": webhook,
    })
}

#[test]
fn every_value_of_the_schema_is_set_here() {
    let (schema, values) = (schema(), all_values());
    // The definition of a process is that of both; this the schema allows only for the other one.
    let refused = |path: &str| path == "/controller/hostNetwork";
    each(&schema, &schema, "", &mut |path, node| {
        if refused(path) {
            return;
        }
        assert!(values.pointer(path).is_some(), "{path} is in no test");
        let described = path.is_empty() || node["description"].is_string();
        let of_resources = path.contains("/resources/") || path.contains("/affinity/");
        assert!(described || of_resources, "{path} has no description");
        let strict = node["properties"].is_null() || node["additionalProperties"] == false;
        assert!(strict, "{path} accepts unknown names");
    });
    let defaults: Value =
        serde_yaml::from_str(&read(&root().join("deploy/chart/values.yaml"))).expect("YAML");
    each(&schema, &schema, "", &mut |path, _| {
        let optional = ["/global", "Affinity"];
        let optional = refused(path) || optional.iter().any(|end| path.ends_with(end));
        assert!(optional || defaults.pointer(path).is_some(), "values.yaml lacks {path}");
    });
}

#[test]
fn every_value_has_its_effect() {
    let values = all_values();
    let objects = chart("all", NAMESPACE, &values);
    let image = format!("registry.example.com/traffic-operator@sha256:{}", "0".repeat(64));
    for (name, process, args) in [
        (
            "traffic-operator",
            "controller",
            &["run", "--component=controller", "--log-level=controller"][..],
        ),
        (
            "traffic-operator-webhook",
            "webhook",
            &[
                "run",
                "--component=webhook",
                "--admin-address=0.0.0.0:9445",
                "--probe-address=0.0.0.0:9446",
                "--page-address=127.0.0.1:9447",
                "--log-level=webhook",
            ],
        ),
    ] {
        let spec = &objects[&id("Deployment", NAMESPACE, name)]["spec"];
        let set = &values[process];
        assert_eq!(spec["replicas"], set["replicas"]);
        let pod = &spec["template"]["spec"];
        for key in ["nodeSelector", "tolerations", "affinity", "priorityClassName"] {
            assert_eq!(pod[key], set[key], "{name}: {key}");
        }
        assert_eq!(pod["hostNetwork"], set["hostNetwork"], "{name}");
        assert_eq!(pod["imagePullSecrets"], values["imagePullSecrets"]);
        assert_eq!(pod["volumes"], set["extraVolumes"]);
        let container = &pod["containers"][0];
        assert_eq!(container["image"], image);
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(container["resources"], set["resources"]);
        assert_eq!(container["volumeMounts"], set["extraVolumeMounts"]);
        assert_eq!(container["args"], json!(args));
    }

    let controller = &objects[&id("Deployment", NAMESPACE, "traffic-operator")];
    let env = &controller["spec"]["template"]["spec"]["containers"][0]["env"];
    for (name, value) in [
        ("TRAFFIC_OPERATOR_PROMETHEUS_URL", "http://thanos.metrics.svc:10902"),
        ("TRAFFIC_OPERATOR_KINDS", "NetworkProber,-RouteReflectorSet,-Swarm,TrafficWatch"),
    ] {
        let variable = json!({"name": name, "value": value});
        assert!(env.as_array().expect("env").contains(&variable), "{env}");
    }

    let monitor = &objects[&id("ServiceMonitor", NAMESPACE, "traffic-operator")];
    let labels = &monitor["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["release"]), (&"a".into(), &"stack".into()));
    assert_eq!(monitor["spec"]["endpoints"][0]["interval"], "30s");
    let rule = &objects[&id("PrometheusRule", NAMESPACE, "traffic-operator")];
    let labels = &rule["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["release"]), (&"b".into(), &"stack".into()));
    let mut alerts = 0;
    for alert in rule["spec"]["groups"].as_array().into_iter().flatten() {
        for alert in alert["rules"].as_array().into_iter().flatten() {
            let name = alert["alert"].as_str().expect("an alert");
            let page = format!("https://runbooks.example.com/net/{name}.md");
            assert_eq!(alert["annotations"]["runbook_url"], page);
            alerts += 1;
        }
    }
    assert!(alerts > 20, "{alerts}");

    let mut dashboards = 0;
    for ((_, namespace, name), map) in objects.iter().filter(|((kind, ..), _)| kind == "ConfigMap")
    {
        assert_eq!(namespace, "grafana", "{name}");
        let metadata = &map["metadata"];
        assert_eq!(metadata["labels"]["dashboards"], "yes");
        assert_eq!(metadata["annotations"]["grafana_folder"], "Network");
        for (name, text) in map["data"].as_object().expect("data") {
            let source = read(&root().join("grafana").join(name));
            assert_eq!(text.as_str().expect("text"), source, "{name}");
            dashboards += 1;
        }
    }
    assert_eq!(dashboards, KINDS.len() + 2, "one for each kind, the overview, the operator");

    let editor = &objects[&id("ClusterRole", "", "trafficwatch-editor")]["metadata"]["labels"];
    assert_eq!(editor["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
    let policy = &objects[&id("NetworkPolicy", NAMESPACE, "traffic-operator-prometheus")]["spec"];
    let peer = &policy["egress"][0]["to"][0];
    assert_eq!(peer["podSelector"]["matchLabels"], json!({"app": "thanos"}));
    assert_eq!(peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], "metrics");
    assert_eq!(policy["egress"][0]["ports"][0]["port"], 10902);
}

/// A switch removes its own objects and no others.
#[test]
fn every_switch_takes_away_what_it_names() {
    let default = chart("switch-default", NAMESPACE, &json!({}));
    for (value, kinds) in [
        ("serviceMonitor", &["ServiceMonitor"][..]),
        ("prometheusRule", &["PrometheusRule"]),
        ("dashboards", &["ConfigMap"]),
        ("networkPolicies", &["NetworkPolicy"]),
    ] {
        let values = json!({value: {"enabled": false}});
        let rendered = chart(&format!("switch-{value}"), NAMESPACE, &values);
        let expected = default.iter().filter(|((kind, ..), _)| !kinds.contains(&&**kind));
        assert!(expected.eq(rendered.iter()), "{value}");
    }
}

/// Returns a value of each type but the required one.
fn wrong(schema: &Value, node: &Value) -> Value {
    let node = resolved(schema, node);
    if let Some(properties) = node["properties"].as_object() {
        let all: Map<_, _> = properties
            .iter()
            .map(|(name, property)| (name.clone(), wrong(schema, property)))
            .collect();
        return all.into();
    }
    if node["type"] == "string" || !node["enum"].is_null() { json!(7) } else { json!("seven") }
}

#[test]
fn a_wrong_value_is_refused_with_its_place() {
    let schema = schema();
    let said = template("wrong", NAMESPACE, &wrong(&schema, &schema)).expect_err("a refusal");
    let mut places = BTreeSet::new();
    each(&schema, &schema, "", &mut |path, node| {
        if node["properties"].is_null() {
            places.insert(path.to_owned());
        }
    });
    assert!(places.len() > 40, "{places:?}");
    for place in places {
        assert!(said.contains(&format!("at '{place}'")), "{place} is not named in:\n{said}");
    }
}

#[test]
fn a_misspelled_or_impossible_value_is_refused_with_a_sentence() {
    for (values, expected) in [
        (json!({"replicas": 2}), "additional properties 'replicas' not allowed"),
        (json!({"image": {"name": "x"}}), "additional properties 'name' not allowed"),
        (json!({"controller": {"replica": 1}}), "additional properties 'replica' not allowed"),
        (json!({"controller": {"hostNetwork": true}}), "'not' failed"),
        (json!({"kinds": []}), "at '/kinds'"),
        (json!({"kinds": ["Swarms"]}), "at '/kinds/0'"),
        (json!({"kinds": ["Swarm", "Swarm"]}), "at '/kinds'"),
        (json!({"image": {"digest": "sha256:1"}}), "at '/image/digest'"),
        (json!({"image": {"repository": "a@b"}}), "at '/image/repository'"),
        (json!({"prometheus": {"setup": "external"}}), "at '/prometheus/url'"),
        (json!({"prometheus": {"namespace": "No"}}), "at '/prometheus/namespace'"),
        (json!({"prometheus": {"podLabels": {"app": 1}}}), "at '/prometheus/podLabels/app'"),
        (json!({"runbookUrl": "docs/runbooks"}), "at '/runbookUrl'"),
        (json!({"controller": {"extraArgs": ["x"]}}), "at '/controller/extraArgs/0'"),
        (
            json!({"controller": {"extraArgs": ["--prometheus-config", "/etc/endpoints.yaml"]}}),
            "at '/controller/extraArgs/1'",
        ),
        (json!({"webhook": {"tolerations": [{"keys": "a"}]}}), "at '/webhook/tolerations/0'"),
    ] {
        let Err(said) = template("refused", NAMESPACE, &values) else {
            panic!("{values} is accepted")
        };
        assert!(said.contains(expected), "{values}: no {expected:?} in:\n{said}");
    }
}

/// Some alerts look back one minute. With fewer than two scrapes in it, one late scrape empties it,
/// and an alert that waits for minutes never fires.
#[test]
fn a_scrape_interval_that_leaves_alerts_without_samples_is_refused() {
    let of = |interval: &str| {
        template("interval", NAMESPACE, &json!({"serviceMonitor": {"interval": interval}}))
    };
    for interval in ["1s", "30s", "1500ms", "30000ms"] {
        let text = of(interval).expect(interval);
        assert!(text.contains(&format!("interval: {interval}\n")), "{interval} has no effect");
    }
    for interval in ["2m", "31s", "100s", "30001ms", "0s", "15"] {
        let Err(said) = of(interval) else { panic!("{interval} is accepted") };
        assert!(said.contains("at '/serviceMonitor/interval'"), "{interval}: {said}");
    }
}

/// Without internet access, all images come from one registry.
#[test]
fn every_image_comes_from_the_registry_that_the_values_name() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let values = json!({
        "image": {"repository": "registry.example.com/a", "digest": digest},
        "prometheus": {"setup": "standalone", "images": {
            "prometheus": "registry.example.com/b:1",
            "nodeExporter": format!("registry.example.com/c@{digest}"),
        }},
    });
    let text = template("images", NAMESPACE, &values).expect("a rendered chart");
    let images = text.lines().filter_map(|line| line.trim().split_once("image: "));
    let images: BTreeSet<_> = images.map(|(_, image)| image.to_owned()).collect();
    let expected = ["a@", "c@"].map(|name| format!("registry.example.com/{name}{digest}"));
    let expected = expected.into_iter().chain(["registry.example.com/b:1".to_owned()]);
    assert_eq!(images, expected.collect());
}
