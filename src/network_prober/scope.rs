//! In which namespaces a `NetworkProber` may touch pods.
//!
//! No author can add a container to other people's pods: a namespace that is not the object's own
//! must consent, unless the object is in the operator's namespace, where only administrators write.
use std::collections::{BTreeMap, BTreeSet};

use kube::core::ObjectMeta;

use super::{settings::Settings, settings::Tenancy};
use crate::{api::network_prober::Mode, pods::PodObject};

/// The namespace annotation with which a namespace lets other namespaces' `NetworkProber`s in:
/// their `<namespace>/<name>`, separated by commas, or `*`. With `#<UID>` behind a name it lets in
/// that very object, and no later one of the name. With `@sha256:<digest>` at the end it lets in
/// agents of the image of that digest, and no other.
pub const ALLOW: &str = "probes.bigmikes.io/allow";

/// The annotation, of a namespace or of a pod, that keeps agents out with the value `false`.
pub const INJECT: &str = "probes.bigmikes.io/inject";

/// The known facts about one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Name of the namespace.
    pub name: String,
    /// Labels of the namespace.
    pub labels: BTreeMap<String, String>,
    /// The value of [`ALLOW`].
    pub allow: Option<String>,
    /// True if [`INJECT`] is `false`.
    pub opted_out: bool,
}

impl NamespaceFacts {
    /// Reads them from the metadata of a namespace.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            allow: annotation(ALLOW).cloned(),
            opted_out: annotation(INJECT).is_some_and(|v| v.trim().eq_ignore_ascii_case("false")),
        }
    }
}

/// The standing of a namespace for one `NetworkProber` that selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its pods get agents.
    Allowed,
    /// It has not consented.
    NotConsenting,
    /// It is never touched.
    Excluded,
    /// It has opted out of agents.
    OptedOut,
}

/// The namespaces that one `NetworkProber` selects, with their standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(BTreeMap<String, Standing>);

impl Scope {
    /// Examines all namespaces; `image` is that of the agents, if it is known.
    #[must_use]
    pub fn of<'a>(
        settings: &Settings,
        image: Option<&str>,
        tenancy: &Tenancy,
        namespaces: impl IntoIterator<Item = &'a NamespaceFacts>,
    ) -> Self {
        let all = namespaces.into_iter();
        let selected = all.filter_map(|namespace| {
            standing(settings, image, tenancy, namespace).map(|s| (namespace.name.clone(), s))
        });
        Self(selected.collect())
    }

    /// Returns the standing of a namespace, if it is selected.
    #[must_use]
    pub fn standing(&self, namespace: &str) -> Option<Standing> {
        self.0.get(namespace).copied()
    }

    /// Reports whether pods of any namespace get agents.
    #[must_use]
    pub fn allows_any(&self) -> bool {
        self.0.values().any(|standing| *standing == Standing::Allowed)
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
    image: Option<&str>,
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
    } else if own
        || settings.namespace == tenancy.operator()
        || consents(settings, image, namespace)
    {
        Standing::Allowed
    } else {
        Standing::NotConsenting
    })
}

fn consents(settings: &Settings, image: Option<&str>, namespace: &NamespaceFacts) -> bool {
    let key = settings.key();
    let image = image.and_then(digest_of);
    let mut allowed = namespace.allow.iter().flat_map(|list| list.split(',')).map(str::trim);
    allowed.any(|one| {
        let (who, digest) = one.split_once('@').map_or((one, None), |(who, d)| (who, Some(d)));
        // A text that is not a digest allows no image: a typo must not open the namespace.
        let image = digest.is_none_or(|digest| is_digest(digest) && image == Some(digest));
        let (who, uid) = who.split_once('#').map_or((who, None), |(who, uid)| (who, Some(uid)));
        let object = uid.is_none_or(|uid| !uid.is_empty() && uid == settings.uid);
        (who == "*" || who == key) && object && image
    })
}

/// The digest to which a reference of an image is pinned.
fn digest_of(image: &str) -> Option<&str> {
    let (_, digest) = image.rsplit_once('@')?;
    is_digest(digest).then_some(digest)
}

/// Reports whether this is `sha256:` and a hash as image references write it.
fn is_digest(text: &str) -> bool {
    let hash = text.strip_prefix("sha256:");
    // In one case only, so that equal digests are equal texts.
    let lower = |hash: &str| hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    hash.is_some_and(|hash| hash.len() == 64 && lower(hash))
}

/// Reports whether an older one selects the pod.
#[must_use]
pub fn is_claimed(older: &[(&Settings, &Scope)], pod: &PodObject) -> bool {
    older.iter().any(|(settings, scope)| {
        settings.mode == Mode::Sidecar
            && scope.standing(pod.namespace()) == Some(Standing::Allowed)
            && settings.pods.matches(|key| pod.label(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NetworkProber;

    fn settings(namespace: &str, spec: serde_json::Value) -> Settings {
        let mut spec = spec;
        spec["podSelector"] = serde_json::json!({"matchLabels": {"app": "a"}});
        let prober: NetworkProber = serde_json::from_value(serde_json::json!({
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
        let scope =
            Scope::of(&settings("team", serde_json::json!({})), None, &Tenancy::of("ops"), &all);
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
        let scope = Scope::of(&settings("team", everywhere.clone()), None, &tenancy, &all);
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
        let scope = Scope::of(&settings("ops", everywhere), None, &tenancy, &all);
        let allowed = ["by-name", "by-star", "other-name", "silent", "team"];
        assert_eq!(scope.allowed(), allowed.into());
    }

    /// Whoever gets the namespace of the `NetworkProber` later has its name, and another UID.
    #[test]
    fn consent_to_one_object_is_not_inherited_by_the_next_of_its_name() {
        let settings = |uid: &str| {
            let everywhere = serde_json::json!({"namespaceSelector": {}});
            Settings { uid: uid.into(), ..settings("team", everywhere) }
        };
        for (allow, uid, expected) in [
            ("team/np#one", "one", true),
            ("x/y, team/np#one", "one", true),
            ("*#one", "one", true),
            ("team/np#one", "two", false),
            ("team/np#", "", false),
            ("team/np#ONE", "one", false),
            ("team/other#one", "one", false),
        ] {
            let all = [namespace("shop", Some(allow))];
            let scope = Scope::of(&settings(uid), None, &Tenancy::of("ops"), &all);
            assert_eq!(scope.allowed().contains("shop"), expected, "{allow} {uid}");
        }
    }

    #[test]
    fn consent_to_an_image_is_consent_to_no_other() {
        let everywhere = serde_json::json!({"namespaceSelector": {}});
        let (seen, other) = ("a1".repeat(32), "b2".repeat(32));
        let allowed = |allow: &str, image: Option<&str>| {
            let all = [namespace("shop", Some(allow))];
            let settings = settings("team", everywhere.clone());
            !Scope::of(&settings, image, &Tenancy::of("ops"), &all).allowed().is_empty()
        };
        let pinned = format!("registry.invalid:5000/agent:1.0@sha256:{seen}");
        let same = format!("elsewhere.invalid/copy@sha256:{seen}");
        let another = format!("registry.invalid/agent@sha256:{other}");
        let tagged = "registry.invalid/agent:1.0";
        for allow in [
            format!("team/np@sha256:{seen}"),
            format!("x/y, team/np@sha256:{other} ,team/np@sha256:{seen}")
                .replace(&other, &"c3".repeat(32)),
            format!("*@sha256:{seen}"),
        ] {
            assert!(allowed(&allow, Some(&pinned)), "{allow}");
            assert!(allowed(&allow, Some(&same)), "{allow}");
            for image in [Some(&*another), Some(tagged), None] {
                assert!(!allowed(&allow, image), "{allow} {image:?}");
            }
        }
        // Consent to another one, and invalid digests.
        for allow in [
            format!("team/other@sha256:{seen}"),
            format!("team/np@sha256:{}", seen.to_uppercase()),
            format!("team/np@sha256:{seen}0"),
            format!("team/np@{seen}"),
            "team/np@sha256:".into(),
            "team/np@".into(),
            "*@".into(),
        ] {
            assert!(!allowed(&allow, Some(&pinned)), "{allow}");
            assert!(!allowed(&allow, Some("registry.invalid/agent@sha256:")), "{allow}");
            assert!(!allowed(&allow, Some("registry.invalid/agent@")), "{allow}");
        }
        // Without a digest, it stays unchanged.
        assert!(allowed("team/np", Some(tagged)) && allowed("*", Some(&pinned)));
    }
}
