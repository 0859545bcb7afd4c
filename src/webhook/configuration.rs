//! The selection of pod creations for one `NetworkProber`: its entry in the one
//! `MutatingWebhookConfiguration` that the installation creates.
use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString, api::admissionregistration::v1::MutatingWebhook,
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use serde_json::{Value, json};

use super::certificates;
use crate::api::network_prober::FailurePolicy;

pub use crate::api::network_prober::WEBHOOK_OBJECT as OBJECT;

/// The command that restores that object; for messages.
pub const RESTORE: &str =
    "`make deploy`, or: kubectl apply --server-side -f deploy/base/webhook.yaml";

/// Suffix of our entries' names; entries with other names belong to others.
const DOMAIN: &str = ".probes.bigmikes.io";

/// Prefix of the webhook's path, followed by the `NetworkProber`.
const PATH: &str = "/mutate/";

/// Namespaces for which the API server never calls the webhook: a cluster must start without us.
pub const NEVER: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// The label with the name of each namespace; it cannot be changed.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The time for which the API server waits, in seconds. With `Ignore` every creation takes this
/// long while the webhook hangs, and there is no circuit breaker; an answer takes about a
/// millisecond.
const TIMEOUT_SECONDS: u32 = 2;

/// The longest name of a webhook.
const MAX_NAME: usize = 253;

/// The address at which the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The Service in the operator's namespace.
    Service,
    /// Elsewhere, as `https://host:port`: an operator that runs outside of the cluster.
    Url(String),
}

/// The namespaces for which the API server calls the webhook.
#[derive(Clone, Debug)]
pub enum Namespaces<'a> {
    /// Those that consent now. A new namespace consents to nothing before its annotation has been
    /// read.
    Named(&'a BTreeSet<String>),
    /// Those with these labels, except the system's: without the need for consent, the API server
    /// itself selects a namespace from the moment of its creation.
    Labeled(&'a LabelSelector),
}

/// Everything that one entry depends on.
#[derive(Clone, Debug)]
pub struct Interception<'a> {
    /// The `NetworkProber`: namespace and name.
    pub prober: (&'a str, &'a str),
    /// Selects the pods.
    pub pod_selector: &'a LabelSelector,
    /// The namespaces.
    pub namespaces: Namespaces<'a>,
    /// The operator's own namespace, which is always excluded.
    pub operator_namespace: &'a str,
    /// The location of the webhook.
    pub endpoint: &'a Endpoint,
    /// The CAs that the API server trusts, PEM.
    pub ca_bundle: &'a str,
    /// The API server's behavior while the webhook is down.
    pub failure_policy: FailurePolicy,
}

/// Reports whether the API server never calls the webhook for pods of this namespace.
#[must_use]
pub fn is_excluded(namespace: &str, operator_namespace: &str) -> bool {
    NEVER.contains(&namespace) || namespace == operator_namespace
}

/// Returns the entry; `None` if there is no namespace (an empty list would be refused, and no list
/// would mean all namespaces).
#[must_use]
pub fn entry(of: &Interception<'_>) -> Option<Value> {
    let namespaces = namespaces(&of.namespaces, of.operator_namespace)?;
    let (namespace, name) = of.prober;
    let path = format!("{PATH}{namespace}/{name}");
    let mut client = match of.endpoint {
        Endpoint::Service => json!({"service": {
            "namespace": of.operator_namespace, "name": certificates::NAME, "path": path, "port": 443
        }}),
        Endpoint::Url(base) => json!({"url": format!("{}{path}", base.trim_end_matches('/'))}),
    };
    client["caBundle"] = json!(ByteString(of.ca_bundle.as_bytes().to_vec()));
    Some(json!({
        "name": entry_name(namespace, name),
        "clientConfig": client,
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            "operations": ["CREATE"], "scope": "Namespaced"
        }],
        "objectSelector": of.pod_selector,
        "namespaceSelector": namespaces,
        "failurePolicy": match of.failure_policy {
            FailurePolicy::Ignore => "Ignore",
            FailurePolicy::Fail => "Fail",
        },
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        // Called again when a later webhook changed the pod, because it may have removed the agent.
        "reinvocationPolicy": "IfNeeded",
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"]
    }))
}

/// The configuration with this entry alone, for a server-side apply: other managers' entries stay.
#[must_use]
pub fn applied(entry: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": OBJECT},
        "webhooks": [entry],
    })
}

/// The strategic merge patch that removes one entry, including fields of other managers.
#[must_use]
pub fn removal(entry: &str) -> Value {
    json!({"webhooks": [{"name": entry, "$patch": "delete"}]})
}

/// The `NetworkProber` (namespace, name) of the entry; `None` for another owner's entry.
#[must_use]
pub fn owner(entry: &MutatingWebhook) -> Option<(String, String)> {
    let client = &entry.client_config;
    let path = client.service.as_ref().and_then(|service| service.path.as_ref());
    let path = path.or(client.url.as_ref())?;
    let (_, of) = path.rsplit_once(PATH)?;
    let (namespace, name) = of.split_once('/')?;
    (entry.name == entry_name(namespace, name)).then(|| (namespace.to_owned(), name.to_owned()))
}

/// The selector of namespaces; `None` for none.
fn namespaces(asked: &Namespaces<'_>, operator_namespace: &str) -> Option<Value> {
    let by_name = |operator: &str, names: &[&str]| json!({"key": NAME_LABEL, "operator": operator, "values": names});
    match asked {
        Namespaces::Named(names) => {
            let names = names.iter().map(String::as_str);
            let asked: Vec<_> =
                names.filter(|name| !is_excluded(name, operator_namespace)).collect();
            (!asked.is_empty()).then(|| json!({"matchExpressions": [by_name("In", &asked)]}))
        }
        Namespaces::Labeled(selector) => {
            let mut selector = json!(selector);
            let mut never: BTreeSet<_> = NEVER.into();
            never.insert(operator_namespace);
            let never: Vec<_> = never.into_iter().collect();
            let mut expressions = selector["matchExpressions"].take();
            if !expressions.is_array() {
                expressions = json!([]);
            }
            expressions.as_array_mut()?.push(by_name("NotIn", &never));
            selector["matchExpressions"] = expressions;
            Some(selector)
        }
    }
}

/// Returns the name of an entry: a domain name that identifies its `NetworkProber`. A name that is
/// too long is cut, and made unique by a hash.
#[must_use]
pub fn entry_name(namespace: &str, name: &str) -> String {
    let rest = format!(".{namespace}{DOMAIN}");
    let whole = format!("{name}{rest}");
    if whole.len() <= MAX_NAME {
        return whole;
    }
    let hash = super::fnv(name.bytes());
    let room = MAX_NAME.saturating_sub(rest.len() + "-".len() + 16);
    let cut: String = name.chars().take(room).collect();
    format!("{}-{hash:016x}{rest}", cut.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

    use super::*;

    fn build(namespaces: &[&str], endpoint: &Endpoint, name: &str) -> Option<Value> {
        let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        build_in(Namespaces::Named(&namespaces), endpoint, name)
    }

    fn build_in(namespaces: Namespaces<'_>, endpoint: &Endpoint, name: &str) -> Option<Value> {
        let selector = LabelSelector {
            match_labels: Some([("app".to_owned(), "a".to_owned())].into()),
            ..LabelSelector::default()
        };
        entry(&Interception {
            prober: ("probing", name),
            pod_selector: &selector,
            namespaces,
            operator_namespace: "traffic-operator-system",
            endpoint,
            ca_bundle: "PEM",
            failure_policy: FailurePolicy::Ignore,
        })
    }

    #[test]
    fn the_whole_object() {
        let webhook = build(&["b", "a"], &Endpoint::Service, "mesh").unwrap();
        let built = applied(&webhook);
        let typed: MutatingWebhookConfiguration = serde_json::from_value(built.clone()).unwrap();
        // The entry has no unknown fields, and no missing defaults.
        assert_eq!(serde_json::to_value(&typed).unwrap(), built);
        assert_eq!(webhook["name"], "mesh.probing.probes.bigmikes.io");
        assert_eq!(
            webhook["clientConfig"],
            json!({"caBundle": "UEVN", "service": {
            "namespace": "traffic-operator-system", "name": "traffic-operator-webhook", "port": 443, "path": "/mutate/probing/mesh"}})
        );
        assert_eq!(webhook["objectSelector"], json!({"matchLabels": {"app": "a"}}));
        let names = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]});
        assert_eq!(webhook["namespaceSelector"], names);
        for (key, value) in [
            ("failurePolicy", json!("Ignore")),
            ("timeoutSeconds", json!(2)),
            ("reinvocationPolicy", json!("IfNeeded")),
            ("sideEffects", json!("None")),
        ] {
            assert_eq!(webhook[key], value);
        }
        // Labels belong to the installation: our apply neither removes nor adds any.
        assert_eq!(built["metadata"], json!({"name": "traffic-operator"}));
    }

    #[test]
    fn original_3_the_cluster_and_the_operator_come_up_without_it() {
        let all =
            ["kube-system", "kube-public", "kube-node-lease", "traffic-operator-system", "apps"];
        let built = build(&all, &Endpoint::Service, "mesh").unwrap();
        let selector = &built["namespaceSelector"]["matchExpressions"];
        assert_eq!(selector.as_array().unwrap().len(), 1);
        assert_eq!(selector[0]["values"], json!(["apps"]));
        assert_eq!(build(&all[..4], &Endpoint::Service, "mesh"), None);
        assert_eq!(build(&[], &Endpoint::Service, "mesh"), None);
    }

    #[test]
    fn where_nobody_consents_the_api_server_knows_new_namespaces_by_their_labels() {
        let never =
            json!(["kube-node-lease", "kube-public", "kube-system", "traffic-operator-system"]);
        let not_ours =
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never});
        let zone = json!({"key": "zone", "operator": "Exists"});
        for (written, asked) in [
            (json!({}), json!({"matchExpressions": [not_ours]})),
            (
                json!({"matchLabels": {"a": "b"}, "matchExpressions": [zone]}),
                json!({"matchLabels": {"a": "b"}, "matchExpressions": [zone, not_ours]}),
            ),
        ] {
            let selector: LabelSelector = serde_json::from_value(written).unwrap();
            let built =
                build_in(Namespaces::Labeled(&selector), &Endpoint::Service, "mesh").unwrap();
            assert_eq!(built["namespaceSelector"], asked);
        }
    }

    #[test]
    fn an_operator_outside_of_the_cluster() {
        let built = build(&["a"], &Endpoint::Url("https://10.0.0.1:9443/".into()), "mesh").unwrap();
        let client = &built["clientConfig"];
        assert_eq!(client["url"], "https://10.0.0.1:9443/mutate/probing/mesh");
        assert_eq!(client.get("service"), None);
    }

    #[test]
    fn an_entry_says_whose_it_is_and_others_are_nobody_s() {
        let typed = |value: Value| serde_json::from_value::<MutatingWebhook>(value).unwrap();
        let mesh = Some(("probing".to_owned(), "mesh.a".to_owned()));
        let url = Endpoint::Url("https://10.0.0.1:9443/mutate/x/".into());
        for endpoint in [&Endpoint::Service, &url] {
            let ours = build(&["a"], endpoint, "mesh.a").unwrap();
            assert_eq!(owner(&typed(ours.clone())), mesh, "{ours}");
            let renamed = |name: &str| {
                let mut other = ours.clone();
                other["name"] = name.into();
                typed(other)
            };
            for name in ["mesh.a.example.com", "a.mesh.probing.probes.bigmikes.io"] {
                assert_eq!(owner(&renamed(name)), None, "{name}");
            }
        }
        let mut elsewhere = build(&["a"], &Endpoint::Service, "mesh.a").unwrap();
        elsewhere["clientConfig"]["service"]["path"] = "/other".into();
        assert_eq!(owner(&typed(elsewhere.clone())), None);
        elsewhere["clientConfig"]["service"]["path"] = Value::Null;
        assert_eq!(owner(&typed(elsewhere)), None);
    }

    #[test]
    fn names_stay_valid_and_different_however_long() {
        let name = |end: char| format!("{}.{end}", "a".repeat(251));
        let names = ['a', 'b'].map(|end| {
            let built = build(&["a"], &Endpoint::Service, &name(end)).unwrap();
            built["name"].as_str().unwrap().to_owned()
        });
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= MAX_NAME && !name.contains("..")));
        let dotted = entry_name("n", &"a.".repeat(126));
        assert!(dotted.len() <= MAX_NAME && !dotted.contains(".-"), "{dotted}");
    }
}
