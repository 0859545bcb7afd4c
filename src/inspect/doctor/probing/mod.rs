//! Checks of the `NetworkProber`s: the webhook that injects agents, the monitoring objects for
//! Prometheus, and the agents.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::{Check, some};
use crate::{
    api::{
        NetworkProber,
        network_prober::{Mode, NotInjected},
    },
    inspect::cluster::name_of,
    network_prober::{
        children::ChildKind,
        overview::{Measured, Uncovered},
    },
    webhook::configuration,
};

mod gather;
mod handshake;
#[cfg(test)]
mod tests;

pub use gather::{figures, gather};

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
