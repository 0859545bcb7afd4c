//! The objects that a `NetworkProber` owns.
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use kube::{
    api::ApiResource,
    core::{GroupVersionKind, Resource as _},
};
use serde_json::{Value, json};

use super::{
    rules::{self, Pace},
    settings::Settings,
};
use crate::{
    api::NetworkProber,
    controller::MANAGED_BY,
    pods::{HASH_ANNOTATION, INJECTED_BY_ANNOTATION, METRICS_PORT},
    webhook::{
        configuration::{self, Interception},
        injection::{self, Recipe},
    },
};

/// The label with the UID of the `NetworkProber` that an object belongs to: owner references cannot
/// reach from one namespace into another, nor out of a namespace.
pub const OWNER_UID: &str = "probes.bigmikes.io/owner-uid";

/// The annotation with its namespace and name.
pub const OWNER: &str = "probes.bigmikes.io/owner";

/// The largest `config.json`, in bytes: an object is at most 1 MiB in the API server, base64 takes
/// a third more, and names and `ca.crt` have to fit beside it.
pub const LARGEST_FILE: usize = 700_000;

/// Maximum number of samples of one scrape: twice as many as an agent of a full mesh of 100 pods
/// exports, 10,831 series. A custom image, such as the original's, may probe every pod, at 28
/// series each: it may have five times this.
const SAMPLES: u32 = 20_000;

/// The same as text: 400 bytes a sample, twice as much as with names of usual length.
const BODY: &str = "8MB";

/// Labels of one series: ours have at most 16, those of the target among them.
const LABELS: u32 = 32;

/// Ours are shorter than 20 bytes.
const LABEL_NAME: u32 = 64;

/// A namespace and the name of a pod have 317.
const LABEL_VALUE: u32 = 512;

/// The kinds of children.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    /// The files of agents: `config.json`, `ca.crt`.
    ConfigMap,
    /// The entry of the one `MutatingWebhookConfiguration` that sends pods to the webhook.
    Webhook,
    /// The agents of mode `DaemonSet`.
    DaemonSet,
    /// The object that makes Prometheus scrape the agents.
    PodMonitor,
    /// Recording rules and alerts.
    PrometheusRule,
}

impl ChildKind {
    /// The kinds that are watched separately: those that every API server has.
    pub const WATCHED: [Self; 2] = [Self::ConfigMap, Self::DaemonSet];

    /// The kinds of the prometheus-operator.
    pub const MONITORING: [Self; 2] = [Self::PodMonitor, Self::PrometheusRule];

    /// The kind's name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Webhook => "MutatingWebhookConfiguration",
            Self::DaemonSet => "DaemonSet",
            Self::PodMonitor => "PodMonitor",
            Self::PrometheusRule => "PrometheusRule",
        }
    }

    /// Returns the API server's name of the kind.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, plural) = match self {
            Self::ConfigMap => ("", "configmaps"),
            Self::Webhook => ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
            Self::DaemonSet => ("apps", "daemonsets"),
            Self::PodMonitor => ("monitoring.coreos.com", "podmonitors"),
            Self::PrometheusRule => ("monitoring.coreos.com", "prometheusrules"),
        };
        let gvk = GroupVersionKind::gvk(group, "v1", self.as_str());
        ApiResource::from_gvk_with_plural(&gvk, plural)
    }
}

/// Identifies an object.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildKey {
    /// Kind of the object.
    pub kind: ChildKind,
    /// Its namespace; `None` for a cluster-scoped one.
    pub namespace: Option<String>,
    /// Its name; of a webhook that of the entry.
    pub name: String,
}

impl ChildKey {
    /// The entry of a `NetworkProber`.
    #[must_use]
    pub fn webhook(namespace: &str, name: &str) -> Self {
        let name = configuration::entry_name(namespace, name);
        Self { kind: ChildKind::Webhook, namespace: None, name }
    }
}

impl std::fmt::Display for ChildKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace {
            None if *kind == ChildKind::Webhook => {
                let object = configuration::OBJECT;
                write!(f, "{} {object}, entry {name}", kind.as_str())
            }
            Some(namespace) => write!(f, "{} {namespace}/{name}", kind.as_str()),
            None => write!(f, "{} {name}", kind.as_str()),
        }
    }
}

/// An object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// The key of the object.
    pub key: ChildKey,
    /// The whole object, for server-side apply.
    pub object: Value,
    /// The same without the fields that older definitions of the kind do not have, if there are
    /// any.
    pub fallback: Option<Value>,
    /// True if the object is a merge patch instead, for a part of an object that exists.
    pub is_part: bool,
    /// Changes exactly when the object does.
    pub hash: u64,
}

/// The contents of the agents' `ConfigMap`.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// `ca.crt`: the authorities to trust when requesting a pinglist.
    pub authorities: Option<&'a str>,
    /// `config.json`: the endpoints of all pods.
    pub endpoints: Option<&'a [u8]>,
}

/// The owner of the children, and their names.
pub struct Family<'a> {
    /// The object itself.
    pub prober: &'a NetworkProber,
    /// Its checked spec.
    pub settings: &'a Settings,
}

impl Family<'_> {
    fn child(&self, kind: ChildKind, namespace: Option<&str>, name: &str, body: Value) -> Child {
        let resource = kind.resource();
        let settings = self.settings;
        let mut object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/managed-by": MANAGED_BY,
                    "app.kubernetes.io/part-of": "traffic-operator",
                    OWNER_UID: settings.uid,
                },
                "annotations": {OWNER: settings.key()},
            },
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
            if namespace == settings.namespace
                && let Some(owner) = self.prober.controller_owner_ref(&())
            {
                object["metadata"]["ownerReferences"] = json!([owner]);
            }
        }
        merge(&mut object, body);
        let key = ChildKey { kind, namespace: namespace.map(Into::into), name: name.into() };
        Child { key, hash: fingerprint(&object), object, fallback: None, is_part: false }
    }

    /// Builds the `ConfigMap` for the agents of one namespace.
    #[must_use]
    pub fn config_map(&self, namespace: &str, content: Content<'_>) -> Child {
        let mut body = json!({});
        if let Some(pem) = content.authorities {
            body["data"] = json!({"ca.crt": pem});
        }
        if let Some(file) = content.endpoints {
            // As the original wrote it: a consumer of binaryData finds nothing in data.
            let file = k8s_openapi::ByteString(file.to_vec());
            body["binaryData"] = json!({"config.json": file});
        }
        self.child(ChildKind::ConfigMap, Some(namespace), &self.settings.name, body)
    }

    /// Returns the part of an existing `ConfigMap` that renews its authorities, and leaves the file
    /// to its readers: an apply without the file would remove it.
    #[must_use]
    pub fn authorities(map: ChildKey, pem: &str) -> Child {
        let object = json!({"data": {"ca.crt": pem}});
        Child { key: map, hash: fingerprint(&object), object, fallback: None, is_part: true }
    }

    /// Builds the entry that sends the selected pods to the webhook; none if no namespace is in
    /// scope.
    #[must_use]
    pub fn webhook(&self, interception: &Interception<'_>) -> Option<Child> {
        let object = configuration::applied(&configuration::entry(interception)?);
        let key = ChildKey::webhook(&self.settings.namespace, &self.settings.name);
        Some(Child { key, hash: fingerprint(&object), object, fallback: None, is_part: false })
    }

    /// One agent on each node.
    #[must_use]
    pub fn daemon_set(&self, recipe: &Recipe) -> Child {
        let settings = self.settings;
        // The selector of a DaemonSet cannot be changed, and the author's labels can.
        let own = json!({OWNER_UID: settings.uid});
        let mut labels = settings.agent_labels();
        labels.insert(OWNER_UID.into(), settings.uid.clone());
        let hash = recipe.hash();
        let (container, volume) = injection::standalone(recipe);
        let body = json!({"spec": {
            "selector": {"matchLabels": own},
            // A fleet of thousands is replaced in minutes, and most of it always measures.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {INJECTED_BY_ANNOTATION: settings.key(), HASH_ANNOTATION: hash},
                },
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    // The network of a node should be measured even if nothing else may run on the
                    // node.
                    "tolerations": [{"operator": "Exists"}],
                    "securityContext": {
                        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [volume],
                },
            },
        }});
        self.child(ChildKind::DaemonSet, Some(&settings.namespace), &settings.name, body)
    }

    /// Builds the object that makes Prometheus scrape the agents of these namespaces.
    #[must_use]
    pub fn pod_monitor<'n>(&self, namespaces: impl IntoIterator<Item = &'n str>) -> Child {
        let settings = self.settings;
        let names: Vec<_> = namespaces.into_iter().collect();
        let (samples, bytes) = match settings.image {
            None => (SAMPLES, BODY),
            Some(_) => (5 * SAMPLES, "40MB"),
        };
        let mut spec = json!({
            "selector": settings.pod_selector,
            "namespaceSelector": {"matchNames": names},
            "sampleLimit": samples,
            "labelLimit": LABELS,
            "labelNameLengthLimit": LABEL_NAME,
            "labelValueLengthLimit": LABEL_VALUE,
            "podMetricsEndpoints": [{
                "port": METRICS_PORT,
                "interval": rules::interval(settings.monitoring.interval.into()),
                "honorLabels": false,
                "relabelings": [
                    // Agents of another prober may have the same labels and the same port, and so
                    // may any other pod: a scraped pod must name this prober.
                    {
                        "action": "keep",
                        "sourceLabels": [
                            "__meta_kubernetes_pod_annotation_probes_bigmikes_io_injected_by",
                        ],
                        "regex": settings.key().replace('.', "\\."),
                    },
                    {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
                    // The source of a probe comes from Kubernetes, not from the agent: the owner of
                    // a pod can report only for its own node.
                    {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "src_node"},
                ],
                "metricRelabelings": [
                    // A pod's owner controls what it serves; only probes are accepted. Not what is
                    // recorded of them either: those names have a colon.
                    {"action": "keep", "sourceLabels": ["__name__"], "regex": "netprober_.*"},
                    {"action": "labeldrop", "regex": "exported_.*"},
                ],
            }],
        });
        let old = spec.clone();
        // Rules and dashboards read the classic buckets; the native ones are exported beside them.
        spec["scrapeClassicHistograms"] = true.into();
        spec["bodySizeLimit"] = bytes.into();
        let mut child = self.monitoring(ChildKind::PodMonitor, &spec);
        child.fallback = Some(self.monitoring(ChildKind::PodMonitor, &old).object);
        child
    }

    /// Loss and round-trip time by pair and by node, and alerts on them, with the address of their
    /// runbooks.
    #[must_use]
    pub fn prometheus_rule(&self, runbooks: Option<&str>) -> Child {
        let Settings { period, timeout, .. } = *self.settings;
        let interval = self.settings.monitoring.interval.into();
        let pace = Pace { period, timeout, interval };
        let spec = rules::rules(&self.settings.key(), pace, runbooks);
        self.monitoring(ChildKind::PrometheusRule, &spec)
    }

    fn monitoring(&self, kind: ChildKind, spec: &Value) -> Child {
        let settings = self.settings;
        let labels: &BTreeMap<_, _> = &settings.monitoring.labels;
        let body = json!({"metadata": {"labels": labels}, "spec": spec});
        self.child(kind, Some(&settings.namespace), &settings.name, body)
    }
}

/// Differs exactly when the object does.
#[must_use]
pub fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    // The maps of serde_json are sorted: equal objects are equal texts.
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Adds `from` to `to`; what both have stays as it is in `to`, unless both are objects.
fn merge(to: &mut Value, from: Value) {
    // Labels of ours win over the author's.
    if let (Value::Object(to), Value::Object(from)) = (to, from) {
        for (key, value) in from {
            match to.get_mut(&key) {
                Some(there) => merge(there, value),
                None => {
                    to.insert(key, value);
                }
            }
        }
    }
}
