//! The offer of each node to pods, and the sum that leads to it.
use prometheus_client::encoding::DescriptorEncoder;

use super::{
    super::reservation::{Figures, Memory},
    Family, Gauges, NodeLabels, Result, joined,
};

/// One figure of a node, in bits per second.
type Bits = fn(&Memory, &Figures) -> Option<f64>;

/// The figures by the label `of`: all in one unit, so that they compare in one graph.
const FIGURES: [(&str, Bits); 4] = [
    ("limit", |_, figures| figures.limit),
    ("measured", |_, figures| figures.measured),
    ("requested", |memory, figures| Some(memory.bits(figures.requested))),
    ("offered", |memory, figures| Some(memory.bits(figures.amount?))),
];

impl Gauges {
    pub(super) fn reservations(&self, encoder: &mut DescriptorEncoder<'_>, share: usize) -> Result {
        let help = "What pods and everything else may use on a node (limit) and use (measured), \
                    what pods request and what the node offers; the first two only with evidence";
        let family = "traffic_operator_trafficwatch_node_reservation_bits_per_second";
        let mut family = Family::gauges(encoder, family, help)?;
        self.each(|own, object| {
            let Some(memory) = &object.memory.reservation else { return Ok(()) };
            let before = joined(&own, "node");
            let label = joined(&[("resource", &memory.resource)], "of");
            for (node, figures) in
                object.shown(share).filter_map(|(node, _)| Some((node, memory.get(node)?)))
            {
                for (of, bits) in FIGURES {
                    if let Some(bits) = bits(memory, figures) {
                        let last = (label.as_str(), of);
                        family.gauge(&NodeLabels { before: &before, node, last }, bits)?;
                    }
                }
            }
            Ok(())
        })?;
        let help = "Pods without a node that request more of the resource than any node has free";
        let family = "traffic_operator_trafficwatch_reservation_waiting_pods";
        let mut family = Family::gauges(encoder, family, help)?;
        self.each(|[namespace, name], object| {
            let Some(memory) = &object.memory.reservation else { return Ok(()) };
            let labels = [namespace, name, ("resource", &*memory.resource)];
            #[expect(clippy::cast_precision_loss, reason = "pods are fewer than 2^52")]
            family.gauge(&labels, memory.waiting as f64)
        })
    }
}
