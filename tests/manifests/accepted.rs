//! Rendered manifests on a real API server, which accepts every way to install. Helm installs,
//! upgrades and uninstalls.
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use lab::{ControlPlane, ControlPlaneOptions, cluster::prometheus_operator_definition};
use serde_json::{Value, json};
use traffic_operator::api::KINDS;

use crate::rendering::{
    NAMESPACE, helm, objects, read, render, root, run, scratch, template, tool,
};

/// Runs a command against the API server of `plane`, and returns its output and errors.
fn said(plane: &ControlPlane, mut command: Command, input: &str) -> String {
    let file = scratch("input").join(format!("{:x}", input.len()));
    std::fs::write(&file, input).expect("input");
    command.env("KUBECONFIG", plane.kubeconfig());
    command.stdin(Stdio::from(std::fs::File::open(&file).expect("input")));
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}");
    text
}

fn kubectl(plane: &ControlPlane, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(tool("kubectl"));
    command.args(arguments);
    said(plane, command, input)
}

fn with_helm(plane: &ControlPlane, arguments: &[&str]) -> String {
    let mut command = Command::new(tool("helm"));
    command.args(arguments);
    said(plane, command, "")
}

/// The kinds of prometheus-operator to install, with its own definitions.
const MONITORS: [&str; 3] = ["podmonitors", "prometheusrules", "servicemonitors"];

/// Namespaces that exist before anything is installed; the operator's with the label from its
/// manifests, so that the API server warns of pods that it would refuse.
const NAMESPACES: [&str; 5] =
    ["monitoring", "metrics", "grafana", "traffic-operator-monitoring", "elsewhere"];

fn prepare(plane: &ControlPlane) {
    for plural in MONITORS {
        let text = prometheus_operator_definition(plural).expect("a definition");
        let text = String::from_utf8(text).expect("UTF-8");
        kubectl(plane, &["apply", "--server-side", "-f", "-"], &text);
    }
    let crd = |plural| format!("crd/{plural}.monitoring.coreos.com");
    let crds = MONITORS.map(crd);
    let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    wait.extend(crds.iter().map(String::as_str));
    kubectl(plane, &wait, "");
    for namespace in NAMESPACES {
        let mut labels = json!({});
        if namespace == "elsewhere" {
            labels = json!({
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            });
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": labels},
        });
        // With server-side apply, like the manifests that are applied later: no annotation of
        // another manager conflicts with them.
        kubectl(plane, &["apply", "--server-side", "-f", "-"], &object.to_string());
    }
}

/// One API server for all of it, because its start takes most of the time.
#[test]
fn an_api_server_accepts_every_way_to_install() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = ControlPlaneOptions {
        controller_manager: false,
        scheduler: false,
        ..ControlPlaneOptions::default()
    };
    let plane = runtime.block_on(ControlPlane::start(options)).expect("a control plane");
    prepare(&plane);
    helm_installs_upgrades_and_uninstalls(&plane);
    the_api_server_warns_of_pods_that_are_not_restricted(&plane);
    everything_is_accepted(&plane);
    applying_twice_changes_nothing(&plane);
    every_sample_is_accepted_and_documented(&plane);
    runtime.block_on(plane.stop()).expect("stopped");
}

/// The warning of the API server about pods that violate the level of their namespace.
const VIOLATION: &str = "would violate PodSecurity";

/// Without this, a text without warnings would prove nothing.
fn the_api_server_warns_of_pods_that_are_not_restricted(plane: &ControlPlane) {
    let template = json!({
        "metadata": {"labels": {"app": "loose"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/c:1"}]},
    });
    let loose = deployment(&template).to_string();
    let said = kubectl(plane, &["apply", "--dry-run=server", "-f", "-"], &loose);
    assert!(said.contains(VIOLATION), "{said}");
}

/// Returns the names of all overlays.
fn overlays() -> Vec<String> {
    let entries = fs::read_dir(root().join("deploy/overlays")).expect("overlays");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    // Other tests render at the same time, each in a hidden folder that comes and goes.
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn everything_is_accepted(plane: &ControlPlane) {
    let dry = ["apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-"];
    let mut all = crate::values::all_values();
    // The only value that needs a less restricted namespace.
    all["webhook"]["hostNetwork"] = false.into();
    // The pod of `helm test` needs the account, which a dry run does not create.
    let rendered = |test: &str, values: &Value| {
        let arguments = ["template", "traffic-operator", "--skip-tests"];
        run(&mut helm(test, &arguments, "elsewhere", values)).expect("a rendered chart")
    };
    let overlays = overlays().into_iter().map(|overlay| {
        let text = render(&overlay, &[("NAMESPACE", "elsewhere")]);
        (format!("overlay {overlay}"), text)
    });
    let setups = ["kube-prometheus", "kube-prometheus-stack", "standalone", "external"];
    let charts = setups.iter().map(|setup| {
        let mut values = json!({"prometheus": {"setup": setup}});
        if *setup == "external" {
            values["prometheus"]["url"] = "http://prometheus.example.com".into();
        }
        (format!("chart, {setup}"), rendered(&format!("accepted-{setup}"), &values))
    });
    let all = [("chart, all values".to_owned(), rendered("accepted-all", &all))];
    for (what, text) in overlays.chain(charts).chain(all) {
        let count = objects(&text).len();
        let said = kubectl(plane, &dry, &text);
        assert_eq!(said.matches("serverside-applied").count(), count, "{what}: {said}");
        assert!(!said.contains(VIOLATION), "{what}: {said}");
        assert!(!said.contains("Warning"), "{what}: {said}");
    }
}

/// As in the README of a release: `kubectl apply -f install.yaml`.
fn applying_twice_changes_nothing(plane: &ControlPlane) {
    let text = render("kube-prometheus", &[("CRDS", "yes")]);
    let first = kubectl(plane, &["apply", "-f", "-"], &text);
    assert!(first.contains("deployment.apps/traffic-operator created"), "{first}");
    // kubectl reports objects with defaults within a list as "configured", even if nothing changes.
    let versions = || {
        let item = r#"{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}"#;
        let path = format!("jsonpath={{range .items[*]}}{item}{{end}}");
        kubectl(plane, &["get", "-f", "-", "-o", &path], &text)
    };
    let before = versions();
    assert_eq!(before.lines().count(), objects(&text).len());
    kubectl(plane, &["apply", "-f", "-"], &text);
    assert_eq!(versions(), before);
}

/// Returns the files and the folders of kustomize in `deploy/samples`.
fn samples() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("deploy/samples")).expect("samples");
    let mut samples: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    samples.sort();
    samples
}

/// Every file, those of workloads included. `tests/reconcile/samples.rs` tests that each
/// `TrafficWatch` and `NetworkProber` becomes Ready, `e2e` that the originals' samples do
/// on real nodes.
fn every_sample_is_accepted_and_documented(plane: &ControlPlane) {
    let crds: Vec<_> = KINDS.iter().map(|kind| (kind.crd)().metadata.name.expect("name")).collect();
    let crds: Vec<_> = crds.iter().map(|name| format!("crd/{name}")).collect();
    let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    wait.extend(crds.iter().map(String::as_str));
    kubectl(plane, &wait, "");
    let page = read(&root().join("docs/reference/samples.md"));
    let samples = samples();
    assert!(samples.len() > 15, "{samples:?}");
    for path in samples {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let row = format!("| [{file}](../../deploy/samples/{file}) | ");
        assert!(page.contains(&row), "docs/reference/samples.md does not describe {file}");
        let text = if path.is_dir() {
            kubectl(plane, &["kustomize", path.to_str().expect("UTF-8")], "")
        } else {
            read(&path)
        };
        // A dry run creates no namespace for the objects that follow.
        for (_, namespace) in objects(&text).iter().filter(|((kind, ..), _)| kind == "Namespace") {
            kubectl(plane, &["apply", "--server-side", "-f", "-"], &namespace.to_string());
        }
        let dry = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
        let said = kubectl(plane, &dry, &text);
        assert!(said.contains("serverside-applied"), "{file}: {said}");
        // The originals' samples are as they were published, older forms of fields included.
        assert!(file.contains("original") || !said.contains("Warning"), "{file}: {said}");
        let templates = objects(&text).into_values().filter_map(|object| template_of(&object));
        for template in templates.filter(|_| !file.contains("original")) {
            let said = kubectl(plane, &dry, &deployment(&template).to_string());
            assert!(!said.contains(VIOLATION), "{file}: {said}");
        }
    }
}

/// Returns the template of the pods of an object, if it has one.
fn template_of(object: &Value) -> Option<Value> {
    let places = ["/spec/template", "/spec/deployment/template"];
    let template = places.iter().find_map(|place| object.pointer(place))?;
    template["spec"]["containers"].is_array().then(|| template.clone())
}

/// Returns a Deployment of these pods in the restricted namespace.
fn deployment(template: &Value) -> Value {
    let labels = &template["metadata"]["labels"];
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "pods", "namespace": "elsewhere"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    })
}

fn notes_say_what_helm_does_not_do(answer: &str) {
    let notes = answer.split("\nNOTES:\n").nth(1).expect("notes");
    for said in [
        "is a placeholder that no registry serves",
        "kubectl label namespace elsewhere pod-security.kubernetes.io/enforce=restricted",
        "helm -n elsewhere test traffic-operator",
        "Prometheus: http://prometheus-k8s.monitoring.svc:9090",
    ] {
        assert!(notes.contains(said), "no {said:?} in:\n{notes}");
    }
    // All kinds are deleted before the operator is.
    for plural in KINDS.iter().map(|kind| (kind.crd)().spec.names.plural) {
        assert!(notes.contains(&plural), "no {plural} in:\n{notes}");
    }
}

fn helm_installs_upgrades_and_uninstalls(plane: &ControlPlane) {
    let of = |command: &[&str], test: &str, values: &Value| {
        let arguments = [command, &["traffic-operator"]].concat();
        said(plane, helm(test, &arguments, "elsewhere", values), "")
    };
    let answer = of(&["install"], "install", &json!({}));
    notes_say_what_helm_does_not_do(&answer);
    let labels = ["get", "secrets", "-n", "elsewhere", "-l", "owner=helm", "-o", "name"];
    assert_eq!(kubectl(plane, &labels, "").lines().count(), 1, "the release fits into a Secret");
    let hooks = with_helm(plane, &["get", "hooks", "traffic-operator", "-n", "elsewhere"]);
    let answer = kubectl(plane, &["apply", "--dry-run=server", "-f", "-"], &hooks);
    assert!(answer.contains("pod/traffic-operator-doctor created"), "{answer}");
    let status = |jsonpath: &str| {
        let path = format!("jsonpath={jsonpath}");
        kubectl(
            plane,
            &["get", "deployment", "traffic-operator", "-n", "elsewhere", "-o", &path],
            "",
        )
    };
    assert_eq!(status("{.metadata.generation}"), "1");
    // The same values change nothing; another value changes the field that it names.
    of(&["upgrade"], "upgrade-same", &json!({}));
    assert_eq!(status("{.metadata.generation}"), "1");
    // The operator's writes to its object stay.
    let entry = json!({"webhooks": [{
        "name": "x.probes.bigmikes.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {"never": "there"}},
    }]});
    let webhooks = ["mutatingwebhookconfiguration", "traffic-operator"];
    let patch = entry.to_string();
    let command = [&["patch"], &webhooks[..], &["--type=merge", "-p", &patch]].concat();
    kubectl(plane, &command, "");
    of(&["upgrade"], "upgrade-more", &json!({"controller": {"replicas": 3}}));
    assert_eq!(status("{.metadata.generation} {.spec.replicas}"), "2 3");
    let command = [&["get"], &webhooks[..], &["-o", "jsonpath={.webhooks[*].name}"]].concat();
    assert_eq!(kubectl(plane, &command, ""), "x.probes.bigmikes.io");

    let answer = with_helm(plane, &["uninstall", "traffic-operator", "-n", "elsewhere"]);
    assert!(answer.contains("kept due to the resource policy"), "{answer}");
    let left = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,\
        poddisruptionbudgets,servicemonitors,prometheusrules,clusterroles,clusterrolebindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings,\
        mutatingwebhookconfigurations,customresourcedefinitions";
    let command = ["get", left, "-A", "-o", "name", "-l", "app.kubernetes.io/managed-by=Helm"];
    let left = kubectl(plane, &command, "");
    let names: Vec<_> = left.lines().filter(|line| line.contains('/')).collect();
    assert_eq!(names.len(), KINDS.len(), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("customresourcedefinition")), "{names:?}");
    // And back again, with the definitions that were kept.
    of(&["install"], "install-again", &json!({}));
    with_helm(plane, &["uninstall", "traffic-operator", "-n", "elsewhere"]);
}

#[test]
fn a_release_of_another_name_renders_the_same() {
    let text = template("name-1", NAMESPACE, &json!({})).expect("rendered");
    let other = run(&mut helm("name-2", &["template", "other"], NAMESPACE, &json!({})));
    assert_eq!(objects(&text), objects(&other.expect("rendered")));
}
