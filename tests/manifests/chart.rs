//! The chart as a package: versions, kinds, lint, and Helm's own additions.
use std::{collections::BTreeSet, process::Command};

use serde::Deserialize;
use serde_json::{Value, json};
use traffic_operator::api::KINDS;

use crate::rendering::{
    NAMESPACE, chart, differences, helm, id, objects, read, root, run, template, tool,
};

fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&read(&root().join(path))).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_version_is_that_of_the_operator() {
    let chart = yaml("deploy/chart/Chart.yaml");
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}: set it in Chart.yaml");
    }
    assert_eq!((&chart["apiVersion"], &chart["name"]), (&"v2".into(), &"traffic-operator".into()));
}

#[test]
fn lint_finds_nothing() {
    for setup in ["kube-prometheus", "standalone"] {
        let values = json!({"prometheus": {"setup": setup}});
        let said = run(&mut helm("lint", &["lint", "--strict"], NAMESPACE, &values));
        let said = said.unwrap_or_else(|error| panic!("{error}"));
        assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
    }
}

/// Deleting a definition deletes all objects of its kind, so `helm uninstall` keeps it.
#[test]
fn definitions_outlive_the_release_unless_a_value_says_otherwise() {
    let definitions = |test: &str, values: &Value| -> Vec<Value> {
        let text = template(test, NAMESPACE, values).expect("a rendered chart");
        let all = objects(&text).into_values();
        all.filter(|object| object["kind"] == "CustomResourceDefinition").collect()
    };
    let policy = |definition: &Value| {
        definition["metadata"]["annotations"]["helm.sh/resource-policy"].clone()
    };
    let kept = definitions("crds-kept", &json!({}));
    assert_eq!(kept.len(), KINDS.len());
    assert!(kept.iter().all(|definition| policy(definition) == "keep"));
    let other = definitions("crds-not-kept", &json!({"crds": {"keep": false}}));
    assert_eq!(other.len(), KINDS.len());
    assert!(other.iter().all(|definition| policy(definition).is_null()));
    // The annotation is not copied into a schema.
    for definition in &kept {
        assert_eq!(definition.to_string().matches("helm.sh/").count(), 1);
    }
    assert!(definitions("no-crds", &json!({"crds": {"install": false}})).is_empty());
    // Whichever kinds run: leaving one out deletes nothing.
    let one = definitions("crds-of-one", &json!({"kinds": ["Swarm"]}));
    assert_eq!(one.len(), KINDS.len());
}

/// The image contains one program and no shell.
#[test]
fn helm_test_runs_doctor_as_the_operator_would() {
    for (setup, url) in [
        ("kube-prometheus", None),
        ("standalone", Some("http://prometheus.traffic-operator-monitoring.svc:9090")),
        ("kube-prometheus-stack", Some("http://prometheus-operated.monitoring.svc:9090")),
    ] {
        let values = json!({"prometheus": {"setup": setup}, "kinds": ["Swarm", "TrafficWatch"]});
        let test = format!("doctor-{setup}");
        let all = objects(&template(&test, "elsewhere", &values).expect("a rendered chart"));
        let pod = &all[&id("Pod", "elsewhere", "traffic-operator-doctor")];
        assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
        assert_eq!(pod["spec"]["serviceAccountName"], "traffic-operator");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["/traffic-operator"]));
        let url = url.map(|url| format!("--prometheus-url={url}"));
        let mut args = vec!["doctor".to_owned(), "--operator-namespace=elsewhere".into()];
        args.extend(url);
        args.push("--kinds=Swarm,TrafficWatch".into());
        assert_eq!(container["args"], json!(args), "{setup}");
        // No Service, budget or policy of the operator selects the pod, which may connect to the
        // same peers.
        let labels = json!({"app.kubernetes.io/name": "traffic-operator-doctor"});
        assert_eq!(pod["metadata"]["labels"], labels);
        let own = &all[&id("NetworkPolicy", "elsewhere", "traffic-operator-doctor")]["spec"];
        assert_eq!(own["podSelector"]["matchLabels"], labels);
        let of = |name: &str| {
            let policy = &all[&id("NetworkPolicy", "elsewhere", name)];
            policy["spec"]["egress"].as_array().expect("egress").clone()
        };
        let expected = [of("traffic-operator"), of("traffic-operator-prometheus")].concat();
        assert_eq!(own["egress"], json!(expected), "{setup}");
    }
}

#[test]
fn the_package_renders_what_the_folder_renders() {
    let dir = crate::rendering::scratch("package");
    let mut package = Command::new(tool("helm"));
    package.arg("package").arg(root().join("deploy/chart")).arg("--destination").arg(&dir);
    run(&mut package).unwrap_or_else(|error| panic!("{error}"));
    let archive = dir.join(format!("traffic-operator-{}.tgz", env!("CARGO_PKG_VERSION")));
    // Helm stores chart and manifests in a Secret of at most 1 MiB.
    let size = std::fs::metadata(&archive).expect("the archive").len();
    assert!(size < 200_000, "{size} bytes");
    let mut command = Command::new(tool("helm"));
    command.args(["template", "traffic-operator"]).arg(&archive);
    let text = run(command.args(["--namespace", NAMESPACE])).unwrap_or_else(|e| panic!("{e}"));
    let folder = template("folder", NAMESPACE, &json!({})).expect("a rendered chart");
    let differences = differences(&objects(&text), &objects(&folder));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// An installation that can assume nothing about the namespace of Prometheus.
#[test]
fn an_external_prometheus_brings_no_objects_of_its_own() {
    let url = "https://metrics.example.com";
    let external = |more: Value| {
        let mut prometheus = json!({"setup": "external", "url": url});
        prometheus
            .as_object_mut()
            .expect("a map")
            .extend(more.as_object().cloned().unwrap_or_default());
        json!({"prometheus": prometheus})
    };
    let alone = chart("external", NAMESPACE, &external(json!({})));
    let kinds: BTreeSet<_> = alone.keys().map(|(kind, _, _)| kind.as_str()).collect();
    for kind in ["ServiceMonitor", "PrometheusRule", "ConfigMap", "DaemonSet"] {
        assert!(!kinds.contains(kind), "{kind}");
    }
    assert!(alone.keys().all(|(_, namespace, _)| [NAMESPACE, ""].contains(&&**namespace)));
    assert!(!alone.contains_key(&id("NetworkPolicy", NAMESPACE, "traffic-operator-prometheus")));
    let known = json!({
        "namespace": "mimir", "podLabels": {"app": "querier"}, "port": 8080,
    });
    let known = chart("external-known", NAMESPACE, &external(known));
    let policy = &known[&id("NetworkPolicy", NAMESPACE, "traffic-operator-prometheus")];
    let expected = json!([{
        "to": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "mimir"}},
            "podSelector": {"matchLabels": {"app": "querier"}},
        }],
        "ports": [{"protocol": "TCP", "port": 8080}],
    }]);
    assert_eq!(policy["spec"]["egress"], expected);
}

/// Its endpoint `default` and the flag `--prometheus-url` together end the operator.
#[test]
fn an_external_prometheus_in_a_file_of_endpoints_needs_no_address() {
    let file = "--prometheus-config=/etc/traffic-operator/endpoints.yaml";
    let volumes = json!([{"name": "endpoints", "secret": {"secretName": "endpoints"}}]);
    let mounts = json!([{"name": "endpoints", "mountPath": "/etc/traffic-operator"}]);
    let values = json!({
        "prometheus": {"setup": "external"},
        "controller": {
            "extraArgs": ["--max-unfit=20%", file],
            "extraVolumes": volumes,
            "extraVolumeMounts": mounts,
        },
    });
    let all = objects(&template("external-file", NAMESPACE, &values).expect("a rendered chart"));
    let deployment = &all[&id("Deployment", NAMESPACE, "traffic-operator")];
    let operator = &deployment["spec"]["template"]["spec"];
    let doctor = &all[&id("Pod", NAMESPACE, "traffic-operator-doctor")]["spec"];
    for (pod, flag) in [(operator, true), (doctor, false)] {
        let container = &pod["containers"][0];
        let args = container["args"].as_array().expect("arguments");
        assert!(args.contains(&file.into()), "{args:?}");
        assert!(!args.iter().any(|arg| arg.to_string().contains("--prometheus-url")), "{args:?}");
        // doctor does not have all flags of the operator.
        assert_eq!(args.contains(&"--max-unfit=20%".into()), flag, "{args:?}");
        assert_eq!((&pod["volumes"], &container["volumeMounts"]), (&volumes, &mounts));
    }
}

/// Argo CD counts a kind without a health check as healthy, whatever its conditions are.
#[test]
fn the_page_on_gitops_has_a_health_check_for_every_kind() {
    let page = read(&root().join("docs/operations/gitops.md"));
    let blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next());
    let mut argo = BTreeSet::new();
    let mut flux = BTreeSet::new();
    for block in blocks.flatten() {
        for document in serde_yaml::Deserializer::from_str(block) {
            let object = Value::deserialize(document).expect("YAML");
            for (key, _) in object["data"].as_object().into_iter().flatten() {
                argo.extend(key.strip_prefix("resource.customizations.health.").map(String::from));
            }
            for check in object["spec"]["healthCheckExprs"].as_array().into_iter().flatten() {
                let word = |key: &str| check[key].as_str().expect(key).to_owned();
                assert!(word("current").contains("'Ready'") && word("failed").contains("'False'"));
                flux.insert(format!("{} {}", word("apiVersion"), word("kind")));
            }
        }
    }
    let crds: Vec<_> = KINDS.iter().map(|kind| (kind.crd)().spec).collect();
    let of_argo = crds.iter().map(|crd| format!("{}_{}", crd.group, crd.names.kind));
    assert_eq!(argo, of_argo.collect());
    let of_flux =
        crds.iter().map(|crd| format!("{}/{} {}", crd.group, crd.versions[0].name, crd.names.kind));
    assert_eq!(flux, of_flux.collect());
}
