//! The operator's roles: one for what every kind needs, and one for each kind, so that an installation
//! that runs some kinds grants nothing for the others.
use serde_json::{Value, json};

use super::{NAME, NAMESPACE};
use crate::api::{KindInfo, NamedPermission, Permission};

const API: &str = "rbac.authorization.k8s.io/v1";

/// What belongs to one kind.
pub struct Roles {
    /// The kind's name in lower case.
    pub singular: String,
    /// The operator's roles with their bindings, and the roles for people.
    pub documents: Vec<Value>,
}

/// Whether a role of this name is the operator's own, and not one for people.
#[must_use]
pub fn is_operators(role: &str) -> bool {
    role == NAME || role.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('-'))
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME})
}

/// The account, and what it needs whichever kinds run: events, the reviews of whoever scrapes, and the
/// Lease of the leader.
#[must_use]
pub fn core() -> Vec<Value> {
    let leases = |verbs, names| NamedPermission {
        permission: Permission { group: "coordination.k8s.io", resources: &["leases"], verbs },
        names,
    };
    let own = [
        // A name cannot restrict create.
        leases(&["create"], &[]),
        leases(&["get", "update"], &[NAME]),
    ];
    let all = [
        Permission { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"] },
        // Whose token came with a scrape, and whether that account may read /metrics.
        Permission {
            group: "authentication.k8s.io",
            resources: &["tokenreviews"],
            verbs: &["create"],
        },
        Permission {
            group: "authorization.k8s.io",
            resources: &["subjectaccessreviews"],
            verbs: &["create"],
        },
    ];
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels()},
    });
    let mut documents = vec![account];
    documents.extend(everywhere(NAME, &all.each_ref().map(rule)));
    documents.extend(own_namespace(NAME, &own));
    documents
}

/// Exactly what one kind uses, nothing by `*`.
#[must_use]
pub fn roles(kind: &KindInfo) -> Roles {
    let crd = (kind.crd)();
    let (group, plural) = (crd.spec.group, crd.spec.names.plural);
    let singular = crd.spec.names.singular.unwrap_or_else(|| crd.spec.names.kind.to_lowercase());
    let name = format!("{NAME}-{singular}");
    let verbs: &[&str] =
        if kind.finalizer { &["list", "watch", "patch"] } else { &["list", "watch"] };
    let mut rules = vec![
        json!({"apiGroups": [group], "resources": [plural], "verbs": verbs}),
        json!({
            "apiGroups": [group], "resources": [format!("{plural}/status")], "verbs": ["patch"],
        }),
    ];
    rules.extend(kind.permissions.iter().map(rule));
    rules.extend(kind.named.iter().map(named_rule));
    let mut documents = everywhere(&name, &rules);
    if !kind.own_namespace.is_empty() {
        documents.extend(own_namespace(&name, kind.own_namespace));
    }
    documents.extend(for_people(&group, &plural, &singular));
    Roles { singular, documents }
}

fn everywhere(name: &str, rules: &[Value]) -> Vec<Value> {
    let role = json!({
        "apiVersion": API, "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()}, "rules": rules,
    });
    vec![role, binding("ClusterRoleBinding", "ClusterRole", name, None)]
}

fn own_namespace(name: &str, permissions: &[NamedPermission]) -> Vec<Value> {
    let rules: Vec<_> = permissions.iter().map(named_rule).collect();
    let role = json!({
        "apiVersion": API, "kind": "Role",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels()}, "rules": rules,
    });
    vec![role, binding("RoleBinding", "Role", name, Some(NAMESPACE))]
}

fn rule(permission: &Permission) -> Value {
    json!({
        "apiGroups": [permission.group],
        "resources": permission.resources,
        "verbs": permission.verbs,
    })
}

fn named_rule(named: &NamedPermission) -> Value {
    let mut rule = rule(&named.permission);
    if !named.names.is_empty() {
        rule["resourceNames"] = json!(named.names);
    }
    rule
}

fn binding(kind: &str, role_kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut binding = json!({
        "apiVersion": API, "kind": kind,
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    if let Some(namespace) = namespace {
        binding["metadata"]["namespace"] = namespace.into();
    }
    binding
}

/// The roles for people. What an object makes the operator do, its author may be unable to do, so that
/// nobody gets the right to write one by having `edit` somewhere: an administrator binds `…-editor`, or
/// installs `deploy/components/aggregate-to-edit`. Reading is part of `view`.
fn for_people(group: &str, plural: &str, singular: &str) -> [Value; 2] {
    let role = |suffix: &str, verbs: &[&str]| {
        json!({
            "apiVersion": API, "kind": "ClusterRole",
            "metadata": {"name": format!("{singular}-{suffix}"), "labels": labels()},
            "rules": [{"apiGroups": [group], "resources": [plural], "verbs": verbs}],
        })
    };
    let mut viewer = role("viewer", &["get", "list", "watch"]);
    viewer["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = "true".into();
    [
        role(
            "editor",
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        ),
        viewer,
    ]
}
