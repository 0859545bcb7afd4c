//! What there is to write, decided from what was observed.
use std::collections::{BTreeMap, BTreeSet};

use super::{
    children::{Child, ChildKey, ChildKind, Family, LARGEST_FILE},
    pinglists::config_json,
    report,
    settings::{LARGEST_MESH, Settings},
    world::{Setup, View},
};
use crate::{
    api::{
        NetworkProber, NetworkProberStatus,
        network_prober::{Delivery, Mode},
    },
    controller::{Error, Plan},
    webhook::configuration::{Endpoint, Interception},
};
use std::{sync::Arc, time::Duration};

/// How often an object is looked at though nothing changed: for the kinds that are not watched.
const PERIOD: Duration = Duration::from_secs(30);

/// Up to so many namespaces get their `ConfigMap` before the first of their pods comes; beyond, one that
/// has pods: an administrator's `NetworkProber` may select thousands of namespaces.
const NAMESPACES_AHEAD: usize = 100;

/// What the controller read.
pub struct Observed {
    /// The object as every replica knows it; `None` until the snapshot has its generation.
    pub view: Option<Arc<View>>,
    /// What this replica was told.
    pub setup: Setup,
    /// The certificates that the API server and the agents are to trust, as PEM.
    pub bundle: Option<String>,
    /// Where the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// Which kinds of the prometheus-operator the API server has.
    pub monitoring: BTreeSet<ChildKind>,
    /// Our children of this object that exist.
    pub existing: Vec<ChildKey>,
    /// What was applied before, by fingerprint, and is still as it was left.
    pub unchanged: BTreeMap<ChildKey, u64>,
}

/// What `apply` has to bring about.
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
/// When the spec cannot stand.
pub fn plan(
    prober: &NetworkProber,
    observed: &Observed,
) -> Result<Plan<Desired, NetworkProberStatus>, Error> {
    let settings = Settings::of(prober, &observed.setup.tenancy)?;
    let Some(view) = observed.view.as_deref().filter(|view| view.synced) else {
        // Nothing is known yet of its pods: nothing is changed, nor said of what was known before.
        let status = prober.status.clone().unwrap_or_default();
        let told = status.conditions.iter().any(|condition| condition.type_ == "Ready");
        return Ok(Plan {
            desired: Desired::default(),
            status,
            conditions: if told { vec![] } else { vec![report::waiting()] },
            notices: vec![],
            period: PERIOD,
        });
    };
    if view.recipe.is_none() {
        return Err(Error::Invalid(
            "spec.agentImage: needed here: this operator does not know its own image (see \
             --agent-image)"
                .into(),
        ));
    }
    let members = &view.members;
    if settings.is_full_mesh() && members.members.len() > LARGEST_MESH {
        return Err(Error::Invalid(format!(
            "spec.neighbours: a full mesh of {} pods is refused (at most {LARGEST_MESH}); set inZone \
             or perOtherZone",
            members.members.len()
        )));
    }
    let wanted = children(prober, &settings, view, observed)?;
    let keys: BTreeSet<_> = wanted.iter().map(|child| child.key.clone()).collect();
    let delete = observed.existing.iter().filter(|key| {
        // Without a certificate nothing is known of the webhook's object: it stays.
        !keys.contains(key) && (observed.bundle.is_some() || key.kind != ChildKind::Webhook)
    });
    let delete = delete.cloned().collect();
    let apply = wanted
        .into_iter()
        .filter(|child| observed.unchanged.get(&child.key) != Some(&child.hash))
        .collect();
    Ok(Plan {
        desired: Desired { apply, delete },
        status: report::status(&settings, view),
        conditions: report::conditions(&settings, view, observed),
        notices: report::notices(prober, view),
        period: PERIOD,
    })
}

fn children(
    prober: &NetworkProber,
    settings: &Settings,
    view: &View,
    observed: &Observed,
) -> Result<Vec<Child>, Error> {
    let family = Family { prober, settings };
    let mut children = Vec::new();
    let needs_ca = settings.delivery == Delivery::Pull;
    let ca = observed.bundle.as_deref();
    if settings.delivery == Delivery::ConfigMap {
        let size = config_json(settings, &view.members.members).len();
        if size > LARGEST_FILE {
            return Err(Error::Invalid(format!(
                "spec.delivery: the file of {} pods has {size} bytes, more than a ConfigMap holds \
                 ({LARGEST_FILE}); use delivery Pull, or select fewer pods; agents keep what they have",
                view.members.members.len()
            )));
        }
    }
    let namespaces = namespaces(settings, view);
    if !needs_ca || ca.is_some() {
        let members = &view.members.members;
        let maps = namespaces
            .iter()
            .map(|namespace| family.config_map(namespace, members, ca.unwrap_or_default()));
        children.extend(maps);
    }
    match settings.mode {
        Mode::Sidecar => {
            if let Some(bundle) = ca {
                let allowed = view.scope.allowed().into_iter().map(Into::into).collect();
                children.extend(family.webhook(&Interception {
                    object: &family.webhook_name(),
                    labels: &BTreeMap::new(),
                    prober: (&settings.namespace, &settings.name),
                    pod_selector: &settings.pod_selector,
                    namespaces: &allowed,
                    operator_namespace: observed.setup.tenancy.operator(),
                    endpoint: &observed.endpoint,
                    ca_bundle: bundle,
                    failure_policy: settings.failure_policy,
                }));
            }
        }
        Mode::DaemonSet => children.extend(view.recipe.as_ref().map(|r| family.daemon_set(r))),
    }
    let monitoring = &settings.monitoring;
    if monitoring.pod_monitor && observed.monitoring.contains(&ChildKind::PodMonitor) {
        children.push(family.pod_monitor(namespaces.iter().map(String::as_str)));
    }
    if monitoring.prometheus_rule && observed.monitoring.contains(&ChildKind::PrometheusRule) {
        children.push(family.prometheus_rule());
    }
    Ok(children)
}

/// Where agents are, or may come to be.
fn namespaces(settings: &Settings, view: &View) -> BTreeSet<String> {
    let allowed = view.scope.allowed();
    if settings.mode == Mode::DaemonSet {
        return [settings.namespace.clone()].into();
    }
    if allowed.len() <= NAMESPACES_AHEAD {
        return allowed.into_iter().map(Into::into).collect();
    }
    view.members.namespaces.clone()
}
