//! `spec.reservation`, read and checked.
use std::{sync::Arc, time::Duration};

use super::super::{
    evidence::Unit,
    settings::{Criterion, Settings},
};
use crate::{
    api::{TrafficWatchSpec, parse_quantity},
    controller::Error,
    extended_resources::is_extended,
};

/// The window of `rate` where the author's own query replaces it: the default of `spec.window`.
const WINDOW: Duration = Duration::from_mins(2);

/// The offer of nodes, and the steps in which it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Name of the extended resource.
    pub resource: Arc<str>,
    /// Bits per second of one unit.
    pub unit: f64,
    /// The part of the threshold that stays unreserved.
    pub reserve: f64,
    /// The smallest change that is written, as a part of the limit.
    pub step: f64,
    /// The time after which a measurement shows what new pods send.
    pub settle: Duration,
}

impl Terms {
    /// Reads the field of a spec. `settings` has everything else.
    ///
    /// # Errors
    /// The path of the invalid field, and its error.
    pub fn of(spec: &TrafficWatchSpec, settings: &Settings) -> Result<Option<Self>, Error> {
        let Some(reservation) = &spec.reservation else { return Ok(None) };
        let Some(bandwidth) = settings.criteria.first().filter(|first| first.is_bandwidth()) else {
            return Err(Error::Invalid(
                "spec.reservation: needs spec.maxBandwidthPercent or spec.maxBandwidth".into(),
            ));
        };
        let name = &reservation.resource;
        if !is_extended(name) {
            let text = "must be the name of an extended resource with a prefix outside of \
                        kubernetes.io, e.g. \"traffic.example.com/egress-mbps\"";
            return Err(invalid("resource", text));
        }
        let unit = parse_quantity(&reservation.unit.0)
            .map_err(|error| invalid("unit", &error.to_string()))?;
        if unit <= 0.0 {
            return Err(invalid("unit", "must be greater than 0"));
        }
        let window = settings.window.unwrap_or(WINDOW);
        Ok(Some(Self {
            resource: name.as_str().into(),
            unit,
            reserve: percent("reserve", &reservation.reserve, 0)?,
            step: percent("step", &reservation.step, 1)?,
            settle: window.saturating_add(bandwidth.rules.max_age),
        }))
    }

    /// Returns the bits per second that pods and everything else on a node may use together; `None`
    /// if its capacity decides and is not known.
    #[must_use]
    pub fn limit(&self, bandwidth: &Criterion, capacity: Option<f64>) -> Option<f64> {
        let threshold = match bandwidth.rules.unit {
            Unit::Percent => capacity? * bandwidth.max / 100.0,
            Unit::BitsPerSecond => bandwidth.max,
            Unit::Own => return None,
        };
        Some(threshold * (1.0 - self.reserve))
    }
}

fn invalid(field: &str, text: &str) -> Error {
    Error::Invalid(format!("spec.reservation.{field}: {text}"))
}

/// Reads a percentage from `least` to 99 as a part of one.
fn percent(field: &str, text: &str, least: u8) -> Result<f64, Error> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
    match number.filter(|number| (least..100).contains(number)) {
        Some(number) => Ok(f64::from(number) / 100.0),
        None => Err(invalid(field, &format!("{text:?} must be a percentage from {least}% to 99%"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::TrafficWatch;

    fn terms(spec: &Value) -> Result<Option<Terms>, String> {
        let watch = json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": spec});
        let watch: TrafficWatch = serde_json::from_value(watch).unwrap();
        let settings = Settings::of(&watch).map_err(|error| error.to_text())?;
        Ok(settings.reservation)
    }

    fn with(reservation: &Value) -> Result<Option<Terms>, String> {
        terms(&json!({"maxBandwidthPercent": "60", "reservation": reservation}))
    }

    #[test]
    fn defaults_are_those_of_the_page() {
        let terms = with(&json!({"resource": "example.com/mbps"})).unwrap().unwrap();
        let expected = Terms {
            resource: "example.com/mbps".into(),
            unit: 1e6,
            reserve: 0.1,
            step: 0.05,
            settle: Duration::from_secs(210),
        };
        assert_eq!(terms, expected);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (reservation, text) in [
            (json!({"resource": "cpu"}), "spec.reservation.resource: must be"),
            (json!({"resource": "kubernetes.io/x"}), "spec.reservation.resource: must be"),
            (json!({"resource": "a.b/c", "unit": "0"}), "spec.reservation.unit: must be"),
            (json!({"resource": "a.b/c", "unit": "fast"}), "spec.reservation.unit: "),
            (json!({"resource": "a.b/c", "reserve": "100%"}), "spec.reservation.reserve: \"100%\""),
            (json!({"resource": "a.b/c", "reserve": "-1%"}), "spec.reservation.reserve: \"-1%\""),
            (json!({"resource": "a.b/c", "step": "0%"}), "spec.reservation.step: \"0%\""),
            (json!({"resource": "a.b/c", "step": "5"}), "spec.reservation.step: \"5\""),
        ] {
            let error = with(&reservation).unwrap_err();
            assert!(error.starts_with(text), "{reservation}: {error}");
        }
        let criteria = json!([{"name": "loss", "query": "loss", "max": "1"}]);
        let spec = json!({"criteria": criteria, "reservation": {"resource": "a.b/c"}});
        assert!(terms(&spec).unwrap_err().starts_with("spec.reservation: needs "));
    }

    #[test]
    fn the_limit_is_a_part_of_the_threshold() {
        let limit = |spec: Value, capacity| {
            let watch = json!({"metadata": {"name": "web"}, "spec": spec});
            let settings = Settings::of(&serde_json::from_value(watch).unwrap()).unwrap();
            settings.reservation.unwrap().limit(&settings.criteria[0], capacity)
        };
        let near = |limit: Option<f64>, expected: f64| (limit.unwrap() - expected).abs() < 1.0;
        let reservation = json!({"resource": "a.b/c", "reserve": "20%"});
        let share = json!({"maxBandwidthPercent": "50", "reservation": reservation});
        assert!(near(limit(share.clone(), Some(1e10)), 4e9));
        assert_eq!(limit(share, None), None);
        let fixed = json!({"maxBandwidth": "800M", "reservation": reservation});
        assert!(near(limit(fixed.clone(), None), 6.4e8));
        assert!(near(limit(fixed, Some(1e8)), 6.4e8));
    }
}
