//! The figures that acts take from objects and reports, and their verdicts. No IO.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::SignedDuration;
use serde_json::Value;

use crate::judge;
use crate::objects;
use lab::AuditEvent;
use lab::checks::Check;
use lab::streams::{Ledger, Millis};

/// The extended resource of the demo's `TrafficWatch`.
pub(super) const RESOURCE: &str = "traffic.example.com/egress-mbps";
/// Its label on nodes.
pub(super) const UNFIT: &str = "network.traffic.example.com/unfit";
/// The label of a reflector, whatever its value.
const REFLECTOR: &str = "calico-route-reflector";
/// Mbit/s of a link that can be promised: 60 % of 1 Gbit/s, less a reserve of 10 %.
pub(super) const LIMIT: f64 = 540.0;
/// Mbit/s by which a published value may differ from what is free: a step of 5 %, the edges of a
/// window of 20 s, and 6 % of headers on 400 Mbit/s, which a node's own traffic adds to.
const TOLERANCE: f64 = 60.0;
/// Workers report every 200 ms: one without a report for this long does not run the stream.
const FRESH: Millis = 2000;

/// Returns the nodes with the label of a reflector.
pub(super) fn reflectors(nodes: &[Value]) -> BTreeSet<String> {
    let carries = |node: &&Value| node["metadata"]["labels"].get(REFLECTOR).is_some();
    nodes.iter().filter(carries).map(objects::name).collect()
}

/// Returns the nodes that are marked unfit.
pub(super) fn unfit(nodes: &[Value]) -> BTreeSet<String> {
    let marked = |node: &&Value| node["metadata"]["labels"][UNFIT] == "true";
    nodes.iter().filter(marked).map(objects::name).collect()
}

/// Returns what a node offers, if capacity and allocatable agree.
pub(super) fn offered(node: &Value) -> Option<u64> {
    let [capacity, allocatable] =
        ["capacity", "allocatable"].map(|list| node["status"][list][RESOURCE].as_str());
    allocatable.filter(|_| capacity == allocatable)?.parse().ok()
}

/// Judges what nodes offer by what their interfaces count, in Mbit/s. Nothing here reserves yet.
pub(super) fn free(
    name: &str,
    offered: &BTreeMap<String, u64>,
    sent: &BTreeMap<String, f64>,
) -> Check {
    let mut pass = !offered.is_empty() && offered.len() == sent.len();
    let mut figure = String::new();
    for (node, rate) in sent {
        let free = (LIMIT - rate).max(0.0);
        let shown = offered.get(node).and_then(|amount| u32::try_from(*amount).ok());
        let shown = shown.map_or(f64::NAN, f64::from);
        pass &= (shown - free).abs() <= TOLERANCE;
        let _ = write!(figure, "{node} {shown:.0} of {free:.0}, ");
    }
    let figure = format!("{figure}within {TOLERANCE:.0} Mbit/s");
    Check::new(name, pass, figure)
}

/// Returns the node on which each stream runs now, by the reports of the workers.
pub(super) fn running(
    ledger: &Ledger,
    workers: &BTreeMap<String, String>,
    now: Millis,
) -> BTreeMap<String, String> {
    let run = |stream: &str| {
        let run = ledger.latest(stream)?;
        let node = workers.get(&run.worker)?;
        (run.time.to + FRESH > now).then(|| (stream.to_owned(), node.clone()))
    };
    ledger.streams().filter_map(run).collect()
}

/// Judges a window in which nothing happened: no writes, but for one refresh of each status.
pub(super) fn quiet(events: &[AuditEvent], window: SignedDuration) -> Check {
    judge::quiet(events, window, |resource| {
        let group = resource.split_once('.').map_or("", |(_, group)| group);
        group == "traffic.example.com" || group == "probes.bigmikes.io"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_what_is_left_of_the_limit() {
        let of = |amount: u64, rate: f64| {
            let node = "node-1".to_owned();
            free("x", &[(node.clone(), amount)].into(), &[(node, rate)].into()).pass
        };
        assert!(of(540, 3.0) && of(130, 412.0) && of(0, 900.0));
        assert!(!of(540, 412.0) && !of(130, 3.0));
        assert!(!free("x", &BTreeMap::new(), &BTreeMap::new()).pass);
    }

    #[test]
    fn one_refresh_of_each_object_is_quiet() {
        let event = |resource: &str, subresource: &str, name: &str| {
            judge::event(1, "patch", resource, subresource, name)
        };
        let window = SignedDuration::from_secs(30);
        let watch = event("trafficwatches.traffic.example.com", "status", "network");
        let swarm = event("swarms.traffic.example.com", "status", "recorder");
        assert!(quiet(&[watch.clone(), swarm], window).pass);
        assert!(!quiet(&[watch.clone(), watch], window).pass);
        let write = quiet(&[event("nodes", "status", "node-1")], window);
        assert!(!write.pass && write.figure.contains("patch nodes/status node-1"));
    }
}
