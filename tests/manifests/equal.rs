//! The chart and the kustomize overlays render equal objects.
use std::{fs, process::Command};

use serde_json::{Value, json};
use traffic_operator::api::{KINDS, KindInfo};

use crate::rendering::{
    NAMESPACE, Objects, chart, differences, id, kustomization, objects, overlay, read, root, run,
    scratch, tool,
};

fn assert_equal(chart: &Objects, kustomize: &Objects, what: &str) {
    assert!(chart.len() > 40, "{what}: {} objects", chart.len());
    let differences = differences(chart, kustomize);
    assert!(
        differences.is_empty(),
        "{what}: the chart (left) and kustomize (right) differ:\n{}",
        differences.join("\n")
    );
}

/// The overlays, and the value of the chart for each.
const SETUPS: [&str; 3] = ["kube-prometheus", "kube-prometheus-stack", "standalone"];

fn setup(name: &str) -> Value {
    json!({"prometheus": {"setup": name}})
}

#[test]
fn the_chart_renders_what_the_overlays_render() {
    for name in SETUPS {
        let test = format!("equal-{name}");
        assert_equal(&chart(&test, NAMESPACE, &setup(name)), &overlay(name, &[]), name);
    }
    // Without values it equals the overlay that `make deploy` applies.
    let default = chart("equal-default", NAMESPACE, &json!({}));
    assert_equal(&default, &overlay("kube-prometheus", &[]), "no values");
}

/// Prometheus finds the operator by its namespace, policies know its account, webhooks refer to its
/// Service: none of them may name the default namespace.
#[test]
fn another_namespace_leaves_no_trace_of_the_default() {
    for name in SETUPS {
        let kustomize = overlay(name, &[("NAMESPACE", "elsewhere")]);
        let chart = chart(&format!("elsewhere-{name}"), "elsewhere", &setup(name));
        for (how, objects) in [("kustomize", &kustomize), ("chart", &chart)] {
            for (id, object) in objects {
                let text = object.to_string();
                assert!(!text.contains(NAMESPACE), "{how}, {name}: {id:?} names {NAMESPACE}");
            }
        }
        assert_equal(&chart, &kustomize, &format!("{name} in another namespace"));
        // Only the name changes.
        let default = overlay(name, &[]);
        assert_eq!(default.len(), kustomize.len());
        for (id, object) in default {
            let id = (id.0, id.1.replace(NAMESPACE, "elsewhere"), id.2);
            let text = object.to_string().replace(NAMESPACE, "elsewhere");
            assert_eq!(kustomize[&id].to_string(), text, "{name}: {id:?}");
        }
    }
}

/// A namespace whose name contains another one is replaced only once.
#[test]
fn no_namespace_is_replaced_twice() {
    let values = json!({"prometheus": {"namespace": "traffic-operator-system"}});
    let objects = chart("twice", "monitoring", &values);
    let policy = &objects
        [&id("NetworkPolicy", "traffic-operator-system", "prometheus-k8s-from-traffic-operator")];
    let from = &policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "monitoring");
    let scrapes = &objects[&id("NetworkPolicy", "monitoring", "traffic-operator-scrapes")];
    let from = &scrapes["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "traffic-operator-system");
}

#[test]
fn the_image_is_the_same_by_values_and_by_kustomize() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let name = "registry.example.com:5000/net/traffic-operator";
    for (image, values) in [
        (format!("{name}:1.2.3"), json!({"repository": name, "tag": "1.2.3"})),
        (format!("{name}@{digest}"), json!({"repository": name, "digest": digest})),
        // A tag beside a digest has no effect.
        (format!("{name}:1@{digest}"), json!({"repository": name, "tag": "1", "digest": digest})),
        (name.to_owned(), json!({"repository": name})),
    ] {
        let kustomize = overlay("kube-prometheus", &[("IMG", &image)]);
        let chart = chart("image", NAMESPACE, &json!({"image": values}));
        assert_equal(&chart, &kustomize, &image);
        let deployment = &chart[&id("Deployment", NAMESPACE, "traffic-operator")];
        let rendered = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        let expected = match &*image {
            image if image.ends_with("traffic-operator") => {
                format!("{image}:{}", env!("CARGO_PKG_VERSION"))
            }
            image if image.contains('@') => format!("{name}@{digest}"),
            image => image.to_owned(),
        };
        assert_eq!(rendered, &expected);
    }
}

/// The value `kinds` leaves out the same objects as the components do.
#[test]
fn kinds_of_the_chart_are_the_components_of_kustomize() {
    let names: Vec<String> = KINDS.iter().map(KindInfo::name).collect();
    for left_out in &names {
        let others: Vec<_> = names.iter().filter(|name| *name != left_out).collect();
        let test = format!("without-{}", left_out.to_lowercase());
        let component = format!("components/{test}");
        let kustomize = kustomization(&test, &["crds", "overlays/kube-prometheus"], &[&component]);
        let chart = chart(&test, NAMESPACE, &json!({"kinds": others}));
        assert_equal(&chart, &kustomize, &test);
    }
    let one = chart("one", NAMESPACE, &json!({"kinds": ["TrafficWatch"]}));
    let kustomize = kustomization("one", &["crds", "overlays/trafficwatch-only"], &[]);
    assert_equal(&one, &kustomize, "TrafficWatch alone");
}

#[test]
fn the_other_components_are_values_as_well() {
    let component = &["components/aggregate-to-edit"];
    let kustomize = kustomization("aggregate", &["crds", "overlays/kube-prometheus"], component);
    let values = json!({"rbac": {"aggregateToEdit": true}});
    assert_equal(&chart("aggregate", NAMESPACE, &values), &kustomize, "aggregateToEdit");
    let component = &["components/priority"];
    let kustomize = kustomization("priority", &["crds", "overlays/kube-prometheus"], component);
    let class = json!({"priorityClassName": "system-cluster-critical"});
    let values = json!({"flowSchemas": {"enabled": true}, "controller": class, "webhook": class});
    assert_equal(&chart("priority", NAMESPACE, &values), &kustomize, "priority");
    let component = &["components/webhook-host-network"];
    let kustomize = kustomization("host", &["crds", "overlays/kube-prometheus"], component);
    let values = json!({"webhook": {"hostNetwork": true}});
    assert_equal(&chart("host", NAMESPACE, &values), &kustomize, "webhook.hostNetwork");
}

/// Both prefix the pages with the same address, and pass it to the operator, which writes the rules
/// of each NetworkProber.
#[test]
fn runbooks_are_at_the_address_of_the_component() {
    let served = &["crds", "../tests/observability/kustomize/runbooks"];
    let kustomize = kustomization("runbooks", served, &[]);
    let url = "https://runbooks.example.org/traffic-operator";
    for (test, url) in [("runbooks", url.to_owned()), ("runbooks-slash", format!("{url}/"))] {
        let chart = chart(test, NAMESPACE, &json!({"runbookUrl": url}));
        assert_equal(&chart, &kustomize, test);
    }
}

/// As the page about `GitOps` says: a generated list gets a hash, which the Swarm has to name.
#[test]
fn kustomize_renames_what_a_swarm_names() {
    let dir = scratch("kustomizeconfig");
    let write = |file: &str, text: &str| fs::write(dir.join(file), text).expect(file);
    write("kustomizeconfig.yaml", &read(&root().join("deploy/kustomizeconfig.yaml")));
    write("config.yml", "jobs: [a, b]\n");
    let workload = r#"{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w"}}"#;
    let spec = json!({
        "workload": {"name": "w"}, "streamsFrom": {"configMapKeyRef": {"name": "channels"}},
    });
    let swarm = json!({
        "apiVersion": "traffic.example.com/v1alpha1", "kind": "Swarm",
        "metadata": {"name": "s"}, "spec": spec,
    });
    write("swarm.yaml", &format!("{swarm}\n---\n{workload}\n"));
    let text = json!({
        "namePrefix": "my-", "configurations": ["kustomizeconfig.yaml"], "resources": ["swarm.yaml"],
        "configMapGenerator": [{"name": "channels", "files": ["config.yml"]}],
    });
    write("kustomization.yaml", &text.to_string());
    let text = run(Command::new(tool("kubectl")).arg("kustomize").arg(&dir)).expect("rendered");
    let objects = objects(&text);
    let named = |kind: &str| {
        let mut all = objects.keys().filter(|(found, ..)| found == kind);
        all.next().map(|(.., name)| name.clone()).unwrap_or_default()
    };
    let swarm = objects.values().find(|object| object["kind"] == "Swarm").expect("a Swarm");
    assert!(named("ConfigMap").starts_with("my-channels-"), "{text}");
    assert_eq!(swarm["spec"]["streamsFrom"]["configMapKeyRef"]["name"], named("ConfigMap"));
    assert_eq!(swarm["spec"]["workload"]["name"], "my-w");
}
