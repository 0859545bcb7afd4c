//! `NetworkProber`: measures round-trip time and packet loss between pods.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, LabelSelector},
    util::intstr::IntOrString,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use traffic_operator_core::pinglist::Protocol;

use super::{Duration, NamedPermission, Permission, WebhookAccess, kind};

/// The name of the one configuration. The operator may neither create nor delete it, and touch no
/// other.
pub const WEBHOOK_OBJECT: &str = "traffic-operator";

/// The API group of the original.
pub const GROUP: &str = "probes.bigmikes.io";

/// Permissions of the webhook: it knows the selected pods and authenticates agents. It writes
/// nothing.
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
        // The image of the operator's own pod is that of agents. Its name is not known before it
        // runs.
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

/// Permissions of the controller, in addition to those and to reading and patching `NetworkProber`.
pub const PERMISSIONS: &[Permission] = &[
    // Why pods are refused with an agent.
    Permission { group: "", resources: &["events"], verbs: &["list"] },
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

/// Permissions of the controller for one cluster-scoped object, in which each `NetworkProber` that
/// injects has an entry. The installation creates the object, so that nobody needs the right to
/// create, which a name cannot restrict.
pub const NAMED: &[NamedPermission] = &[NamedPermission {
    permission: Permission {
        group: "admissionregistration.k8s.io",
        resources: &["mutatingwebhookconfigurations"],
        verbs: &["list", "watch", "patch"],
    },
    names: &[WEBHOOK_OBJECT],
}];

/// Permissions of the controller in the operator's own namespace, in addition to those of the
/// webhook: it keeps the webhook's keys. A name cannot restrict create.
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

/// NetworkProber measures round-trip time and packet loss between pods. It runs an agent in each
/// selected pod or on each node, assigns each agent the peers to probe, and configures Prometheus
/// to collect the results.
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
    doc = "NetworkProber measures round-trip time and packet loss between pods. It runs an agent in each selected pod or on each node, assigns each agent the peers to probe, and configures Prometheus to collect the results.",
    validation = Rule::new("self.metadata.name.size() <= 160")
        .message("metadata.name: at most 160 characters, because the name of the webhook begins with it"),
    validation = Rule::new("self.spec.selectAll || (has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0) || (has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0)")
        .message("spec.podSelector: an empty selector selects every pod; if that is meant, set spec.selectAll: true"),
    validation = Rule::new("!self.spec.selectAll || !((has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0) || (has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0))")
        .message("spec.selectAll: cannot be combined with a selector: leave spec.podSelector empty ({}) or selectAll out"),
    validation = Rule::new("self.spec.mode != 'DaemonSet' || (!self.spec.selectAll && has(self.spec.podSelector.matchLabels) && self.spec.podSelector.matchLabels.size() > 0 && !(has(self.spec.podSelector.matchExpressions) && self.spec.podSelector.matchExpressions.size() > 0))")
        .message("spec.podSelector: in mode DaemonSet the agents' pods get these labels, so it needs matchLabels alone, at least one"),
    validation = Rule::new("self.spec.mode != 'DaemonSet' || !has(self.spec.namespaceSelector)")
        .message("spec.namespaceSelector: the DaemonSet of mode DaemonSet runs in the namespace of this object; leave it out"),
    validation = Rule::new("string(self.spec.httpPort) != string(self.spec.httpPrometheusPort)")
        .message("spec.httpPrometheusPort: must differ from spec.httpPort"),
    validation = Rule::new("!has(self.spec.timeout) || duration(self.spec.timeout) <= duration(self.spec.pollingPeriod)")
        .message("spec.timeout: must not be longer than spec.pollingPeriod"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
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
    /// Labels of the pods that get an agent. An empty selector is refused unless selectAll is true.
    /// In mode `DaemonSet`, these are the labels of the agents' own pods.
    pub pod_selector: LabelSelector,

    /// Selects every pod in the namespaces. podSelector must then be empty. Defaults to false.
    #[serde(default)]
    pub select_all: bool,

    /// Labels of the namespaces of the pods. If absent, only the namespace of this object. Any
    /// other namespace must consent by the annotation probes.bigmikes.io/allow, with
    /// `<namespace>/<name>` of this object or "*", unless this object is in the operator's
    /// namespace. kube-system and the operator's namespace are never selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// TCP port on which agents answer probes; UDP probes use the same number. Defaults to "22080".
    #[serde(default = "defaults::http_port")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 65535 : (self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)").message("httpPort must be a port from 1 to 65535, e.g. \"8080\""))]
    pub http_port: IntOrString,

    /// TCP port on which agents serve their metrics. It must differ from httpPort. Defaults to
    /// "22112".
    #[serde(default = "defaults::http_prometheus_port")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 65535 : (self.matches('^[1-9][0-9]{0,4}$') && int(self) <= 65535)").message("httpPrometheusPort must be a port from 1 to 65535, e.g. \"2112\""))]
    pub http_prometheus_port: IntOrString,

    /// Time between two probes of the same peer, from 100ms to 1h. Defaults to 10s.
    #[serde(default = "defaults::polling_period")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('1h')").message("pollingPeriod must be a duration from 100ms to 1h, e.g. \"10s\""))]
    pub polling_period: Duration,

    /// Image of the agent. Defaults to the image of the operator. Any image works that honors the
    /// environment variables `HTTP_PORT`, `HTTP_PROMETHEUS_PORT` and `NET_PROBER_CONFIG_FILE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^ \\t\\r\\n]+$')").message("agentImage must be an image reference without blanks, e.g. \"registry.example.com/agent:1\"; leave it out for the operator's own image"))]
    pub agent_image: Option<String>,

    /// Agent location. Sidecar runs an agent in each selected pod. `DaemonSet` runs one agent on
    /// each node, in the namespace of this object, to measure nodes against each other. Defaults to
    /// Sidecar.
    #[serde(default)]
    pub mode: Mode,

    /// Protocols of the probes. HTTP sends a request on a new connection, TCP opens a connection,
    /// UDP sends a packet and waits for its echo. Only UDP detects packet loss, duplicates and
    /// reordering. Defaults to HTTP.
    #[serde(default = "defaults::probes")]
    #[schemars(length(min = 1, max = 3))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub probes: Vec<Protocol>,

    /// Time after which a probe without an answer has failed. It must not be longer than
    /// pollingPeriod. Defaults to 1s or pollingPeriod, whichever is shorter. Like probes,
    /// neighbors and originalMetrics, it has no effect on other agent images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')").message("timeout must be a duration from 1ms to 1h, and not longer than pollingPeriod, e.g. \"1s\""))]
    pub timeout: Option<Duration>,

    /// Number of pods that probe each pod, from its own zone and from each other zone. 0 for both
    /// is a full mesh, for at most 100 pods. Defaults to 8 and 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbors: Option<Neighbors>,

    /// Deprecated: the former spelling of neighbors. It has no effect if neighbors is set.
    // The API server would drop a field that the schema does not list, and with it the choice of
    // every stored object. Neither field has a default there: the API server wrote the one of this
    // field into stored objects, and one of the other would hide what their authors chose here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbors>,

    /// Delivery of peer lists to agents. Pull fetches it from the operator, within seconds of
    /// a change (the default without agentImage). `ConfigMap` reads it from the original's file
    /// config.json (the default with agentImage).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_word")]
    #[x_kube(validation = Rule::new("self in ['Pull', 'ConfigMap']").message("delivery must be Pull or ConfigMap"))]
    pub delivery: Option<Delivery>,

    /// Also exports the original's metric `netprober_interpod_latency_s` for each pod, which costs
    /// 28 series per peer. Defaults to true with agentImage, else to false.
    // Without a default in the schema: stored objects keep the one that they were stored with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_metrics: Option<bool>,

    /// What agents probe in addition to their peers, once every 30 s, phase by phase: name
    /// resolution, connection, TLS handshake, first byte. Only agents in the namespace of this
    /// object do, unless it is in the operator's namespace; at most 300 of them. It has no effect on
    /// other agent images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<Target>,

    /// Injection of agents into pods.
    #[serde(default)]
    pub injection: Injection,

    /// Objects that configure Prometheus to scrape the agents.
    #[serde(default)]
    pub monitoring: Monitoring,
}

impl NetworkProberSpec {
    /// The number of pods that probe each pod, by either spelling of the field.
    #[must_use]
    pub fn effective_neighbors(&self) -> Neighbors {
        self.neighbors.or(self.neighbours).unwrap_or_default()
    }
}

kind!(NetworkProber, NetworkProberStatus);

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Location of agents.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// An agent in each selected pod.
    #[default]
    Sidecar,
    /// One agent on each node.
    DaemonSet,
}

/// Delivery of the list of peers to agents.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Delivery {
    /// From the operator, by HTTPS.
    Pull,
    /// From a file in a `ConfigMap`.
    ConfigMap,
}

/// Treatment of a pod while no replica of the operator answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum FailurePolicy {
    /// Create it without an agent.
    #[default]
    Ignore,
    /// Refuse it.
    Fail,
}

/// Pull policy of an image.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PullPolicy {
    /// Pull it where it is not there.
    #[default]
    IfNotPresent,
    /// Ask the registry at each start.
    Always,
    /// Never pull it.
    Never,
}

impl PullPolicy {
    /// Its word in a container.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// The number of pods that probe each pod.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbors {
    /// Number of pods in its own zone that probe a pod. Defaults to 8.
    #[serde(default = "defaults::in_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub in_zone: u32,
    /// Number of pods in each other zone that probe a pod. Defaults to 2.
    #[serde(default = "defaults::per_other_zone")]
    #[schemars(range(min = 0, max = 100), extend("format" = "int32"))]
    pub per_other_zone: u32,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self { in_zone: defaults::in_zone(), per_other_zone: defaults::per_other_zone() }
    }
}

/// Something that agents probe in addition to their peers. Exactly one of dns, service, url and
/// apiServer is required.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.dns), has(self.service), has(self.url), has(self.apiServer)].filter(x, x).size() == 1").message("exactly one of dns, service, url and apiServer is needed"))]
pub struct Target {
    /// Name of the target, which is the label `target` of its series: lower-case letters, digits
    /// and hyphens.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("name must be a DNS label: lower-case letters, digits and '-', at most 63 characters"))]
    pub name: String,
    /// A name to resolve as the programs in the pod do, with the search domains of its
    /// /etc/resolv.conf unless it ends with a dot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?[.])*[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?[.]?$') && !self.matches('^[0-9.]+$')").message("dns must be a DNS name, e.g. \"kubernetes.default\""))]
    pub dns: Option<String>,
    /// A port of a Service, to which agents connect over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<TargetService>,
    /// An http or https address, which agents request with GET. They send no credentials, follow no
    /// redirect and read no body. A status below 400 is a success, and so are 401 and 403. A
    /// certificate must be signed by the CA of the cluster or a public one. Loopback,
    /// link-local and multicast addresses and the metadata of clouds are not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://([A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?|[[][0-9A-Fa-f:.]+[]])(:[1-9][0-9]{0,4})?(/[-A-Za-z0-9._~!$&()*+,;=:@%/?]*)?$')").message("url must be an http or https address without user, blanks and fragment, e.g. \"https://web.shop.svc/healthz\""))]
    pub url: Option<String>,
    /// The API server at `https://kubernetes.default.svc/readyz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self").message("apiServer must be true; leave it out otherwise"))]
    pub api_server: Option<bool>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetService {
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("name must be the name of a Service"))]
    pub name: String,
    /// Namespace of the Service. Defaults to that of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()").message("namespace must be the name of a namespace"))]
    pub namespace: Option<String>,
    /// Port of the Service.
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub port: u16,
}

/// Injection of agents into pods.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Injection {
    /// Treatment of a new pod while no replica of the operator answers: Ignore
    /// creates it without an agent, Fail refuses it. Defaults to Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Pull policy of the agent's image, where a policy of the cluster requires one. Defaults to
    /// `IfNotPresent`, so that no pod waits for a registry at each start.
    #[serde(default)]
    pub image_pull_policy: PullPolicy,
    /// User of the agent's container, where a policy of the cluster requires one: not root.
    /// Defaults to a user of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647), extend("format" = "int64"))]
    pub run_as_user: Option<i64>,
    /// Resource requests and limits of the agent's container. The pod keeps its quality of service
    /// class: in a Guaranteed pod requests and limits are made equal, and in a `BestEffort` pod
    /// both are left out.
    #[serde(default)]
    pub resources: Resources,
}

/// Resource requests and limits of a container.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Resource requests. Defaults to 10m CPU and 16Mi memory.
    #[serde(default = "defaults::requests")]
    #[schemars(extend("maxProperties" = 8))]
    pub requests: BTreeMap<String, Quantity>,
    /// Resource limits. Defaults to 64Mi memory and no CPU limit.
    #[serde(default = "defaults::limits")]
    #[schemars(extend("maxProperties" = 8))]
    pub limits: BTreeMap<String, Quantity>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { requests: defaults::requests(), limits: defaults::limits() }
    }
}

/// Objects that configure Prometheus. They are created only where the prometheus-operator is
/// installed.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Keeps a PodMonitor with the name of this object, so that Prometheus scrapes the agents.
    /// Defaults to true.
    #[serde(default = "defaults::yes")]
    pub pod_monitor: bool,
    /// Keeps a PrometheusRule with the name of this object. It records loss and round-trip time by
    /// pair and by node, and contains alerts on them. Defaults to true.
    #[serde(default = "defaults::yes")]
    pub prometheus_rule: bool,
    /// Scrape interval of the agents, from 1s to 10m. Defaults to 30s.
    #[serde(default = "defaults::interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')").message("interval must be a duration from 1s to 10m, e.g. \"30s\""))]
    pub interval: Duration,
    /// Additional labels of the PodMonitor and the PrometheusRule, for a Prometheus that selects
    /// objects by label.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: Labels,
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            pod_monitor: true,
            prometheus_rule: true,
            interval: defaults::interval(),
            labels: Labels::new(),
        }
    }
}

/// The number of pods that are selected and that have an agent, and the reasons why others have
/// none.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProberStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Names of the pods that are probed, with the namespace if it is not that of this object. At
    /// most 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<String>,
    /// Number of selected pods. Finished and terminating pods do not count.
    #[serde(default)]
    pub selected: i64,
    /// Number of selected pods that have an agent.
    #[serde(default)]
    pub injected: i64,
    /// Number of pods whose agent has an earlier spec (image, ports, delivery or resources). They
    /// need a restart, which the operator leaves to you.
    #[serde(default)]
    pub need_restart: i64,
    /// Reasons why selected pods have no agent, with the number of pods for each.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub not_injected: Vec<NotInjected>,
    /// Number of pods that wait for an agent that cannot start.
    #[serde(default)]
    pub failing: i64,
    /// Reasons that the kubelets report for those agents, with the number of pods for each.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub failing_reasons: Vec<NotInjected>,
    /// Namespaces in which no further pod gets an agent until the existing agents start. At most
    /// 100.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub paused: Vec<Paused>,
    /// Fingerprint of all lists of peers. It changes only when one of the lists changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinglist_version: Option<String>,
    /// Estimated number of time series that all agents export together.
    #[serde(default)]
    pub estimated_series: i64,
    /// Standard conditions: Ready, Covered (every selected pod has an agent) and Monitored
    /// (Prometheus is configured to scrape the agents).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::api::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A namespace in which injection pauses.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// Name of the namespace.
    pub namespace: String,
    /// Reason that a kubelet reports for an agent there.
    pub reason: String,
}

/// A group of selected pods with the same reason.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotInjected {
    /// The reason, in one word.
    pub reason: String,
    /// Number of pods.
    pub count: i64,
}

mod defaults {
    //! What fields have that a spec leaves out.
    use std::{collections::BTreeMap, time::Duration as Std};

    use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

    use super::{Duration, Protocol};

    /// The default of the original agent.
    pub(super) fn http_port() -> IntOrString {
        IntOrString::String("22080".into())
    }
    /// The default of the original agent.
    pub(super) fn http_prometheus_port() -> IntOrString {
        IntOrString::String("22112".into())
    }
    /// The value in the original's sample.
    pub(super) fn polling_period() -> Duration {
        Std::from_secs(10).into()
    }
    /// The protocol of the original.
    pub(super) fn probes() -> Vec<Protocol> {
        vec![Protocol::Http]
    }
    /// With eight probers, the loss of one link can be distinguished from the loss of the pod.
    pub(super) fn in_zone() -> u32 {
        8
    }
    /// One prober of another zone could itself be the fault; two can disagree.
    pub(super) fn per_other_zone() -> u32 {
        2
    }
    /// The needs of an agent with 20 peers and three protocols, with room to spare.
    pub(super) fn requests() -> BTreeMap<String, Quantity> {
        [("cpu".into(), Quantity("10m".into())), ("memory".into(), Quantity("16Mi".into()))].into()
    }
    /// No CPU limit: a throttled prober would measure its own waiting.
    pub(super) fn limits() -> BTreeMap<String, Quantity> {
        [("memory".into(), Quantity("64Mi".into()))].into()
    }
    /// The default of kube-prometheus.
    pub(super) fn interval() -> Duration {
        Std::from_secs(30).into()
    }
    pub(super) fn yes() -> bool {
        true
    }
}
