//! The metrics that are read from the snapshot at scrape time, so that series vanish with their
//! object.
use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::state::ClusterState;

/// The leader's metrics of each `NetworkProber`.
pub struct Gauges(pub ClusterState);

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauges").finish_non_exhaustive()
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let snapshot = self.0.snapshot();
        let views = || snapshot.views.iter().filter(|(_, view)| view.settings.is_ok());
        let mut family = |name: &str, help: &str, series: &[(&[(&str, &str)], usize)]| {
            if series.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                let value = ConstGauge::new(i64::try_from(*value).unwrap_or(i64::MAX));
                value.encode(family.encode_family(labels)?)?;
            }
            Ok(())
        };
        let (mut pods, mut uncovered, mut estimated) = (vec![], vec![], vec![]);
        let mut paused = vec![];
        for ((namespace, name), view) in views() {
            let of = [("namespace", namespace.as_str()), ("name", name.as_str())];
            let members = &view.members;
            for (state, count) in [
                ("selected", members.selected),
                ("injected", members.injected),
                ("need_restart", members.need_restart),
                ("failing", members.failures()),
                ("unschedulable", members.unschedulable),
            ] {
                pods.push(([of[0], of[1], ("state", state)], count));
            }
            for (reason, count) in &members.not_injected {
                uncovered.push(([of[0], of[1], ("reason", *reason)], *count));
            }
            paused.push((of, members.pauses()));
            estimated.push((of, view.pinglists.estimated_series));
        }
        let pods: Vec<_> = pods.iter().map(|(labels, count)| (&labels[..], *count)).collect();
        family(
            "traffic_operator_networkprober_pods",
            "Pods of a NetworkProber: selected, with an agent, with one of an earlier spec, with one \
             that cannot start, with one and without a node",
            &pods,
        )?;
        let paused: Vec<_> = paused.iter().map(|(labels, count)| (&labels[..], *count)).collect();
        family(
            "traffic_operator_networkprober_paused_namespaces",
            "Namespaces in which no further pod gets an agent, because agents there cannot start or are refused",
            &paused,
        )?;
        let uncovered: Vec<_> = uncovered.iter().map(|(l, count)| (&l[..], *count)).collect();
        family(
            "traffic_operator_injector_uncovered_pods",
            "Selected pods without an agent, by reason",
            &uncovered,
        )?;
        let estimated: Vec<_> = estimated.iter().map(|(l, count)| (&l[..], *count)).collect();
        family(
            "traffic_operator_networkprober_estimated_series",
            "Estimated number of time series that the agents of a NetworkProber export",
            &estimated,
        )
    }
}
