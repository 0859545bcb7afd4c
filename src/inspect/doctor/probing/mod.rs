//! Checks of the `NetworkProber`s: the webhook that injects agents, the monitoring objects for
//! Prometheus, and the agents.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        core::v1::{Namespace, Pod, Service},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::{Check, some};
use crate::{
    api::{
        NetworkProber,
        network_prober::{Mode, NotInjected},
    },
    infra::{Api, watch::Metadata},
    inspect::cluster::{describe, name_of},
    network_prober::{
        children::ChildKind,
        measurement::{self, Querier, Subject},
        overview::{Measured, Uncovered},
    },
    pods::INJECTED_BY_ANNOTATION,
    prometheus,
    selector::Selector,
    webhook::configuration,
};

#[cfg(test)]
mod tests;

/// Maximum number of checked replicas: more than any installation has.
const REPLICAS: usize = 5;

/// The deadline of a handshake, including the port-forward: a handshake takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// The facts about the `NetworkProber`s.
#[derive(Clone, Debug)]
pub struct Probing {
    /// The objects.
    pub probers: Result<Vec<NetworkProber>, String>,
    /// True if the object with the operator's webhooks exists.
    pub configuration: bool,
    /// The webhooks that lead to the operator.
    pub webhooks: Result<Vec<Webhook>, String>,
    /// The certificates of the replicas behind them: by pod and webhook configuration.
    pub shown: Vec<Shown>,
    /// Whether the API server had the webhook see a pod of each, in a dry run that stores nothing;
    /// by name. Those that inject nothing now are not tried.
    pub called: BTreeMap<String, Result<Tried, String>>,
    /// The existing monitoring objects: by kind and object.
    pub monitoring: BTreeMap<(ChildKind, String), Result<bool, String>>,
    /// The figures of each, by name; empty if Prometheus was not queried.
    pub measured: BTreeMap<String, Measured>,
}

/// A pod that was created in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its namespace.
    pub namespace: String,
    /// True if it got an agent.
    pub injected: bool,
}

/// One entry of a `MutatingWebhookConfiguration` that leads to the operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Webhook {
    /// The configuration.
    pub object: String,
    /// The entry.
    pub name: String,
    /// The namespace, name and port of the Service; none if it is reached by a URL.
    pub service: Option<(String, String, i32)>,
    /// The path or URL.
    pub path: String,
    /// The certificates that the API server trusts, as PEM.
    pub bundle: Option<Vec<u8>>,
    /// The namespaces of the pods for which it is called.
    pub namespaces: LabelSelector,
}

impl Webhook {
    /// Reports whether it belongs to this `NetworkProber`.
    fn is_of(&self, prober: &NetworkProber) -> bool {
        let (namespace, name) = (prober.namespace().unwrap_or_default(), prober.name_any());
        self.path.ends_with(&format!("/{namespace}/{name}"))
    }
}

/// A certificate that a replica showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The Service through which the API server reaches it.
    pub service: String,
    /// The pod; empty if there is none.
    pub pod: String,
    /// The configuration whose bundle it was compared with.
    pub object: String,
    /// The result of verifying the certificate.
    pub result: Result<(), Trouble>,
}

/// The reason why a certificate was not seen, or not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The Service has no ready pod.
    NoPod(String),
    /// It could not be reached from here, or not in time.
    NotReached(String),
    /// The API server does not trust its certificate, or nothing listens there.
    Refused(String),
}

/// Reads everything except Prometheus.
pub async fn gather(client: &Client, operator: &str) -> Probing {
    let probers = Api::<NetworkProber>::all(client.clone());
    let probers = probers.list(&ListParams::default()).await;
    let probers = probers.map_err(|error| describe("list NetworkProbers", error));
    let probers = probers.map(|list| list.items);
    let mut found = Probing {
        probers,
        configuration: true,
        webhooks: Ok(vec![]),
        shown: vec![],
        called: BTreeMap::new(),
        monitoring: BTreeMap::new(),
        measured: BTreeMap::new(),
    };
    // Without such objects, nothing of this is needed.
    if found.probers.as_ref().is_ok_and(Vec::is_empty) {
        return found;
    }
    match configurations(client).await {
        Ok(all) => {
            found.configuration =
                all.iter().any(|object| object.name_any() == configuration::OBJECT);
            found.webhooks = Ok(entries(all, operator));
        }
        Err(error) => found.webhooks = Err(error),
    }
    for prober in found.probers.as_deref().unwrap_or_default() {
        let entries = found.webhooks.as_deref().unwrap_or_default();
        if let Some(entry) = entries.iter().find(|entry| entry.is_of(prober))
            && injects(prober)
            && let Some(tried) = try_pod(client, prober, entry).await
        {
            found.called.insert(name_of(prober), tried);
        }
    }
    found.shown = shown(client, found.webhooks.as_deref().unwrap_or_default()).await;
    for prober in found.probers.as_deref().unwrap_or_default() {
        let namespace = prober.namespace().unwrap_or_default();
        for kind in ChildKind::MONITORING {
            let resource = kind.resource();
            let api = Api::<Metadata<DynamicObject>>::namespaced_with(
                client.clone(),
                &namespace,
                &resource,
            );
            let there = match api.get_opt(&prober.name_any()).await {
                Ok(there) => Ok(there.is_some()),
                // The API server does not serve this group.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                Err(error) => Err(describe("get", error)),
            };
            found.monitoring.insert((kind, name_of(prober)), there);
        }
    }
    found
}

/// Asks Prometheus about each.
pub async fn figures(probing: &mut Probing, client: &prometheus::Client) {
    for prober in probing.probers.as_deref().unwrap_or_default() {
        let name = name_of(prober);
        let subject = Subject::of(prober);
        let querier = Querier::Command(client.clone());
        let (figures, problem) = match measurement::measure(&querier, &subject).await {
            Ok(figures) => (Some(figures), None),
            Err(error) => (None, Some(error.message)),
        };
        let endpoint = client.name().to_owned();
        probing.measured.insert(name, Measured { endpoint, problem, figures });
    }
}

async fn configurations(client: &Client) -> Result<Vec<MutatingWebhookConfiguration>, String> {
    let api = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let all = api.list(&ListParams::default()).await;
    all.map(|list| list.items)
        .map_err(|error| describe("list MutatingWebhookConfigurations", error))
}

/// Returns the entries with a Service in the operator's namespace, and those of our own object.
fn entries(all: Vec<MutatingWebhookConfiguration>, operator: &str) -> Vec<Webhook> {
    let mut found = Vec::new();
    for object in all {
        let name = object.name_any();
        let ours = name == configuration::OBJECT;
        for entry in object.webhooks.into_iter().flatten() {
            let service = entry.client_config.service;
            let leads_to_us = service.as_ref().is_some_and(|service| service.namespace == operator);
            let by_url = ours && service.is_none();
            if !leads_to_us && !by_url {
                continue;
            }
            let path = service.as_ref().and_then(|service| service.path.clone());
            found.push(Webhook {
                namespaces: entry.namespace_selector.unwrap_or_default(),
                object: name.clone(),
                name: entry.name,
                path: path.or(entry.client_config.url).unwrap_or_default(),
                service: service.map(|s| (s.namespace, s.name, s.port.unwrap_or(443))),
                bundle: entry
                    .client_config
                    .ca_bundle
                    .map(|bundle| bundle.0)
                    .filter(|b| !b.is_empty()),
            });
        }
    }
    found
}

/// Reports whether every new pod should get an agent, for all that its status says.
fn injects(prober: &NetworkProber) -> bool {
    let conditions = prober.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    prober.spec.mode == Mode::Sidecar
        && ready.is_some_and(|ready| ready.status == "True" || ready.reason == "NotCalled")
}

/// Creates a pod that the object selects, in a dry run. Returns `None` if no namespace or no such
/// pod is found, or new pods get no agent there for a reason that is known.
async fn try_pod(
    client: &Client,
    prober: &NetworkProber,
    entry: &Webhook,
) -> Option<Result<Tried, String>> {
    let status = prober.status.as_ref()?;
    let namespace = match namespace(client, prober, &entry.namespaces).await {
        Ok(namespace) => namespace?,
        Err(error) => return Some(Err(error)),
    };
    let covered = status.conditions.iter().find(|condition| condition.type_ == "Covered");
    // The condition names the namespaces that would refuse a pod with an agent.
    let refused = covered.is_some_and(|covered| covered.message.contains("ResourcesRefused:"));
    if refused || status.paused.iter().any(|paused| paused.namespace == namespace) {
        return None;
    }
    let labels = labels(&prober.spec.pod_selector);
    let selector = Selector::new(&prober.spec.pod_selector).ok()?;
    if !selector.matches(|key| labels.get(key).map(String::as_str)) {
        return None;
    }
    // What the restricted Pod Security Standard asks for.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "traffic-operator-doctor-", "labels": labels},
        "spec": {
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "doctor", "image": "registry.k8s.io/pause:3.10",
                "resources": {
                    "requests": {"cpu": "1m", "memory": "1Mi"},
                    "limits": {"cpu": "1m", "memory": "16Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    let pod: Pod = serde_json::from_value(pod).ok()?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = Api::<Pod>::namespaced(client.clone(), &namespace).create(&params, &pod).await;
    Some(match made {
        Ok(made) => {
            let injected = made.annotations().contains_key(INJECTED_BY_ANNOTATION);
            Ok(Tried { namespace, injected })
        }
        Err(error) => Err(describe("create a pod (dry run)", error)),
    })
}

/// A namespace for whose pods the webhook is called: that of the object, if it is one of them.
async fn namespace(
    client: &Client,
    prober: &NetworkProber,
    selector: &LabelSelector,
) -> Result<Option<String>, String> {
    let own = prober.namespace().unwrap_or_default();
    let Ok(selector) = Selector::new(selector) else { return Ok(None) };
    let namespaces = Api::<Metadata<Namespace>>::all(client.clone());
    let all = namespaces.list(&ListParams::default()).await;
    let all = all.map_err(|error| describe("list Namespaces", error))?;
    let mut called: Vec<_> = all
        .items
        .iter()
        .filter(|namespace| selector.matches(|key| namespace.labels().get(key).map(String::as_str)))
        .map(ResourceExt::name_any)
        .collect();
    called.sort_by_key(|name| *name != own);
    Ok(called.into_iter().next())
}

/// Labels that a selector matches, as far as it asks for any.
fn labels(selector: &LabelSelector) -> BTreeMap<String, String> {
    let mut labels = selector.match_labels.clone().unwrap_or_default();
    for wanted in selector.match_expressions.iter().flatten() {
        let value = wanted.values.iter().flatten().next().cloned();
        if matches!(wanted.operator.as_str(), "In" | "Exists") {
            labels.entry(wanted.key.clone()).or_insert(value.unwrap_or_default());
        }
    }
    labels
}

/// Makes one handshake for each replica and bundle.
async fn shown(client: &Client, webhooks: &[Webhook]) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for webhook in webhooks {
        let (Some((namespace, name, port)), Some(bundle)) = (&webhook.service, &webhook.bundle)
        else {
            continue;
        };
        if !seen.insert((namespace, name, port, bundle)) {
            continue;
        }
        let service = format!("{namespace}/{name}");
        let one = |pod: String, result| Shown {
            service: service.clone(),
            pod,
            object: webhook.object.clone(),
            result,
        };
        match replicas(client, namespace, name, *port).await {
            Err(trouble) => found.push(one(String::new(), Err(trouble))),
            Ok(replicas) => {
                for (pod, port) in replicas.into_iter().take(REPLICAS) {
                    let host = format!("{name}.{namespace}.svc");
                    let result = shake(client, (namespace, &pod, port), &host, bundle);
                    let result = result.await;
                    found.push(one(pod, result));
                }
            }
        }
    }
    found
}

/// Returns the ready pods behind a Service, with its target port.
async fn replicas(
    client: &Client,
    namespace: &str,
    name: &str,
    port: i32,
) -> Result<Vec<(String, u16)>, Trouble> {
    let unread = |action, error| Trouble::NotReached(describe(action, error));
    let service = Api::<Service>::namespaced(client.clone(), namespace).get_opt(name).await;
    let service = service.map_err(|error| unread("get Service", error))?;
    let Some(spec) = service.and_then(|service| service.spec) else {
        return Err(Trouble::NoPod("there is no such Service".into()));
    };
    let labels = spec.selector.unwrap_or_default();
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let target = spec.ports.into_iter().flatten().find(|one| one.port == port);
    let target = target.and_then(|one| one.target_port).unwrap_or(IntOrString::Int(port));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&labels.join(","))).await;
    let pods = pods.map_err(|error| unread("list pods", error))?;
    let ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let of = |pod: &Pod| Some((pod.name_any(), number(pod, &target)?));
    let found: Vec<_> = pods.iter().filter(|pod| ready(pod)).filter_map(of).collect();
    if found.is_empty() {
        return Err(Trouble::NoPod(format!("no ready pod has the labels {}", labels.join(","))));
    }
    Ok(found)
}

fn number(pod: &Pod, target: &IntOrString) -> Option<u16> {
    let name = match target {
        IntOrString::Int(number) => return u16::try_from(*number).ok(),
        IntOrString::String(name) => name,
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_ref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}

/// Makes a TLS handshake with a port of a pod, by a port-forward through the API server, and verifies
/// the certificate against a bundle, as the API server does with the webhook.
///
/// # Errors
/// The reason why the API server would not trust it.
async fn shake(
    client: &Client,
    (namespace, pod, port): (&str, &str, u16),
    host: &str,
    bundle: &[u8],
) -> Result<(), Trouble> {
    let shaken = async {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let forward = pods.portforward(pod, &[port]).await;
        let mut forward =
            forward.map_err(|error| Trouble::NotReached(describe("forward a port", error)))?;
        let nothing = || Trouble::NotReached(format!("port {port} is not forwarded"));
        let stream = forward.take_stream(port).ok_or_else(nothing)?;
        let result = trusts(stream, host, bundle).await.map_err(Trouble::Refused);
        forward.abort();
        result
    };
    within(DEADLINE, shaken).await
}

/// Waits for the result of a handshake up to a deadline. A late one proves nothing about the
/// certificate: it may be the port-forward that hangs.
async fn within(
    deadline: Duration,
    shaken: impl Future<Output = Result<(), Trouble>>,
) -> Result<(), Trouble> {
    let late = Trouble::NotReached(format!("no answer within {} s", deadline.as_secs()));
    tokio::time::timeout(deadline, shaken).await.unwrap_or(Err(late))
}

/// Verifies that the bundle trusts the other end under this name.
async fn trusts(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    bundle: &[u8],
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate =
            certificate.map_err(|error| format!("the caBundle is no PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the caBundle holds no authority: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the caBundle is empty".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map(drop).map_err(|error| error.to_string())
}

/// All checks.
pub(super) fn checks(probing: &Probing) -> Vec<Check> {
    let probers = match &probing.probers {
        Ok(probers) => probers,
        Err(error) => {
            let fix = "ask for the right to list networkprobers in all namespaces";
            return vec![Check::warn("probers", format!("cannot be listed: {error}"), fix)];
        }
    };
    if probers.is_empty() {
        return vec![Check::ok("probers", "there is no NetworkProber")];
    }
    let mut checks = webhooks(probing, probers);
    checks.extend(certificates(probing));
    checks.extend(probing.called.iter().map(|(name, tried)| called(name, tried)));
    checks.extend(probers.iter().flat_map(|prober| monitoring(probing, prober)));
    checks.extend(probers.iter().map(|prober| agents(probing, prober)));
    checks.extend(probers.iter().map(coverage));
    checks
}

/// Checks that the API server calls the operator for the pods of each.
fn webhooks(probing: &Probing, probers: &[NetworkProber]) -> Vec<Check> {
    let check = "webhook";
    let sidecars: Vec<_> = probers.iter().filter(|p| p.spec.mode == Mode::Sidecar).collect();
    if sidecars.is_empty() {
        return vec![];
    }
    let entries = match &probing.webhooks {
        Ok(entries) => entries,
        Err(error) => {
            let fix = "ask for the right to list mutatingwebhookconfigurations";
            return vec![Check::warn(check, format!("cannot be looked at: {error}"), fix)];
        }
    };
    let absent: Vec<_> = sidecars
        .iter()
        .filter(|prober| !entries.iter().any(|entry| entry.is_of(prober)))
        .map(|prober| name_of(*prober))
        .collect();
    let mut checks = Vec::new();
    if !probing.configuration {
        let message = format!(
            "the MutatingWebhookConfiguration {} is missing: new pods get no agents",
            configuration::OBJECT
        );
        checks.push(Check::fail(check, message, configuration::RESTORE).with(absent));
    } else if let Some(first) = absent.first() {
        let (namespace, name) = first.split_once('/').unwrap_or_default();
        let message = format!(
            "no MutatingWebhookConfiguration has an entry for {}: new pods get no agents",
            some(&absent)
        );
        let fix = format!(
            "kubectl -n {namespace} describe networkprober {name}; its condition Ready says why, else the \
             log of the leader"
        );
        checks.push(Check::fail(check, message, fix).with(absent));
    }
    let untrusted = entries.iter().filter(|entry| entry.bundle.is_none());
    let untrusted: Vec<_> = untrusted.map(|entry| entry.name.clone()).collect();
    if !untrusted.is_empty() {
        let message =
            format!("{} has no caBundle: the API server trusts nobody there", some(&untrusted));
        let fix = "see the log of the leader: it writes the bundle when it has a certificate";
        checks.push(Check::fail(check, message, fix).with(untrusted));
    }
    if checks.is_empty() {
        let message = format!("{} entries for {} NetworkProbers", entries.len(), sidecars.len());
        checks.push(Check::ok(check, message));
    }
    checks
}

/// Checks that the replicas present certificates that the API server trusts.
fn certificates(probing: &Probing) -> Vec<Check> {
    let check = "webhook";
    let mut checks = Vec::new();
    for Shown { service, pod, object, result } in &probing.shown {
        let made = match result {
            Ok(()) => continue,
            Err(Trouble::NoPod(why)) => {
                let (namespace, _) = service.split_once('/').unwrap_or_default();
                let message = format!("nobody answers behind the Service {service}: {why}");
                Check::fail(
                    check,
                    message,
                    format!("kubectl -n {namespace} get pods,endpointslices"),
                )
            }
            Err(Trouble::NotReached(why)) => {
                let message = format!("the certificate of pod {pod} was not looked at: {why}");
                let fix = "ask for the right to get and create pods/portforward there; if you have \
                           it, see whether kubectl port-forward reaches the pod";
                Check::warn(check, message, fix)
            }
            Err(Trouble::Refused(why)) => {
                let (namespace, _) = service.split_once('/').unwrap_or_default();
                let message = format!(
                    "pod {pod} shows no certificate that the caBundle of {object} trusts ({why}): the API \
                     server's questions fail, and pods get no agents"
                );
                let fix = format!(
                    "kubectl -n {namespace} logs {pod}; deleting the Secret traffic-operator-webhook makes \
                     another authority and certificate at once"
                );
                Check::fail(check, message, fix)
            }
        };
        checks.push(made);
    }
    if checks.is_empty() && !probing.shown.is_empty() {
        let mut pods: Vec<_> = probing.shown.iter().map(|shown| shown.pod.clone()).collect();
        pods.sort();
        pods.dedup();
        let message = format!("{} show a certificate that the API server trusts", some(&pods));
        checks.push(Check::ok(check, message));
    }
    checks
}

/// Checks that a new pod gets an agent.
fn called(name: &str, tried: &Result<Tried, String>) -> Check {
    let check = "webhook";
    match tried {
        Ok(Tried { namespace, injected: true }) => Check::ok(
            check,
            format!("{name}: a pod that was created in {namespace} (dry run) got an agent"),
        ),
        Ok(Tried { namespace, injected: false }) => {
            let message = format!(
                "{name}: a pod that was created in {namespace} (dry run) got no agent: the API server does \
                 not reach the webhook"
            );
            let fix = "open port 9443 from the control plane to the nodes or, where the control plane \
                       is not in the pod network, run the webhook on the host network: see the runbook \
                       TrafficOperatorWebhookNotCalled";
            Check::fail(check, message, fix)
        }
        Err(why) => {
            let fix = "run doctor as a user who may create pods there; a dry run stores none";
            Check::warn(check, format!("{name}: no pod was tried: {why}"), fix)
        }
    }
}

/// Checks that the objects that Prometheus needs exist, and that it uses them.
fn monitoring(probing: &Probing, prober: &NetworkProber) -> Vec<Check> {
    let check = "monitoring";
    let (name, wanted) = (name_of(prober), &prober.spec.monitoring);
    let kinds = [
        (ChildKind::PodMonitor, wanted.pod_monitor),
        (ChildKind::PrometheusRule, wanted.prometheus_rule),
    ];
    let mut checks = Vec::new();
    for (kind, _) in kinds.into_iter().filter(|(_, wanted)| *wanted) {
        match probing.monitoring.get(&(kind, name.clone())) {
            Some(Ok(false)) => {
                let fix = "install the prometheus-operator (then it is made within 30 s), or set \
                           spec.monitoring to false and scrape the port np-prometheus yourself";
                let message = format!("{name} has no {}", kind.as_str());
                checks.push(Check::warn(check, message, fix));
            }
            Some(Err(error)) => {
                let message = format!("{} {name} cannot be looked at: {error}", kind.as_str());
                checks.push(Check::warn(check, message, "ask for the right to get it"));
            }
            Some(Ok(true)) | None => {}
        }
    }
    let Some(measured) = probing.measured.get(&name) else { return checks };
    let (Some(figures), injected) =
        (&measured.figures, prober.status.as_ref().map_or(0, |status| status.injected))
    else {
        if let Some(problem) = &measured.problem {
            let message = format!("{name}: no figures from {}: {problem}", measured.endpoint);
            checks.push(Check::warn(check, message, "see the check of prometheus above"));
        }
        return checks;
    };
    let (namespace, own) = name.split_once('/').unwrap_or_default();
    if figures.scraped == 0 && injected > 0 {
        let message =
            format!("{} scrapes none of the {injected} agents of {name}", measured.endpoint);
        let fix = format!(
            "kubectl -n {namespace} get podmonitor {own}; the Prometheus has to select it \
             (podMonitorSelector, podMonitorNamespaceSelector), may list pods there, and reaches np-prometheus"
        );
        checks.push(Check::fail(check, message, fix));
    } else if figures.nodes.is_empty() && injected > 1 {
        let message =
            format!("{} scrapes agents of {name}, and records no path", measured.endpoint);
        let fix = format!(
            "kubectl -n {namespace} get prometheusrule {own}; the Prometheus has to select it (ruleSelector, \
             ruleNamespaceSelector)"
        );
        checks.push(Check::warn(check, message, fix));
    } else if checks.is_empty() {
        let message = format!(
            "{name}: {} of {injected} agents scraped, paths between {} nodes recorded",
            figures.scraped, figures.measured_nodes
        );
        checks.push(Check::ok(check, message));
    }
    checks
}

/// Checks that agents start and probe.
fn agents(probing: &Probing, prober: &NetworkProber) -> Check {
    let check = "agents";
    let name = name_of(prober);
    let (namespace, own) = name.split_once('/').unwrap_or_default();
    let Some(status) = &prober.status else {
        let message = format!("{name} has no status: the operator has not looked at it");
        return Check::fail(check, message, "is the operator running, and with this kind?");
    };
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    if let Some(ready) = ready.filter(|condition| condition.status != "True") {
        let message = format!("{name}: Ready={} {}: {}", ready.status, ready.reason, ready.message);
        return match ready.reason.as_str() {
            "AgentFailing" => {
                let fix = "kubectl describe one of the pods: image, registry, and its credentials";
                Check::fail(check, message, fix)
            }
            "Starting" | "CertificatePending" => {
                Check::warn(check, message, "wait a moment; else the log of the leader says why")
            }
            _ => Check::fail(check, message, "see the message"),
        };
    }
    let figures = probing.measured.get(&name).and_then(|measured| measured.figures.as_ref());
    if let Some(figures) = figures.filter(|figures| figures.silent_agents > 0) {
        let silent: Vec<_> = figures
            .silent
            .iter()
            .map(|agent| format!("{}/{}", agent.namespace, agent.pod))
            .collect();
        let message =
            format!("{name}: {} agents probe no peer: {}", figures.silent_agents, some(&silent));
        let fix = figures.silent.first().map_or_else(
            || format!("explain prober -n {namespace} {own}"),
            |agent| format!("explain pod -n {} {}", agent.namespace, agent.pod),
        );
        return Check::warn(check, message, fix).with(silent);
    }
    Check::ok(check, format!("{name}: {} pods have one, and all start", status.injected))
}

/// Checks the selected pods without an agent.
fn coverage(prober: &NetworkProber) -> Check {
    let check = "coverage";
    let (name, status) = (name_of(prober), prober.status.clone().unwrap_or_default());
    let (namespace, own) = name.split_once('/').unwrap_or_default();
    if status.selected == 0 {
        let fix =
            format!("correct spec.podSelector: kubectl -n {namespace} get pods --show-labels");
        return Check::warn(check, format!("{name} selects no pod"), fix);
    }
    if status.not_injected.is_empty() {
        let message = format!("{name}: all {} selected pods have an agent", status.selected);
        return Check::ok(check, message);
    }
    let sentence = |one: &NotInjected| {
        let count = usize::try_from(one.count).unwrap_or_default();
        let Uncovered { reason, count, meaning, .. } = Uncovered::of(&one.reason, count);
        format!("{count} {reason}: {meaning}")
    };
    let details = status.not_injected.iter().map(sentence).collect();
    let message =
        format!("{name}: {} of {} selected pods have an agent", status.injected, status.selected);
    Check::warn(check, message, format!("explain prober -n {namespace} {own}")).with(details)
}
