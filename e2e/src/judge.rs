//! Checks on what the audit log and counters have. No IO.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use lab::AuditEvent;
use lab::checks::Check;
use lab::fit::fit;

/// Compares the percent of the link that a status shows with what the interface counted.
#[must_use]
pub fn accuracy(shown: f64, counted: f64) -> Check {
    let difference = (shown - counted).abs() / counted * 100.0;
    Check::new(
        "percent shown is what the interface counted",
        difference.is_finite() && difference <= 10.0,
        format!(
            "{shown:.1} % shown, {counted:.1} % counted: {difference:.1} % apart (at most 10 %)"
        ),
    )
}

/// Returns the rate of a counter, by least squares over (seconds, count).
///
/// The sample generator sends in bursts of a second; the first and the last count alone would be
/// off by one of them.
#[must_use]
pub fn slope(counts: &[(f64, f64)]) -> f64 {
    fit(counts).map_or(f64::NAN, |fit| fit.slope)
}

/// The operator's user name at the API server.
pub const OPERATOR: &str = "system:serviceaccount:traffic-operator-system:traffic-operator";

/// Returns the operator's writes, its Lease apart.
pub fn operator_writes<'a>(
    events: impl IntoIterator<Item = &'a AuditEvent>,
) -> Vec<&'a AuditEvent> {
    let is_its = |event: &&AuditEvent| event.user == OPERATOR && event.is_write();
    events
        .into_iter()
        .filter(is_its)
        .filter(|event| !event.resource.starts_with("leases."))
        .collect()
}

/// Judges a window in which nothing happened: no writes, but for one refresh of the status of each
/// `TrafficWatch`.
#[must_use]
pub fn silence(events: &[AuditEvent], window: SignedDuration) -> Check {
    quiet(events, window, |resource| resource.starts_with("trafficwatches."))
}

/// The same, where the statuses of these resources are refreshed.
pub fn quiet(
    events: &[AuditEvent],
    window: SignedDuration,
    refreshed: impl Fn(&str) -> bool,
) -> Check {
    let is_refresh =
        |event: &&AuditEvent| event.subresource == "status" && refreshed(&event.resource);
    let (refreshes, others): (Vec<&AuditEvent>, Vec<&AuditEvent>) =
        operator_writes(events).into_iter().partition(is_refresh);
    let mut each: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in &refreshes {
        *each.entry((event.resource.as_str(), event.name.as_str())).or_default() += 1;
    }
    let most = each.values().copied().max().unwrap_or(0);
    let mut figure = format!(
        "{} writes, and at most {most} status refresh(es) of an object, in {} s (Lease apart)",
        others.len(),
        window.as_secs()
    );
    for event in &others {
        let AuditEvent { verb, resource, subresource, name, .. } = event;
        let part = if subresource.is_empty() { "" } else { "/" };
        let _ = write!(figure, "; {verb} {resource}{part}{subresource} {name}");
    }
    Check::new("nothing is written while nothing changes", others.is_empty() && most <= 1, figure)
}

/// Judges whether the Deployment was first written after the label of every node.
#[must_use]
pub fn order(events: &[AuditEvent], deployment: &str, nodes: &[String]) -> Check {
    let name = "Deployment created once every node was judged";
    let first = |resource: &str, name: &str| -> Option<Timestamp> {
        let mut written = operator_writes(events).into_iter().filter(|event| event.code < 300);
        written
            .find(|event| event.resource == resource && event.name == name)
            .map(|event| event.time)
    };
    let Some(created) = first("deployments.apps", deployment) else {
        return Check::new(name, false, "the operator wrote no Deployment");
    };
    let labeled: Vec<Option<Timestamp>> = nodes.iter().map(|node| first("nodes", node)).collect();
    match labeled.iter().flatten().max() {
        Some(last) if labeled.iter().all(Option::is_some) => {
            let after = created.duration_since(*last).as_secs_f64();
            Check::new(
                name,
                after >= 0.0,
                format!("{after:.2} s after the last of {} labels", nodes.len()),
            )
        }
        _ => Check::new(
            name,
            false,
            format!("only {} of {} nodes labeled", labeled.iter().flatten().count(), nodes.len()),
        ),
    }
}

/// Judges where pods landed: all of them, none on the loaded node.
#[must_use]
pub fn placement(pod_nodes: &[String], wanted: usize, loaded: &str) -> Check {
    let on_loaded = pod_nodes.iter().filter(|node| *node == loaded).count();
    Check::new(
        "all pods of the Deployment on fit nodes",
        pod_nodes.len() == wanted && on_loaded == 0,
        format!(
            "{} of {wanted} placed ({}), {on_loaded} on {loaded}",
            pod_nodes.len(),
            pod_nodes.join(", ")
        ),
    )
}

/// Judges how often Prometheus was asked.
#[must_use]
pub fn request_rate(requests: f64, seconds: f64, interval: f64) -> Check {
    let per_interval = requests / (seconds / interval);
    Check::new(
        "one Prometheus request per interval",
        // One tick more or less at the edges of the window.
        (requests - seconds / interval).abs() <= 1.5,
        format!(
            "{requests:.0} in {seconds:.0} s at an interval of {interval:.0} s: {per_interval:.2} per interval"
        ),
    )
}

/// A write of the operator.
#[cfg(test)]
pub fn event(second: i64, verb: &str, resource: &str, subresource: &str, name: &str) -> AuditEvent {
    AuditEvent {
        time: Timestamp::from_second(second).unwrap(),
        verb: verb.to_owned(),
        user: OPERATOR.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: name.to_owned(),
        code: 200,
        ..AuditEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_forgives_the_lease_and_one_refresh() {
        let window = SignedDuration::from_secs(30);
        let lease = event(1, "update", "leases.coordination.k8s.io", "", "traffic-operator");
        let refresh = event(2, "patch", "trafficwatches.traffic.example.com", "status", "tw");
        let read = event(3, "get", "nodes", "", "node-1");
        assert!(silence(&[lease, refresh.clone(), read], window).pass);
        assert!(!silence(&[refresh.clone(), refresh], window).pass);
        let label = silence(&[event(1, "patch", "nodes", "", "node-1")], window);
        assert!(!label.pass && label.figure.contains("patch nodes node-1"), "{}", label.figure);
    }

    #[test]
    fn others_may_write_what_they_like() {
        let foreign =
            AuditEvent { user: "admin".to_owned(), ..event(1, "patch", "nodes", "", "node-1") };
        assert!(silence(&[foreign], SignedDuration::from_secs(30)).pass);
    }

    #[test]
    fn the_deployment_comes_after_all_labels() {
        let nodes = ["node-1", "node-2"].map(str::to_owned);
        let label = |second, node| event(second, "patch", "nodes", "", node);
        let deployment = |second| event(second, "patch", "deployments.apps", "", "tw");
        assert!(order(&[label(1, "node-1"), label(2, "node-2"), deployment(3)], "tw", &nodes).pass);
        assert!(
            !order(&[label(1, "node-1"), deployment(2), label(3, "node-2")], "tw", &nodes).pass
        );
        assert!(!order(&[label(1, "node-1"), deployment(2)], "tw", &nodes).pass);
        assert!(!order(&[label(1, "node-1"), label(2, "node-2")], "tw", &nodes).pass);
    }

    #[test]
    fn figures_are_judged_by_their_limits() {
        assert!(accuracy(81.0, 80.0).pass);
        assert!(!accuracy(60.0, 80.0).pass);
        assert!(!accuracy(1.0, 0.0).pass);
        assert!(request_rate(15.0, 30.0, 2.0).pass && !request_rate(45.0, 30.0, 2.0).pass);
        let nodes = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(placement(&nodes(&["node-1", "node-3"]), 2, "node-2").pass);
        assert!(!placement(&nodes(&["node-1", "node-2"]), 2, "node-2").pass);
        assert!(!placement(&nodes(&["node-1"]), 2, "node-2").pass);
    }

    #[test]
    fn a_rate_is_hardly_moved_by_bursts() {
        // 100 every second, at once, checked twice a second.
        let counts: Vec<(f64, f64)> = (0..44)
            .map(|half| f64::from(half) / 2.0)
            .map(|t| (t, 100.0 * (t.floor() + 1.0)))
            .collect();
        assert!((slope(&counts) - 100.0).abs() < 1.0, "{}", slope(&counts));
    }
}
