//! The pending writes, decided from the observations.
use std::collections::BTreeSet;

use super::{
    children::{Child, ChildKey, ChildKind, Content, Family, LARGEST_FILE},
    lost_paths,
    observe::Observed,
    pinglists::config_json,
    report,
    settings::{LARGEST_MESH, Settings},
    snapshot::ProberState,
};
use crate::{
    api::{
        NetworkProber, NetworkProberStatus,
        network_prober::{Delivery, Mode},
    },
    controller::{Error, Notice, Plan, Verdict},
    webhook::configuration::{Interception, Namespaces},
};
use std::time::Duration;

/// Time between two passes of an object without any change, because of the kinds that are not
/// watched.
const PERIOD: Duration = Duration::from_secs(30);

/// Maximum rate of writes of the file of delivery `ConfigMap`, in bytes per second over all
/// namespaces: the API server keeps every version for some minutes, and kubelets check once a
/// minute.
const WRITE_RATE: usize = 20_000;

/// The longest pause between two writes of it.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Number of namespaces that get their `ConfigMap` before their first pod; further ones get it with
/// their first pod, because an administrator's `NetworkProber` may select thousands of namespaces.
const NAMESPACES_AHEAD: usize = 100;

/// The state that `apply` must establish.
#[derive(Debug, Default, PartialEq)]
pub struct Desired {
    /// Objects to apply: those that are missing or differ.
    pub apply: Vec<Child>,
    /// Objects to delete.
    pub delete: Vec<ChildKey>,
}

/// Decides.
///
/// # Errors
/// If the spec cannot be served.
pub fn plan(
    prober: &NetworkProber,
    observed: &Observed,
) -> Result<Plan<Desired, NetworkProberStatus>, Error> {
    let settings = match Settings::of(prober, &observed.setup.tenancy) {
        Ok(settings) => settings,
        Err(error) => return unserved(prober, observed, error),
    };
    let view = observed.view.as_deref();
    if let Some(over) = view.and_then(|view| view.over.as_ref()) {
        let mut plan = without_pods(prober, vec![report::over_budget(over)]);
        plan.desired.apply.extend(kept_webhook(prober, &settings, view, observed));
        return Ok(plan);
    }
    let Some(view) = view.filter(|view| view.synced) else {
        let conditions = prober.status.iter().flat_map(|status| &status.conditions);
        let known = conditions.into_iter().any(|condition| condition.type_ == "Ready");
        let conditions = if known { vec![] } else { vec![report::waiting()] };
        return Ok(without_pods(prober, conditions));
    };
    if view.recipe.is_none() {
        let text = "spec.agentImage: needed here: this operator does not know its own image (see \
                    --agent-image)";
        return unserved(prober, observed, Error::Invalid(text.into()));
    }
    let Wanted { children: wanted, file_size, problem } =
        children(prober, &settings, view, observed);
    let keys: BTreeSet<_> = wanted.iter().map(|child| child.key.clone()).collect();
    let delete = observed.existing.iter().filter(|key| {
        // Without a certificate the contents that depend on it are unknown: the webhook's object
        // and the agents' ca.crt stay.
        let holds_it = matches!(key.kind, ChildKind::Webhook | ChildKind::ConfigMap);
        !keys.contains(key) && (observed.bundle.is_some() || !holds_it)
    });
    let delete = delete.cloned().collect();
    let changed =
        wanted.into_iter().filter(|child| observed.unchanged.get(&child.key) != Some(&child.hash));
    let mut period = PERIOD;
    let due = changed.filter(|child| {
        // Two that undo each other's work for ever would keep the API server busy.
        let contest = observed.contests.get(&child.key);
        if let Some(contest) = contest.filter(|contest| contest.hash == child.hash)
            && !contest.left.is_zero()
        {
            period = period.min(contest.left);
            return false;
        }
        if child.key.kind != ChildKind::ConfigMap || child.object.get("binaryData").is_none() {
            return true;
        }
        let left = pause(file_size).saturating_sub(written(observed, &child.key));
        if left.is_zero() {
            return true;
        }
        period = period.min(left);
        false
    });
    let apply = due.collect();
    let mut conditions = report::conditions(&settings, view, observed);
    let mut notices = report::notices(prober, view);
    notices.extend(lost_paths::notice(&observed.traced));
    if let Some(contested) = report::contested(observed, &keys) {
        let known = prober.status.iter().flat_map(|status| &status.conditions);
        if !known.into_iter().any(|condition| condition.reason == contested.reason) {
            let note = contested.message.clone();
            notices.push(Notice { warning: true, reason: contested.reason, note, node: None });
        }
        let ready = conditions.iter_mut().find(|condition| condition.type_ == contested.type_);
        if let Some(ready) = ready.filter(|ready| ready.status == Some(true)) {
            *ready = contested;
        }
    }
    if let Some(problem) = problem {
        // The webhook and the certificates continue: pods must not suffer for it.
        conditions.retain(|condition| condition.type_ != "Ready");
        conditions.insert(0, Error::Invalid(problem).verdict());
    }
    Ok(Plan {
        desired: Desired { apply, delete },
        status: report::status(&settings, view),
        conditions,
        notices,
        period,
    })
}

/// Its pods are unknown: nothing is changed, and the earlier reports stay.
fn without_pods(
    prober: &NetworkProber,
    conditions: Vec<Verdict>,
) -> Plan<Desired, NetworkProberStatus> {
    Plan {
        desired: Desired::default(),
        status: prober.status.clone().unwrap_or_default(),
        conditions,
        notices: vec![],
        period: PERIOD,
    }
}

/// One that cannot be served keeps no webhook, which would not follow the CA: with failurePolicy
/// Fail and an old CA it would refuse pods. Once it has none, its error is the result.
fn unserved(
    prober: &NetworkProber,
    observed: &Observed,
    error: Error,
) -> Result<Plan<Desired, NetworkProberStatus>, Error> {
    let webhooks = observed.existing.iter().filter(|key| key.kind == ChildKind::Webhook);
    let delete: Vec<_> = webhooks.cloned().collect();
    if delete.is_empty() {
        return Err(error);
    }
    let mut plan = without_pods(prober, vec![error.verdict()]);
    plan.desired.delete = delete;
    Ok(plan)
}

/// Returns the webhook of one whose pods are unknown, if it has one that differs: with
/// failurePolicy Fail and an old CA it would refuse pods.
fn kept_webhook(
    prober: &NetworkProber,
    settings: &Settings,
    view: Option<&ProberState>,
    observed: &Observed,
) -> Option<Child> {
    let view = view.filter(|view| view.scope.allows_any() && view.full.is_none())?;
    if settings.mode != Mode::Sidecar || !observed.configuration {
        return None;
    }
    let webhook = webhook(&Family { prober, settings }, view, observed)?;
    let differs = observed.unchanged.get(&webhook.key) != Some(&webhook.hash);
    (differs && observed.existing.contains(&webhook.key)).then_some(webhook)
}

/// Returns the webhook; none without a certificate or a namespace.
fn webhook(family: &Family<'_>, view: &ProberState, observed: &Observed) -> Option<Child> {
    let settings = family.settings;
    let allowed = view.scope.allowed().into_iter().map(Into::into).collect();
    // An administrator's needs no consent: its labels are enough.
    let labels = settings.namespace_labels(&observed.setup.tenancy);
    family.webhook(&Interception {
        prober: (&settings.namespace, &settings.name),
        pod_selector: &settings.pod_selector,
        namespaces: labels.map_or(Namespaces::Named(&allowed), Namespaces::Labeled),
        operator_namespace: observed.setup.tenancy.operator(),
        endpoint: &observed.endpoint,
        ca_bundle: observed.bundle.as_deref()?,
        failure_policy: settings.failure_policy,
    })
}

/// Returns the pause after a write of a file, from its size in bytes in all namespaces together.
fn pause(bytes: usize) -> Duration {
    Duration::from_secs((bytes / WRITE_RATE) as u64).min(LONGEST_PAUSE)
}

fn written(observed: &Observed, key: &ChildKey) -> Duration {
    observed.written.get(key).copied().unwrap_or(Duration::MAX)
}

/// The children, and everything that keeps them from matching the spec.
struct Wanted {
    children: Vec<Child>,
    file_size: usize,
    problem: Option<String>,
}

fn children(
    prober: &NetworkProber,
    settings: &Settings,
    view: &ProberState,
    observed: &Observed,
) -> Wanted {
    let family = Family { prober, settings };
    let (mut children, mut problem) = (Vec::new(), None);
    // A file that exceeds the size of a `ConfigMap` is not written: the existing one stays.
    let (mut file_size, mut too_large) = (0, false);
    let count = view.members.members.len();
    if settings.is_full_mesh() && count > LARGEST_MESH {
        problem = Some(format!(
            "spec.neighbors: a full mesh of {count} pods is refused (at most {LARGEST_MESH}); set \
             inZone or perOtherZone"
        ));
    }
    let ca = observed.bundle.as_deref();
    let namespaces = namespaces(settings, view);
    // Agents that were not restarted since the delivery was changed continue as they began: their
    // mounts stay, and stay up to date.
    let readers = match settings.delivery {
        Delivery::ConfigMap => &namespaces,
        Delivery::Pull => &view.members.readers,
    };
    let readers: BTreeSet<_> = readers.intersection(&namespaces).collect();
    let file = (!readers.is_empty()).then(|| config_json(settings, &view.members.members));
    if let Some(file) = &file {
        file_size = file.len() * readers.len();
        too_large = file.len() > LARGEST_FILE;
        if too_large {
            problem = Some(format!(
                "spec.delivery: the file of {count} pods has {} bytes, more than a ConfigMap holds \
                 ({LARGEST_FILE}); use delivery Pull (and restart the pods whose agents read the \
                 file), or select fewer pods; agents keep what they have",
                file.len()
            ));
        }
    }
    // The maps whose file must stay although no apply can contain it.
    let existing: BTreeSet<_> = observed.existing.iter().filter(|_| too_large).collect();
    for namespace in &namespaces {
        let endpoints = file.as_deref().filter(|_| readers.contains(namespace) && !too_large);
        let content = Content { authorities: ca, endpoints };
        if ca.is_none() && endpoints.is_none() {
            continue;
        }
        let map = family.config_map(namespace, content);
        children.push(match ca {
            // Agents that ask the operator trust no other authorities.
            Some(ca) if readers.contains(namespace) && existing.contains(&map.key) => {
                Family::authorities(map.key, ca)
            }
            _ => map,
        });
    }
    match settings.mode {
        Mode::Sidecar if view.full.is_some() => {
            problem = problem.or(view.full.as_ref().map(ToString::to_string));
        }
        // There is nothing to write into; the status reports this.
        Mode::Sidecar if !observed.configuration => {}
        Mode::Sidecar => children.extend(webhook(&family, view, observed)),
        Mode::DaemonSet => children.extend(view.recipe.as_ref().map(|r| family.daemon_set(r))),
    }
    let monitoring = &settings.monitoring;
    // An empty list of namespaces would mean the PodMonitor's own.
    let scraped = monitoring.pod_monitor && !namespaces.is_empty();
    if scraped && observed.monitoring.contains(&ChildKind::PodMonitor) {
        children.push(family.pod_monitor(namespaces.iter().map(String::as_str)));
    }
    if monitoring.prometheus_rule && observed.monitoring.contains(&ChildKind::PrometheusRule) {
        children.push(family.prometheus_rule(observed.setup.runbooks.as_deref()));
    }
    Wanted { children, file_size, problem }
}

/// Returns the namespaces with agents, or in which agents may appear.
fn namespaces(settings: &Settings, view: &ProberState) -> BTreeSet<String> {
    let allowed = view.scope.allowed();
    if settings.mode == Mode::DaemonSet {
        return [settings.namespace.clone()].into();
    }
    if allowed.len() <= NAMESPACES_AHEAD {
        return allowed.into_iter().map(Into::into).collect();
    }
    view.members.namespaces.clone()
}
