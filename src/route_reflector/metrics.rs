//! The metrics that are computed from the memories at scrape time, so that series vanish with their
//! object.
use std::{fmt, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::{
    memory::{Counters, Figures, Memories, Memory},
    plan::seconds,
};

/// The leader's metrics of each `RouteReflectorSet`.
#[derive(Debug)]
pub struct Gauges(pub Memories);

/// Labels of one series, beside the name, and its value.
type Series<'a> = (Vec<(&'static str, &'a str)>, f64);

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate, or pairs of some thousand nodes")]
fn large(number: u64) -> f64 {
    number as f64
}

/// The counters of one set as series.
type Counted = dyn Fn(&Counters) -> Vec<(Vec<(&'static str, &'static str)>, u64)>;

type Gauge = (&'static str, &'static str, fn(&Figures, f64) -> Vec<Series<'_>>);

const GAUGES: [Gauge; 10] = [
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
        "traffic_operator_routereflector_routes_missing",
        "Ordered pairs of nodes in which the first has no route to the second, by the configured sessions: now, and with the most important reflector down",
        |figures, _| {
            vec![
                (vec![("down", "none")], large(figures.missing)),
                (vec![("down", "worst")], large(figures.missing_without_one)),
            ]
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
        let figures = |memory: &Memory| (Arc::clone(&memory.figures), memory.counters.clone());
        let all: Vec<_> = self.0.each(|_, memory| Some(figures(memory))).collect();
        if all.is_empty() {
            return Ok(());
        }
        let now = seconds(Timestamp::now());
        for (metric, help, of) in GAUGES {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Gauge)?;
            for ((_, name), (figures, _)) in &all {
                for (labels, value) in of(figures, now) {
                    let mut every = vec![("name", name.as_str())];
                    every.extend(labels);
                    let value = ConstGauge::new(value);
                    value.encode(family.encode_family(&every.as_slice())?)?;
                }
            }
        }
        let counter = |encoder: &mut DescriptorEncoder, metric: &str, help: &str, of: &Counted| {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Counter)?;
            for ((_, name), (_, counters)) in &all {
                for (labels, value) in of(counters) {
                    let mut every = vec![("name", name.as_str())];
                    every.extend(labels);
                    let value = ConstCounter::new(value);
                    value.encode(family.encode_family(&every.as_slice())?)?;
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
