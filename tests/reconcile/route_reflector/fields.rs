//! Every field of the spec has a test that fails if the field is ignored.
use std::collections::BTreeSet;

use kube::CustomResourceExt;
use serde_json::Value;
use traffic_operator::api::RouteReflectorSet;

/// Each field, with the file and the function of its test.
const SCENARIOS: &[(&str, &str, &str)] = &[
    (
        "candidates",
        "tests/reconcile/route_reflector/fitness.rs",
        "an_unfit_reflector_is_replaced_and_none_while_nothing_is_measured",
    ),
    (
        "clusterID",
        "tests/reconcile/route_reflector/invalid_specs.rs",
        "what_the_nodes_do_not_allow_is_reported_with_the_field_and_nothing_is_written",
    ),
    (
        "count",
        "tests/reconcile/route_reflector/deleting.rs",
        "of_two_sets_the_older_is_served_and_the_younger_takes_over_when_it_goes",
    ),
    (
        "datastore",
        "tests/reconcile/route_reflector/datastore/etcd.rs",
        "a_cluster_id_is_written_to_calicos_own_node",
    ),
    (
        "deletionPolicy",
        "tests/reconcile/route_reflector/deleting.rs",
        "r13_restore_mesh_brings_the_mesh_back_before_anything_goes",
    ),
    (
        "mesh",
        "tests/reconcile/route_reflector/migrating.rs",
        "bug_08_from_the_mesh_to_reflectors_by_few_writes_the_mesh_last_and_then_silence",
    ),
    (
        "mode",
        "tests/reconcile/route_reflector/no_writes.rs",
        "one_that_observes_or_pauses_writes_nothing_but_its_status",
    ),
    (
        "nodeLabel",
        "tests/reconcile/route_reflector/labels.rs",
        "label_and_zone_have_the_names_that_the_spec_says",
    ),
    (
        "paused",
        "tests/reconcile/route_reflector/no_writes.rs",
        "one_that_observes_or_pauses_writes_nothing_but_its_status",
    ),
    (
        "peersPerClient",
        "crates/core/src/election/tests/multi.rs",
        "bug_16_all_reflectors_have_about_as_many_clients",
    ),
    (
        "topology",
        "tests/reconcile/route_reflector/zonal.rs",
        "bug_07_bug_17_zones_have_reflectors_of_their_own_and_nodes_come_and_go_without_a_peer_changing",
    ),
    (
        "transition",
        "tests/reconcile/route_reflector/killed.rs",
        "r09_killed_after_a_promotion_the_wait_before_the_demotion_begins_again",
    ),
    (
        "zoneLabel",
        "tests/reconcile/route_reflector/labels.rs",
        "label_and_zone_have_the_names_that_the_spec_says",
    ),
];

#[test]
fn every_field_of_the_spec_has_its_scenario() {
    let crd = serde_json::to_value(RouteReflectorSet::crd()).expect("definition");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"].as_object().expect("fields");
    let fields: BTreeSet<_> = fields.keys().map(String::as_str).collect();
    let named: BTreeSet<_> = SCENARIOS.iter().map(|(field, ..)| *field).collect();
    assert_eq!(named, fields);
    for (field, path, function) in SCENARIOS {
        assert!(lab::proof::has_test(path, function), "{field}: {path} has no {function}");
    }
}

/// The columns of `kubectl get rrs`.
#[test]
fn the_columns_show_what_a_set_has_come_to() {
    let crd = serde_json::to_value(RouteReflectorSet::crd()).expect("definition");
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    let columns = columns.expect("columns").iter();
    let names: Vec<&Value> = columns.map(|column| &column["name"]).collect();
    assert_eq!(
        names,
        ["Ready", "Desired", "Reflectors", "Topology", "Progress", "Mesh", "RoutesSafe", "Age"]
    );
}
