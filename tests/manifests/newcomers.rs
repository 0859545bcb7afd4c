//! The commands of the documentation, unchanged, install and uninstall. `e2e` follows the
//! README and the page about Helm, whose commands wait for pods.
use std::fs;

use lab::{
    ControlPlane, ControlPlaneOptions,
    cluster::{olm_definition, prometheus_operator_definition},
    newcomer::{Newcomer, commands, without},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    olm::{VERSION, bundled},
    rendering::{NAMESPACE, objects, read, root, scratch, template},
};

/// The image in the documentation.
const IMAGE: &str = "registry.example.com/traffic-operator";

/// The kinds of prometheus-operator in the overlay for kube-prometheus.
const MONITORING: [&str; 2] = ["prometheusrules", "servicemonitors"];

/// The kinds of OLM of which the page applies objects.
const OLM: [&str; 4] =
    ["catalogsources", "clusterserviceversions", "operatorgroups", "subscriptions"];

/// One control plane for all ways, one after the other, because its start takes much of the time.
#[test]
fn the_commands_of_the_pages_install_and_uninstall() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // The controllers finalize namespaces. There are no nodes.
    let options = ControlPlaneOptions { scheduler: false, ..ControlPlaneOptions::default() };
    let plane = runtime.block_on(ControlPlane::start(options)).expect("a control plane");
    let newcomer = Newcomer::arrive(&scratch("newcomer"), plane.kubeconfig()).expect("a copy");
    for kind in MONITORING {
        let text = prometheus_operator_definition(kind).expect("a definition");
        define(&newcomer, &format!("{kind}.monitoring.coreos.com"), &text);
    }
    run_own(&newcomer, "kubectl create namespace monitoring");
    one_file_with_kubectl_alone(&newcomer);
    an_overlay_in_a_repository_elsewhere(&newcomer);
    a_bundle_of_olm(&newcomer);
    runtime.block_on(plane.stop()).expect("stopped");
}

fn run(newcomer: &Newcomer, commands: &[String]) -> String {
    newcomer.run(commands).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Runs commands that a test adds to those of a page.
fn run_own(newcomer: &Newcomer, commands: &str) -> String {
    run(newcomer, &[format!("{commands}\n")])
}

/// Applies the definition of a kind that exists before the operator.
fn define(newcomer: &Newcomer, name: &str, text: &[u8]) {
    fs::write(newcomer.dir().join(name), text).expect("a definition");
    run_own(newcomer, &format!("kubectl apply --server-side -f {name}"));
    // At first its conditions are null, which `kubectl wait` reports as an error.
    let wait = format!("kubectl wait --for=condition=Established --timeout=30s crd/{name}");
    run_own(newcomer, &format!("timeout 60 sh -c 'until {wait}; do sleep 1; done'"));
}

/// Runs the commands twice: the second run changes none of the objects in the file.
fn install_twice(newcomer: &Newcomer, commands: &[String], file: &str) {
    let installed = || newcomer.installed(file).unwrap_or_else(|error| panic!("{error:#}"));
    run(newcomer, commands);
    let first = installed();
    assert_eq!(first.len(), objects(&read(&newcomer.dir().join(file))).len(), "{first:?}");
    run(newcomer, commands);
    assert_eq!(installed(), first, "the second run changes something");
}

/// Returns the names of the objects in the file that still exist.
fn left(newcomer: &Newcomer, file: &str) -> Vec<String> {
    let objects = newcomer.installed(file).unwrap_or_else(|error| panic!("{error:#}"));
    objects.into_iter().map(|object| object.name).collect()
}

fn one_file_with_kubectl_alone(newcomer: &Newcomer) {
    let steps = commands("docs/operations/install.md", "With kubectl alone").expect("commands");
    let (install, uninstall) = steps.split_at(2);
    let file = "dist/install.yaml";
    install_twice(newcomer, install, file);
    let text = read(&newcomer.dir().join(file));
    let image = format!("image: {IMAGE}:{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text.matches(&image).count(), 2, "controller and webhook run {image}");
    run(newcomer, uninstall);
    assert_eq!(left(newcomer, file), Vec::<String>::new());
}

/// Returns the YAML blocks of a page, or of a part of it.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn page_on_gitops() -> String {
    read(&root().join("docs/operations/gitops.md"))
}

fn an_overlay_in_a_repository_elsewhere(newcomer: &Newcomer) {
    let page = page_on_gitops();
    let section = page.split("\n## kustomize in your own repository\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next()).expect("a section");
    let [kustomization, namespace] = blocks(section)[..] else { panic!("not two: {section}") };
    // This repository takes the place of the example address.
    let release = format!("?ref=v{}", env!("CARGO_PKG_VERSION"));
    let digest = format!("sha256:{}", "a".repeat(64));
    let kustomization = kustomization
        .replace("https://git.example.com/traffic-operator.git//", "../")
        .replace(&release, "")
        .replace("sha256:…", &digest);
    let dir = newcomer.dir().join("mine");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("kustomization.yaml"), kustomization).expect("kustomization");
    fs::write(dir.join("namespace.yaml"), namespace).expect("namespace");
    run_own(newcomer, "kubectl kustomize mine > mine.yaml");
    let text = read(&newcomer.dir().join("mine.yaml"));
    assert_eq!(text.matches(&format!("image: {IMAGE}@{digest}\n")).count(), 2);
    assert!(!text.contains(NAMESPACE), "{NAMESPACE} is left in the overlay");
    let apply = "kubectl apply --server-side --force-conflicts -k mine\n".to_owned();
    install_twice(newcomer, &[apply], "mine.yaml");
    run_own(newcomer, "kubectl delete --ignore-not-found -k mine");
    assert_eq!(left(newcomer, "mine.yaml"), Vec::<String>::new());
}

/// OLM itself and registries are missing here: the test does with the bundle what OLM does.
fn a_bundle_of_olm(newcomer: &Newcomer) {
    for kind in OLM {
        let text = olm_definition(kind).expect("a definition");
        define(newcomer, &format!("{kind}.operators.coreos.com"), text.as_bytes());
    }
    run_own(newcomer, "kubectl create namespace olm");
    let page = "docs/operations/olm.md";
    let install = commands(page, "Install with the Operator Lifecycle Manager");
    let not_here = [
        "make olm-install ",
        "make docker-build ",
        "docker ",
        "opm ",
        "kubectl -n traffic-operator-system get clusterserviceversions --watch",
    ];
    let install = without(install.expect("commands"), &not_here).expect("all of them");
    run_own(newcomer, "kubectl kustomize deploy/olm/install > beside.yaml");
    install_twice(newcomer, &install, "beside.yaml");
    let catalog = "kubectl -n olm get catalogsource traffic-operator -o jsonpath='{.spec.image}'";
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(run_own(newcomer, catalog), format!("{IMAGE}-catalog:{version}"));

    let mut all: Vec<Value> =
        bundled(&newcomer.dir().join("dist/olm/manifests")).into_values().collect();
    let mut service_versions = all.iter().filter(|object| object["metadata"]["name"] == VERSION);
    let made = made_by_olm(service_versions.next().expect("a service version"));
    let image = &made.last().expect("a Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(image["image"], format!("{IMAGE}:{version}"));
    all.extend(made);
    let documents: Vec<_> = all.iter().map(|object| format!("---\n{object}\n")).collect();
    fs::write(newcomer.dir().join("olm.yaml"), documents.concat()).expect("objects");
    let apply = "kubectl apply --server-side --force-conflicts -f olm.yaml\n".to_owned();
    install_twice(newcomer, &[apply], "olm.yaml");

    run(newcomer, &commands(page, "Uninstall").expect("commands"));
    assert_eq!(left(newcomer, "beside.yaml"), Vec::<String>::new());
    // OLM removes the cluster-wide roles of a bundle with its service version.
    let left = left(newcomer, "olm.yaml");
    assert!(left.iter().all(|name| name.starts_with("ClusterRole")), "{left:?}");
}

/// Returns the objects that OLM's installer creates from a service version, Deployments last.
fn made_by_olm(version: &Value) -> Vec<Value> {
    let group = "rbac.authorization.k8s.io";
    let install = &version["spec"]["install"]["spec"];
    let mut objects = Vec::new();
    for (list, role) in [("clusterPermissions", "ClusterRole"), ("permissions", "Role")] {
        for entry in install[list].as_array().expect(list) {
            let account = entry["serviceAccountName"].as_str().expect("an account");
            let mut metadata = json!({"name": format!("{VERSION}-{account}")});
            if role == "Role" {
                metadata["namespace"] = NAMESPACE.into();
            } else {
                objects.push(json!({
                    "apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": account, "namespace": NAMESPACE},
                }));
            }
            objects.push(json!({
                "apiVersion": format!("{group}/v1"), "kind": role, "metadata": metadata,
                "rules": entry["rules"],
            }));
            objects.push(json!({
                "apiVersion": format!("{group}/v1"), "kind": format!("{role}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": role, "name": metadata["name"]},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
            }));
        }
    }
    for deployment in install["deployments"].as_array().expect("deployments") {
        objects.push(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "spec": deployment["spec"],
            "metadata": {
                "name": deployment["name"], "namespace": NAMESPACE, "labels": deployment["label"],
            },
        }));
    }
    objects
}

#[test]
fn argo_cd_and_flux_give_the_chart_values_that_it_knows() {
    let page = page_on_gitops();
    let mut count = 0;
    for document in blocks(&page).into_iter().flat_map(serde_yaml::Deserializer::from_str) {
        let object = Value::deserialize(document).expect("YAML");
        let values = [&object["spec"]["source"]["helm"]["valuesObject"], &object["spec"]["values"]];
        for values in values.into_iter().filter(|values| values.is_object()) {
            let text = template(&format!("gitops-{count}"), NAMESPACE, values);
            let text = text.unwrap_or_else(|error| panic!("{}: {error}", object["kind"]));
            assert!(text.contains(&format!("image: {IMAGE}:")), "{}", object["kind"]);
            count += 1;
        }
    }
    assert_eq!(count, 2);
}
