//! Decides whether a pod gets the prober's agent.
//!
//! The webhook calls [`skip_reason`] for a pod that is about to be created, and the report of
//! coverage for existing pods; both use the same words. [`patch()`] adds the agent.
//!
//! The patch (RFC 6902) has only `add` operations, computed from the received JSON: a Pod that is
//! read into types and written again loses every field that the types do not know.
//!
//! Service meshes are left alone. To keep a mesh's proxy out of the measurement, the author of the
//! pod excludes the agent's ports (`traffic.sidecar.istio.io/excludeInboundPorts` and
//! `…OutboundPorts`, `config.linkerd.io/skip-inbound-ports` and `…outbound-ports`) in the pod's
//! template. Adding these here would not do the same: on a pod they *replace* the exclusions of the
//! namespace and the mesh, so that other ports of the application change their behavior; excluding
//! an outbound port removes the encryption from all traffic of the application to that port; and
//! Istio's webhook has read them before ours is called.
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    api::parse_quantity,
    pods::{
        AGENT_CONTAINER, AGENT_VOLUME, CONSTRAINT_ANNOTATION, Compute, DEPLOYED_ANNOTATION,
        HASH_ANNOTATION, INJECT_ANNOTATION, INJECTED_BY_ANNOTATION, METRICS_PORT, PING_PORT,
        PodObject, Qos, REFUSED_ANNOTATION,
    },
};

#[cfg(test)]
mod tests;

/// The version since which API servers and kubelets start init containers that always restart
/// before the others, and stop them afterwards.
pub const NATIVE_SIDECARS: (u32, u32) = (1, 29);

/// The recipe by which the agent of one `NetworkProber` is added to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The `NetworkProber`, as `<namespace>/<name>`.
    pub prober: String,
    /// The agent's image.
    pub image: String,
    /// True if the image is the operator's own: its arguments make it an agent.
    pub own_image: bool,
    /// Port on which the agent answers probes.
    pub http_port: u16,
    /// Port on which the agent serves metrics.
    pub prometheus_port: u16,
    /// The way in which the agent gets its list of peers.
    pub delivery: Delivery,
    /// The `ConfigMap` in the pod's namespace that is mounted (if it exists).
    pub config_map: String,
    /// Resources of the agent, if the pod's quality of service allows them.
    pub resources: Resources,
    /// Pull policy of the image.
    pub pull_policy: &'static str,
    /// The agent's user, if the author names one.
    pub run_as_user: Option<i64>,
    /// True if the API server and the kubelets support init containers that always restart
    /// ([`NATIVE_SIDECARS`]).
    pub native_sidecar: bool,
}

/// The way in which the agent gets its list of peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Delivery {
    /// From a mounted `ConfigMap`, as the original agent does.
    ConfigMap,
    /// From the operator.
    Pull {
        /// URL of the pinglist.
        url: String,
    },
}

impl Delivery {
    /// Reports whether the agent gets its list from a Service, by its name.
    fn needs_cluster_dns(&self) -> bool {
        let Self::Pull { url } = self else { return false };
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        host.split('.').any(|part| part == "svc")
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Pull { .. } => "Pull",
        }
    }
}

/// Requests and limits of the agent, by resource name; quantities as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// The reserved resources.
    pub requests: BTreeMap<String, String>,
    /// The allowed resources.
    pub limits: BTreeMap<String, String>,
}

impl Recipe {
    /// Reports whether the `NetworkProber` is in this namespace.
    fn is_at_home(&self, namespace: &str) -> bool {
        self.prober.split_once('/').is_some_and(|(home, _)| home == namespace)
    }

    /// Returns the mark of a pod that would be refused with this agent: it changes with everything
    /// that a policy may look at.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{} {:016x}", self.prober, crate::webhook::fnv(format!("{self:?}").bytes()))
    }

    /// Returns a hash of the settings that require a restart of running pods when they change, as
    /// 16 hexadecimal digits.
    ///
    /// It includes image, ports, delivery and resources; neither the version of the server nor the
    /// owner of the recipe (which is in a separate annotation).
    #[must_use]
    pub fn hash(&self) -> String {
        let parts =
            (&self.image, self.own_image, self.http_port, self.prometheus_port, &self.delivery);
        // Debug output separates and quotes its parts, and maps are sorted: equal recipes have
        // equal text, different ones differ.
        // Agents that were injected before the field existed need no restart.
        let user = self.run_as_user.map(|user| user.to_string()).unwrap_or_default();
        let text = format!("{parts:?}{:?}{:?}{user}", self.config_map, self.resources);
        format!("{:016x}", crate::webhook::fnv(text.bytes()))
    }
}

/// The reason why a pod does not get the agent, or has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// It uses its node's network: two such pods on a node would conflict on the agent's ports, and
    /// would measure the node.
    HostNetwork,
    /// The author of the pod or of its namespace opted out.
    OptedOut,
    /// One of its containers declares one of the agent's ports.
    PortTaken,
    /// One of its containers or volumes has the name of the agent's but is not the agent's.
    NameTaken,
    /// Its containers see each other's processes, and the agent belongs to another namespace.
    SharedProcesses,
    /// The agent is a Linux program.
    Windows,
    /// The mirror of a static pod: the kubelet runs it from a file.
    MirrorPod,
    /// It runs to completion, and on a server without native sidecars the agent would keep it
    /// running.
    JobOnOldServer,
    /// It resolves no name of a Service (`dnsPolicy: Default`), and so not where agents get their
    /// lists.
    NoClusterDns,
    /// Another `NetworkProber` has it.
    OtherProber,
    /// It has the agent.
    AlreadyInjected,
    /// Agents of this recipe do not start: no further pod must wait for one.
    AgentFailing,
    /// The API server refuses its owner's pods with an agent.
    AgentRefused,
    /// A namespace that is never touched: the system's and the operator's.
    NamespaceExcluded,
    /// Its namespace does not consent to this `NetworkProber`.
    NamespaceNotConsenting,
    /// A `LimitRange` or a `ResourceQuota` of its namespace would refuse it with the agent.
    ResourcesRefused,
    /// The `NetworkProber` selects more pods than its namespace may have watched.
    OverBudget,
    /// There is no sign that the webhook was called: the pod is older, or the webhook was down.
    CreatedBefore,
    /// There is none although the entry of the webhook is older than the pod.
    NotCalled,
    /// It has the webhook's annotations but not the container: another webhook removed it.
    Stripped,
}

traffic_operator_core::named! {
    SkipReason {
        HostNetwork, OptedOut, PortTaken, NameTaken, SharedProcesses, Windows, MirrorPod,
        JobOnOldServer, NoClusterDns, OtherProber, AlreadyInjected, AgentFailing, AgentRefused,
        NamespaceExcluded, NamespaceNotConsenting, ResourcesRefused, OverBudget, CreatedBefore, NotCalled, Stripped,
    }
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the place among the init containers of an agent by this `NetworkProber`, if another
/// webhook dropped its restart policy: without a repair, the pod waits for it for ever.
#[must_use]
pub fn stripped(pod: &PodObject, recipe: &Recipe) -> Option<usize> {
    let ours = pod.annotation(INJECTED_BY_ANNOTATION) == Some(&*recipe.prober);
    pod.stripped_agent().filter(|_| ours && recipe.native_sidecar)
}

/// Returns the reason in the pod itself why it does not get the agent. Its selection and its
/// namespace are checked before. For an existing pod without an agent, no reason here means that
/// the webhook was not called ([`SkipReason::CreatedBefore`]), or, if its annotation
/// [`INJECTED_BY_ANNOTATION`] is there, that the agent was removed ([`SkipReason::Stripped`]).
///
/// The agent's container counts, not an annotation: annotations are copied with templates, and
/// other webhooks remove containers. An agent that is [`stripped`] is not left as it is.
#[must_use]
pub fn skip_reason(pod: &PodObject, recipe: &Recipe) -> Option<SkipReason> {
    if pod.is_mirror() {
        return Some(SkipReason::MirrorPod);
    }
    let injected_by = pod.annotation(INJECTED_BY_ANNOTATION);
    if injected_by.is_some_and(|prober| prober != recipe.prober) {
        return Some(SkipReason::OtherProber);
    }
    // It is there already: no other reason makes the pod better off without the repair.
    if stripped(pod, recipe).is_some() {
        return None;
    }
    // Without a name it is the original operator's, whose agents answer ours.
    if pod.agent().is_some() {
        return Some(SkipReason::AlreadyInjected);
    }
    if pod.is_host_network() {
        return Some(SkipReason::HostNetwork);
    }
    if pod.is_windows() {
        return Some(SkipReason::Windows);
    }
    // Any value opts out, as with the original operator, unless the webhook wrote it and another
    // webhook removed the container since.
    let preset = pod.annotation(DEPLOYED_ANNOTATION).is_some() && injected_by.is_none();
    let refused = pod.annotation(INJECT_ANNOTATION);
    if preset || refused.is_some_and(|value| value.trim().eq_ignore_ascii_case("false")) {
        return Some(SkipReason::OptedOut);
    }
    // Through /proc, the agent could read the application's file system, including its token.
    if pod.shares_processes() && !recipe.is_at_home(pod.namespace()) {
        return Some(SkipReason::SharedProcesses);
    }
    if !recipe.native_sidecar && pod.runs_to_completion() {
        return Some(SkipReason::JobOnOldServer);
    }
    if pod.resolves_by_node() && recipe.delivery.needs_cluster_dns() {
        return Some(SkipReason::NoClusterDns);
    }
    if pod.takes_port(recipe.http_port) || pod.takes_port(recipe.prometheus_port) {
        return Some(SkipReason::PortTaken);
    }
    pod.takes_names().then_some(SkipReason::NameTaken)
}

/// One operation: `add`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename = "add")]
pub struct Op {
    /// The position, as a JSON pointer.
    pub path: String,
    /// The value to add.
    pub value: Value,
}

impl Op {
    fn new(path: impl Into<String>, value: Value) -> Self {
        Self { path: path.into(), value }
    }
}

/// Returns the operations that add the agent, or restore the restart policy of one that is there;
/// none if there is a reason not to, or if the Pod has no containers.
#[must_use]
pub fn patch(pod: &PodObject, recipe: &Recipe) -> Vec<Op> {
    let bare = pod.containers().unwrap_or_default().is_empty();
    if bare || skip_reason(pod, recipe).is_some() {
        return Vec::new();
    }
    if let Some(place) = stripped(pod, recipe) {
        let path = format!("/spec/initContainers/{place}/restartPolicy");
        return vec![Op::new(path, json!("Always"))];
    }
    let ours = [
        (DEPLOYED_ANNOTATION, "true".to_owned()),
        (INJECTED_BY_ANNOTATION, recipe.prober.clone()),
        (HASH_ANNOTATION, recipe.hash()),
    ];
    let mut ops = annotations(pod, ours);
    ops.extend(volumes(pod, recipe));
    let agent = container(pod, recipe);
    // The first to start and the last to end, so that it measures all of the pod's life.
    ops.push(match pod.init_containers() {
        _ if !recipe.native_sidecar => Op::new("/spec/containers/-", agent),
        Some(_) => Op::new("/spec/initContainers/0", agent),
        None => Op::new("/spec/initContainers", json!([agent])),
    });
    ops
}

fn volumes(pod: &PodObject, recipe: &Recipe) -> Option<Op> {
    let volume = volume(recipe);
    match pod.volumes() {
        // Our volume, left behind when the container was removed: two with the same name are
        // refused.
        Some(names) if names.iter().any(|name| &**name == AGENT_VOLUME) => None,
        Some(_) => Some(Op::new("/spec/volumes/-", volume)),
        None => Some(Op::new("/spec/volumes", json!([volume]))),
    }
}

/// Returns the operations that mark a pod which would be refused with the agent.
#[must_use]
pub fn mark(pod: &PodObject, recipe: &Recipe) -> Vec<Op> {
    annotations(pod, [(REFUSED_ANNOTATION, recipe.mark())])
}

fn annotations<const N: usize>(pod: &PodObject, ours: [(&str, String); N]) -> Vec<Op> {
    const REPLACED: [&str; 2] = [HASH_ANNOTATION, REFUSED_ANNOTATION];
    if pod.metadata.annotations.is_some() {
        // Adding an existing field would replace it: only what is outdated and always ours is
        // overwritten.
        let missing = ours.into_iter().filter(|(key, value)| match pod.annotation(key) {
            Some(present) => REPLACED.contains(key) && present != value,
            None => true,
        });
        let add = |(key, value): (&str, String)| {
            Op::new(format!("/metadata/annotations/{}", escape(key)), value.into())
        };
        return missing.map(add).collect();
    }
    let all: Map<_, _> = ours.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    if pod.has_metadata {
        vec![Op::new("/metadata/annotations", all.into())]
    } else {
        vec![Op::new("/metadata", json!({"annotations": all}))]
    }
}

/// Escapes a key for a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Mount path of the volume, as in the original.
const MOUNT: &str = "/etc/netprober";

/// The keys of the agents' `ConfigMap`. No others are mounted: the author of a `NetworkProber`
/// chooses its name, and a map of that name in the pod's namespace may be another owner's.
const FILES: [&str; 2] = ["ca.crt", "config.json"];

/// The file with the CA of the cluster.
const CLUSTER_CA: &str = "cluster.crt";

/// Path at which the API server mounts the token of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The user `nonroot` of our own image and of the distroless ones.
const NONROOT: i64 = 65532;

/// The constraints of `OpenShift` that admit any user, or any except root, and assign none. All
/// others, including those that an administrator created, may restrict a pod's users.
const ANY_USER: [&str; 5] = ["anyuid", "hostmount-anyuid", "nonroot", "nonroot-v2", "privileged"];

/// Lifetime of the token that proves the pod's identity to the operator, in seconds: an hour. The
/// kubelet renews it after four fifths, and the API server allows no less than ten minutes.
const TOKEN_SECONDS: u32 = 3600;

/// Audience of the token: no other server accepts it.
const TOKEN_AUDIENCE: &str = "traffic-operator";

/// The processor time an agent of a Guaranteed pod has when the recipe names no limit. Such a pod
/// must have one, and an agent that is throttled measures its own throttling: 50 ms of each second
/// are some ten times the need of 16 peers at a period of 10 s.
const GUARANTEED_CPU: &str = "50m";

/// The same for memory: the agent is one static program with a small heap.
const GUARANTEED_MEMORY: &str = "64Mi";

/// The processor time an agent may use where all of the pod's containers have a limit, which a
/// quota may require: 10 ms in each tenth of a second, enough for a scrape of 2,000 series.
const LIMITED_CPU: &str = "100m";

/// Requests of an agent if all of the pod's containers have requests but the recipe has none: the
/// defaults of the spec.
const REQUESTED_CPU: &str = "10m";

/// The same for memory.
const REQUESTED_MEMORY: &str = "16Mi";

/// Readable by every user, written in decimal as the original does: 0644.
const MODE: u32 = 420;

/// Builds the agent's container for a pod.
fn container(pod: &PodObject, recipe: &Recipe) -> Value {
    let mut container = json!({
        "name": AGENT_CONTAINER,
        "image": recipe.image,
        "imagePullPolicy": recipe.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": environment(recipe),
        // No readiness probe: a sidecar's readiness is its pod's.
        "ports": [
            {"name": PING_PORT, "containerPort": recipe.http_port, "protocol": "TCP"},
            {"name": METRICS_PORT, "containerPort": recipe.prometheus_port, "protocol": "TCP"},
        ],
        "volumeMounts": [
            {"name": AGENT_VOLUME, "mountPath": MOUNT, "readOnly": true},
            // At a path with a mount, the API server mounts no token of the pod's account: the
            // agent does not need it, and the webhook is not called a second time because of it.
            {"name": AGENT_VOLUME, "mountPath": ACCOUNT, "readOnly": true},
        ],
        "resources": written(resources(pod, recipe)),
        "securityContext": security_context(pod, recipe),
    });
    if recipe.own_image {
        container["args"] = json!(["agent", "probe"]);
    }
    if recipe.native_sidecar {
        container["restartPolicy"] = json!("Always");
    }
    container
}

/// Returns the agent's container and volume for a separate pod, as in a `DaemonSet`: with the configured resources, and not
/// as an init container.
#[must_use]
pub fn standalone(recipe: &Recipe) -> (Value, Value) {
    let mut container = container(&PodObject::default(), recipe);
    let Resources { requests, limits } = &recipe.resources;
    container["resources"] = json!({"requests": requests, "limits": limits});
    if let Some(container) = container.as_object_mut() {
        container.remove("restartPolicy");
    }
    (container, volume(recipe))
}

/// Returns the security context that the Pod Security Standard "restricted" requires of a
/// container.
///
fn security_context(pod: &PodObject, recipe: &Recipe) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if let Some(user) = user(pod, recipe) {
        context["runAsUser"] = json!(user);
        context["runAsGroup"] = json!(user);
    }
    context
}

/// Returns the user to set, if one must be set.
///
/// The kubelet does not start a container that must not run as root if its user is root or not a
/// number; a native sidecar that does not start keeps the whole pod from starting. Also, a process
/// of the application's user could signal and trace the agent and shares its limits. So the user is
/// set if it would otherwise be the pod's, or if the image is not ours; our own image has a numeric
/// user, which the kubelet reads from it.
///
/// If the cluster assigns users by namespace (`OpenShift`), a fixed one would be refused, and with
/// it the pod. The constraint that admits the pod is in an annotation before webhooks are called,
/// and is applied again after them: the agent gets the namespace's user, like every container.
///
/// A token that only its owner may read belongs to the user that all containers share: with another
/// one among them, the kubelet gives it to root, and the application cannot read it.
fn user(pod: &PodObject, recipe: &Recipe) -> Option<i64> {
    if recipe.run_as_user.is_some() {
        return recipe.run_as_user;
    }
    let constraint = pod.annotation(CONSTRAINT_ANNOTATION);
    let assigned = constraint.is_some_and(|name| !ANY_USER.contains(&name));
    let used: Vec<_> = pod
        .run_as_user()
        .into_iter()
        .chain(pod.all_containers().filter_map(|c| c.run_as_user))
        .collect();
    if let Some(shared) = pod.shared_user().filter(|user| pod.guards_token() && *user != 0) {
        return (!assigned).then_some(shared);
    }
    let named = match pod.run_as_user() {
        Some(0) => true,
        Some(_) => !assigned,
        None => !assigned && (!recipe.own_image || used.contains(&NONROOT)),
    };
    named.then(|| (NONROOT..).take(used.len() + 1).find(|user| !used.contains(user))).flatten()
}

fn environment(recipe: &Recipe) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let mut all = vec![
        json!({"name": "HTTP_PORT", "value": recipe.http_port.to_string()}),
        json!({"name": "HTTP_PROMETHEUS_PORT", "value": recipe.prometheus_port.to_string()}),
        json!({"name": "NET_PROBER_CONFIG_FILE", "value": format!("{MOUNT}/config.json")}),
        field("NET_PROBER_POD_NAMESPACE", "metadata.namespace"),
        field("NET_PROBER_POD_NAME", "metadata.name"),
        field("NET_PROBER_POD_IPS", "status.podIPs"),
        field("NET_PROBER_NODE", "spec.nodeName"),
        json!({"name": "NET_PROBER_PROBER", "value": recipe.prober}),
        json!({"name": "NET_PROBER_DELIVERY", "value": recipe.delivery.as_str()}),
    ];
    if let Delivery::Pull { url } = &recipe.delivery {
        all.push(json!({"name": "NET_PROBER_PINGLIST_URL", "value": url}));
    }
    Value::Array(all)
}

/// The volume. Nothing in it can keep the pod from starting: the map is optional, and so is each of
/// its keys; and a token is issued for every pod.
fn volume(recipe: &Recipe) -> Value {
    let items = FILES.map(|file| json!({"key": file, "path": file}));
    let mut sources = vec![json!({"configMap": {
        "name": recipe.config_map, "items": items, "optional": true
    }})];
    // Kubernetes keeps this map in every namespace. Agents verify the certificates of targets by it.
    let items = [json!({"key": "ca.crt", "path": CLUSTER_CA})];
    sources.push(json!({"configMap": {
        "name": "kube-root-ca.crt", "items": items, "optional": true
    }}));
    if matches!(recipe.delivery, Delivery::Pull { .. }) {
        sources.push(json!({"serviceAccountToken": {
            "path": "token", "audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS
        }}));
    }
    json!({"name": AGENT_VOLUME, "projected": {"defaultMode": MODE, "sources": sources}})
}

/// Returns the agent's resources, which keep the pod's quality-of-service class, and meet every
/// quota that its containers meet.
#[must_use]
pub fn resources(pod: &PodObject, recipe: &Recipe) -> Resources {
    let asked = &recipe.resources;
    let mut given = asked.clone();
    match pod.qos() {
        // The pod's resources include the agent; the sum of the containers must not exceed them.
        _ if pod.has_pod_resources() => given.drop_computing(),
        Qos::BestEffort => given.drop_computing(),
        Qos::Burstable => given.complete(pod),
        Qos::Guaranteed => {
            for (name, least) in [("cpu", GUARANTEED_CPU), ("memory", GUARANTEED_MEMORY)] {
                let amount = guaranteed(asked, name, least);
                given.requests.insert(name.into(), amount.clone());
                given.limits.insert(name.into(), amount);
            }
        }
    }
    given
}

fn written(resources: Resources) -> Value {
    let mut object = Map::new();
    for (key, amounts) in [("requests", resources.requests), ("limits", resources.limits)] {
        if !amounts.is_empty() {
            object.insert(key.into(), json!(amounts));
        }
    }
    Value::Object(object)
}

/// Returns the amount used as both request and limit: the configured limit, otherwise the larger of
/// the request and `least`.
fn guaranteed(asked: &Resources, name: &str, least: &str) -> String {
    let of = |amounts: &BTreeMap<String, String>| {
        amounts.get(name).filter(|text| size(text) > 0.0).cloned()
    };
    of(&asked.limits)
        .or_else(|| of(&asked.requests).filter(|text| size(text) > size(least)))
        .unwrap_or_else(|| least.into())
}

fn size(text: &str) -> f64 {
    parse_quantity(text).unwrap_or_default()
}

impl Resources {
    /// Adds the resources that all of the pod's containers have. A quota on requests or limits
    /// refuses a pod with a container that has none; under such a quota, all of the pod's
    /// containers have them, because the pod would be refused otherwise.
    fn complete(&mut self, pod: &PodObject) {
        for (what, request, limit) in [
            (Compute::Cpu, REQUESTED_CPU, LIMITED_CPU),
            (Compute::Memory, REQUESTED_MEMORY, GUARANTEED_MEMORY),
        ] {
            let name = what.as_str();
            if pod.all_state(what, true) && !self.limits.contains_key(name) {
                let request = self.requests.get(name).filter(|text| size(text) > size(limit));
                self.limits.insert(name.into(), request.map_or(limit, |text| text).to_owned());
            }
            // For a resource with only a limit, the API server adds an equal request.
            let stated = self.requests.contains_key(name) || self.limits.contains_key(name);
            if pod.all_state(what, false) && !stated {
                self.requests.insert(name.into(), request.into());
            }
        }
    }

    /// Drops the resources that decide the class, and huge pages, which are not allowed without
    /// them.
    fn drop_computing(&mut self) {
        let keep =
            |name: &String| !matches!(&**name, "cpu" | "memory") && !name.starts_with("hugepages-");
        self.requests.retain(|name, _| keep(name));
        self.limits.retain(|name, _| keep(name));
    }
}
