//! The operator's roles: one for the rights that every kind needs, and one for each kind, so that
//! an installation that runs some kinds grants nothing for the others. The webhook has a separate
//! account and role.
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, WEBHOOK};
use crate::api::{KindInfo, NamedPermission, Permission, WebhookAccess};

const API: &str = "rbac.authorization.k8s.io/v1";

/// The roles of one kind.
pub struct Roles {
    /// The kind's name in lower case.
    pub singular: String,
    /// The operator's roles with their bindings, and the roles for people.
    pub documents: Vec<Value>,
}

/// The accounts that the operator's processes run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The account of the controllers, which write. It has the webhook's rights as well, so that
    /// one process can run everything under it.
    Controller,
    /// The account of the webhook, to which every pod of the cluster can connect: it may write
    /// nothing.
    Webhook,
}

impl Account {
    /// All accounts.
    pub const ALL: [Self; 2] = [Self::Controller, Self::Webhook];

    /// Returns the name of the `ServiceAccount`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => NAME,
            Self::Webhook => WEBHOOK,
        }
    }

    /// Returns its user name in the API server, with the operator in `namespace`.
    #[must_use]
    pub fn user(self, namespace: &str) -> String {
        format!("system:serviceaccount:{namespace}:{}", self.name())
    }

    /// Returns the account of a role with this name; `None` for the roles for people.
    #[must_use]
    pub fn of_role(role: &str) -> Option<Self> {
        let controllers = |rest: &str| rest.is_empty() || rest.starts_with('-');
        match role.strip_prefix(NAME) {
            Some(_) if role == WEBHOOK => Some(Self::Webhook),
            Some(rest) if controllers(rest) => Some(Self::Controller),
            _ => None,
        }
    }
}

/// Reports whether a role of this name is the operator's own, and not one for people.
#[must_use]
pub fn is_operators(role: &str) -> bool {
    Account::of_role(role).is_some()
}

/// The reviews of a scrape's token and of its account's right to read /metrics: each process makes
/// them.
const REVIEWS: [Permission; 2] = [
    Permission { group: "authentication.k8s.io", resources: &["tokenreviews"], verbs: &["create"] },
    Permission {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
    },
];

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME})
}

/// Returns the account, and its rights for any set of kinds: events, the reviews of scrapers, and
/// the Lease of the leader.
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
    let events =
        Permission { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"] };
    let all: Vec<_> = [events].iter().chain(&REVIEWS).map(rule).collect();
    let owner = Account::Controller;
    let mut documents = vec![service_account(owner)];
    documents.extend(everywhere(owner, NAME, &all));
    documents.extend(own_namespace(owner, NAME, &own));
    documents
}

fn service_account(account: Account) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": account.name(), "namespace": NAMESPACE, "labels": labels()},
    })
}

/// Returns the rights that one kind uses, without any `*`.
#[must_use]
pub fn roles(kind: &KindInfo) -> Roles {
    let ApiResource { group, plural, kind: word, .. } = (kind.resource)();
    let singular = word.to_lowercase();
    let name = format!("{NAME}-{singular}");
    let verbs: &[&str] =
        if kind.finalizer { &["list", "watch", "patch"] } else { &["list", "watch"] };
    let mut rules = vec![
        json!({"apiGroups": [group], "resources": [plural], "verbs": verbs}),
        json!({
            "apiGroups": [group], "resources": [format!("{plural}/status")], "verbs": ["patch"],
        }),
    ];
    let (watched, own) = kind
        .webhook
        .map_or((&[][..], &[][..]), |webhook| (webhook.permissions, webhook.own_namespace));
    rules.extend(watched.iter().chain(kind.permissions).map(rule));
    rules.extend(kind.named.iter().map(named_rule));
    let owner = Account::Controller;
    let mut documents = everywhere(owner, &name, &rules);
    let own = [own, kind.own_namespace].concat();
    if !own.is_empty() {
        documents.extend(own_namespace(owner, &name, &own));
    }
    if let Some(access) = kind.webhook {
        documents.extend(of_the_webhook(access, &group, &plural));
    }
    documents.extend(for_people(&group, &plural, &singular));
    Roles { singular, documents }
}

/// Returns the webhook's account and its rights, none of which store anything.
fn of_the_webhook(access: WebhookAccess, group: &str, plural: &str) -> Vec<Value> {
    let mut rules =
        vec![json!({"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]})];
    let scraped = REVIEWS.iter().filter(|review| !access.permissions.contains(review));
    rules.extend(access.permissions.iter().chain(scraped).map(rule));
    let owner = Account::Webhook;
    let mut documents = vec![service_account(owner)];
    documents.extend(everywhere(owner, WEBHOOK, &rules));
    documents.extend(own_namespace(owner, WEBHOOK, access.own_namespace));
    documents
}

fn everywhere(account: Account, name: &str, rules: &[Value]) -> Vec<Value> {
    let role = json!({
        "apiVersion": API, "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()}, "rules": rules,
    });
    vec![role, binding(account, "ClusterRoleBinding", "ClusterRole", name)]
}

fn own_namespace(account: Account, name: &str, permissions: &[NamedPermission]) -> Vec<Value> {
    let rules: Vec<_> = permissions.iter().map(named_rule).collect();
    let role = json!({
        "apiVersion": API, "kind": "Role",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels()}, "rules": rules,
    });
    let mut binding = binding(account, "RoleBinding", "Role", name);
    binding["metadata"]["namespace"] = NAMESPACE.into();
    vec![role, binding]
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

fn binding(account: Account, kind: &str, role_kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": API, "kind": kind,
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": account.name(), "namespace": NAMESPACE},
        ],
    })
}

/// Returns the roles for people. An object makes the operator do things that its author may not, so
/// `edit` does not include the right to write one: an administrator binds `…-editor`, or installs
/// `deploy/components/aggregate-to-edit`. Reading is part of `view`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::KINDS, inspect::doctor::rights};

    /// Verbs that store nothing.
    const READS: [&str; 3] = ["get", "list", "watch"];
    const ASKED: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];

    #[test]
    fn the_webhook_writes_nothing_and_reads_no_more_than_the_controller() {
        let webhook = rights(Account::Webhook, "ns");
        assert!(!webhook.is_empty());
        for right in &webhook {
            let reads = READS.contains(&&*right.verb);
            let asks = right.verb == "create" && ASKED.contains(&&*right.resource);
            assert!(reads || asks, "{right}");
            let secret = right.resource == "secrets";
            assert!(!secret || right.name.as_deref() == Some(WEBHOOK), "{right}");
        }
        // One process runs everything under the controller's account.
        let controller = rights(Account::Controller, "ns");
        for right in &webhook {
            assert!(controller.contains(right), "{right}");
        }
    }

    /// Policies leave it one annotation of a pod, and see to what it writes into the object. No
    /// rule can restrict a creation to a name.
    #[test]
    fn of_pods_the_controller_patches_and_of_webhook_objects_it_has_its_own() {
        let all = rights(Account::Controller, "ns");
        let of = |resource: &str| {
            let rights = all.iter().filter(move |right| right.resource == resource);
            rights.filter(|right| right.subresource.is_none()).collect::<Vec<_>>()
        };
        let writes = of("pods").into_iter().filter(|right| !READS.contains(&&*right.verb));
        assert_eq!(writes.map(|right| &*right.verb).collect::<Vec<_>>(), ["patch"]);
        let object = of("mutatingwebhookconfigurations");
        assert!(!object.is_empty());
        for right in object {
            assert_eq!(right.name.as_deref(), Some(NAME), "{right}");
            assert!(!["create", "delete"].contains(&&*right.verb), "{right}");
        }
    }

    #[test]
    fn every_role_belongs_to_the_account_that_it_is_bound_to() {
        let documents =
            core().into_iter().chain(KINDS.iter().flat_map(|kind| roles(kind).documents));
        let mut seen = Vec::new();
        for document in documents {
            let Some(subject) = document["subjects"][0]["name"].as_str() else { continue };
            let role = document["roleRef"]["name"].as_str().expect("a role");
            let account = Account::of_role(role).expect("a role of the operator");
            assert_eq!(subject, account.name(), "{role}");
            seen.push(account);
        }
        assert!(Account::ALL.iter().all(|account| seen.contains(account)), "{seen:?}");
        for others in ["trafficwatch-editor", "traffic-operators", "cluster-admin"] {
            assert!(!is_operators(others), "{others}");
        }
    }
}
