//! The metrics that are computed from the memories at scrape time, so that series vanish with their
//! object.
use std::{fmt, time::Instant};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::MetricType,
};

use super::memory::Memories;
use crate::metrics::{Family, count};

/// The leader's metrics of each `Swarm`.
#[derive(Debug)]
pub struct Gauges(pub Memories);

/// Labels of one series, beside namespace and name, and its value.
type Series<'a, V> = (Vec<(&'static str, &'a str)>, V);

#[expect(clippy::cast_precision_loss, reason = "an epoch is below 2^52")]
fn epoch(number: u64) -> f64 {
    number as f64
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let all: Vec<_> = self.0.each(|_, memory| memory.decision()).collect();
        if all.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let gauge =
            |encoder: &mut DescriptorEncoder,
             name: &str,
             help: &str,
             of: &dyn Fn(&super::snapshot::Snapshot) -> Vec<Series<'_, f64>>| {
                let mut family = Family::gauges(encoder, name, help)?;
                for ((namespace, name), snapshot) in &all {
                    for (labels, value) in of(snapshot) {
                        let own = vec![("namespace", namespace.as_str()), ("name", name)];
                        family.gauge(&[own, labels].concat().as_slice(), value)?;
                    }
                }
                Ok::<_, fmt::Error>(())
            };
        gauge(
            &mut encoder,
            "traffic_operator_swarm_streams",
            "Streams of a Swarm: in a worker's list, in that of a worker that does not run, not yet released by one, \
             free, without a worker to go to, in no list because it is unknown what workers run",
            &|snapshot| {
                let counts = snapshot.counts;
                let by = [
                    ("owned", counts.owned.saturating_sub(snapshot.stranded)),
                    ("stranded", snapshot.stranded),
                    ("releasing", counts.releasing),
                    ("free", counts.free),
                    ("unassigned", counts.unassigned),
                    ("undecided", snapshot.undecided),
                ];
                by.map(|(state, number)| (vec![("state", state)], count(number))).into()
            },
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_duplicate_owners",
            "Streams that two workers report running",
            &|snapshot| vec![(vec![], count(snapshot.duplicates.len()))],
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_workers",
            "Workers that the Swarm assigns streams to, those with a ready pod, those that have not \
             acknowledged their list, those that have not prepared all streams that will come, those that \
             answer no more, those whose answers are not signed",
            &|snapshot| {
                let number = |is: &dyn Fn(&super::snapshot::Worker) -> bool| {
                    count(snapshot.workers.iter().filter(|worker| is(worker)).count())
                };
                vec![
                    (vec![("state", "wanted")], count(snapshot.workers.len())),
                    (vec![("state", "ready")], number(&|worker| worker.ready)),
                    (vec![("state", "behind")], number(&|worker| worker.is_behind())),
                    (vec![("state", "preparing")], number(&|worker| worker.preparing > 0)),
                    (vec![("state", "unresponsive")], number(&|worker| worker.unresponsive)),
                    (vec![("state", "unsigned")], number(&|worker| !worker.signs)),
                ]
            },
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_epoch",
            "Version of the file with the lists of streams",
            &|snapshot| vec![(vec![], epoch(snapshot.epoch))],
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_worker_acked_epoch",
            "Version that a worker has acknowledged",
            &|snapshot| {
                let each = snapshot.workers.iter();
                let each =
                    each.filter_map(|w| Some((vec![("worker", &*w.name)], epoch(w.loaded?))));
                each.collect()
            },
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_worker_load_ratio",
            "Weight of the heaviest worker divided by the mean",
            &|snapshot| vec![(vec![], snapshot.ratio)],
        )?;
        gauge(
            &mut encoder,
            "traffic_operator_swarm_oldest_release_seconds",
            "Longest time for which a worker has not confirmed that it released a stream",
            &|snapshot| {
                let oldest = snapshot.releasing.iter().map(|(.., since)| *since).min();
                let age = oldest.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
                vec![(vec![], age)]
            },
        )?;
        self.counters(&mut encoder)
    }
}

impl Gauges {
    fn counters(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let all: Vec<_> = self.0.each(|_, memory| memory.decision()).collect();
        for (name, help, label) in [
            ("traffic_operator_swarm_moves", "Streams that left a worker", "reason"),
            (
                "traffic_operator_swarm_refreshes",
                "Refreshes of workers: evicted, reloaded, or refused evictions",
                "action",
            ),
        ] {
            let mut family = Family::counters(encoder, name, help)?;
            for ((namespace, swarm), snapshot) in &all {
                let counters = &snapshot.counters;
                let by = if label == "reason" { &counters.moves } else { &counters.refreshes };
                for (value, number) in by {
                    let labels =
                        [("namespace", namespace.as_str()), ("name", swarm), (label, value)];
                    family.counter(&labels, *number)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "traffic_operator_swarm_stream_unowned_seconds",
            "Time from when no worker had a stream until its new worker acknowledged it",
            None,
            MetricType::Histogram,
        )?;
        for ((namespace, swarm), snapshot) in &all {
            let labels = [("namespace", namespace.as_str()), ("name", swarm)];
            snapshot.counters.gaps.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
