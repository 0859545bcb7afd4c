//! The advice for a condition that indicates a problem, by its reason.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{probing::Advice, reasons, status::conditions::sentence};

/// Returns the advice for a condition; none if the message itself contains it, or if waiting is
/// enough.
#[must_use]
pub fn of(condition: &Condition) -> Option<Advice> {
    Some(Advice::of(sentence(condition), remedy(&condition.reason)?))
}

pub(in crate::inspect) fn remedy(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "InvalidSpec" => "correct the field that the message names",
        "Conflict" => "the message names the other owner: change one of the two",
        "Forbidden" => {
            "`doctor` shows which rights the operator lacks; deploy again as it was installed"
        }
        "PrometheusUnreachable"
        | "PrometheusTimeout"
        | "PrometheusUnavailable"
        | "Unauthorized"
        | "QueryInvalid"
        | "QueryFailed"
        | "BadAnswer" => "`doctor` asks Prometheus itself",
        "GateUnavailable" => {
            "`doctor` asks Prometheus itself; spec.transition.gate: NodeStatus or Wait needs none"
        }
        "NoEvidence" => "`explain node NAME` says what each of these reasons needs",
        "LowCoverage" | "NoSamples" => return reasons::remedy("LowCoverage"),
        "OverBudget" => "docs/reference/prometheus.md#budgets",
        "NoNodes" => "compare spec.nodeSelector with kubectl get nodes --show-labels",
        "LimitReached" => {
            "leave it if the limit is meant; else raise spec.maxUnfit or lower spec.minFit"
        }
        "StillRequested" => "delete the pods that request it, or leave them: it goes with them",
        "DeviceClass" => "remove extendedResourceName from that DeviceClass, or use another name",
        "CapacityUnknown" => "set spec.capacity, or use spec.maxBandwidth",
        "OperatorLimitReached" => {
            "leave it if the limit is meant; else raise the operator's --max-unfit"
        }
        "WorkloadNotFound" => "create the workload, or correct spec.workload",
        "RefreshTimeout" => "docs/runbooks/SwarmStuckReleasing.md#diagnosis",
        "WorkerAbsent" | "WorkerNotReady" => "docs/runbooks/SwarmOrphanStream.md#diagnosis",
        "NoAnswer" => "docs/runbooks/SwarmWorkersBehind.md#diagnosis",
        "OtherStreams" => "docs/reference/worker.md#what-a-worker-must-obey",
        "HistoryUnknown" => {
            "the pods that the message or status.workers show without an acknowledgement must answer"
        }
        "Unassigned" => "status.unassigned has the reason of each stream",
        "NotMounted" => "mount the ConfigMap into the pod template, without subPath",
        "FitnessNotFound" => "create the TrafficWatch, or correct spec.fitnessRef",
        "DuplicateOwner" => "docs/runbooks/SwarmDuplicateOwner.md",
        "PlanRefused" => "docs/runbooks/RouteReflectorPlanRefused.md",
        "GateTimeout" => "docs/runbooks/RouteReflectorStuckTransition.md",
        "NoRedundancy" => "docs/runbooks/RouteReflectorNoRedundancy.md",
        "RoutesMissing" => "docs/runbooks/RouteReflectorRoutesMissing.md",
        "NoCandidates" => {
            "compare spec.candidates with kubectl get nodes --show-labels, and with their taints"
        }
        "RoutesByFelix" | "BGPDisabled" => "docs/runbooks/RouteReflectorNothingToReflect.md",
        "CalicoNotFound" => "install Calico, or correct spec.datastore",
        "CalicoUnreadable" => "correct the object of Calico's that the message names",
        "SecretInvalid" => "correct the Secret that the message names",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Reads the reasons that have advice from the source above.
    fn advised() -> Vec<&'static str> {
        let source = include_str!("remedies.rs");
        let body = source.split("fn remedy").nth(1).unwrap().split("#[cfg(test)]").next().unwrap();
        let words = body.split('"').filter(|word| {
            word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric)
        });
        words.collect()
    }

    #[test]
    fn every_advised_reason_is_documented_and_every_page_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut pages = String::new();
        for page in ["trafficwatch", "networkprober", "swarm", "routereflectorset"] {
            let page = root.join(format!("docs/reference/{page}.md"));
            pages.push_str(&std::fs::read_to_string(page).unwrap());
        }
        let reasons = advised();
        assert!(reasons.len() > 20, "{reasons:?}");
        for reason in reasons {
            assert!(pages.contains(reason), "{reason} is no reason of a condition");
            let advice = remedy(reason).unwrap();
            for word in advice.split(' ').filter(|word| word.starts_with("docs/")) {
                let file = word.split('#').next().unwrap();
                assert!(root.join(file).is_file(), "{reason}: there is no {file}");
            }
        }
        assert_eq!(remedy("Moving"), None);
    }
}
