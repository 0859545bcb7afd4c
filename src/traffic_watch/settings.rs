//! A spec, read and checked.
use std::time::Duration;

use super::{evidence::Rules, query::Question};
use crate::{
    api::{TrafficWatch, parse_quantity, traffic_watch::Consecutive},
    controller::Error,
    nodes::{NodeFacts, NodeSelector},
};

/// A spec whose text fields were read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Percent above which a node is unfit.
    pub max: f64,
    /// Percent at or below which it is fit again.
    pub recover: f64,
    /// Bits per second of every node, if the spec says so.
    pub capacity: Option<f64>,
    /// The judged nodes.
    pub selector: NodeSelector,
    /// What counts as evidence.
    pub rules: Rules,
    /// Judgements in a row.
    pub consecutive: Consecutive,
    /// The period.
    pub interval: Duration,
    /// What is asked of Prometheus.
    pub question: Question,
}

impl Settings {
    /// Reads a spec. The schema has refused what is wrong here, except in objects older than it.
    ///
    /// # Errors
    /// The path of the field and what is wrong with it.
    pub fn of(watch: &TrafficWatch) -> Result<Self, Error> {
        let spec = &watch.spec;
        let invalid = |path: &str, text: String| Error::Invalid(format!("spec.{path}: {text}"));
        let text = spec.max_bandwidth_percent.as_str();
        let max = text.parse().ok().filter(|max| *max > 0.0 && *max <= 100.0).ok_or_else(|| {
            let text =
                format!("{text:?} must be a number greater than 0 and at most 100, e.g. \"60\"");
            invalid("maxBandwidthPercent", text)
        })?;
        let capacity = match spec.capacity.as_ref().map(|q| parse_quantity(&q.0)) {
            None => None,
            Some(Ok(capacity)) if capacity > 0.0 => Some(capacity),
            Some(Ok(_)) => return Err(invalid("capacity", "must be greater than 0".into())),
            Some(Err(error)) => return Err(invalid("capacity", error.to_string())),
        };
        let selector = match &spec.node_selector {
            None => NodeSelector::linux(),
            Some(selector) => NodeSelector::new(selector)
                .map_err(|text| Error::Invalid(format!("spec.nodeSelector.{text}")))?,
        };
        let at_least = |path: &str, value: kube::core::Duration, seconds: u64| {
            let std = Duration::from(value);
            if value.is_negative() || std < Duration::from_secs(seconds) {
                return Err(invalid(path, format!("must be at least {seconds}s")));
            }
            Ok(std)
        };
        let interval = at_least("interval", spec.interval, 1)?;
        Ok(Self {
            max,
            recover: max * f64::from(spec.recover_percent) / 100.0,
            capacity,
            selector,
            rules: Rules {
                direction: spec.direction,
                max_age: at_least("maxSampleAge", spec.max_sample_age, 1)?,
            },
            consecutive: spec.consecutive,
            interval,
            question: Question {
                devices: spec.devices.clone(),
                direction: spec.direction,
                window: at_least("window", spec.window, 2)?,
            },
        })
    }

    /// Bits per second of one node; an error is an annotation that cannot be read.
    pub fn capacity(&self, node: &NodeFacts) -> Result<Option<f64>, ()> {
        match (&self.capacity, &node.capacity) {
            (Some(capacity), _) => Ok(Some(*capacity)),
            (None, None) => Ok(None),
            (None, Some(text)) => {
                parse_quantity(text).ok().filter(|c| *c > 0.0).map(Some).ok_or(())
            }
        }
    }

    /// Whether a value speaks for unfit; between the thresholds it speaks for the side the node is on.
    #[must_use]
    pub fn is_unfit(&self, percent: f64, judged: Option<bool>) -> bool {
        if percent > self.max {
            true
        } else if percent <= self.recover {
            false
        } else {
            judged.unwrap_or(false)
        }
    }

    /// How many judgements in a row bring a node to a side.
    #[must_use]
    pub fn needed(&self, unfit: bool) -> u32 {
        if unfit { self.consecutive.unfit } else { self.consecutive.fit }
    }
}
