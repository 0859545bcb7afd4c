//! Decides whether a pod gets the prober's agent.
//!
//! The webhook calls [`skip_reason`] for a pod that is about to be created, and the report of
//! coverage for existing pods; both use the same words. [`patch()`] adds the agent.
use std::collections::BTreeMap;

use serde::Serialize;

use crate::pods::{DEPLOYED_ANNOTATION, INJECT_ANNOTATION, INJECTED_BY_ANNOTATION, PodObject};

mod container;
mod patch;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use patch::{Op, mark, patch};

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

/// Returns the requests and limits of a pod's agent.
#[must_use]
pub fn resources(pod: &PodObject, recipe: &Recipe) -> Resources {
    container::resources(pod, &recipe.resources)
}

/// Returns the agent's container and volume for a separate pod, as in a `DaemonSet`.
#[must_use]
pub fn standalone(recipe: &Recipe) -> (serde_json::Value, serde_json::Value) {
    container::standalone(recipe)
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
