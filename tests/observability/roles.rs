//! Rights in the rendered manifests, by account.
use std::collections::BTreeSet;

use serde_json::Value;
use traffic_operator::{api::KINDS, manifests::is_operators};

use crate::{
    files::OVERLAYS,
    objects::{Rendered, contains, name, render},
};

const AGGREGATED: &str = "tests/observability/kustomize/aggregated";

fn aggregated_to(role: &Value, to: &str) -> bool {
    role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{to}")] == "true"
}

/// Returns the roles with the right to write one of our kinds.
fn writers(rendered: &Rendered) -> Vec<&Value> {
    let groups: BTreeSet<_> = KINDS.iter().map(|kind| (kind.crd)().spec.group).collect();
    let writes = |role: &&Value| {
        role["rules"].as_array().into_iter().flatten().any(|rule| {
            groups.iter().any(|group| contains(&rule["apiGroups"], group))
                && ["create", "update", "delete"].iter().any(|v| contains(&rule["verbs"], v))
        })
    };
    let roles = rendered.all("ClusterRole").into_iter().filter(writes);
    roles.filter(|role| !is_operators(name(role))).collect()
}

#[test]
fn rights_to_our_kinds_are_not_aggregated_into_edit_by_default() {
    for overlay in OVERLAYS.into_iter().chain(["deploy/rbac"]) {
        let rendered = render(overlay);
        let writers = writers(rendered);
        assert!(!writers.is_empty(), "{overlay}: no role grants the right");
        // Users with `view` read all kinds, and with it those with `edit` and `admin`.
        let roles = rendered.all("ClusterRole").into_iter();
        let viewers = roles.filter(|role| aggregated_to(role, "view")).count();
        assert_eq!(viewers, KINDS.len(), "{overlay}");
        for role in rendered.all("ClusterRole") {
            for to in ["edit", "admin"] {
                assert!(!aggregated_to(role, to), "{overlay}: {} into {to}", name(role));
            }
            assert!(
                !aggregated_to(role, "view") || !writers.contains(&role),
                "{overlay}: {}",
                name(role)
            );
        }
    }
}

#[test]
fn a_component_turns_the_aggregation_on_for_the_kinds_of_a_namespace() {
    let rendered = render(AGGREGATED);
    let all = writers(rendered);
    assert_eq!(all.len(), KINDS.len());
    for role in all {
        // Users with `edit` in some namespace have no say in the routes of all nodes.
        let expected = name(role) != "routereflectorset-editor";
        for to in ["edit", "admin"] {
            assert_eq!(aggregated_to(role, to), expected, "{} into {to}", name(role));
        }
    }
}
