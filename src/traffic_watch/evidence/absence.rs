//! Reasons why there is no evidence about a node.

/// Why there is no evidence about a node. The words appear in status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoEvidence {
    /// The request failed.
    MetricsUnavailable,
    /// Fewer than half of the nodes have data: the measurement is broken, not the nodes.
    LowCoverage,
    /// Nothing in the answer is about this node.
    NoSample,
    /// Its exporter does not answer: `up` is 0.
    ExporterDown,
    /// Its exporter answers, and no device matches.
    NoDevice,
    /// No link speed is known, or that of a link that may be the fullest is not, and no capacity is
    /// configured.
    SpeedUnknown,
    /// The capacity annotation is no quantity, or the node carries a multiple of its capacity.
    InvalidCapacity,
    /// `NaN`, infinite, negative, or two values.
    InvalidSample,
    /// Older than `maxSampleAge`.
    StaleSample,
    /// The samples cover the window only partly, or the answer is partial: there is at least as much
    /// load as it shows, and perhaps more than the threshold.
    PartialWindow,
}

impl NoEvidence {
    /// Reports whether there is no sample at all.
    #[must_use]
    pub fn is_absence(self) -> bool {
        matches!(self, Self::NoSample | Self::ExporterDown | Self::NoDevice)
    }

    /// The reason in status and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::MetricsUnavailable => "MetricsUnavailable",
            Self::LowCoverage => "LowCoverage",
            Self::NoSample => "NoSample",
            Self::ExporterDown => "ExporterDown",
            Self::NoDevice => "NoDevice",
            Self::SpeedUnknown => "SpeedUnknown",
            Self::InvalidCapacity => "InvalidCapacity",
            Self::InvalidSample => "InvalidSample",
            Self::StaleSample => "StaleSample",
            Self::PartialWindow => "PartialWindow",
        }
    }
}
