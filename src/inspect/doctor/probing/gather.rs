//! Reads the facts for the checks of `NetworkProber`s.
use std::collections::{BTreeMap, BTreeSet};

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
use serde_json::json;

use super::{Probing, Shown, Tried, Trouble, Webhook, handshake};
use crate::{
    api::{NetworkProber, network_prober::Mode},
    infra::{Api, watch::Metadata},
    inspect::cluster::{describe, name_of},
    network_prober::{
        children::ChildKind,
        measurement::{self, Querier, Subject},
        overview::Measured,
    },
    pods::INJECTED_BY_ANNOTATION,
    prometheus,
    selector::Selector,
    webhook::configuration::OBJECT,
};

/// Maximum number of checked replicas: more than any installation has.
const REPLICAS: usize = 5;

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
            found.configuration = all.iter().any(|object| object.name_any() == OBJECT);
            found.webhooks = Ok(webhooks(all, operator));
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
fn webhooks(all: Vec<MutatingWebhookConfiguration>, operator: &str) -> Vec<Webhook> {
    let mut found = Vec::new();
    for object in all {
        let name = object.name_any();
        let ours = name == OBJECT;
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
                    let result = handshake::shake(client, (namespace, &pod, port), &host, bundle);
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
