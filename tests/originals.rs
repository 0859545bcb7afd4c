//! Every bug of the original TrafficWatch has a test that fails if the bug returns.
//!
//! The numbers are those of the list with which the project began; a description of each bug
//! follows its number.

/// The bug's number, its effect, and its test: file and function.
const BUGS: &[(u8, &str, &str, &str)] = &[
    (
        1,
        "without `label` the affinity used the key \".traffic.example.com/unfit\"",
        "src/traffic_watch/children.rs",
        "without_a_label_the_affinity_uses_the_name_as_the_node_label_does",
    ),
    (
        2,
        "exporters were looked up by a name that never exists",
        "crates/core/src/identity/mod.rs",
        "finds_the_node_by_everything_it_is_called",
    ),
    (
        3,
        "the exporter measured its own pod, not the node",
        "tests/cluster/scenarios.rs",
        "percent_is_what_was_sent_and_pods_stay_off_the_loaded_node",
    ),
    (
        4,
        "devices without a speed took another's; lo, bridges and veths were counted",
        "tests/promql/main.rs",
        "t04_t05_t08_the_request_answers_every_case",
    ),
    (
        5,
        "an unknown speed (-125000) made a node look fit",
        "tests/promql/main.rs",
        "t04_t05_t08_the_request_answers_every_case",
    ),
    (
        6,
        "a counter reset made a negative percent, hence fit; NaN was fit",
        "src/traffic_watch/evidence/tests.rs",
        "absence_is_never_a_verdict",
    ),
    (
        7,
        "a node that left made every other node unfit for ever",
        "tests/reconcile/lifecycle.rs",
        "nodes_come_and_go_without_touching_the_others",
    ),
    (
        8,
        "an affinity of the author's own bypassed the exclusion",
        "src/traffic_watch/children.rs",
        "the_exclusion_is_anded_into_every_term_of_the_author",
    ),
    (
        9,
        "errors of writes were swallowed",
        "tests/reconcile/traffic_watch/faults.rs",
        "a_write_that_is_forbidden_is_reported_tried_again_and_made_when_it_is_allowed",
    ),
    (
        10,
        "the template's labels were overwritten",
        "src/traffic_watch/children.rs",
        "the_authors_template_is_kept",
    ),
    (
        11,
        "labels stayed after deletion or renaming; the deleted object was retried",
        "tests/reconcile/lifecycle.rs",
        "labels_go_with_the_object_and_follow_a_new_name",
    ),
    (
        12,
        "one exporter that did not answer stopped everything",
        "tests/cluster/scenarios.rs",
        "a_silent_exporter_makes_its_node_unknown_and_only_that",
    ),
    (
        13,
        "nodes and endpoints that were not there were panics",
        "tests/reconcile/traffic_watch/faults.rs",
        "one_node_without_evidence_is_unknown_and_the_others_go_on",
    ),
    (
        14,
        "a maxBandwidthPercent that is not a number was never reported",
        "tests/reconcile/admission.rs",
        "each_bad_value_is_refused_with_its_field_and_the_fix",
    ),
    (
        15,
        "two objects of one name fought over the node label",
        "tests/reconcile/lifecycle.rs",
        "of_two_claims_to_one_label_the_younger_writes_nothing_until_the_older_goes",
    ),
    (
        16,
        "the operator's namespace was guessed from foreign pods",
        "src/cli/run.rs",
        "every_flag_of_run_is_an_environment_variable",
    ),
    (
        17,
        "a comma in a label value was a panic",
        "src/prometheus/decode/tests.rs",
        "bug_17_a_comma_in_a_label_is_part_of_it",
    ),
    (
        18,
        "every node was written every pass",
        "tests/reconcile/traffic_watch/judging.rs",
        "twenty_watches_that_share_a_measurement_cost_one_request_and_no_write_when_nothing_changes",
    ),
    (
        19,
        "the published sample could not start",
        "tests/cluster/scenarios.rs",
        "the_original_sample_becomes_ready_with_client_side_apply",
    ),
    (
        20,
        "the bundle was for one namespace, and its controller for all of them",
        "tests/manifests/olm.rs",
        "bug_20_the_bundle_is_for_all_namespaces_as_the_operator_is",
    ),
];

#[test]
fn every_bug_has_its_test() {
    for (number, what, file, test) in BUGS {
        assert!(lab::proof::has_test(file, test), "{number}: {what}: {file} has no {test}");
    }
    let numbers: Vec<_> = BUGS.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}
