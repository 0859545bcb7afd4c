//! Translates the environment of another operator into an object.
use crate::program::{run, run_with_env};

const COMMAND: [&str; 3] = ["manifests", "route-reflector-set", "--from-env"];

#[test]
fn the_originals_environment_becomes_an_object() {
    let outcome = run_with_env(&COMMAND, &[("ROUTE_REFLECTOR_MIN", "7")]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    let object: serde_json::Value = serde_yaml::from_str(&outcome.out).unwrap();
    assert_eq!(object["kind"], "RouteReflectorSet");
    assert_eq!(object["spec"]["count"]["min"], 7);
}

/// The original's documentation has `do-not-select-as-rr`, on which the original panicked.
#[test]
fn nothing_makes_it_panic_and_each_mistake_is_named() {
    let set = [
        ("ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS", "do-not-select-as-rr"),
        ("ROUTE_REFLECTOR_MAX", "99"),
        ("DATASTORE_TYPE", "x"),
    ];
    let outcome = run_with_env(&COMMAND, &set);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    let wrong = "error: ROUTE_REFLECTOR_MAX: \"99\" is not a number from 5 to 50
DATASTORE_TYPE: \"x\" is none of incluster, kubernetes and etcdv3\n";
    assert_eq!(outcome.err, wrong);
}

#[test]
fn it_is_never_read_without_being_asked() {
    let outcome = run(&COMMAND[..2]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("--from-env"), "{}", outcome.err);
    // Without the flag it prints the definitions, as before.
    assert!(run(&COMMAND[..1]).out.contains("kind: CustomResourceDefinition"));
    assert_eq!(run(&["manifests", "--output-dir", "x", "route-reflector-set"]).code, Some(2));
}
