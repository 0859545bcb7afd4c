//! An installation that runs only some of the kinds.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use traffic_operator::{
    api::{KINDS, KindInfo},
    manifests::{WEBHOOK, is_operators},
};

use crate::{
    files::OPERATOR,
    objects::{name, render},
};

/// Returns the type and the field of a condition in its JSON path.
fn of_condition(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(".status.conditions[?(@.type=='")?;
    let (type_, field) = rest.split_once("')].")?;
    Some((type_, field))
}

/// `kubectl get traffic` prints all kinds below each other: a name that is a number in one table
/// and a condition in the next is misleading.
#[test]
fn a_column_means_the_same_in_every_kind() {
    let mut meanings: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut conditions = BTreeSet::new();
    for kind in KINDS {
        let crd = serde_json::to_value((kind.crd)()).expect("definition");
        let columns = &crd["spec"]["versions"][0]["additionalPrinterColumns"];
        let columns = columns.as_array().expect("columns");
        let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
        assert!(columns.iter().any(|column| column["name"] == "Ready"), "{}", kind.name());
        for column in columns {
            let (name, path) = (text(column, "name"), text(column, "jsonPath"));
            if let Some((type_, field)) = of_condition(&path) {
                conditions.insert(type_.to_owned());
                let is_status = field == "status";
                assert_eq!(is_status, name == type_, "{}: column {name} is {path}", kind.name());
            }
            let meaning = (text(column, "type"), path);
            let first = meanings.entry(name.clone()).or_insert_with(|| meaning.clone());
            assert_eq!(*first, meaning, "{}: column {name}", kind.name());
        }
    }
    // No column of another kind has the name of a condition and shows something else.
    for type_ in conditions {
        if let Some((_, path)) = meanings.get(&type_) {
            assert_eq!(of_condition(path), Some((type_.as_str(), "status")), "{type_}");
        }
    }
}

const ONE_KIND: &str = "deploy/overlays/trafficwatch-only";

#[test]
fn one_kind_alone_has_no_rights_of_the_others() {
    let rendered = render(ONE_KIND);
    let expected: BTreeSet<_> = ["", "-trafficwatch"].map(|s| format!("{OPERATOR}{s}")).into();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let ours = rendered.all(kind).into_iter().map(name).filter(|name| is_operators(name));
        // That role is Prometheus's, and unbound roles are for authors.
        let ours = ours.filter(|name| *name != "traffic-operator-prometheus-k8s");
        let bound = |role: &str| {
            let bindings = rendered.all("ClusterRoleBinding");
            bindings.iter().any(|binding| binding["roleRef"]["name"] == role)
        };
        let ours = ours.filter(|name| kind != "ClusterRole" || bound(name));
        assert_eq!(ours.map(str::to_owned).collect::<BTreeSet<_>>(), expected, "{kind}");
    }
    let roles = rendered.all("Role").into_iter().map(name).filter(|name| is_operators(name));
    assert_eq!(roles.collect::<Vec<_>>(), [OPERATOR]);
    let deployment = rendered.one("Deployment", OPERATOR);
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let mut env = env.as_array().expect("env").iter();
    let kinds = env.find(|variable| variable["name"] == "TRAFFIC_OPERATOR_KINDS").expect("kinds");
    let mut kinds: Vec<_> = kinds["value"].as_str().expect("text").split(',').collect();
    kinds.sort_unstable();
    let expected = KINDS.iter().map(KindInfo::name).map(|kind| match &*kind {
        "TrafficWatch" => kind,
        _ => format!("-{kind}"),
    });
    assert_eq!(kinds.iter().map(ToString::to_string).collect::<BTreeSet<_>>(), expected.collect());
    // Without NetworkProbers there are no agents to answer.
    let of_webhook: Vec<_> = rendered.0.iter().filter(|object| name(object) == WEBHOOK).collect();
    assert!(of_webhook.is_empty(), "{of_webhook:?}");
}
