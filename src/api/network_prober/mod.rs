//! `NetworkProber`: how long do packets take between pods, and how many are lost?
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Duration, NamedPermission, Permission, WebhookAccess, kind};

mod defaults;
mod options;
mod status;

pub use options::{
    Delivery, FailurePolicy, Injection, Mode, Monitoring, Neighbours, Protocol, Resources,
};
pub use status::{NetworkProberStatus, NotInjected, Paused};

/// The API group of the original.
pub const GROUP: &str = "probes.bigmikes.io";

/// What the webhook may do: it knows the selected pods, and who asks it. It writes nothing.
pub const WEBHOOK_ACCESS: WebhookAccess = WebhookAccess {
    permissions: &[
        // Whom to probe, and in which zone it runs.
        Permission { group: "", resources: &["pods", "namespaces"], verbs: &["list", "watch"] },
        Permission { group: "", resources: &["nodes"], verbs: &["list", "watch"] },
        // Whether a namespace would refuse a pod because of its agent.
        Permission { group: "", resources: &["limitranges", "resourcequotas"], verbs: &["list"] },
        // An agent that asks for its pinglist shows its pod's token.
        Permission {
            group: "authentication.k8s.io",
            resources: &["tokenreviews"],
            verbs: &["create"],
        },
    ],
    own_namespace: &[
        // The image of the operator's own pod is that of agents. Its name is not known before it runs.
        NamedPermission {
            permission: Permission { group: "", resources: &["pods"], verbs: &["get"] },
            names: &[],
        },
        // The webhook's keys; the only Secret that is ever read unless a configuration names one.
        NamedPermission {
            permission: Permission {
                group: "",
                resources: &["secrets"],
                verbs: &["list", "watch"],
            },
            names: &[WEBHOOK],
        },
    ],
};

/// What the controller may do beside that, and beside reading and patching `NetworkProber` itself.
pub const PERMISSIONS: &[Permission] = &[
    // config.json and ca.crt for the agents, in the namespaces of the selected pods.
    Permission {
        group: "",
        resources: &["configmaps"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    // mode: DaemonSet.
    Permission {
        group: "apps",
        resources: &["daemonsets"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Permission {
        group: "monitoring.coreos.com",
        resources: &["podmonitors", "prometheusrules"],
        verbs: &["get", "create", "patch", "delete"],
    },
];

/// The name of the webhook's Deployment, account and Service, and of the Secret with its keys.
pub const WEBHOOK: &str = "traffic-operator-webhook";

/// What the controller may do with one object of the cluster: each `NetworkProber` that injects has
/// an entry in it. The installation brings it, so that nobody needs the right to create, which a
/// name cannot restrict.
pub const NAMED: &[NamedPermission] = &[NamedPermission {
    permission: Permission {
        group: "admissionregistration.k8s.io",
        resources: &["mutatingwebhookconfigurations"],
        verbs: &["list", "watch", "patch"],
    },
    names: &[crate::webhook::configuration::OBJECT],
}];

/// What the controller may do in the operator's own namespace, beside what the webhook may: it keeps the
/// webhook's keys. A name cannot restrict create.
pub const OWN_NAMESPACE: &[NamedPermission] = &[
    NamedPermission {
        permission: Permission { group: "", resources: &["secrets"], verbs: &["create"] },
        names: &[],
    },
    NamedPermission {
        permission: Permission { group: "", resources: &["secrets"], verbs: &["get", "update"] },
        names: &[WEBHOOK],
    },
];

/// Measures round-trip time and loss between pods: puts an agent into the selected pods (or on every
/// node), tells each whom to probe, and has Prometheus collect what they measure.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "probes.bigmikes.io",
    version = "v1alpha1",
    kind = "NetworkProber",
    namespaced,
    status = "NetworkProberStatus",
    shortname = "np",
    category = "traffic",
    derive = "PartialEq",
    doc = "Measures round-trip time and loss between pods: puts an agent into the selected pods (or on every node), tells each whom to probe, and has Prometheus collect what they measure.",
    validation = Rule::new("self.metadata.name.size() <= 160")
        .message("metadata.name: at most 160 characters, because the name of the webhook begins with it"),
    validation = Rule::new("self.spec.selectAll || (has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0) || (has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0)")
        .message("spec.podSelector: an empty selector selects every pod; if that is meant, set spec.selectAll: true"),
    validation = Rule::new("!self.spec.selectAll || !((has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0) || (has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0))")
        .message("spec.selectAll: excludes a selector; leave spec.podSelector empty ({}) or selectAll out"),
    validation = Rule::new("self.spec.mode != 'DaemonSet' || (!self.spec.selectAll && has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0 && !(has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0))")
        .message("spec.podSelector: in mode DaemonSet the agents' pods get these labels: matchLabels alone, at least one"),
    validation = Rule::new("self.spec.mode != 'DaemonSet' || !has(self.spec.namespaceSelector)")
        .message("spec.namespaceSelector: the DaemonSet of mode DaemonSet runs in the namespace of this object; leave it out"),
    validation = Rule::new("string(self.spec.httpPort) != string(self.spec.httpPrometheusPort)")
        .message("spec.httpPrometheusPort: must differ from spec.httpPort"),
    validation = Rule::new("!has(self.spec.timeout) || duration(self.spec.timeout) <= duration(self.spec.pollingPeriod)")
        .message("spec.timeout: must not be longer than spec.pollingPeriod"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Covered", type_ = "string", json_path = ".status.conditions[?(@.type=='Covered')].status"),
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.selected"),
    printcolumn(name = "Injected", type_ = "integer", json_path = ".status.injected"),
    printcolumn(name = "Restart", type_ = "integer", json_path = ".status.needRestart"),
    printcolumn(name = "Failing", type_ = "integer", json_path = ".status.failing"),
    printcolumn(name = "Series", type_ = "integer", json_path = ".status.estimatedSeries", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProberSpec {
    /// The pods that get an agent, by their labels. Empty selects nothing unless selectAll is set. In
    /// mode `DaemonSet`: the labels of the agents' own pods.
    pub pod_selector: LabelSelector,

    /// Selects every pod of the namespaces; podSelector must be empty then.
    #[serde(default)]
    pub select_all: bool,

    /// The namespaces of the pods, by their labels; only the namespace of this object if absent. Any
    /// other namespace must consent, by its annotation probes.bigmikes.io/allow with
    /// `<namespace>/<name>` of this object or "*", unless this object lives in the operator's
    /// namespace. kube-system and the operator's namespace are never selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// The TCP port on which agents answer probes, and the UDP port of the same number.
    #[serde(default = "defaults::http_port")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 65535 : (self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)").message("httpPort must be a port from 1 to 65535, e.g. \"8080\""))]
    pub http_port: IntOrString,

    /// The TCP port on which agents serve their metrics.
    #[serde(default = "defaults::http_prometheus_port")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 65535 : (self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)").message("httpPrometheusPort must be a port from 1 to 65535, e.g. \"2112\""))]
    pub http_prometheus_port: IntOrString,

    /// Each peer is probed once in this time; at least 100ms.
    #[serde(default = "defaults::polling_period")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('1h')").message("pollingPeriod must be a duration from 100ms to 1h, e.g. \"10s\""))]
    pub polling_period: Duration,

    /// The agent's image; the operator's own if absent. Any image that obeys the environment variables
    /// `HTTP_PORT`, `HTTP_PROMETHEUS_PORT` and `NET_PROBER_CONFIG_FILE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^ \\t\\r\\n]+$')").message("agentImage must be an image reference without blanks, e.g. \"registry.example.com/agent:1\"; leave it out for the operator's own image"))]
    pub agent_image: Option<String>,

    /// Sidecar puts an agent into each selected pod; `DaemonSet` runs one agent on each node, in the
    /// namespace of this object, so that nodes are measured against each other.
    #[serde(default)]
    pub mode: Mode,

    /// How a peer is probed: HTTP (a request on a new connection), TCP (a connection), UDP (a packet and
    /// its echo, which alone sees loss, duplicates and reordering).
    #[serde(default = "defaults::probes")]
    #[schemars(length(min = 1, max = 3))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub probes: Vec<Protocol>,

    /// A probe that has no answer after this time has failed; the shorter of 1s and pollingPeriod if
    /// absent. Like probes, neighbours and originalMetrics, it is for agents of the operator's own
    /// image; another image does what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')").message("timeout must be a duration from 1ms to 1h, and not longer than pollingPeriod, e.g. \"1s\""))]
    pub timeout: Option<Duration>,

    /// How many probe each pod: out of its own zone, and out of each other zone. Both 0 is a full mesh,
    /// for at most 100 pods.
    #[serde(default)]
    pub neighbours: Neighbours,

    /// How agents learn whom to probe. Pull: from the operator, within seconds (the default without
    /// agentImage). `ConfigMap`: from the original's config.json (the default with agentImage).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['Pull', 'ConfigMap']").message("delivery must be Pull or ConfigMap"))]
    pub delivery: Option<Delivery>,

    /// Also export the original's metric `netprober_interpod_latency_s`, by pod: 28 series for each peer.
    #[serde(default = "defaults::yes")]
    pub original_metrics: bool,

    /// How agents are put into pods.
    #[serde(default)]
    pub injection: Injection,

    /// What Prometheus gets.
    #[serde(default)]
    pub monitoring: Monitoring,
}

kind!(NetworkProber, NetworkProberStatus);

/// Labels to put on an object.
pub type Labels = BTreeMap<String, String>;
