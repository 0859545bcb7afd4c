//! Objects as Helm and kustomize render them.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde::Deserialize;
use serde_json::Value;

/// The release and the namespace that tests install into by default.
pub const NAMESPACE: &str = traffic_operator::manifests::NAMESPACE;

/// Kind, namespace and name.
pub type Id = (String, String, String);

pub type Objects = BTreeMap<Id, Value>;

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn tool(name: &str) -> PathBuf {
    lab::tools::ensure(name)
        .unwrap_or_else(|error| panic!("{error:#}\nTry: cargo run --bin lab -- tools"))
}

/// Creates a test's own empty directory below the build's.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifests").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    dir
}

/// Runs a command and returns its output, or its standard error if it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if status.success() { Ok(text(&stdout)) } else { Err(text(&stderr)) }
}

/// Returns a Helm command that renders the chart with these values.
pub fn helm(test: &str, command: &[&str], namespace: &str, values: &Value) -> Command {
    let file = scratch(&format!("values-{test}")).join("values.yaml");
    fs::write(&file, values.to_string()).expect("values");
    let mut helm = Command::new(tool("helm"));
    helm.args(command).arg(root().join("deploy/chart"));
    helm.args(["--namespace", namespace, "--values"]).arg(file);
    helm
}

/// Renders the chart with these values, or returns Helm's error.
pub fn template(test: &str, namespace: &str, values: &Value) -> Result<String, String> {
    run(&mut helm(test, &["template", "traffic-operator"], namespace, values))
}

/// Returns the objects of the chart except for those of `helm test`.
pub fn chart(test: &str, namespace: &str, values: &Value) -> Objects {
    let text = template(test, namespace, values).unwrap_or_else(|error| panic!("{test}: {error}"));
    let mut objects = objects(&text);
    objects.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    for object in objects.values_mut() {
        without_helms_own(object);
    }
    objects
}

/// Removes what only Helm adds: the annotation that keeps definitions.
fn without_helms_own(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else { return };
    annotations.remove("helm.sh/resource-policy");
    if annotations.is_empty() {
        object["metadata"].as_object_mut().expect("metadata").remove("annotations");
    }
}

/// Returns the output of `hack/render` for an overlay, with these variables.
pub fn render(overlay: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(root().join("hack/render"));
    command.env("KUBECTL", tool("kubectl")).env("OVERLAY", overlay);
    command.env_remove("IMG").env_remove("NAMESPACE").envs(variables.iter().copied());
    run(&mut command).unwrap_or_else(|error| panic!("{overlay}: {error}"))
}

/// Returns the objects of an overlay and the definitions, without the operator's namespace: Helm
/// creates the namespace of a release itself.
pub fn overlay(overlay: &str, variables: &[(&str, &str)]) -> Objects {
    let namespace = variables.iter().find(|(name, _)| *name == "NAMESPACE");
    let namespace = namespace.map_or(NAMESPACE, |(_, value)| *value);
    let mut objects = objects(&render(overlay, &[variables, &[("CRDS", "yes")]].concat()));
    let removed = objects.remove(&id("Namespace", "", namespace));
    assert!(removed.is_some(), "{overlay} has no namespace {namespace}");
    objects
}

/// Returns the objects of a kustomization of these resources and components, below `deploy/`.
pub fn kustomization(test: &str, resources: &[&str], components: &[&str]) -> Objects {
    let dir = scratch(&format!("kustomization-{test}")).canonicalize().expect("a directory");
    // kustomize accepts relative paths only.
    let up = "../".repeat(dir.components().count() - 1);
    let deploy = root().join("deploy").canonicalize().expect("deploy");
    let deploy = deploy.strip_prefix("/").expect("absolute");
    let list = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{up}{}/{name}", deploy.display())).collect()
    };
    let text = serde_json::json!({
        "resources": list(resources), "components": list(components),
    });
    fs::write(dir.join("kustomization.yaml"), text.to_string()).expect("kustomization");
    let text = run(Command::new(tool("kubectl")).arg("kustomize").arg(&dir));
    let mut objects = objects(&text.unwrap_or_else(|error| panic!("{test}: {error}")));
    objects.remove(&id("Namespace", "", NAMESPACE));
    objects
}

pub fn id(kind: &str, namespace: &str, name: &str) -> Id {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

/// Parses the objects of a YAML stream, in which none may occur twice.
pub fn objects(text: &str) -> Objects {
    let mut objects = Objects::new();
    for document in serde_yaml::Deserializer::from_str(&without_hashes(text)) {
        let object = Value::deserialize(document).expect("YAML");
        if object.is_null() {
            continue;
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let id = (word(&object["kind"]), word(&metadata["namespace"]), word(&metadata["name"]));
        assert!(!id.0.is_empty() && !id.2.is_empty(), "no object: {object}");
        assert!(objects.insert(id.clone(), object).is_none(), "{id:?} twice");
    }
    objects
}

/// Replaces names that end in a hash of their content, which Helm and kustomize compute
/// differently.
fn without_hashes(text: &str) -> String {
    let mut text = text.to_owned();
    let names: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: prometheus-"))
        .filter(|hash| hash.len() == 10 && hash.chars().all(char::is_alphanumeric))
        .map(|hash| format!("name: prometheus-{hash}\n"))
        .collect();
    for name in names {
        text = text.replace(&name, "name: prometheus-hash\n");
    }
    text
}

/// Returns the differences between two sets of objects, one line each.
pub fn differences(left: &Objects, right: &Objects) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, object) in left {
        match right.get(id) {
            None => lines.push(format!("{id:?}: only on the left")),
            Some(other) => differ(&format!("{id:?} "), object, other, &mut lines),
        }
    }
    let only = right.keys().filter(|id| !left.contains_key(*id));
    lines.extend(only.map(|id| format!("{id:?}: only on the right")));
    lines
}

fn differ(path: &str, left: &Value, right: &Value, lines: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (left, right) = (of(left).unwrap_or_default(), of(right).unwrap_or_default());
                differ(&format!("{path}.{key}"), &left, &right, lines);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differ(&format!("{path}[{index}]"), left, right, lines);
            }
        }
        _ if left == right => {}
        // kustomize writes 100.0 as 100.
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => {}
        _ => lines.push(format!("{path}: {left} and {right}")),
    }
}
