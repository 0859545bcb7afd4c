//! The meaning of each variable, and inputs that made the original panic.
use serde_json::{Value, json};

use super::*;
use crate::{api::RouteReflectorSet, route_reflector::settings};

/// The variables as `NAME=value`, without their common prefix.
fn reported(variables: &[(&str, &str)]) -> Result<String, Wrong> {
    let lookup = |name: &str| {
        let short = name.strip_prefix("ROUTE_REFLECTOR_").unwrap_or(name);
        let found = variables.iter().find(|(name, _)| *name == short);
        found.map(|(_, value)| (*value).to_owned())
    };
    from_env(&lookup)
}

/// Returns the printed object; the planner accepts its rules.
fn spec(variables: &[(&str, &str)]) -> Value {
    let text = reported(variables).unwrap_or_else(|wrong| panic!("{variables:?}: {wrong}"));
    let set: RouteReflectorSet = serde_yaml::from_str(&text).unwrap();
    assert_eq!(set.metadata.name.as_deref(), Some("route-reflectors"));
    settings::rules(&set.spec).unwrap_or_else(|refusal| panic!("{variables:?}: {refusal}\n{text}"));
    serde_yaml::from_str::<Value>(&text).unwrap()["spec"].take()
}

fn wrong(variables: &[(&str, &str)]) -> Vec<String> {
    reported(variables).unwrap_err().0
}

#[test]
fn without_any_variable() {
    let expected = json!({
        "topology": "Simple",
        "zoneLabel": "",
        "nodeLabel": "calico-route-reflector",
        "count": {"ratio": "0.005", "min": 3, "max": 10},
        "clusterID": {"pool": "224.0.0.0"},
        "transition": {"gate": "Wait", "wait": "90s"},
        "datastore": {"type": "Kubernetes"},
    });
    assert_eq!(spec(&[]), expected);
    let text = reported(&[]).unwrap();
    assert!(text.contains(
        "# ROUTE_REFLECTOR_MAX is not set: 10 in the original's code, 25 in its README."
    ));
    assert!(!reported(&[("MAX", "25")]).unwrap().contains("README"));
}

type Variables<'a> = &'a [(&'a str, &'a str)];

#[test]
fn what_each_variable_becomes() {
    let multi = ("TOPOLOGY", "multi");
    let zone = ("ZONE_LABEL", "failure-domain.beta.kubernetes.io/zone");
    let cases: [(Variables, &str, Value); 31] = [
        (&[("TOPOLOGY", "simple")], "/topology", json!("Simple")),
        (&[("TOPOLOGY", "hierarchy")], "/topology", json!("Simple")),
        (&[("TOPOLOGY", "Multi")], "/topology", json!("Simple")),
        (&[multi], "/topology", json!("Simple")),
        (&[multi, zone], "/topology", json!("Multi")),
        (&[zone], "/zoneLabel", json!("failure-domain.beta.kubernetes.io/zone")),
        (&[zone], "/count/scope", json!("PerZone")),
        (&[multi, zone], "/count/scope", Value::Null),
        (&[("MIN", "1")], "/count/min", json!(1)),
        (&[("MIN", "50"), ("MAX", "50")], "/count/min", json!(50)),
        (&[("MAX", "5")], "/count/max", json!(5)),
        (&[("RATIO", "0.05")], "/count/ratio", json!("0.05")),
        (&[("RATIO", "0.001")], "/count/ratio", json!("0.001")),
        (&[("RATIO", "5e-3")], "/count/ratio", json!("0.005")),
        (&[("NODE_LABEL", "foo")], "/nodeLabel", json!("foo")),
        (&[("NODE_LABEL", "foo=")], "/nodeLabel", json!("foo")),
        (&[("NODE_LABEL", "foo=bar")], "/nodeLabel", json!("foo=bar")),
        (&[("NODE_LABEL", "")], "/nodeLabel", json!("calico-route-reflector")),
        (&[("CLUSTER_ID", "1.2.3.4")], "/clusterID/pool", json!("1.2.3.4")),
        (&[("CLUSTER_ID", "224.0.0.%d")], "/clusterID/pool", json!("224.0.0.0/8")),
        (&[multi], "/clusterID/pool", json!("224.0.0.0/8")),
        (&[multi, ("CLUSTER_ID", "1.2.3.0")], "/clusterID/pool", json!("1.2.3.0/24")),
        (&[multi, ("CLUSTER_ID", "1.2.0.0")], "/clusterID/pool", json!("1.2.0.0/16")),
        (&[("WAIT_TIMEOUT", "0")], "/transition/wait", json!("90s")),
        (&[("WAIT_TIMEOUT", "10")], "/transition/wait", json!("60s")),
        (&[("WAIT_TIMEOUT", "61")], "/transition/wait", json!("61s")),
        (&[("WAIT_TIMEOUT", "999999")], "/transition/wait", json!("86400s")),
        (&[("DATASTORE_TYPE", "incluster")], "/datastore/type", json!("Kubernetes")),
        (&[("DATASTORE_TYPE", "kubernetes")], "/datastore/type", json!("Kubernetes")),
        (&[("INCOMPATIBLE_NODE_LABELS", "")], "/candidates", Value::Null),
        (&[("INCOMPATIBLE_NODE_LABELS", " , ")], "/candidates", Value::Null),
    ];
    for (variables, pointer, expected) in cases {
        let spec = spec(variables);
        assert_eq!(spec.pointer(pointer).unwrap_or(&Value::Null), &expected, "{variables:?}");
    }
    let floor = reported(&[("WAIT_TIMEOUT", "10")]).unwrap();
    assert!(
        floor
            .contains("# It was 10 s; sessions by selector need up to 30 s, and 60s is the least.")
    );
    assert!(reported(&[("TOPOLOGY", "x")]).unwrap().contains("# \"x\" meant simple"));
    // Nothing ends a comment.
    spec(&[("TOPOLOGY", "x\nmode: Enforce")]);
}

/// Each of these was an index out of range, at the start: `key` without `=`, in its documentation
/// too.
#[test]
fn labels_without_an_equals_sign() {
    let labels = "a=b,c=,do-not-select-as-rr,d.e/f=g";
    let spec = spec(&[("INCOMPATIBLE_NODE_LABELS", labels), ("NODE_LABEL", "foo")]);
    let expected = json!([
        {"key": "a", "operator": "NotIn", "values": ["b"]},
        {"key": "c", "operator": "NotIn", "values": [""]},
        {"key": "do-not-select-as-rr", "operator": "DoesNotExist"},
        {"key": "d.e/f", "operator": "NotIn", "values": ["g"]},
    ]);
    assert_eq!(spec["candidates"]["nodeSelector"]["matchExpressions"], expected);
    assert_eq!(spec["nodeLabel"], "foo");
    for labels in ["", ",", "a,", ",a"] {
        reported(&[("INCOMPATIBLE_NODE_LABELS", labels)]).unwrap();
    }
}

/// All errors of ranges named `ROUTE_REFLECTOR_MIN`, and a minimum above the maximum was none.
#[test]
fn each_error_names_its_variable() {
    let cases: [(&[(&str, &str)], &str); 26] = [
        (&[("MIN", "0")], "ROUTE_REFLECTOR_MIN: \"0\" is not a number from 1 to 50"),
        (&[("MIN", "51")], "ROUTE_REFLECTOR_MIN: \"51\" is not a number from 1 to 50"),
        (&[("MIN", "-3")], "ROUTE_REFLECTOR_MIN: \"-3\" is not a number from 1 to 50"),
        (&[("MIN", "three")], "ROUTE_REFLECTOR_MIN: \"three\" is not a number from 1 to 50"),
        (&[("MAX", "4")], "ROUTE_REFLECTOR_MAX: \"4\" is not a number from 5 to 50"),
        (&[("MAX", "51")], "ROUTE_REFLECTOR_MAX: \"51\" is not a number from 5 to 50"),
        (
            &[("MIN", "11")],
            "ROUTE_REFLECTOR_MIN: 11 is greater than 10, the default of ROUTE_REFLECTOR_MAX",
        ),
        (
            &[("MIN", "9"), ("MAX", "8")],
            "ROUTE_REFLECTOR_MIN: 9 is greater than 8, ROUTE_REFLECTOR_MAX",
        ),
        (&[("RATIO", "0")], "ROUTE_REFLECTOR_RATIO: \"0\" is not a number from 0.001 to 0.05"),
        (
            &[("RATIO", "0.0009")],
            "ROUTE_REFLECTOR_RATIO: \"0.0009\" is not a number from 0.001 to 0.05",
        ),
        (
            &[("RATIO", "0.0501")],
            "ROUTE_REFLECTOR_RATIO: \"0.0501\" is not a number from 0.001 to 0.05",
        ),
        (
            &[("RATIO", "-0.01")],
            "ROUTE_REFLECTOR_RATIO: \"-0.01\" is not a number from 0.001 to 0.05",
        ),
        (&[("RATIO", "2")], "ROUTE_REFLECTOR_RATIO: \"2\" is not a number from 0.001 to 0.05"),
        (&[("RATIO", "NaN")], "ROUTE_REFLECTOR_RATIO: \"NaN\" is not a number from 0.001 to 0.05"),
        (
            &[("RATIO", "0,01")],
            "ROUTE_REFLECTOR_RATIO: \"0,01\" is not a number from 0.001 to 0.05",
        ),
        (
            &[("NODE_LABEL", "=x")],
            "ROUTE_REFLECTOR_NODE_LABEL: \"=x\" is neither a label key nor key=value",
        ),
        (
            &[("NODE_LABEL", "a b")],
            "ROUTE_REFLECTOR_NODE_LABEL: \"a b\" is neither a label key nor key=value",
        ),
        (
            &[("INCOMPATIBLE_NODE_LABELS", "a,=b")],
            "ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS: \"=b\" is neither a label key nor key=value",
        ),
        (&[("CLUSTER_ID", "ID")], "ROUTE_REFLECTOR_CLUSTER_ID: \"ID\" is not an IPv4 address"),
        (
            &[("CLUSTER_ID", "1.2.3.400")],
            "ROUTE_REFLECTOR_CLUSTER_ID: \"1.2.3.400\" is not an IPv4 address",
        ),
        (
            &[("CLUSTER_ID", "0.0.0.0")],
            "ROUTE_REFLECTOR_CLUSTER_ID: \"0.0.0.0\" cannot be a cluster id",
        ),
        (
            &[("CLUSTER_ID", "127.0.0.1")],
            "ROUTE_REFLECTOR_CLUSTER_ID: \"127.0.0.1\" cannot be a cluster id",
        ),
        (
            &[("TOPOLOGY", "multi"), ("CLUSTER_ID", "1.2.3.4")],
            "ROUTE_REFLECTOR_CLUSTER_ID: \"1.2.3.4\" has no \".0\" in whose place topology multi could write",
        ),
        (
            &[("WAIT_TIMEOUT", "5s")],
            "ROUTE_REFLECTOR_WAIT_TIMEOUT: \"5s\" is not a number of seconds",
        ),
        (
            &[("WAIT_TIMEOUT", "-1")],
            "ROUTE_REFLECTOR_WAIT_TIMEOUT: \"-1\" is not a number of seconds",
        ),
        (
            &[("DATASTORE_TYPE", "consul")],
            "DATASTORE_TYPE: \"consul\" is none of incluster, kubernetes and etcdv3",
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(wrong(variables), [expected]);
    }
    // All at once.
    let all = wrong(&[("MIN", "0"), ("MAX", "0"), ("RATIO", "0"), ("WAIT_TIMEOUT", "x")]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(Wrong(vec!["a".into(), "b".into()]).to_string(), "a\nb");
}

#[test]
fn the_etcd_datastore() {
    let etcd = ("DATASTORE_TYPE", "etcdv3");
    let endpoints = ("ETCD_ENDPOINTS", "https://10.0.0.1:2379, https://10.0.0.2:2379");
    let urls = json!(["https://10.0.0.1:2379", "https://10.0.0.2:2379"]);
    let plain = json!({"type": "etcd", "etcd": {"endpoints": urls}});
    assert_eq!(spec(&[etcd, endpoints])["datastore"], plain);
    assert_eq!(spec(&[("DATASTORE_TYPE", "etcd"), endpoints])["datastore"], plain);
    let with_secret = json!({"type": "etcd", "etcd": {"secretRef": {"name": "calico-etcd"}}});
    let files = [
        etcd,
        endpoints,
        ("ETCD_CA_CERT_FILE", "/etc/etcd/ca"),
        ("ETCD_CERT_FILE", "/etc/etcd/cert"),
        ("ETCD_KEY_FILE", "/etc/etcd/key\nkind: x"),
    ];
    assert_eq!(spec(&files)["datastore"], with_secret);
    let text = reported(&files).unwrap();
    assert!(text.contains("#     --from-file=etcd-ca=\"/etc/etcd/ca\" \\"), "{text}");
    let list = "\"https://10.0.0.1:2379,https://10.0.0.2:2379\"";
    assert!(text.contains(&format!("#     --from-literal=endpoints={list} \\")), "{text}");
    let user = [etcd, endpoints, ("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "hidden")];
    assert_eq!(spec(&user)["datastore"], with_secret);
    assert!(!reported(&user).unwrap().contains("hidden"));

    for (variables, expected) in [
        (&[etcd][..], "ETCD_ENDPOINTS: is needed with DATASTORE_TYPE etcdv3"),
        (
            &[etcd, ("ETCD_ENDPOINTS", "10.0.0.1:2379")],
            "ETCD_ENDPOINTS: \"10.0.0.1:2379\" is not a URL with http or https",
        ),
        (
            &[
                etcd,
                ("ETCD_ENDPOINTS", "http://10.0.0.1:2379"),
                ("ETCD_USERNAME", "u"),
                ("ETCD_PASSWORD", "p"),
            ],
            "ETCD_ENDPOINTS: \"http://10.0.0.1:2379\" would get credentials in the clear; use https",
        ),
        (
            &[etcd, ("ETCD_DISCOVERY_SRV", "example.com")],
            "ETCD_DISCOVERY_SRV: is not supported; name the members in ETCD_ENDPOINTS",
        ),
    ] {
        assert_eq!(wrong(variables), [expected]);
    }
}

/// A number that differs from the original's is reported.
#[test]
fn differences_are_reported() {
    let more = "# The original kept it in 32 bits";
    for (ratio, has_one) in [("0.05", true), ("0.001", true), ("0.005", false), ("0.01", false)] {
        let text = reported(&[("RATIO", ratio)]).unwrap();
        assert_eq!(text.contains(more), has_one, "{ratio}");
    }
    let hand_over = |variables: &[(&str, &str)]| {
        reported(variables).unwrap().lines().nth(3).unwrap_or_default().to_owned()
    };
    let label = "app.kubernetes.io/managed-by=traffic-operator";
    assert_eq!(
        hand_over(&[]),
        format!("#   kubectl label bgppeer rrs-to-rrs peer-to-rrs-1 {label}")
    );
    assert_eq!(
        hand_over(&[("TOPOLOGY", "multi")]),
        format!("#   kubectl label bgppeer rrs-to-rrs {label}")
    );
}
