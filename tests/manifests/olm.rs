//! The bundle for the Operator Lifecycle Manager contains what the overlays install, and passes the
//! checks of operator-sdk.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use serde_json::Value;
use traffic_operator::{
    api::KINDS,
    manifests::{Account, bundle},
};

use crate::rendering::{
    Id, NAMESPACE, Objects, differences, id, kustomization, objects, overlay, read, root, tool,
};

pub const VERSION: &str = concat!("traffic-operator.v", env!("CARGO_PKG_VERSION"));

/// Returns the objects in the bundle; those without a namespace get the one of the subscription.
pub fn bundled(dir: &Path) -> Objects {
    let mut all = Objects::new();
    for entry in std::fs::read_dir(dir).expect("manifests") {
        let path = entry.expect("an entry").path();
        for (mut id, mut object) in objects(&read(&path)) {
            let namespaced = !id.0.starts_with("ClusterRole") && id.0 != "CustomResourceDefinition";
            if namespaced {
                id.1 = NAMESPACE.into();
                object["metadata"]["namespace"] = NAMESPACE.into();
            }
            assert!(all.insert(id.clone(), object).is_none(), "{id:?} twice");
        }
    }
    all
}

fn committed() -> Objects {
    bundled(&root().join("deploy").join(bundle::FOLDER))
}

fn service_version(all: &mut Objects) -> Value {
    all.remove(&id("ClusterServiceVersion", NAMESPACE, VERSION)).expect("a service version")
}

/// Returns the bindings of an account and the roles that they bind, by the kind of the role.
fn bound(all: &Objects, account: Account) -> BTreeMap<&'static str, Vec<(Id, Id)>> {
    let mut found = BTreeMap::new();
    for role in ["ClusterRole", "Role"] {
        let binding = format!("{role}Binding");
        let pairs =
            all.iter().filter(|((kind, ..), _)| *kind == binding).filter_map(|(of, object)| {
                let mut subjects = object["subjects"].as_array().into_iter().flatten();
                let ours = subjects.any(|subject| {
                    subject["name"] == account.name() && subject["namespace"] == NAMESPACE
                });
                let name = object["roleRef"]["name"].as_str().expect("a role");
                ours.then(|| (of.clone(), id(role, &of.1, name)))
            });
        found.insert(role, pairs.collect());
    }
    found
}

/// Returns rules in a form that does not depend on their order.
fn rules<'a>(roles: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    roles.flat_map(|role| role["rules"].as_array().expect("rules")).map(Value::to_string).collect()
}

/// Removes what OLM creates from the service version: accounts, their roles, and Deployments.
/// Compares each of them.
fn take_what_olm_makes(objects: &mut Objects, version: &Value) {
    let install = &version["spec"]["install"]["spec"];
    for account in Account::ALL {
        for (kind, pairs) in bound(objects, account) {
            let list = if kind == "Role" { "permissions" } else { "clusterPermissions" };
            let mut entries = install[list].as_array().expect(list).iter();
            let entry = entries.find(|entry| entry["serviceAccountName"] == account.name());
            let granted = rules(entry.into_iter());
            assert!(!granted.is_empty(), "{list} of {}", account.name());
            let expected = rules(pairs.iter().map(|(_, role)| &objects[role]));
            assert_eq!(granted, expected, "{list} of {}", account.name());
            for (binding, role) in pairs {
                assert!(objects.remove(&binding).is_some() && objects.remove(&role).is_some());
            }
        }
        let removed = objects.remove(&id("ServiceAccount", NAMESPACE, account.name()));
        assert!(removed.is_some(), "{}", account.name());
    }
    let deployments = install["deployments"].as_array().expect("deployments");
    assert_eq!(deployments.len(), Account::ALL.len());
    for deployment in deployments {
        let name = deployment["name"].as_str().expect("a name");
        let object = objects.remove(&id("Deployment", NAMESPACE, name)).expect(name);
        assert_eq!(object["spec"], deployment["spec"], "{name}");
        assert_eq!(object["metadata"]["labels"], deployment["label"], "{name}");
    }
}

#[test]
fn bundle_and_what_goes_with_it_are_the_overlay() {
    let mut bundle = committed();
    let version = service_version(&mut bundle);
    let mut expected = overlay("kube-prometheus", &[]);
    take_what_olm_makes(&mut expected, &version);
    // The rest is in the bundle, or applied beside it.
    let mut both = kustomization("olm", &["olm/install"], &[]);
    for (kind, namespace) in
        [("CatalogSource", "olm"), ("OperatorGroup", NAMESPACE), ("Subscription", NAMESPACE)]
    {
        assert!(both.remove(&id(kind, namespace, "traffic-operator")).is_some(), "{kind}");
    }
    for (id, object) in bundle {
        assert!(both.insert(id.clone(), object).is_none(), "{id:?} is in the bundle and beside it");
    }
    let differences = differences(&both, &expected);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The original watched all namespaces, and its group was for one.
#[test]
fn the_bundle_is_for_all_namespaces_as_the_operator_is() {
    let version = service_version(&mut committed());
    let modes = version["spec"]["installModes"].as_array().expect("modes").iter();
    let supported: Vec<_> = modes.filter(|m| m["supported"] == true).map(|m| &m["type"]).collect();
    assert_eq!(supported, ["AllNamespaces"]);
    // A group without targets is for all namespaces.
    let mut beside = kustomization("olm-group", &["olm/install"], &[]);
    let group =
        beside.remove(&id("OperatorGroup", NAMESPACE, "traffic-operator")).expect("a group");
    assert_eq!(group.get("spec"), None, "{group}");
    // So are its rights to what it watches.
    let entries = version["spec"]["install"]["spec"]["clusterPermissions"].as_array();
    let rules = entries.into_iter().flatten().filter_map(|entry| entry["rules"].as_array());
    let rules: Vec<_> = rules.flatten().collect();
    for kind in KINDS {
        let plural = (kind.crd)().spec.names.plural;
        let watches = rules.iter().any(|rule| {
            let has = |field: &str, what: &str| {
                rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == what))
            };
            has("resources", &plural) && has("verbs", "list") && has("verbs", "watch")
        });
        assert!(watches, "{plural}");
    }
}

#[test]
fn the_service_version_describes_every_kind_and_the_metadata_agree() {
    let mut bundle = committed();
    let version = service_version(&mut bundle);
    let owned = version["spec"]["customresourcedefinitions"]["owned"].as_array().expect("owned");
    let examples = version["metadata"]["annotations"]["alm-examples"].as_str().expect("examples");
    let examples: Vec<Value> = serde_json::from_str(examples).expect("JSON");
    assert_eq!((owned.len(), examples.len()), (KINDS.len(), KINDS.len()));
    for kind in KINDS {
        let name = kind.name();
        let entry = owned.iter().find(|entry| entry["kind"] == *name).expect("a definition");
        assert!(entry["description"].as_str().is_some_and(|text| text.len() > 40), "{name}");
        for list in ["specDescriptors", "statusDescriptors"] {
            let fields = entry[list].as_array().expect(list);
            assert!(fields.len() > 3, "{name}: {list}");
            let said =
                |field: &&Value| field["description"].as_str().is_some_and(|t| !t.is_empty());
            assert_eq!(fields.iter().filter(said).count(), fields.len(), "{name}: {list}");
        }
        assert!(examples.iter().any(|example| example["kind"] == *name), "{name}");
    }
    let annotations = root().join("deploy/olm/metadata/annotations.yaml");
    let annotations: Value = serde_yaml::from_str(&read(&annotations)).expect("YAML");
    let dockerfile = read(&root().join("deploy/olm/bundle.Dockerfile"));
    for (key, value) in annotations["annotations"].as_object().expect("annotations") {
        let label = format!("LABEL {key}={}", value.as_str().expect("text"));
        assert!(dockerfile.lines().any(|line| line == label), "no {label}");
        if let Some(folder) = value.as_str().filter(|value| value.ends_with('/')) {
            assert!(root().join("deploy/olm").join(folder).is_dir(), "no {folder}");
        }
    }
}

/// Rules about events of events.k8s.io have no version: the check assumes v1beta1, which is no
/// longer served.
const RULES_OF_EVENTS: &str = "Migrate the API(s) for events: \
    ([\"ClusterServiceVersion.Spec.InstallStrategy.StrategySpec.ClusterPermissions[0].Rules[0]\"])";

#[test]
fn operator_sdks_checks_pass() {
    let mut command = Command::new(tool("bundle-validate"));
    let output = command.arg(root().join("deploy/olm")).output().expect("bundle-validate");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<_> = said.lines().filter(|line| !line.contains(RULES_OF_EVENTS)).collect();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(found.is_empty(), "{}", found.join("\n"));
    // The check is effective.
    let dir = crate::rendering::scratch("bundle-without-definitions");
    let version = "traffic-operator.clusterserviceversion.yaml";
    let source = root().join("deploy").join(bundle::FOLDER).join(version);
    let metadata = root().join("deploy/olm/metadata/annotations.yaml");
    for (from, folder, name) in
        [(source, "manifests", version), (metadata, "metadata", "annotations.yaml")]
    {
        std::fs::create_dir_all(dir.join(folder)).expect("a directory");
        std::fs::copy(from, dir.join(folder).join(name)).expect("a copy");
    }
    let output = Command::new(tool("bundle-validate")).arg(&dir).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("not found in bundle"), "{said}");
}
