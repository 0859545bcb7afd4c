//! The reasons why a node has no evidence, in a sentence, and what to do about them.

/// Returns the meaning of a reason of status and metrics; unknown reasons are returned by name.
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

/// Returns the advice for a reason.
#[must_use]
pub fn remedy(reason: &str) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
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
            assert!(remedy(reason).is_some(), "{reason}");
        }
        assert_eq!(meaning("Unheard"), "Unheard");
        assert_eq!(remedy("Measured"), None);
    }
}
