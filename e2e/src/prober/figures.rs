//! The figures and checks from pods and series. No IO.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use lab::cluster::Counts;

/// The agent's container.
const AGENT: &str = "net-prober";

/// Returns whether a pod's agent is a native sidecar: an init container that keeps running.
pub(super) fn has_sidecar(pod: &Value) -> bool {
    let mut containers = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    containers.any(|container| container["name"] == AGENT && container["restartPolicy"] == "Always")
}

/// Returns the image of a pod's agent, wherever it is.
pub(super) fn agent_image(pod: &Value) -> Option<&str> {
    ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod["spec"][*list].as_array())
        .flatten()
        .find(|container| container["name"] == AGENT)?["image"]
        .as_str()
}

/// Reads `status.notInjected`: the number of pods by reason.
pub(super) fn reasons(status: &Value) -> BTreeMap<String, i64> {
    let listed = status["notInjected"].as_array().into_iter().flatten();
    listed
        .filter_map(|entry| Some((entry["reason"].as_str()?.to_owned(), entry["count"].as_i64()?)))
        .collect()
}

/// Renders values of pairs (`from -> to`, seconds) as a matrix in milliseconds.
pub(super) fn matrix(pairs: &BTreeMap<String, f64>) -> String {
    let ends: Vec<(&str, &str)> = pairs.keys().filter_map(|pair| pair.split_once(" -> ")).collect();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names.dedup();
        names
    };
    let rows = sorted(ends.iter().map(|(from, _)| (*from).to_owned()).collect());
    let columns = sorted(ends.iter().map(|(_, to)| (*to).to_owned()).collect());
    let mut text = format!("{:10}", "from \\ to");
    for column in &columns {
        let _ = write!(text, "{column:>12}");
    }
    for row in &rows {
        let _ = write!(text, "\n{row:10}");
        for column in &columns {
            match pairs.get(&format!("{row} -> {column}")) {
                Some(seconds) => {
                    let _ = write!(text, "{:>9.2} ms", seconds * 1e3);
                }
                None => {
                    let _ = write!(text, "{:>12}", "-");
                }
            }
        }
    }
    text
}

/// The impairments of the links of every node, by node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Links {
    /// Share of probes lost, 0 to 1.
    pub loss: BTreeMap<String, f64>,
    /// 99th percentile of the round trip in seconds.
    pub p99: BTreeMap<String, f64>,
}

impl Links {
    /// Returns whether every node has both figures.
    pub fn complete(&self, nodes: &[String]) -> bool {
        nodes.iter().all(|node| self.loss.contains_key(node) && self.p99.contains_key(node))
    }

    /// Renders one line.
    pub fn line(&self) -> String {
        let nodes: Vec<String> = self
            .loss
            .iter()
            .map(|(node, loss)| {
                let p99 = self.p99.get(node).map_or_else(
                    || "      -".to_owned(),
                    |seconds| format!("{:7.2}", seconds * 1e3),
                );
                format!("{node} loss {:5.1} % p99 {p99} ms", loss * 100.0)
            })
            .collect();
        nodes.join(" | ")
    }

    /// Returns the largest loss and the largest p99 of all nodes but one.
    pub fn worst_but(&self, node: &str) -> (f64, f64) {
        let worst = |values: &BTreeMap<String, f64>| {
            let others = values.iter().filter(|(name, _)| *name != node).map(|(_, value)| *value);
            others.fold(0.0, f64::max)
        };
        (worst(&self.loss), worst(&self.p99))
    }
}

/// Maximum difference between the measured loss and that of the link, in either direction. With 700
/// round trips and a loss of 19 %, the counted share has a standard deviation of 1.5 %: more than
/// three times that is no coincidence.
pub(super) const TOLERANCE: f64 = 0.05;

/// Returns the share of round trips that a link lost between two readings of its counters: each has
/// a packet in each direction. `None` without packets.
pub(super) fn round_trips_lost(before: Counts, after: Counts) -> Option<f64> {
    let lost = (after.lost + after.failed).checked_sub(before.lost + before.failed)?;
    let held = after.held.checked_sub(before.held)?;
    let all = u32::try_from(lost + held).ok().filter(|all| *all > 0)?;
    let passed = 1.0 - f64::from(u32::try_from(lost).ok()?) / f64::from(all);
    Some(1.0 - passed * passed)
}

/// Reports whether the agents' measurement agrees with the link's counters.
pub(super) fn agrees(measured: Option<f64>, dropped: Option<f64>) -> bool {
    measured.zip(dropped).is_some_and(|(measured, dropped)| (measured - dropped).abs() <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_judged_without_the_one() {
        let map = |values: [(&str, f64); 3]| {
            values.map(|(node, value)| (node.to_owned(), value)).into_iter().collect()
        };
        let links = Links {
            loss: map([("node-1", 0.0), ("node-2", 0.3), ("node-3", 0.01)]),
            p99: map([("node-1", 0.002), ("node-2", 0.5), ("node-3", 0.001)]),
        };
        assert_eq!(links.worst_but("node-2"), (0.01, 0.002));
        assert!(links.complete(&["node-1".to_owned()]) && !links.complete(&["node-4".to_owned()]));
        assert!(links.line().contains("node-2 loss  30.0 % p99  500.00 ms"), "{}", links.line());
    }

    #[test]
    fn the_loss_of_round_trips_is_that_of_both_directions() {
        let counts = |held, lost, failed| Counts { held, lost, failed };
        let share = |after| round_trips_lost(counts(100, 10, 0), after).map(|s| (s * 1e4).round());
        assert_eq!(share(counts(1000, 110, 0)), Some(1900.0));
        assert_eq!(share(counts(1000, 100, 10)), Some(1900.0));
        assert_eq!(share(counts(900, 10, 0)), Some(0.0));
        assert_eq!(share(counts(100, 60, 0)), Some(10_000.0));
        // Nothing was sent, or other counters were read.
        assert_eq!(share(counts(100, 10, 0)), None);
        assert_eq!(share(counts(0, 0, 0)), None);
    }

    #[test]
    fn measured_loss_is_neither_half_nor_twice_of_what_was_dropped() {
        for (measured, ok) in
            [(0.19, true), (0.145, true), (0.235, true), (0.1, false), (0.34, false)]
        {
            assert_eq!(agrees(Some(measured), Some(0.19)), ok, "{measured}");
        }
        assert!(!agrees(None, Some(0.19)) && !agrees(Some(0.19), None));
    }
}
