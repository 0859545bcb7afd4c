//! The measures of a `TrafficWatch`, from its spec.
use crate::{
    api::TrafficWatch,
    controller::Error,
    prometheus::Exporters,
    traffic_watch::{Settings, overview::MeasureView},
};

/// The measures, as the leader would show them. `query` is left empty: only who knows the labels
/// that name nodes can write it.
///
/// # Errors
/// What is wrong with the spec.
pub fn of(watch: &TrafficWatch) -> Result<Vec<MeasureView>, Error> {
    let settings = Settings::of(watch)?;
    let view = |criterion: &_| MeasureView {
        query: String::new(),
        ..MeasureView::of(criterion, &Exporters::default())
    };
    Ok(settings.criteria.iter().map(view).collect())
}

/// The name of the endpoint that a `TrafficWatch` asks.
#[must_use]
pub fn endpoint(watch: &TrafficWatch) -> &str {
    &watch.spec.prometheus
}
