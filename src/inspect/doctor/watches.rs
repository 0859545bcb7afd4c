//! Checks of the objects and of the node labels.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Check, Facts, cluster::APPLY_ROLES, some};
use crate::{
    api::{GROUP, TrafficWatch, traffic_watch::Mode},
    inspect::cluster::name_of,
    traffic_watch::{Claim, claim},
};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let watches = match &facts.watches {
        Ok(watches) => watches,
        Err(error) => {
            let fix = "ask for the right to list trafficwatches in all namespaces";
            return vec![Check::warn("watches", format!("cannot be listed: {error}"), fix)];
        }
    };
    let mut checks: Vec<_> = watches
        .unreadable
        .iter()
        .map(|(name, error)| {
            let message = format!("{name}: its spec cannot be read: {error}");
            Check::fail("watches", message, "correct the field, or use the binary of its version")
        })
        .collect();
    // A later check reports the object that lost a claim.
    let claims = |watch: &&TrafficWatch| claim(watch, &watches.read) == Claim::Ours;
    let unready: Vec<_> = watches.read.iter().filter(claims).filter_map(readiness).collect();
    if unready.is_empty() && checks.is_empty() {
        let message = match watches.read.iter().filter(claims).count() {
            0 => "there is no TrafficWatch yet".to_owned(),
            count => format!("all {count} are Ready and measured"),
        };
        checks.push(Check::ok("watches", message));
    }
    checks.extend(unready);
    checks.extend(conflicts(&watches.read));
    checks.extend(device_classes(facts, &watches.read));
    // An unreadable object may claim any of them.
    if watches.unreadable.is_empty() {
        checks.extend(orphans(facts, &watches.read));
    }
    checks
}

/// Checks for problems that prevent one object from working.
fn readiness(watch: &TrafficWatch) -> Option<Check> {
    let name = name_of(watch);
    let Some(status) = &watch.status else {
        let message = format!("{name} has no status: the operator has not looked at it");
        return Some(Check::fail(
            "watches",
            message,
            "is the operator running, and of this version?",
        ));
    };
    let condition = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_);
    // Without nodes nothing is measured, and Ready already reports this.
    let is_bad =
        |c: &&Condition| c.status != "True" && (c.type_ == "Ready" || c.reason != "NoNodes");
    let bad = ["Ready", "MetricsAvailable"].into_iter().filter_map(condition).find(is_bad)?;
    let message = format!("{name}: {}={} {}: {}", bad.type_, bad.status, bad.reason, bad.message);
    let fix = match bad.reason.as_str() {
        "Paused" => "set spec.paused: false to resume judging",
        "Judging" => "wait for a few intervals; then `explain node NAME` says what is missing",
        "NoNodes" => "correct spec.nodeSelector: kubectl get nodes --show-labels",
        "InvalidSpec" => "correct the field the message names",
        "Conflict" => OTHER_CLAIM,
        "Forbidden" => APPLY_ROLES,
        "NoEvidence" => "`explain node NAME` says what each of these reasons needs",
        "NoSamples" | "LowCoverage" => "see the checks of exporters and nodes above",
        "Unauthorized" => "correct the endpoint's credentials in the operator's configuration",
        _ => "see the message; the operator's log has the rest",
    };
    let paused_or_new = matches!(bad.reason.as_str(), "Paused" | "Judging");
    Some(if paused_or_new {
        Check::warn("watches", message, fix)
    } else {
        Check::fail("watches", message, fix)
    })
}

/// What to do where two objects claim one label or resource: neither can be changed.
const OTHER_CLAIM: &str =
    "remove the other object, or create this one again with its own label or resource";

/// Checks for objects that claim the label of another.
fn conflicts(watches: &[TrafficWatch]) -> Vec<Check> {
    let lost = watches.iter().filter_map(|watch| match claim(watch, watches) {
        // Its condition Ready has the operator's limit, which is not known here.
        Claim::Ours | Claim::TooMany(_) => None,
        Claim::HeldBy(holder) => {
            let (name, key) = (name_of(watch), watch.label_key());
            let message = format!("{name} claims {key}, which belongs to the older {holder}");
            Some(Check::fail("labels", message, OTHER_CLAIM))
        }
    });
    lost.collect()
}

/// Checks for classes of devices with the name of a resource that nodes offer: the scheduler looks for
/// devices then, one for each unit, and no pod that requests it ever starts.
fn device_classes(facts: &Facts, watches: &[TrafficWatch]) -> Vec<Check> {
    let classes = match &facts.device_classes {
        Ok(classes) => classes,
        Err(error) => {
            let fix = "ask for the right to list deviceclasses.resource.k8s.io";
            return vec![Check::warn("reservation", error, fix)];
        }
    };
    let offered = |resource: &str| {
        let of = |watch: &&TrafficWatch| {
            watch.spec.reservation.as_ref().is_some_and(|offer| offer.resource == resource)
        };
        watches.iter().find(of)
    };
    let taken = classes.iter().filter_map(|(class, resource)| {
        let message = format!(
            "DeviceClass {class} has the extendedResourceName {resource}, which {} has nodes offer: \
             a pod that requests it waits for devices and never starts",
            name_of(offered(resource)?)
        );
        let fix = format!("remove extendedResourceName from DeviceClass {class}");
        Some(Check::fail("reservation", message, fix))
    });
    taken.collect()
}

/// Checks for node labels of ours that no object claims.
fn orphans(facts: &Facts, watches: &[TrafficWatch]) -> Vec<Check> {
    let nodes = match &facts.nodes {
        Ok(nodes) => nodes,
        Err(error) => {
            let fix = "ask for the right to list nodes";
            return vec![Check::warn("labels", format!("nodes cannot be listed: {error}"), fix)];
        }
    };
    let suffix = format!(".{GROUP}/unfit");
    let claimed: BTreeSet<_> = watches
        .iter()
        .filter(|watch| watch.spec.mode == Mode::Enforce)
        .flat_map(|watch| {
            let had = watch.status.as_ref().and_then(|status| status.label.clone());
            had.into_iter().chain([watch.label_key()])
        })
        .collect();
    let mut orphans: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for node in nodes {
        for key in node.metadata.labels.iter().flatten().map(|(key, _)| key) {
            if key.ends_with(&suffix) && !claimed.contains(key) {
                orphans
                    .entry(key)
                    .or_default()
                    .push(node.metadata.name.clone().unwrap_or_default());
            }
        }
    }
    if orphans.is_empty() {
        let message = format!("{} keys in use, each with its TrafficWatch", claimed.len());
        return vec![Check::ok("labels", message)];
    }
    let check = |(key, nodes): (&str, Vec<String>)| {
        let message = format!(
            "{key} is on {} nodes ({}), but no TrafficWatch claims it: pods that avoid it still do",
            nodes.len(),
            some(&nodes)
        );
        Check::warn("labels", message, format!("kubectl label nodes --all {key}-")).with(nodes)
    };
    orphans.into_iter().map(check).collect()
}
