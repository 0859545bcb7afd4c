//! In which namespaces a `NetworkProber` may touch pods.
//!
//! Nobody puts a container into somebody else's pods: a namespace that is not the object's own has to
//! consent, unless the object stands in the operator's namespace, where only administrators write.
use std::collections::{BTreeMap, BTreeSet};

use super::settings::Settings;
use crate::webhook::configuration::is_excluded;

/// The namespace annotation with which a namespace lets other namespaces' `NetworkProber`s in: their
/// `<namespace>/<name>`, separated by commas, or `*`.
pub const ALLOW: &str = "probes.bigmikes.io/allow";

/// The annotation, of a namespace or of a pod, that keeps agents out with the value `false`.
pub const INJECT: &str = "probes.bigmikes.io/inject";

/// What is known of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The value of [`ALLOW`].
    pub allow: Option<String>,
    /// Whether [`INJECT`] is `false`.
    pub opted_out: bool,
}

/// Which namespaces are never touched.
#[derive(Clone, Debug)]
pub struct Tenancy {
    operator: String,
}

impl Tenancy {
    /// With the operator in this namespace.
    #[must_use]
    pub fn of(operator: &str) -> Self {
        Self { operator: operator.into() }
    }

    /// The operator's namespace.
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Whether a namespace is never touched.
    #[must_use]
    pub fn is_excluded(&self, namespace: &str) -> bool {
        is_excluded(namespace, &self.operator)
    }
}

/// What a namespace is to one `NetworkProber` that selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its pods get agents.
    Allowed,
    /// It has not consented.
    NotConsenting,
    /// It is never touched.
    Excluded,
    /// It wants no agents.
    OptedOut,
}

/// The namespaces that one `NetworkProber` selects, with what they are to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(BTreeMap<String, Standing>);

impl Scope {
    /// Looks at all namespaces.
    #[must_use]
    pub fn of<'a>(
        settings: &Settings,
        tenancy: &Tenancy,
        namespaces: impl IntoIterator<Item = &'a NamespaceFacts>,
    ) -> Self {
        let all = namespaces.into_iter();
        let selected = all.filter_map(|namespace| {
            standing(settings, tenancy, namespace).map(|s| (namespace.name.clone(), s))
        });
        Self(selected.collect())
    }

    /// What a namespace is, if it is selected.
    #[must_use]
    pub fn standing(&self, namespace: &str) -> Option<Standing> {
        self.0.get(namespace).copied()
    }

    /// The namespaces whose pods get agents.
    #[must_use]
    pub fn allowed(&self) -> BTreeSet<&str> {
        let allowed = self.0.iter().filter(|(_, standing)| **standing == Standing::Allowed);
        allowed.map(|(name, _)| &**name).collect()
    }
}

fn standing(
    settings: &Settings,
    tenancy: &Tenancy,
    namespace: &NamespaceFacts,
) -> Option<Standing> {
    let own = namespace.name == settings.namespace;
    let selected = match &settings.namespaces {
        None => own,
        Some(selector) => selector.matches(|key| namespace.labels.get(key).map(String::as_str)),
    };
    if !selected {
        return None;
    }
    Some(if tenancy.is_excluded(&namespace.name) {
        Standing::Excluded
    } else if namespace.opted_out {
        Standing::OptedOut
    } else if own || settings.namespace == tenancy.operator() || consents(settings, namespace) {
        Standing::Allowed
    } else {
        Standing::NotConsenting
    })
}

fn consents(settings: &Settings, namespace: &NamespaceFacts) -> bool {
    let key = settings.key();
    let allowed = namespace.allow.iter().flat_map(|list| list.split(','));
    allowed.map(str::trim).any(|one| one == "*" || one == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NetworkProber;

    fn settings(namespace: &str, spec: serde_json::Value) -> Settings {
        let mut spec = spec;
        spec["podSelector"] = serde_json::json!({"matchLabels": {"app": "a"}});
        let prober: NetworkProber = serde_json::from_value(serde_json::json!({
            "apiVersion": "probes.bigmikes.io/v1alpha1", "kind": "NetworkProber",
            "metadata": {"name": "np", "namespace": namespace}, "spec": spec,
        }))
        .unwrap();
        Settings::of(&prober, &Tenancy::of("ops")).unwrap()
    }

    fn namespace(name: &str, allow: Option<&str>) -> NamespaceFacts {
        NamespaceFacts {
            name: name.into(),
            allow: allow.map(Into::into),
            ..NamespaceFacts::default()
        }
    }

    /// Original 2.3 #1: the selection was cluster-wide, and pods elsewhere never started.
    #[test]
    fn without_a_selector_only_the_own_namespace_is_selected() {
        let all = [namespace("team", None), namespace("other", Some("*"))];
        let scope = Scope::of(&settings("team", serde_json::json!({})), &Tenancy::of("ops"), &all);
        assert_eq!(scope.allowed(), ["team"].into());
        assert_eq!(scope.standing("other"), None);
    }

    #[test]
    fn nobody_reaches_into_a_namespace_that_did_not_consent() {
        let everywhere = serde_json::json!({"namespaceSelector": {}});
        let all = [
            namespace("team", None),
            namespace("by-name", Some("x/y, team/np")),
            namespace("by-star", Some("*")),
            namespace("other-name", Some("team/np2")),
            namespace("silent", None),
            NamespaceFacts { opted_out: true, ..namespace("out", Some("*")) },
            namespace("kube-system", Some("*")),
            namespace("ops", Some("*")),
        ];
        let tenancy = Tenancy::of("ops");
        let scope = Scope::of(&settings("team", everywhere.clone()), &tenancy, &all);
        assert_eq!(scope.allowed(), ["by-name", "by-star", "team"].into());
        for (name, standing) in [
            ("silent", Standing::NotConsenting),
            ("other-name", Standing::NotConsenting),
            ("out", Standing::OptedOut),
            ("kube-system", Standing::Excluded),
            ("ops", Standing::Excluded),
        ] {
            assert_eq!(scope.standing(name), Some(standing), "{name}");
        }
        // An administrator's, in the operator's namespace, needs no consent; refusals still hold.
        let scope = Scope::of(&settings("ops", everywhere), &tenancy, &all);
        let allowed = ["by-name", "by-star", "other-name", "silent", "team"];
        assert_eq!(scope.allowed(), allowed.into());
    }
}
