//! `Pod` as it comes from the API server, reduced while it is being read.
use std::net::IpAddr;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::NamespaceResourceScope;

use super::qos::{Qos, Resources};
use crate::partial_resource::partial_resource;

/// The name of the agent's container, the original operator's.
pub const AGENT_CONTAINER: &str = "net-prober";
/// The variable with the way in which an agent gets its list of peers.
pub const DELIVERY_VARIABLE: &str = "NET_PROBER_DELIVERY";
/// Seconds of running after which the kubelet forgets earlier terminations of a container.
pub const SOUND_SECONDS: i64 = 10 * 60;
/// The name of the agent's volume, the original operator's.
pub const AGENT_VOLUME: &str = "net-prober-vol";
/// The name of the port that answers probes.
pub const PING_PORT: &str = "np-ping";
/// The name of the port that serves the agent's metrics.
pub const METRICS_PORT: &str = "np-prometheus";

/// Written by the injection with the value `true`, as the original operator did; an author who sets
/// it to any value opts out.
pub const DEPLOYED_ANNOTATION: &str = "netprober-container-deployed";
/// `"false"` opts out.
pub const INJECT_ANNOTATION: &str = "probes.bigmikes.io/inject";
/// Names the agent's `NetworkProber`: `<namespace>/<name>`.
pub const INJECTED_BY_ANNOTATION: &str = "probes.bigmikes.io/injected-by";
/// Identifies the injected agent: the hash of the recipe.
pub const HASH_ANNOTATION: &str = "probes.bigmikes.io/injected-hash";
/// The mark of a pod that would be refused with an agent: `<namespace>/<name>` of the
/// `NetworkProber`, and the hash of the recipe.
pub const REFUSED_ANNOTATION: &str = "probes.bigmikes.io/refused-with";
/// Set by the kubelet on the mirror of a static pod, which cannot be changed.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Set by `OpenShift` before webhooks are called: the security context constraint that admits the
/// pod.
pub const CONSTRAINT_ANNOTATION: &str = "openshift.io/scc";
/// A port of the application, for scrapes that discover pods by annotations.
pub const SCRAPED_ANNOTATION: &str = "prometheus.io/port";

/// A Pod without the fields that the operator never uses.
///
/// It serves admission requests, with objects that may lack any field, and a watch of thousands of
/// pods. A full Pod has 5 to 50 kB; skipped text is never allocated. Absent or null fields are
/// empty.
#[derive(Clone, Debug, Default)]
pub struct PodObject {
    /// Names, uid, resource version, times, labels; of the annotations only those named in this
    /// module, of the owner references only the controller (its kind, name and uid).
    ///
    /// `annotations` is `None` if the Pod has no such object, and empty if it has one without any
    /// of ours.
    pub metadata: ObjectMeta,
    /// True if there is a `metadata` object to add to.
    pub(crate) has_metadata: bool,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

/// The part of a Pod's `spec` that is kept.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one pod")]
pub(super) struct Spec {
    pub node: Option<Box<str>>,
    pub host_network: bool,
    /// True if its containers see each other's processes, or those of the node.
    pub shares_processes: bool,
    pub windows: bool,
    pub restart_policy: Option<Box<str>>,
    /// True if names are resolved as on its node: those of Services are not.
    pub resolves_by_node: bool,
    /// True if it has a token of an account that only its owner may read.
    pub guards_token: bool,
    /// True if it has a deadline: `activeDeadlineSeconds`.
    pub ends: bool,
    pub priority_class: Option<Box<str>>,
    /// The user of every container that names none.
    pub run_as_user: Option<i64>,
    /// `None` if there is no such array.
    pub containers: Option<Box<[Container]>>,
    pub init_containers: Option<Box<[Container]>>,
    pub volumes: Option<Box<[Box<str>]>>,
    /// Resources of the pod as a whole.
    pub resources: Option<Resources>,
}

/// The part of a Pod's `status` that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    pub phase: Option<Box<str>>,
    pub ips: Box<[IpAddr]>,
    pub ready: bool,
    /// True if no node has room for it.
    pub unschedulable: bool,
    pub agent_running: bool,
    pub agent_waiting: Option<Box<str>>,
    pub agent_since: Option<i64>,
    pub agent_crashes: u32,
}

/// A container of a pod.
#[derive(Clone, Debug, Default)]
pub struct Container {
    /// Name of the container.
    pub name: Box<str>,
    /// Image of the container, as in the spec.
    pub image: Box<str>,
    /// True if its own restart policy is `Always`, which makes an init container a sidecar.
    pub restarts_always: bool,
    /// Its own user, if it names one.
    pub run_as_user: Option<i64>,
    /// Its declared ports, and undeclared ones where a server listens: the kubelet calls them, or
    /// arguments and variables name them.
    pub ports: Box<[Port]>,
    /// True if it requests its list of peers: an agent that does not reads a file.
    pub(super) pulls: bool,
    pub(super) resources: Resources,
}

/// A declared port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Its name, or empty.
    pub name: Box<str>,
    /// Its number; 0 means none.
    pub container_port: u16,
    /// The port of the node that leads to it; 0 means none.
    pub host_port: u16,
    /// `TCP` (also when none is given), `UDP`, `SCTP`.
    pub protocol: Box<str>,
}

/// The controller of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// E.g. `ReplicaSet`, `Job`.
    pub kind: &'a str,
    /// Name of the owner.
    pub name: &'a str,
    /// UID of the owner.
    pub uid: &'a str,
}

impl PodObject {
    /// Returns its name; empty before the API server has generated one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace of the pod.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the UID of the pod.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Reports whether all its containers have ended for good.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Reports whether its condition `Ready` is true.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.ready
    }

    /// Reports whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns its addresses, the primary one first; invalid ones are left out.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.status.ips
    }

    /// Returns `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`, or nothing yet.
    #[must_use]
    pub fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }

    /// Returns the node that it runs on.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.spec.node.as_deref()
    }

    /// Reports whether it uses its node's network.
    #[must_use]
    pub fn is_host_network(&self) -> bool {
        self.spec.host_network
    }

    /// Reports whether a container of it sees the processes of others: `shareProcessNamespace` or
    /// `hostPID`.
    #[must_use]
    pub fn shares_processes(&self) -> bool {
        self.spec.shares_processes
    }

    /// Reports whether it is for Windows, according to `os.name` or its node selector.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        self.spec.windows
    }

    /// Reports whether it is the mirror of a static pod.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
    }

    /// Reports whether it runs to completion: a pod of a Job, or one that does not always restart.
    #[must_use]
    pub fn runs_to_completion(&self) -> bool {
        self.controller().is_some_and(|owner| owner.kind == "Job")
            || matches!(self.spec.restart_policy.as_deref(), Some("Never" | "OnFailure"))
    }

    /// Returns the user of containers that set none.
    #[must_use]
    pub fn run_as_user(&self) -> Option<i64> {
        self.spec.run_as_user
    }

    /// Returns the value of one of the stored annotations.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the owner that controls it.
    #[must_use]
    pub fn controller(&self) -> Option<Owner<'_>> {
        let owner = self.metadata.owner_references.as_ref()?.first()?;
        Some(Owner { kind: &owner.kind, name: &owner.name, uid: &owner.uid })
    }

    /// Returns its containers; `None` if there is no such array.
    #[must_use]
    pub fn containers(&self) -> Option<&[Container]> {
        self.spec.containers.as_deref()
    }

    /// Returns its init containers; `None` if there is no such array.
    #[must_use]
    pub fn init_containers(&self) -> Option<&[Container]> {
        self.spec.init_containers.as_deref()
    }

    /// Returns the names of its volumes; `None` if there is no such array.
    #[must_use]
    pub fn volumes(&self) -> Option<&[Box<str>]> {
        self.spec.volumes.as_deref()
    }

    /// Returns every container except ephemeral ones, init containers first.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        let (init, main) = (&self.spec.init_containers, &self.spec.containers);
        init.iter().chain(main).flatten()
    }

    /// Returns its quality of service, as the API server will compute it.
    #[must_use]
    pub fn qos(&self) -> Qos {
        let containers = self.all_containers().map(|container| &container.resources);
        Qos::of(self.spec.resources.as_ref(), containers)
    }

    /// Reports whether it resolves names as its node does, and so none of a Service.
    #[must_use]
    pub fn resolves_by_node(&self) -> bool {
        self.spec.resolves_by_node
    }

    /// Reports whether it has a token of an account that only its owner may read.
    #[must_use]
    pub fn guards_token(&self) -> bool {
        self.spec.guards_token
    }

    /// Returns the user of all its containers, if they share one that the pod names.
    #[must_use]
    pub fn shared_user(&self) -> Option<i64> {
        let of = |container: &Container| container.run_as_user.or(self.spec.run_as_user);
        let mut users = self.all_containers().map(of);
        let first = users.next()??;
        users.all(|user| user == Some(first)).then_some(first)
    }

    /// Reports whether the scheduler finds no node for it.
    #[must_use]
    pub fn is_unschedulable(&self) -> bool {
        self.status.unschedulable
    }

    /// Reports whether it ends after a time: `activeDeadlineSeconds`.
    #[must_use]
    pub fn has_deadline(&self) -> bool {
        self.spec.ends
    }

    /// Returns the name of its priority class; empty if it has none.
    #[must_use]
    pub fn priority_class(&self) -> &str {
        self.spec.priority_class.as_deref().unwrap_or_default()
    }

    /// Reports whether it has CPU or memory as a whole, in addition to its containers.
    #[must_use]
    pub fn has_pod_resources(&self) -> bool {
        self.spec.resources.is_some_and(|resources| !resources.is_empty())
    }
}

partial_resource!(PodObject as Pod, NamespaceResourceScope);

/// Memory of a typical pod, including derived data (its place in lists, its entry in an index), as
/// measured by `make bench`.
const UNIT: usize = 4096;

/// Memory of a label in addition to its texts: two `String`s and its part of the map.
const ENTRY: usize = 64;

impl PodObject {
    /// Returns its weight, in units of 4 KiB: 1 for a typical pod, and more for one with a megabyte
    /// of labels or ports.
    #[must_use]
    pub fn weight(&self) -> usize {
        let Self { metadata, spec, status, .. } = self;
        let maps = [&metadata.labels, &metadata.annotations];
        let texts = maps.into_iter().flatten().flatten();
        let texts = texts.map(|(key, value)| ENTRY + key.len() + value.len()).sum::<usize>();
        let containers = self.all_containers().map(size).sum::<usize>();
        let volumes = spec.volumes.iter().flatten();
        let volumes = volumes.map(|name| size_of_val(name) + name.len()).sum::<usize>();
        let said = status.agent_waiting.as_ref().map_or(0, |text| text.len());
        let addresses = size_of_val(&*status.ips);
        let extra = texts + containers + volumes + said + addresses;
        // The unit includes what every pod has.
        1 + extra / UNIT
    }
}

fn size(container: &Container) -> usize {
    let ports = container.ports.iter();
    let ports =
        ports.map(|port| size_of::<Port>() + port.name.len() + port.protocol.len()).sum::<usize>();
    size_of::<Container>() + container.name.len() + container.image.len() + ports
}

/// Reports whether requests may be sent to an address because a pod claims it, which anyone with a
/// kubelet's credentials can make it do: not to the cloud's metadata service (169.254.169.254) or
/// any other link-local address, nor to multicast and broadcast addresses.
#[must_use]
pub fn is_askable(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_link_local() || ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified())
        }
        IpAddr::V6(ip) => !(ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified()),
    }
}

/// Reports whether agents may probe it: it is askable and not the agent's own host.
#[must_use]
pub fn is_probeable(ip: &IpAddr) -> bool {
    is_askable(ip) && !ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> PodObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn keeps_only_what_is_looked_at() {
        let pod = pod(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "generateName": "p-", "namespace": "n", "uid": "u",
                "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "a"},
                "annotations": {MIRROR_ANNOTATION: "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "managedFields": [{"manager": "kubelet"}],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "2", "controller": true}
                ]
            },
            "spec": {
                "nodeName": "node-1", "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80, "hostPort": 8080}]}]
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIPs": [],
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "nonsense"}],
                "conditions": [{"type": "Ready", "status": "True"}]}
        }));
        assert_eq!(pod.metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.metadata.labels.as_ref().unwrap()["app"], "a");
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("p-"));
        assert!(pod.metadata.creation_timestamp.is_some() && pod.is_mirror());
        assert_eq!(pod.controller(), Some(Owner { kind: "ReplicaSet", name: "r", uid: "2" }));
        assert_eq!((pod.node(), pod.phase()), (Some("node-1"), Some("Running")));
        assert_eq!(pod.volumes().unwrap(), ["v".into()]);
        let port = &pod.containers().unwrap()[0].ports[0];
        assert_eq!((port.container_port, port.host_port, &*port.protocol), (80, 8080, "TCP"));
        assert!(pod.is_ready() && !pod.is_finished() && !pod.is_terminating());
        assert_eq!(pod.ips().len(), 2);
    }

    #[test]
    fn one_address_is_read_where_the_list_is_missing() {
        let one = pod(json!({"status": {"podIP": "fd00::7", "podIPs": null}}));
        assert_eq!(one.ips(), ["fd00::7".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn anything_may_be_missing_or_null() {
        for value in [
            json!({}),
            json!({"metadata": null, "spec": null, "status": null}),
            json!({"metadata": {}, "spec": {}, "status": {}}),
            json!({
                "metadata": {"annotations": null, "labels": null, "ownerReferences": null, "creationTimestamp": null,
                    "deletionTimestamp": null, "name": null},
                "spec": {"containers": null, "initContainers": null, "volumes": null, "os": null, "nodeSelector": null,
                    "hostNetwork": null, "resources": null, "securityContext": null, "restartPolicy": null},
                "status": {"conditions": null, "containerStatuses": null, "initContainerStatuses": null}
            }),
        ] {
            let pod = pod(value);
            assert!(!pod.is_ready() && !pod.is_mirror() && !pod.is_windows());
            assert!(pod.agent().is_none() && !pod.takes_port(80));
            assert!(pod.containers().is_none() && pod.volumes().is_none() && pod.ips().is_empty());
            assert_eq!((pod.qos(), pod.controller()), (Qos::BestEffort, None));
        }
        let empty = json!({
            "spec": {
                "containers": [null, {"name": null, "ports": [null], "resources": null}, {"ports": null,
                    "resources": {"requests": null, "limits": {"cpu": null, "memory": 0}}}],
                "volumes": [null, {}], "nodeSelector": {"a": null}
            },
            "status": {"conditions": [null], "podIPs": [null], "containerStatuses": [null, {"name": "net-prober", "state": null}]}
        });
        let pod = pod(empty);
        assert_eq!((pod.containers().unwrap().len(), pod.qos()), (3, Qos::BestEffort));
        assert!(pod.has_metadata || pod.metadata == ObjectMeta::default());
    }

    #[test]
    fn no_annotations_are_not_the_same_as_none_of_ours() {
        let has = |value| pod(json!({"metadata": value})).metadata.annotations.is_some();
        assert!(!has(json!({})) && !has(json!({"annotations": null})));
        assert!(has(json!({"annotations": {}})) && has(json!({"annotations": {"a": "b"}})));
        // To the API server, null is the empty text: the author still set it.
        let null = pod(json!({"metadata": {"annotations": {DEPLOYED_ANNOTATION: null}}}));
        assert_eq!(null.annotation(DEPLOYED_ANNOTATION), Some(""));
    }

    #[test]
    fn windows_by_its_own_word_or_by_its_nodes() {
        assert!(pod(json!({"spec": {"os": {"name": "windows"}}})).is_windows());
        let selected = json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}});
        assert!(pod(selected).is_windows());
        let before = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "windows"}}});
        assert!(pod(before).is_windows());
        let options = json!({"windowsOptions": {"hostProcess": true}});
        assert!(pod(json!({"spec": {"securityContext": options}})).is_windows());
        assert!(!pod(json!({"spec": {"securityContext": {"windowsOptions": null}}})).is_windows());
        let os = |operator: &str, values: &[&str]| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "kubernetes.io/os", "operator": operator, "values": values},
            ]})
        };
        let windows = || os("In", &["windows"]);
        for (terms, expected) in [
            (json!([windows()]), true),
            (json!([windows(), windows()]), true),
            (json!([windows(), os("In", &["linux"])]), false),
            (json!([windows(), {}]), false),
            (json!([os("In", &["windows", "linux"])]), false),
            (json!([os("NotIn", &["windows"])]), false),
            (json!([os("In", &[])]), false),
            (json!([null, {"matchExpressions": [null, {"key": null, "values": [null]}]}]), false),
            (json!([]), false),
            (json!(null), false),
        ] {
            let required = json!({"nodeSelectorTerms": terms});
            let rule = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
            let affinity = json!({"spec": {"affinity": {"nodeAffinity": rule}}});
            assert_eq!(pod(affinity).is_windows(), expected, "{terms}");
        }
        assert!(!pod(json!({"spec": {"affinity": {"nodeAffinity": null}}})).is_windows());
        assert!(!pod(json!({"spec": {"os": {"name": "linux"}}})).is_windows());
    }

    #[test]
    fn who_runs_to_completion() {
        let job = json!({"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "1", "controller": true}]}});
        assert!(pod(job).runs_to_completion());
        for (policy, ends) in [("Never", true), ("OnFailure", true), ("Always", false)] {
            assert_eq!(pod(json!({"spec": {"restartPolicy": policy}})).runs_to_completion(), ends);
        }
        assert!(!pod(json!({})).runs_to_completion());
    }

    #[test]
    fn a_large_pod_counts_as_several() {
        let weight = |value| serde_json::from_value::<PodObject>(value).unwrap().weight();
        let container =
            |name: usize| json!({"name": format!("c{name}"), "image": "registry/image:1"});
        let usual = json!({
            "metadata": {"name": "p", "labels": {"app": "a", "pod-template-hash": "7cfcd8d8f9"}},
            "spec": {"containers": [container(0), container(1)], "volumes": [{"name": "v"}]},
        });
        assert_eq!((weight(usual), weight(json!({}))), (1, 1));
        let labels: serde_json::Map<_, _> =
            (0..10_000).map(|i| (format!("key-{i}"), json!("x".repeat(60)))).collect();
        let large = weight(json!({"metadata": {"labels": labels}}));
        assert!((200..500).contains(&large), "{large}");
        let ports: Vec<_> = (0..10_000).map(|i| json!({"containerPort": i % 65_536})).collect();
        let large = weight(json!({"spec": {"containers": [{"name": "a", "ports": ports}]}}));
        assert!(large > 100, "{large}");
    }

    #[test]
    fn nobody_is_sent_to_an_address_that_is_no_pods() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for good in ["10.0.0.7", "192.168.1.9", "100.64.0.1", "8.8.8.8", "fd00::7", "2001:db8::1"] {
            assert!(is_askable(&ip(good)) && is_probeable(&ip(good)), "{good}");
        }
        for bad in [
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!is_askable(&ip(bad)) && !is_probeable(&ip(bad)), "{bad}");
        }
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_probeable(&ip(own)), "{own}");
        }
    }
}
