//! What a `TrafficWatch` measures, from its spec.
use crate::{
    api::TrafficWatch,
    controller::Error,
    prometheus,
    traffic_watch::{Settings, view::MeasureView},
};

/// The measures, as the leader would show them. `query` is left empty: only who knows the labels
/// that name nodes can write it.
///
/// # Errors
/// What is wrong with the spec.
pub fn of(watch: &TrafficWatch) -> Result<Vec<MeasureView>, Error> {
    let settings = Settings::of(watch)?;
    Ok(vec![MeasureView {
        name: "bandwidth".into(),
        unit: "percent".into(),
        max: settings.max,
        recover: settings.recover,
        endpoint: endpoint(watch).into(),
        query: String::new(),
        problem: None,
    }])
}

/// The name of the endpoint that a `TrafficWatch` asks.
#[must_use]
pub fn endpoint(_watch: &TrafficWatch) -> &str {
    prometheus::DEFAULT
}
