//! The metrics that are computed from the memories at scrape time, so that series vanish with their
//! object.
use std::fmt;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::memory::{Counters, Figures, Memories, Memory, seconds};
use crate::metrics::{Family, count};

/// The leader's metrics of each `RouteReflectorSet`.
#[derive(Debug)]
pub struct Gauges(pub Memories);

/// Labels of one series, beside the name, and its value.
type Series<'a> = (Vec<(&'static str, &'a str)>, f64);

#[expect(clippy::cast_precision_loss, reason = "an estimate, or pairs of some thousand nodes")]
fn large(number: u64) -> f64 {
    number as f64
}

/// The counters of one set as series.
type Counted = dyn Fn(&Counters) -> Vec<(Vec<(&'static str, &'static str)>, u64)>;

type Gauge = (&'static str, &'static str, fn(&Figures, f64) -> Vec<Series<'_>>);

const GAUGES: [Gauge; 12] = [
    (
        "traffic_operator_routereflector_slots",
        "Reflectors of a RouteReflectorSet by zone and state: serving, notready, leaving",
        |figures, _| {
            let slots = figures.slots.iter();
            let series = slots.map(|((zone, state), number)| {
                (vec![("zone", &**zone), ("state", *state)], count(*number))
            });
            series.collect()
        },
    ),
    (
        "traffic_operator_routereflector_desired",
        "Number of reflectors that the set should have, by zone",
        |figures, _| {
            let desired = figures.desired.iter();
            desired.map(|(zone, number)| (vec![("zone", &**zone)], count(*number))).collect()
        },
    ),
    (
        "traffic_operator_routereflector_mesh",
        "1 while Calico's node-to-node mesh is on",
        |figures, _| vec![(vec![], f64::from(u8::from(figures.mesh)))],
    ),
    (
        "traffic_operator_routereflector_retiring",
        "1 while mesh Retire removes reflectors and mesh, and afterwards: no route depends on them",
        |figures, _| vec![(vec![], f64::from(u8::from(figures.retiring)))],
    ),
    (
        "traffic_operator_routereflector_routes_missing",
        "Ordered pairs of nodes in which the first has no route to the second, by the configured sessions: now, and with the most important reflector down",
        |figures, _| {
            let series = [("none", figures.missing), ("worst", figures.missing_without_one)];
            let known = series.into_iter().filter_map(|(down, missing)| Some((down, missing?)));
            known.map(|(down, missing)| (vec![("down", down)], large(missing))).collect()
        },
    ),
    (
        "traffic_operator_routereflector_clients_at_risk",
        "Clients with fewer than two established sessions; absent while none is measured",
        |figures, _| figures.at_risk.map(|number| (vec![], count(number))).into_iter().collect(),
    ),
    (
        "traffic_operator_routereflector_clients_without_sessions",
        "Ready clients without any established session, which no step waits for; absent while none is measured",
        |figures, _| figures.silent.map(|number| (vec![], count(number))).into_iter().collect(),
    ),
    (
        "traffic_operator_routereflector_foreign_bgppeers",
        "BGPPeers of other owners",
        |figures, _| vec![(vec![], count(figures.foreign))],
    ),
    (
        "traffic_operator_routereflector_unreadable_objects",
        "BGPPeers (with etcd, also Calico's Nodes) of other owners that cannot be read",
        |figures, _| vec![(vec![], count(figures.unreadable))],
    ),
    (
        "traffic_operator_routereflector_paths",
        "Paths in the largest table of a node, estimated from the sessions",
        |figures, _| vec![(vec![], large(figures.paths))],
    ),
    (
        "traffic_operator_routereflector_steps_left",
        "Steps that are left until the set has converged",
        |figures, _| vec![(vec![], count(figures.steps_left))],
    ),
    (
        "traffic_operator_routereflector_waiting_seconds",
        "Time for which the next step has been waiting for its sessions",
        |figures, now| {
            let waited = figures.waiting_since.map_or(0.0, |since| (now - seconds(since)).max(0.0));
            vec![(vec![], waited)]
        },
    ),
];

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures =
            |memory: &Memory| (memory.figures.clone(), memory.counters.clone(), memory.idle);
        let all: Vec<_> = self.0.each(|_, memory| Some(figures(memory))).collect();
        if all.is_empty() {
            return Ok(());
        }
        // While paused, or without Calico's objects, a new leader has decided nothing. Zeros would
        // say that no route is missing, and end an alert.
        let decided: Vec<_> = all
            .iter()
            .filter_map(|((_, name), (figures, ..))| Some((name, figures.as_ref()?)))
            .collect();
        let idle = all.iter().filter(|(_, (figures, _, idle))| *idle || figures.is_some());
        let idle: Vec<_> =
            idle.map(|((_, name), (.., idle))| (name, f64::from(u8::from(*idle)))).collect();
        if !idle.is_empty() {
            let help =
                "1 while no session carries a route to pods, so that there is nothing to reflect";
            let metric = "traffic_operator_routereflector_idle";
            let mut family = Family::gauges(&mut encoder, metric, help)?;
            for (name, idle) in idle {
                family.gauge(&[("name", name.as_str())], idle)?;
            }
        }
        let now = seconds(Timestamp::now());
        for (metric, help, of) in GAUGES.iter().filter(|_| !decided.is_empty()) {
            let mut family = Family::gauges(&mut encoder, metric, help)?;
            for (name, figures) in &decided {
                for (labels, value) in of(figures, now) {
                    let every = [vec![("name", name.as_str())], labels].concat();
                    family.gauge(&every.as_slice(), value)?;
                }
            }
        }
        let counter = |encoder: &mut DescriptorEncoder, metric: &str, help: &str, of: &Counted| {
            let mut family = Family::counters(encoder, metric, help)?;
            for ((_, name), (_, counters, _)) in &all {
                for (labels, value) in of(counters) {
                    let every = [vec![("name", name.as_str())], labels].concat();
                    family.counter(&every.as_slice(), value)?;
                }
            }
            Ok::<_, fmt::Error>(())
        };
        counter(
            &mut encoder,
            "traffic_operator_routereflector_transitions",
            "Steps by kind and result",
            &|counters| {
                let steps = counters.steps.iter();
                let series = steps.map(|((kind, result), number)| {
                    (vec![("kind", *kind), ("result", *result)], *number)
                });
                series.collect()
            },
        )?;
        counter(
            &mut encoder,
            "traffic_operator_routereflector_plan_oracle_failures",
            "Plans that were refused because they would lose routes or create too many paths",
            &|counters| vec![(vec![], counters.refusals)],
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::{encoding::text, registry::Registry};

    use super::*;

    fn page(memories: &Memories) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Gauges(memories.clone())));
        let mut page = String::new();
        text::encode_registry(&mut page, &registry).unwrap();
        page
    }

    /// A new leader finds the set paused, or an etcd that does not answer: "no route is missing"
    /// would resolve the alert about the routes that are.
    #[test]
    fn a_set_about_which_nothing_is_decided_yet_has_counters_and_no_gauges() {
        let memories = Memories::default();
        let (main, other) = ((String::new(), "main".into()), (String::new(), "other".into()));
        memories.change(&main, |_| ());
        let gauges = |page: &str, name: &str| -> Vec<String> {
            let label = format!("{{name=\"{name}\"");
            let of = |(metric, ..): &Gauge| page.contains(&format!("{metric}{label}"));
            GAUGES.iter().filter(|&gauge| of(gauge)).map(|(metric, ..)| (*metric).into()).collect()
        };
        let before = page(&memories);
        assert_eq!(gauges(&before, "main"), Vec::<String>::new());
        assert!(before.contains("plan_oracle_failures_total{name=\"main\"} 0"), "{before}");
        // One that decided does not lend it its figures.
        let figures = Figures { missing: Some(3), ..Figures::default() };
        memories.change(&other, |memory| memory.figures = Some(Arc::new(figures)));
        let after = page(&memories);
        assert_eq!(gauges(&after, "main"), Vec::<String>::new());
        let other = gauges(&after, "other");
        for metric in ["mesh", "routes_missing", "steps_left", "waiting_seconds"] {
            let metric = format!("traffic_operator_routereflector_{metric}");
            assert!(other.contains(&metric), "{metric}: {other:?}");
        }
        let missing = "routes_missing{name=\"other\",down=\"none\"} 3.0";
        assert!(after.contains(missing), "{after}");
    }
}
