//! The meaning of reasons, and the advice for them: why a node has no evidence, and why a condition
//! indicates a problem.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{lines::Advice, status::conditions::sentence};

/// Returns the meaning of a reason why a node has no evidence, of status and metrics; unknown reasons are returned by name.
#[must_use]
pub fn meaning(reason: &str) -> &str {
    match reason {
        "MetricsUnavailable" => "the request to Prometheus failed",
        "LowCoverage" => {
            "fewer than half of the nodes have data: the measurement is broken, not the nodes"
        }
        "NoSample" => "no series is about this node",
        "ExporterDown" => "the node exporter does not answer (up == 0)",
        "NoDevice" => "the node exporter answers, but none of its devices matches spec.devices",
        "SpeedUnknown" => {
            "there is traffic, but the link speed is not known and no capacity is set"
        }
        "InvalidCapacity" => {
            "the capacity is no quantity, or the node carries more than ten times as much"
        }
        "InvalidSample" => {
            "the value is no number, negative, or more than a link can carry, or there are two of them"
        }
        "StaleSample" => "the sample is older than spec.maxSampleAge",
        "PartialWindow" => {
            "samples cover spec.window only partly, or the answer is partial: there may be more load \
             than is seen"
        }
        "LimitReached" => "above the threshold, but as many nodes are unfit as may be",
        "OperatorLimitReached" => {
            "above the threshold, but all TrafficWatches together mark as many nodes as --max-unfit allows"
        }
        "Measured" => "measured",
        other => other,
    }
}

/// Returns the advice for a reason why a node has no evidence.
#[must_use]
pub fn of_evidence(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "MetricsUnavailable" => {
            "see the condition MetricsAvailable; `doctor` asks Prometheus itself"
        }
        "LowCoverage" => {
            "is the exporter of this endpoint scraped on all nodes, and does spec.devices match their devices? \
             `doctor` shows which series belong to which node"
        }
        "NoSample" => {
            "is the node exporter running on this node and scraped, by the job of \
             --node-exporter-selector, and does a label of --node-label or `instance` name the node? \
             `doctor` shows which series belong to which node"
        }
        "ExporterDown" => {
            "is its pod running, and can Prometheus reach its port (firewall, NetworkPolicy)? See the \
             target in Prometheus"
        }
        "NoDevice" => "name the devices of this node in spec.devices: `doctor` shows them",
        "SpeedUnknown" => {
            "set spec.capacity, or annotate the node: \
             kubectl annotate node NAME traffic.example.com/capacity=10G"
        }
        "InvalidCapacity" => {
            "write a quantity of bits per second in spec.capacity or the annotation: \
             kubectl annotate --overwrite node NAME traffic.example.com/capacity=10G"
        }
        "InvalidSample" => {
            "look at the series in Prometheus: two exporters may claim to be this node, or its counter has jumped"
        }
        "StaleSample" => {
            "is the exporter scraped, and are the clocks of Prometheus and the nodes right?"
        }
        "PartialWindow" => {
            "it passes within spec.window after a restart of Prometheus, the exporter or the node; if \
             it stays, look for scrapes that fail, samples that arrive late, and warnings in the \
             condition MetricsAvailable"
        }
        _ => return None,
    })
}

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
        "LowCoverage" | "NoSamples" => return of_evidence("LowCoverage"),
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
        "RoutesUnknown" => {
            "grant the operator its ClusterRole again, or correct the object that the message names"
        }
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

    #[test]
    fn what_can_be_repaired_says_how() {
        for reason in [
            "MetricsUnavailable",
            "LowCoverage",
            "NoSample",
            "ExporterDown",
            "NoDevice",
            "SpeedUnknown",
            "InvalidCapacity",
            "InvalidSample",
            "StaleSample",
            "PartialWindow",
        ] {
            assert_ne!(meaning(reason), reason);
            assert!(of_evidence(reason).is_some(), "{reason}");
        }
        assert_eq!(meaning("Unheard"), "Unheard");
        assert_eq!(of_evidence("Measured"), None);
    }

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
