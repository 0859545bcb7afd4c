//! One family of metrics that a collector writes at scrape time.
use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// A family in the making.
pub struct Family<'a>(MetricEncoder<'a>);

impl<'a> Family<'a> {
    /// Begins a family of gauges.
    pub fn gauges(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Self, fmt::Error> {
        Ok(Self(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?))
    }

    /// Begins a family of counters.
    pub fn counters(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Self, fmt::Error> {
        Ok(Self(encoder.encode_descriptor(name, help, None, MetricType::Counter)?))
    }

    /// Writes a gauge.
    pub fn gauge(&mut self, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
        ConstGauge::new(value).encode(self.0.encode_family(labels)?)
    }

    /// Writes a counter.
    pub fn counter(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.0.encode_family(labels)?)
    }
}

/// A count as the value of a gauge.
#[must_use]
pub fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}
