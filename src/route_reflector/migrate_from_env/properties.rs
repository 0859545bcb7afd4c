//! Whatever the environment holds, the result is one object of the known shape, or a list of the
//! variables that are wrong.
use std::collections::BTreeMap;

use proptest::{collection, prelude::*};
use serde_json::Value;

use super::*;
use crate::api::RouteReflectorSet;

const NAMES: [&str; 18] = [
    "ROUTE_REFLECTOR_ZONE_LABEL",
    "ROUTE_REFLECTOR_TOPOLOGY",
    "ROUTE_REFLECTOR_NODE_LABEL",
    "ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS",
    "ROUTE_REFLECTOR_MIN",
    "ROUTE_REFLECTOR_MAX",
    "ROUTE_REFLECTOR_RATIO",
    "ROUTE_REFLECTOR_CLUSTER_ID",
    "ROUTE_REFLECTOR_WAIT_TIMEOUT",
    "DATASTORE_TYPE",
    "ETCD_ENDPOINTS",
    "ETCD_DISCOVERY_SRV",
    "ETCD_CA_CERT_FILE",
    "ETCD_CERT_FILE",
    "ETCD_KEY_FILE",
    "ETCD_USERNAME",
    "ETCD_PASSWORD",
    "SOMETHING_ELSE",
];

/// The fields of the spec that a conversion may write.
const FIELDS: [&str; 8] = [
    "topology",
    "zoneLabel",
    "nodeLabel",
    "count",
    "candidates",
    "clusterID",
    "transition",
    "datastore",
];

/// Values that mean something, and values that could end a line, a comment or a text.
fn value() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "multi",
        "simple",
        "zone",
        "a.b/zone",
        "a=b,c",
        "a=b",
        "5",
        "50",
        "0",
        "0.005",
        "5e-3",
        "1.2.0.0",
        "224.0.0.%d",
        "61",
        "incluster",
        "etcdv3",
        "https://10.0.0.1:2379",
        "http://a:1,https://b:2",
        "/etc/etcd/ca",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        2 => "([a-z\"'#:{,]|\n|\r|\t| |mode: Observe|- |\u{85}|\u{2028}|\u{feff}|\u{7f}|\\\\){0,8}",
        1 => any::<String>(),
    ]
}

fn environment() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    collection::btree_map(prop::sample::select(NAMES.to_vec()), value(), 0..10)
}

/// Converts it without the variables that are wrong by themselves: what is left has an object more
/// often.
fn converted(all: &BTreeMap<&'static str, String>) -> Result<String, Wrong> {
    let without = |wrong: &[String]| {
        let mut left = all.clone();
        left.retain(|name, _| !wrong.iter().any(|line| line.starts_with(&format!("{name}: "))));
        from_env(&|name: &str| left.get(name).cloned())
    };
    match without(&[]) {
        Err(Wrong(wrong)) => without(&wrong),
        done => done,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_error_is_one_line_about_one_variable(all in environment()) {
        if let Err(Wrong(lines)) = from_env(&|name: &str| all.get(name).cloned()) {
            prop_assert!(!lines.is_empty());
            for line in lines {
                let name = line.split(": ").next().unwrap_or_default();
                prop_assert!(NAMES.contains(&name), "{line:?}");
                prop_assert!(!line.contains(char::is_control), "{line:?}");
                prop_assert!(!line.ends_with(": "), "{line:?}");
            }
        }
    }

    /// No value gets out of its place, be it a text or a comment.
    #[test]
    fn the_object_has_the_known_fields_and_the_values_as_they_were(all in environment()) {
        let Ok(text) = converted(&all) else { return Ok(()) };
        let set = serde_yaml::from_str::<RouteReflectorSet>(&text);
        prop_assert!(set.is_ok(), "{:?}\n{text}", set.err());
        let read: Value = serde_yaml::from_str(&text).unwrap();
        let keys = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let mut top = keys(&read);
        top.sort();
        prop_assert_eq!(top, ["apiVersion", "kind", "metadata", "spec"], "{}", text);
        prop_assert_eq!(keys(&read["metadata"]), ["name"], "{}", text);
        let spec = &read["spec"];
        prop_assert!(keys(spec).iter().all(|key| FIELDS.contains(&key.as_str())), "{text}");
        let zone = all.get("ROUTE_REFLECTOR_ZONE_LABEL").map_or("", |zone| zone.trim());
        prop_assert_eq!(&spec["zoneLabel"], zone, "{}", text);
        if let Some(listed) = spec.pointer("/datastore/etcd/endpoints") {
            let given = all.get("ETCD_ENDPOINTS").map_or("", String::as_str);
            let given = given.split(',').map(str::trim).filter(|url| !url.is_empty());
            prop_assert_eq!(listed, &json!(given.collect::<Vec<_>>()), "{}", text);
        }
        // Each line that is no YAML of ours is a comment.
        for line in text.lines() {
            let line = line.trim_start();
            let ours = line.starts_with(['#', '-']) || line.contains(':');
            prop_assert!(ours, "{line:?} of\n{text}");
        }
    }
}
