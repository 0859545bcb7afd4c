//! The bundle for the Operator Lifecycle Manager (OLM), `deploy/olm/manifests`: the objects of the
//! overlays that a bundle may contain. `deploy/olm/install` has the others.
use std::{fs, path::Path};

use anyhow::{Context, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Account, File, NAME, core, roles, yaml};
use crate::api::{KINDS, KindInfo};

/// The folder of the bundle's objects, below `deploy/`.
pub const FOLDER: &str = "olm/manifests";

/// The oldest version of Kubernetes that supports k8s-openapi, native sidecars and the admission
/// policies.
const OLDEST_KUBERNETES: &str = "1.33.0";

/// Objects that a bundle may contain in addition to its `ClusterServiceVersion` and its
/// definitions. The installer of OLM creates accounts and their roles itself; it refuses admission
/// policies and webhooks that an operator manages, and older releases refuse network policies.
const KINDS_OF_A_BUNDLE: [&str; 5] =
    ["ClusterRole", "PodDisruptionBudget", "PrometheusRule", "Service", "ServiceMonitor"];

/// The files with such objects, relative to `deploy/`.
const SOURCES: [&str; 5] = [
    "base/authorroles.yaml",
    "base/poddisruptionbudget.yaml",
    "base/service.yaml",
    "../monitoring/prometheusrule.yaml",
    "../monitoring/servicemonitor.yaml",
];

/// The icon: a node between two others, one of which it can no longer reach.
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">
<path d="M12 32h20" stroke="#2e7d32" stroke-width="5"/>
<path d="M32 32h20" stroke="#c62828" stroke-width="5" stroke-dasharray="5 4"/>
<circle cx="12" cy="32" r="9" fill="#2e7d32"/><circle cx="52" cy="32" r="9" fill="#c62828"/>
<circle cx="32" cy="32" r="11" fill="#326ce5"/></svg>
"##;

/// The description on the page of the operator.
const DESCRIPTION: &str = "\
traffic-operator judges nodes by how their network behaves, as Prometheus measures it, and places \
pods on the fit ones.

- **TrafficWatch** labels nodes as fit or unfit, and keeps the pods of a Deployment off unfit ones.
- **NetworkProber** measures round-trip time and packet loss between pods.
- **Swarm** assigns each of a list of streams to exactly one worker.
- **RouteReflectorSet** elects the nodes that reflect Calico's BGP routes.

The namespace also needs the admission policies of `deploy/olm/install`, which a bundle cannot hold.
";

/// Returns the manifests of the bundle.
///
/// # Errors
/// When a source in or next to `deploy/` cannot be read.
pub fn files(generated: &[File], deploy: &Path) -> anyhow::Result<Vec<File>> {
    let file = |name: &str, text: String| File { path: format!("{FOLDER}/{name}"), text };
    let version = yaml(&[service_version(deploy)?])?;
    let mut files = vec![file(&format!("{NAME}.clusterserviceversion.yaml"), version)];
    for source in generated {
        if let Some(name) = source.path.strip_prefix("crds/") {
            files.push(file(name, source.text.clone()));
        }
    }
    let mut objects: Vec<Value> = for_people();
    for source in SOURCES {
        objects.extend(documents(&deploy.join(source))?);
    }
    for mut object in objects {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
        ensure!(KINDS_OF_A_BUNDLE.contains(&&*kind), "a bundle cannot hold the {kind} {name}");
        // OLM installs into the namespace of the subscription.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let name = format!("{name}.{}.yaml", kind.to_lowercase());
        files.push(file(&name, yaml(&[object])?));
    }
    Ok(files)
}

/// Returns the roles that are bound to none of the operator's accounts.
fn for_people() -> Vec<Value> {
    let all = KINDS.iter().flat_map(|kind| roles(kind).documents);
    all.filter(|role| {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        role["kind"] == "ClusterRole" && Account::of_role(name).is_none()
    })
    .collect()
}

fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let all = serde_yaml::Deserializer::from_str(&text)
        .map(Value::deserialize)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{}", path.display()))?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

fn service_version(deploy: &Path) -> anyhow::Result<Value> {
    let version = env!("CARGO_PKG_VERSION");
    let mut examples = Vec::new();
    let mut owned = Vec::new();
    for kind in KINDS {
        examples.push(example(kind, deploy)?);
        owned.push(definition(kind));
    }
    let mut deployments = Vec::new();
    for file in ["base/deployment.yaml", "base/webhook-deployment.yaml"] {
        for deployment in documents(&deploy.join(file))? {
            deployments.push(json!({
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": deployment["spec"],
            }));
        }
    }
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
        .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}));
    let image = deployments[0]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{NAME}.v{version}"),
            "annotations": {
                "alm-examples": serde_json::to_string_pretty(&examples).context("JSON")?,
                "capabilities": "Basic Install",
                "categories": "Networking, Monitoring",
                "containerImage": image,
                "description": env!("CARGO_PKG_DESCRIPTION"),
                "operatorframework.io/suggested-namespace": super::NAMESPACE,
            },
            // The architectures of the image.
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/arch.arm64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": {
            "displayName": "traffic-operator",
            "description": DESCRIPTION,
            "version": version,
            "maturity": "alpha",
            "minKubeVersion": OLDEST_KUBERNETES,
            "keywords": ["network", "prometheus", "scheduling", "bgp"],
            "provider": {"name": "traffic-operator"},
            "icon": [{"base64data": encoded(ICON), "mediatype": "image/svg+xml"}],
            "installModes": modes,
            "customresourcedefinitions": {"owned": owned},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": permissions("ClusterRole"),
                    "permissions": permissions("Role"),
                    "deployments": deployments,
                },
            },
        },
    }))
}

fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns the rules of the roles of one kind that are bound to each account.
fn permissions(kind: &str) -> Vec<Value> {
    let all: Vec<Value> =
        core().into_iter().chain(KINDS.iter().flat_map(|kind| roles(kind).documents)).collect();
    let of = |account: Account| -> Vec<Value> {
        all.iter()
            .filter(|role| {
                let name = role["metadata"]["name"].as_str().unwrap_or_default();
                role["kind"] == kind && Account::of_role(name) == Some(account)
            })
            .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
            .collect()
    };
    Account::ALL
        .into_iter()
        .map(|account| json!({"serviceAccountName": account.name(), "rules": of(account)}))
        .collect()
}

/// Returns the first object of the kind in its sample.
fn example(kind: &KindInfo, deploy: &Path) -> anyhow::Result<Value> {
    let name = kind.name();
    let path = deploy.join(format!("samples/{}.yaml", name.to_lowercase()));
    let found = documents(&path)?.into_iter().find(|object| object["kind"] == *name);
    found.with_context(|| format!("{} has no {name}", path.display()))
}

/// Returns the definition of a kind for the page of the operator.
fn definition(kind: &KindInfo) -> Value {
    let crd = (kind.crd)();
    let version = &crd.spec.versions[0];
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let part = |name: &str| schema?.properties.as_ref()?.get(name);
    let description = schema.and_then(|schema| schema.description.clone()).unwrap_or_default();
    json!({
        "name": crd.metadata.name,
        "version": version.name,
        "kind": crd.spec.names.kind,
        "displayName": crd.spec.names.kind,
        "description": description,
        "specDescriptors": descriptors(part("spec")),
        "statusDescriptors": descriptors(part("status")),
    })
}

/// Returns the fields of `spec` or `status`, each with the first sentence of its description.
fn descriptors(part: Option<&JSONSchemaProps>) -> Vec<Value> {
    let fields = part.and_then(|part| part.properties.as_ref()).into_iter().flatten();
    fields
        .map(|(path, field)| {
            let text = field.description.clone().unwrap_or_default().replace('\n', " ");
            let first = text.split_inclusive(". ").next().unwrap_or_default().trim_end();
            let mut descriptor = Map::new();
            descriptor.insert("path".into(), json!(path));
            descriptor.insert("displayName".into(), json!(title(path)));
            descriptor.insert("description".into(), json!(first));
            Value::Object(descriptor)
        })
        .collect()
}

/// Returns the title of a field: `Max Bandwidth Percent` for `maxBandwidthPercent`.
fn title(path: &str) -> String {
    let mut title = String::new();
    for (index, letter) in path.chars().enumerate() {
        if letter.is_uppercase() {
            title.push(' ');
        }
        if index == 0 { title.extend(letter.to_uppercase()) } else { title.push(letter) }
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_words() {
        assert_eq!(title("maxBandwidthPercent"), "Max Bandwidth Percent");
        assert_eq!(title("mode"), "Mode");
    }

    /// People get none of the operator's own roles, and lose none of theirs.
    #[test]
    fn people_get_an_editor_and_a_viewer_of_each_kind() {
        let names: Vec<_> =
            for_people().iter().map(|role| role["metadata"]["name"].clone()).collect();
        assert_eq!(names.len(), 2 * KINDS.len(), "{names:?}");
    }
}
