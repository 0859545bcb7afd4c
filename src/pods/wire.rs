//! The part of a Pod's JSON that is read: every field may be absent or null.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

use super::{
    qos::Resources,
    resource::{self, AGENT_CONTAINER, DELIVERY_VARIABLE, PodObject, SOUND_SECONDS},
};
use crate::partial_resource::nullable;

/// Maximum number of undeclared ports of a container that are kept: no server has more.
const UNDECLARED: usize = 100;

/// The name of the operating system that runs no agent.
const WINDOWS: &str = "windows";

#[derive(Deserialize)]
struct Pod {
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
    #[serde(default, deserialize_with = "nullable")]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, Option<String>>>,
    annotations: Option<Annotations>,
    owner_references: Option<Vec<Option<Owner>>>,
}

/// The keys are those of the constants in [`resource`]; a test compares them.
#[derive(Deserialize)]
struct Annotations {
    #[serde(default, rename = "netprober-container-deployed", deserialize_with = "present")]
    deployed: Option<String>,
    #[serde(default, rename = "probes.bigmikes.io/inject", deserialize_with = "present")]
    inject: Option<String>,
    #[serde(default, rename = "probes.bigmikes.io/injected-by", deserialize_with = "present")]
    by: Option<String>,
    #[serde(default, rename = "probes.bigmikes.io/injected-hash", deserialize_with = "present")]
    hash: Option<String>,
    #[serde(default, rename = "probes.bigmikes.io/refused-with", deserialize_with = "present")]
    refused: Option<String>,
    #[serde(default, rename = "kubernetes.io/config.mirror", deserialize_with = "present")]
    mirror: Option<String>,
    #[serde(default, rename = "openshift.io/scc", deserialize_with = "present")]
    constraint: Option<String>,
    #[serde(default, rename = "prometheus.io/port", deserialize_with = "present")]
    scraped: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<Box<str>>,
    #[serde(default, deserialize_with = "nullable")]
    host_network: bool,
    #[serde(default, rename = "hostPID", deserialize_with = "nullable")]
    host_pid: bool,
    #[serde(default, deserialize_with = "nullable")]
    share_process_namespace: bool,
    os: Option<Os>,
    node_selector: Option<NodeSelector>,
    affinity: Option<Affinity>,
    restart_policy: Option<Box<str>>,
    dns_policy: Option<Box<str>>,
    active_deadline_seconds: Option<i64>,
    priority_class_name: Option<Box<str>>,
    security_context: Option<SecurityContext>,
    containers: Option<Vec<Option<Container>>>,
    init_containers: Option<Vec<Option<Container>>>,
    volumes: Option<Vec<Option<Volume>>>,
    resources: Option<Resources>,
}

#[derive(Deserialize)]
struct Os {
    name: Option<Box<str>>,
}

#[derive(Deserialize)]
struct NodeSelector {
    #[serde(rename = "kubernetes.io/os")]
    os: Option<Box<str>>,
    /// The label before Kubernetes 1.14, which kubelets still set.
    #[serde(rename = "beta.kubernetes.io/os")]
    before: Option<Box<str>>,
}

#[derive(Deserialize)]
struct SecurityContext {
    #[serde(rename = "runAsUser")]
    run_as_user: Option<i64>,
    #[serde(rename = "windowsOptions")]
    windows: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default, deserialize_with = "nullable")]
    name: Box<str>,
    #[serde(default, deserialize_with = "nullable")]
    image: Box<str>,
    restart_policy: Option<Box<str>>,
    ports: Option<Vec<Option<Port>>>,
    env: Option<Vec<Option<Variable>>>,
    liveness_probe: Option<Check>,
    readiness_probe: Option<Check>,
    startup_probe: Option<Check>,
    lifecycle: Option<Lifecycle>,
    command: Option<Vec<Option<Box<str>>>>,
    args: Option<Vec<Option<Box<str>>>>,
    security_context: Option<SecurityContext>,
    #[serde(default, deserialize_with = "nullable")]
    resources: Resources,
}

#[derive(Deserialize)]
struct Variable {
    #[serde(default, deserialize_with = "nullable")]
    name: Box<str>,
    value: Option<Box<str>>,
}

/// A probe of the kubelet: a server listens on its port, declared or not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    http_get: Option<At>,
    tcp_socket: Option<At>,
    grpc: Option<At>,
}

/// Requests of the kubelet when a container starts and before it stops.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    post_start: Option<Check>,
    pre_stop: Option<Check>,
}

#[derive(Deserialize)]
struct At {
    /// A number, or the name of a declared port.
    port: Option<serde_json::Value>,
}

impl Check {
    fn port(&self) -> Option<u16> {
        let at = [&self.http_get, &self.tcp_socket, &self.grpc].into_iter().flatten().next()?;
        u16::try_from(at.port.as_ref()?.as_u64()?).ok()
    }
}

#[derive(Default, Deserialize)]
struct Port {
    #[serde(default, deserialize_with = "nullable")]
    name: Box<str>,
    #[serde(rename = "containerPort")]
    number: Option<i64>,
    #[serde(rename = "hostPort")]
    of_host: Option<i64>,
    protocol: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
struct Volume {
    #[serde(default, deserialize_with = "nullable")]
    name: Box<str>,
    projected: Option<Projected>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Projected {
    default_mode: Option<i64>,
    sources: Option<Vec<Option<Source>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    service_account_token: Option<serde::de::IgnoredAny>,
}

impl Volume {
    /// Reports whether it has a token that not every user may read.
    fn guards_token(&self) -> bool {
        let Some(Projected { default_mode: Some(mode), sources }) = &self.projected else {
            return false;
        };
        let sources = sources.iter().flatten().flatten();
        mode & 0o004 == 0
            && sources.into_iter().any(|source| source.service_account_token.is_some())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<str>>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<Option<Address>>>,
    start_time: Option<Time>,
    conditions: Option<Vec<Option<Condition>>>,
    container_statuses: Option<Vec<Option<ContainerStatus>>>,
    init_container_statuses: Option<Vec<Option<ContainerStatus>>>,
}

#[derive(Deserialize)]
struct Address {
    ip: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type", default, deserialize_with = "nullable")]
    type_: Box<str>,
    #[serde(default, deserialize_with = "nullable")]
    status: Box<str>,
    reason: Option<Box<str>>,
    #[serde(rename = "lastTransitionTime")]
    since: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default, deserialize_with = "nullable")]
    name: Box<str>,
    state: Option<State>,
    last_state: Option<State>,
    #[serde(default, deserialize_with = "nullable")]
    restart_count: u32,
}

#[derive(Default, Deserialize)]
struct State {
    running: Option<Run>,
    waiting: Option<Waiting>,
    terminated: Option<Run>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

impl Run {
    fn is_short(&self) -> bool {
        let (Some(start), Some(end)) = (&self.started_at, &self.finished_at) else { return true };
        end.0.as_second().saturating_sub(start.0.as_second()) < SOUND_SECONDS
    }
}

#[derive(Deserialize)]
struct Waiting {
    #[serde(default, deserialize_with = "nullable")]
    reason: Box<str>,
}

/// Reports a key as present, even with the value null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    nullable(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for PodObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(deserializer)?;
        Ok(Self {
            has_metadata: pod.metadata.is_some(),
            metadata: pod.metadata.map(ObjectMeta::from).unwrap_or_default(),
            spec: pod.spec.into(),
            status: pod.status.into(),
        })
    }
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        let annotations = metadata.annotations.map(|found| {
            let known = [
                (resource::DEPLOYED_ANNOTATION, found.deployed),
                (resource::INJECT_ANNOTATION, found.inject),
                (resource::INJECTED_BY_ANNOTATION, found.by),
                (resource::HASH_ANNOTATION, found.hash),
                (resource::REFUSED_ANNOTATION, found.refused),
                (resource::MIRROR_ANNOTATION, found.mirror),
                (resource::CONSTRAINT_ANNOTATION, found.constraint),
                (resource::SCRAPED_ANNOTATION, found.scraped),
            ];
            known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
        });
        let owners = metadata.owner_references.into_iter().flatten().flatten();
        let controller = owners.into_iter().find(|owner| owner.controller);
        let labels = metadata.labels.map(|labels| {
            labels.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
        });
        Self {
            name: metadata.name,
            generate_name: metadata.generate_name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels,
            annotations,
            owner_references: controller.map(|owner| {
                vec![OwnerReference {
                    kind: owner.kind,
                    name: owner.name,
                    uid: owner.uid,
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            }),
            ..Self::default()
        }
    }
}

impl From<Spec> for resource::Spec {
    fn from(spec: Spec) -> Self {
        let containers = |list: Option<Vec<Option<Container>>>| {
            list.map(|list| list.into_iter().map(|c| c.unwrap_or_default().into()).collect())
        };
        let os = spec.os.and_then(|os| os.name);
        let selected = spec.node_selector.and_then(|selector| selector.os.or(selector.before));
        let options =
            spec.security_context.as_ref().is_some_and(|context| context.windows.is_some());
        let named = [os, selected].iter().flatten().any(|name| &**name == WINDOWS);
        let required = spec.affinity.is_some_and(|affinity| affinity.requires_os(WINDOWS));
        Self {
            node: spec.node_name,
            host_network: spec.host_network,
            shares_processes: spec.host_pid || spec.share_process_namespace,
            windows: named || required || options,
            restart_policy: spec.restart_policy,
            resolves_by_node: spec.dns_policy.as_deref() == Some("Default"),
            ends: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            priority_class: spec.priority_class_name.filter(|name| !name.is_empty()),
            run_as_user: spec.security_context.and_then(|context| context.run_as_user),
            containers: containers(spec.containers),
            init_containers: containers(spec.init_containers),
            guards_token: spec.volumes.iter().flatten().flatten().any(Volume::guards_token),
            volumes: spec
                .volumes
                .map(|list| list.into_iter().map(|v| v.unwrap_or_default().name).collect()),
            resources: spec.resources,
        }
    }
}

impl From<Container> for resource::Container {
    fn from(container: Container) -> Self {
        let ports = container.ports.into_iter().flatten();
        let hooks = container.lifecycle.map(|hooks| [hooks.post_start, hooks.pre_stop]);
        let checks = [container.liveness_probe, container.readiness_probe, container.startup_probe];
        let checks = checks.into_iter().chain(hooks.into_iter().flatten()).flatten();
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().to_owned();
        let arguments: Vec<_> = [container.command, container.args]
            .iter()
            .flatten()
            .flat_map(|list| list.iter().map(text))
            .collect();
        let variables = container.env.iter().flatten().flatten();
        let variables = variables
            .filter_map(|variable| port_of_variable(&variable.name, variable.value.as_deref()?));
        let undeclared: BTreeSet<_> = checks
            .filter_map(|check| check.port())
            .chain(ports_of_arguments(&arguments))
            .chain(variables)
            .collect();
        let undeclared = undeclared.into_iter().take(UNDECLARED);
        let undeclared =
            undeclared.map(|port| Port { number: Some(port.into()), ..Port::default() });
        let ports = ports.map(Option::unwrap_or_default).chain(undeclared);
        Self {
            name: container.name,
            image: container.image,
            restarts_always: container.restart_policy.as_deref() == Some("Always"),
            run_as_user: container.security_context.and_then(|context| context.run_as_user),
            ports: ports.map(Into::into).collect(),
            pulls: container.env.iter().flatten().flatten().any(|variable| {
                &*variable.name == DELIVERY_VARIABLE && variable.value.as_deref() == Some("Pull")
            }),
            resources: container.resources,
        }
    }
}

impl From<Port> for resource::Port {
    fn from(port: Port) -> Self {
        let number = |n: Option<i64>| n.and_then(|n| u16::try_from(n).ok()).unwrap_or_default();
        Self {
            name: port.name,
            container_port: number(port.number),
            host_port: number(port.of_host),
            protocol: port.protocol.unwrap_or_else(|| "TCP".into()),
        }
    }
}

impl From<Status> for resource::Status {
    fn from(status: Status) -> Self {
        let listed = status.pod_ips.into_iter().flatten().flatten().filter_map(|a| a.ip);
        let mut ips: Vec<_> = listed.filter_map(|ip| ip.parse().ok()).collect();
        if ips.is_empty() {
            ips.extend(status.pod_ip.and_then(|ip| ip.parse::<IpAddr>().ok()));
        }
        let statuses = [status.init_container_statuses, status.container_statuses];
        let agent = statuses.into_iter().flatten().flatten().flatten();
        let agent = agent.into_iter().find(|s| &*s.name == AGENT_CONTAINER);
        let (state, last, restarts) = agent.map_or_else(Default::default, |agent| {
            let last = agent.last_state.and_then(|last| last.terminated);
            (agent.state.unwrap_or_default(), last, agent.restart_count)
        });
        let conditions = status.conditions.iter().flatten().flatten();
        let unschedulable = conditions.clone().any(|condition| {
            &*condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some("Unschedulable")
        });
        let ready = conditions.into_iter().find(|c| &*c.type_ == "Ready");
        let is_ready = ready.is_some_and(|ready| &*ready.status == "True");
        let crashes = if last.as_ref().is_none_or(Run::is_short) { restarts } else { 0 };
        let second = |time: Option<&Time>| time.map(|time| time.0.as_second());
        let since = match &state.running {
            Some(run) => second(run.started_at.as_ref()),
            // It has waited at the earliest since the pod was scheduled, was last Ready, or the
            // agent ended.
            None => [
                second(status.start_time.as_ref()),
                second(ready.filter(|_| !is_ready).and_then(|ready| ready.since.as_ref())),
                second(last.as_ref().and_then(|last| last.finished_at.as_ref())),
            ]
            .into_iter()
            .flatten()
            .max(),
        };
        Self {
            phase: status.phase,
            ips: ips.into(),
            ready: is_ready,
            unschedulable,
            agent_running: state.running.is_some(),
            agent_waiting: state.waiting.map(|waiting| waiting.reason),
            agent_since: since,
            agent_crashes: crashes,
        }
    }
}

/// The label of nodes with their operating system.
const OS: &str = "kubernetes.io/os";

/// The affinity of a pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Terms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    node_selector_terms: Option<Vec<Option<Term>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Option<Vec<Option<Expression>>>,
}

#[derive(Deserialize)]
struct Expression {
    key: Option<Box<str>>,
    operator: Option<Box<str>>,
    values: Option<Vec<Option<Box<str>>>>,
}

impl Affinity {
    /// Reports whether it allows only nodes with this operating system: one of the terms has to
    /// match, and all expressions of it.
    fn requires_os(&self, os: &str) -> bool {
        let required = self.node_affinity.as_ref().and_then(|node| node.required.as_ref());
        let terms = required.and_then(|required| required.node_selector_terms.as_deref());
        let terms = terms.unwrap_or_default();
        !terms.is_empty() && terms.iter().all(|term| term.as_ref().is_some_and(|t| t.requires(os)))
    }
}

impl Term {
    fn requires(&self, os: &str) -> bool {
        self.match_expressions.iter().flatten().flatten().any(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            expression.key.as_deref() == Some(OS)
                && expression.operator.as_deref() == Some("In")
                && !values.is_empty()
                && values.iter().all(|value| value.as_deref() == Some(os))
        })
    }
}

/// Flags whose value has the port of a server. An application that finds its port taken does not
/// start, and an agent less is only a pod less that is measured: so a port that may be one of a
/// server counts.
const FLAGS: [&str; 4] = ["port", "addr", "listen", "bind"];

/// Hosts in front of a port that are the pod itself.
const OWN_HOSTS: [&str; 7] = ["", "0.0.0.0", "127.0.0.1", "localhost", "[::]", "[::1]", "*"];

/// The ports of flags: `--port=8080`, `-port 8080`, `--metrics-addr=127.0.0.1:8080`.
fn ports_of_arguments(arguments: &[String]) -> Vec<u16> {
    let pairs = arguments.iter().enumerate().filter_map(|(place, argument)| {
        let flag = argument.strip_prefix('-')?;
        match flag.split_once('=') {
            Some((flag, value)) => Some((flag, value)),
            None => Some((flag, &**arguments.get(place + 1)?)),
        }
    });
    let named = pairs.filter(|(flag, _)| {
        let flag = flag.to_ascii_lowercase();
        FLAGS.iter().any(|part| flag.contains(part)) || flag == "p"
    });
    named.filter_map(|(_, value)| own_port(value)).collect()
}

/// The port of a variable: `PORT=8080`, `LISTEN_ADDRESS=:8080`.
fn port_of_variable(name: &str, value: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    FLAGS.iter().any(|part| name.contains(part)).then(|| own_port(value)).flatten()
}

fn own_port(value: &str) -> Option<u16> {
    let (host, port) = value.rsplit_once(':').unwrap_or(("", value));
    OWN_HOSTS.contains(&host).then(|| port.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_name_a_port_of_the_pod_itself() {
        for (text, expected) in [
            ("server --port=8080", &[8080][..]),
            ("--http-port 8080 --verbose", &[8080]),
            ("-p 8080 -port=9090", &[8080, 9090]),
            ("--metrics-addr=127.0.0.1:8080", &[8080]),
            ("--web.listen-address=:9090 --bind [::]:53", &[9090, 53]),
            ("--redis-addr=redis:6379 --url=http://x:80 --report=8080x", &[]),
            ("--port", &[]),
            ("8080 port=8080", &[]),
            ("--port=70000 --port=-1 --port=", &[]),
        ] {
            let all: Vec<_> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(ports_of_arguments(&all), expected, "{text}");
        }
    }

    #[test]
    fn variables_that_name_one() {
        assert_eq!(port_of_variable("PORT", "8080"), Some(8080));
        assert_eq!(port_of_variable("SERVER_PORT", "8080"), Some(8080));
        assert_eq!(port_of_variable("LISTEN", "0.0.0.0:8080"), Some(8080));
        for (name, value) in [("HOME", "8080"), ("DB_ADDR", "db:5432"), ("PORT", "http")] {
            assert_eq!(port_of_variable(name, value), None, "{name}");
        }
    }
}
