//! A spec, read and checked.
use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

use super::{
    evidence::{Rules, Unit},
    limits::{Limits, Share},
    query::{Question, Request},
    reservation::Terms,
    room::Room,
};
use crate::{
    api::{
        TrafficWatch, TrafficWatchSpec, parse_quantity,
        traffic_watch::{Consecutive, Criterion as CriterionSpec, UnknownAction},
    },
    controller::Error,
    nodes::NodeFacts,
    selector::Selector,
};

/// The name of the measure that `maxBandwidthPercent` and `maxBandwidth` are the threshold of.
pub const BANDWIDTH: &str = "bandwidth";

/// A spec whose text fields were read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The measures; never empty, bandwidth first.
    pub criteria: Vec<Criterion>,
    /// Bits per second of every node, if the spec sets it.
    pub capacity: Option<f64>,
    /// The judged nodes.
    pub selector: Selector,
    /// Judgments in a row.
    pub consecutive: Consecutive,
    /// The breaker.
    pub limits: Limits,
    /// The nodes that can take the pods.
    pub room: Room,
    /// The action for a node without evidence, and the time after which it applies, in
    /// milliseconds.
    pub on_unknown: (u32, UnknownAction),
    /// The period.
    pub interval: Duration,
    /// The window of `rate`, where the built-in measurement is used.
    pub window: Option<Duration>,
    /// For how long a node must be unfit before pods are evicted from it, and how many at once.
    pub eviction: Option<(Duration, usize)>,
    /// The offer of nodes to pods.
    pub reservation: Option<Terms>,
}

/// One measure and its thresholds.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    /// The name of the measure.
    pub name: Arc<str>,
    /// Above this a node is unfit, in the measure's unit.
    pub max: f64,
    /// At or below this it is fit again.
    pub recover: f64,
    /// The threshold as its author wrote it.
    pub max_text: String,
    /// The query and its endpoint.
    pub request: Request,
    /// The rules of evidence.
    pub rules: Rules,
}

impl Criterion {
    /// Reports whether a value means unfit; between the thresholds it means the current side of the
    /// node.
    #[must_use]
    pub fn is_unfit(&self, value: f64, judged: Option<bool>) -> bool {
        if value > self.max {
            true
        } else if value <= self.recover {
            false
        } else {
            judged.unwrap_or(false)
        }
    }

    /// Reports whether this is the measure of the bandwidth.
    #[must_use]
    pub fn is_bandwidth(&self) -> bool {
        &*self.name == BANDWIDTH
    }
}

impl Settings {
    /// Reads a spec. The schema has refused what is wrong here, except PromQL and objects that are
    /// older than the schema.
    ///
    /// # Errors
    /// The path of the invalid field, and its error.
    pub fn of(watch: &TrafficWatch) -> Result<Self, Error> {
        let spec = &watch.spec;
        let capacity = spec.capacity.as_ref().map(|q| bits("capacity", q)).transpose()?;
        let selector = match &spec.node_selector {
            None => Selector::linux(),
            Some(selector) => Selector::new(selector)
                .map_err(|text| Error::Invalid(format!("spec.nodeSelector.{text}")))?,
        };
        let mut criteria: Vec<_> = bandwidth(spec)?.into_iter().collect();
        for (i, criterion) in spec.criteria.iter().enumerate() {
            criteria.push(further(spec, criterion, &format!("criteria[{i}]"))?);
        }
        if criteria.is_empty() {
            let text = "one of maxBandwidthPercent, maxBandwidth and criteria is needed";
            return Err(Error::Invalid(format!("spec: {text}")));
        }
        let after = at_least("onUnknown.after", spec.on_unknown.after, 0)?;
        let eviction = match &spec.eviction {
            None => None,
            Some(eviction) => {
                let after = at_least("eviction.after", eviction.after, 0)?;
                Some((after, usize::try_from(eviction.max_per_pass).unwrap_or(usize::MAX)))
            }
        };
        let built_in =
            criteria.iter().any(|c| matches!(c.request.question, Question::BuiltIn { .. }));
        let settings = Self {
            criteria,
            capacity,
            selector,
            consecutive: spec.consecutive,
            limits: Limits {
                max_unfit: share("maxUnfit", &spec.max_unfit)?,
                min_fit: share("minFit", &spec.min_fit)?,
            },
            room: Room::of(watch),
            on_unknown: (
                u32::try_from(after.as_millis()).unwrap_or(u32::MAX),
                spec.on_unknown.action,
            ),
            interval: at_least("interval", spec.interval, 1)?,
            window: built_in.then(|| spec.window.into()),
            eviction,
            reservation: None,
        };
        let reservation = Terms::of(spec, &settings)?;
        Ok(Self { reservation, ..settings })
    }

    /// Bits per second of one node; an error is an annotation that cannot be read.
    pub fn capacity(&self, node: &NodeFacts) -> Result<Option<f64>, ()> {
        match (&self.capacity, &node.capacity) {
            (Some(capacity), _) => Ok(Some(*capacity)),
            (None, None) => Ok(None),
            (None, Some(text)) => {
                let bits = parse_quantity(text).ok().filter(|bits| *bits >= 1.0);
                bits.map(Some).ok_or(())
            }
        }
    }

    /// Returns the number of judgments in a row that change a node's side.
    #[must_use]
    pub fn needed(&self, unfit: bool) -> u32 {
        if unfit { self.consecutive.unfit } else { self.consecutive.fit }
    }

    /// The thresholds in one line, for a person.
    #[must_use]
    pub fn max_text(&self) -> String {
        let texts: Vec<_> = self
            .criteria
            .iter()
            .map(|c| {
                if c.is_bandwidth() {
                    c.max_text.clone()
                } else {
                    format!("{} {}", c.name, c.max_text)
                }
            })
            .collect();
        texts.join(", ")
    }

    /// Reports whether a PromQL text of the author's is used.
    #[must_use]
    pub fn has_own_queries(&self) -> bool {
        self.criteria.iter().any(|c| matches!(c.request.question, Question::Own(_)))
    }
}

fn invalid(path: &str, text: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("spec.{path}: {text}"))
}

fn bits(path: &str, quantity: &Quantity) -> Result<f64, Error> {
    if quantity.0.ends_with(['n', 'u', 'm']) {
        let text = format!(
            "{:?} is less than a bit per second: \"m\" is a thousandth, \"M\" a million",
            quantity.0
        );
        return Err(invalid(path, text));
    }
    let bits = parse_quantity(&quantity.0).map_err(|error| invalid(path, error))?;
    if bits > 0.0 { Ok(bits) } else { Err(invalid(path, "must be greater than 0")) }
}

fn at_least(path: &str, value: crate::api::Duration, seconds: u64) -> Result<Duration, Error> {
    let std = Duration::from(value);
    if value.is_negative() || std < Duration::from_secs(seconds) {
        return Err(invalid(path, format!("must be at least {seconds}s")));
    }
    Ok(std)
}

fn share(path: &str, value: &IntOrString) -> Result<Share, Error> {
    let read = match value {
        IntOrString::Int(n) => n.to_string().parse(),
        IntOrString::String(text) => text.parse(),
    };
    read.map_err(|error| invalid(path, error))
}

/// The measure of the bandwidth, if the spec has a threshold for it.
fn bandwidth(spec: &TrafficWatchSpec) -> Result<Option<Criterion>, Error> {
    let (max, unit, max_text) = match (&spec.max_bandwidth_percent, &spec.max_bandwidth) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "maxBandwidth",
                "cannot be set together with spec.maxBandwidthPercent; set one of them",
            ));
        }
        (Some(text), None) => {
            let max = text.parse().ok().filter(|max| *max > 0.0 && *max <= 100.0);
            let max = max.ok_or_else(|| {
                let text = format!(
                    "{text:?} must be a number greater than 0 and at most 100, e.g. \"60\""
                );
                invalid("maxBandwidthPercent", text)
            })?;
            (max, Unit::Percent, format!("{text} %"))
        }
        (None, Some(quantity)) => {
            (bits("maxBandwidth", quantity)?, Unit::BitsPerSecond, quantity.0.clone())
        }
        (None, None) if spec.query.is_some() => {
            return Err(invalid("query", "needs spec.maxBandwidthPercent or spec.maxBandwidth"));
        }
        (None, None) => return Ok(None),
    };
    let question = match &spec.query {
        Some(text) => Question::Own(text.as_str().into()),
        None => Question::BuiltIn {
            devices: spec.devices.as_str().into(),
            direction: spec.direction,
            window: at_least("window", spec.window, 2)?,
        },
    };
    let recover = recover(max, spec.recover_percent);
    Ok(Some(Criterion {
        name: BANDWIDTH.into(),
        max,
        recover,
        max_text,
        request: Request { endpoint: spec.prometheus.as_str().into(), question },
        rules: Rules {
            unit,
            direction: spec.query.is_none().then_some(spec.direction),
            window: spec.window.into(),
            max_age: at_least("maxSampleAge", spec.max_sample_age, 1)?,
            thresholds: (max, recover),
        },
    }))
}

fn further(spec: &TrafficWatchSpec, it: &CriterionSpec, path: &str) -> Result<Criterion, Error> {
    let at = |field: &str| format!("{path}.{field}");
    let max = parse_quantity(&it.max.0).map_err(|error| invalid(&at("max"), error))?;
    if max < 0.0 {
        return Err(invalid(&at("max"), "must not be negative"));
    }
    if it.name == BANDWIDTH
        || spec.criteria.iter().filter(|other| other.name == it.name).count() > 1
    {
        return Err(invalid(&at("name"), format!("{:?} is taken", it.name)));
    }
    let recover = recover(max, it.recover_percent.unwrap_or(spec.recover_percent));
    Ok(Criterion {
        name: it.name.as_str().into(),
        max,
        recover,
        max_text: it.max.0.clone(),
        request: Request {
            endpoint: spec.prometheus.as_str().into(),
            question: Question::Own(it.query.as_str().into()),
        },
        rules: Rules {
            unit: Unit::Own,
            direction: None,
            window: spec.window.into(),
            max_age: Duration::MAX,
            thresholds: (max, recover),
        },
    })
}

fn recover(max: f64, percent: u32) -> f64 {
    max * f64::from(percent) / 100.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::traffic_watch::Direction;

    #[test]
    fn the_built_in_measurement_is_what_the_spec_says() {
        let watch = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "maxBandwidthPercent": "60", "devices": "bond[0-9]+", "direction": "Receive",
            "window": "7s", "maxSampleAge": "5s", "recoverPercent": 50,
            "consecutive": {"unfit": 6, "fit": 3},
        }});
        let settings = Settings::of(&serde_json::from_value(watch).unwrap()).unwrap();
        assert_eq!(settings.consecutive, Consecutive { unfit: 6, fit: 3 });
        let [measure] = &settings.criteria[..] else { panic!("{settings:?}") };
        assert_eq!((measure.max_text.as_str(), measure.recover), ("60 %", 30.0));
        let asked = Question::BuiltIn {
            devices: "bond[0-9]+".into(),
            direction: Direction::Receive,
            window: Duration::from_secs(7),
        };
        assert_eq!(measure.request.question, asked);
        assert_eq!(measure.rules.direction, Some(Direction::Receive));
        assert_eq!(measure.rules.max_age, Duration::from_secs(5));
    }
    #[test]
    fn the_capacity_of_the_spec_counts_before_that_of_the_annotation() {
        for (spec, annotation, expected) in [
            (json!(null), None, Ok(None)),
            (json!(null), Some("1G"), Ok(Some(1e9))),
            (json!(null), Some("fast"), Err(())),
            (json!("10G"), Some("1G"), Ok(Some(1e10))),
        ] {
            let spec = json!({"maxBandwidthPercent": "60", "capacity": spec});
            let watch = json!({"metadata": {"name": "web"}, "spec": spec});
            let settings = Settings::of(&serde_json::from_value(watch).unwrap()).unwrap();
            let mut node = NodeFacts::named("node".into());
            node.capacity = annotation.map(Into::into);
            assert_eq!(settings.capacity(&node), expected, "{spec} {annotation:?}");
        }
    }
}
