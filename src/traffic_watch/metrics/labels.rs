//! Labels of series about nodes, of which a page has tens of thousands.
use std::fmt::{self, Write};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// A label, by its name and its value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The labels of one series. All series of an object share one text: the encoder of the
/// text format writes names of labels as they are, so that a name may be several labels and a name.
pub(super) struct NodeLabels<'a> {
    /// The labels of the object, and the name of the label of the node: [`joined`].
    pub before: &'a str,
    /// The node.
    pub node: &'a str,
    /// The text before the last value, likewise, and that value.
    pub last: (&'a str, &'a str),
}

impl EncodeLabelSet for NodeLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        for (name, value) in [(self.before, self.node), self.last] {
            let mut label = encoder.encode_label();
            let mut text = label.encode_label_key()?;
            text.write_str(name)?;
            let mut text = text.encode_label_value()?;
            text.write_str(value)?;
            text.finish()?;
        }
        Ok(())
    }
}

/// Some labels, and the name of one that follows them.
pub(super) fn joined(labels: &[Label<'_>], name: &str) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push_str(name);
        text.push_str("=\"");
        for char in value.chars() {
            match char {
                '\n' => text.push_str("\\n"),
                '"' | '\\' => text.extend(['\\', char]),
                char => text.push(char),
            }
        }
        text.push_str("\",");
    }
    text.push_str(name);
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::{
        collector::Collector,
        encoding::{DescriptorEncoder, EncodeMetric, text},
        metrics::{MetricType, gauge::ConstGauge},
        registry::Registry,
    };

    use super::*;

    /// The same series twice: once with each label by itself, once as here.
    #[derive(Debug)]
    struct Twice([&'static str; 4]);

    impl Collector for Twice {
        fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
            let [namespace, node, criterion, unit] = self.0;
            let mut family = encoder.encode_descriptor("a", "b", None, MetricType::Gauge)?;
            let each = [
                ("namespace", namespace),
                ("node", node),
                ("criterion", criterion),
                ("unit", unit),
            ];
            ConstGauge::new(1.5).encode(family.encode_family(&each)?)?;
            let before = joined(&each[..1], "node");
            let last = joined(&each[2..3], "unit");
            let labels = NodeLabels { before: &before, node, last: (&last, unit) };
            ConstGauge::new(1.5).encode(family.encode_family(&labels)?)
        }
    }

    #[test]
    fn labels_are_written_as_the_encoder_writes_each_by_itself() {
        for values in [["default", "worker-1", "bandwidth", "percent"], ["a\"", "b\\", "c\n", ""]] {
            let mut registry = Registry::default();
            registry.register_collector(Box::new(Twice(values)));
            let mut page = String::new();
            text::encode_registry(&mut page, &registry).unwrap();
            let series: Vec<_> = page.lines().filter(|line| line.starts_with("a{")).collect();
            assert_eq!(series.len(), 2, "{page}");
            assert_eq!(series[0], series[1]);
        }
    }
}
