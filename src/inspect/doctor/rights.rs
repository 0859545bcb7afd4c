//! The rights that the operator needs, read from its installed roles.
use std::fmt;

use serde_json::Value;

use crate::{
    api::KINDS,
    manifests::{self, Account},
    runtime::kinds::Kinds,
};

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `get`, `patch`, …
    pub verb: String,
    /// The API group, empty for core.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// The subresource: `status`, `eviction`.
    pub subresource: Option<String>,
    /// The namespace; `None` means all.
    pub namespace: Option<String>,
    /// The name of the object; `None` means any.
    pub name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(sub) = &self.subresource {
            write!(f, "/{sub}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// Returns all rights of an account, with the operator in `namespace` and every kind; a right that
/// two kinds need occurs once.
#[must_use]
pub fn rights(account: Account, namespace: &str) -> Vec<Right> {
    rights_of(account, &Kinds::default(), namespace)
}

/// Returns the rights of an operator that runs these kinds.
#[must_use]
pub fn rights_of(account: Account, kinds: &Kinds, namespace: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    let run = KINDS.iter().filter(|kind| kinds.has(&kind.name()));
    let roles = run.flat_map(|kind| manifests::roles(kind).documents);
    for role in manifests::core().into_iter().chain(roles) {
        let owner = role["metadata"]["name"].as_str().and_then(Account::of_role);
        let place = match role["kind"].as_str() {
            Some("ClusterRole") if owner == Some(account) => None,
            Some("Role") if owner == Some(account) => Some(namespace),
            _ => continue,
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            of_rule(rule, place, &mut rights);
        }
    }
    rights
}

fn of_rule(rule: &Value, namespace: Option<&str>, rights: &mut Vec<Right>) {
    let texts = |field: &str| {
        let list = rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let names: Vec<_> = match texts("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
                None => (resource, None),
            };
            for verb in texts("verbs") {
                for name in &names {
                    let right = Right {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        subresource: subresource.clone(),
                        namespace: namespace.map(str::to_owned),
                        name: name.clone(),
                    };
                    if !rights.contains(&right) {
                        rights.push(right);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_the_roles_is_asked_for() {
        let texts: Vec<_> =
            rights(Account::Controller, "ns").iter().map(ToString::to_string).collect();
        for expected in [
            "patch nodes",
            "create deployments.apps",
            "watch trafficwatches.traffic.example.com",
            "patch trafficwatches/status.traffic.example.com",
            "create events.events.k8s.io",
            "create leases.coordination.k8s.io in ns",
            "update leases.coordination.k8s.io traffic-operator in ns",
            "patch networkprobers/status.probes.bigmikes.io",
            "watch namespaces",
            "delete configmaps",
            "patch mutatingwebhookconfigurations.admissionregistration.k8s.io traffic-operator",
            "create podmonitors.monitoring.coreos.com",
            "create tokenreviews.authentication.k8s.io",
            // Only one of the Secrets, and nothing of the rest.
            "create secrets in ns",
            "watch secrets traffic-operator-webhook in ns",
            "update secrets traffic-operator-webhook in ns",
        ] {
            assert!(texts.iter().any(|text| text == expected), "{expected} is not in {texts:?}");
        }
        for secret in texts.iter().filter(|text| text.contains(" secrets")) {
            let named = secret.contains(" secrets traffic-operator-webhook in ns");
            assert!(named || secret == "create secrets in ns", "{secret}");
        }
        // The roles for users are not rights of the operator.
        let of_users = ["trafficwatches.", "networkprobers."];
        for right in texts.iter().filter(|text| text.starts_with("delete")) {
            assert!(!of_users.iter().any(|kind| right.contains(kind)), "{right}");
        }
        // Two kinds need pods and nodes: each right is checked once.
        let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
    }
}
