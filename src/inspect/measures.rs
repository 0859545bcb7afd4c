//! The measures of a `TrafficWatch`, from its spec.
use crate::{
    api::TrafficWatch,
    controller::Error,
    prometheus::Exporters,
    traffic_watch::{Settings, overview::MeasureView},
};

/// Returns the measures, as the leader would show them. `query` is empty, because it depends on the
/// labels that name nodes, which are unknown here.
///
/// # Errors
/// When the spec is invalid.
pub fn of(watch: &TrafficWatch) -> Result<Vec<MeasureView>, Error> {
    let settings = Settings::of(watch)?;
    let view = |criterion: &_| MeasureView {
        query: String::new(),
        ..MeasureView::of(criterion, &Exporters::default())
    };
    Ok(settings.criteria.iter().map(view).collect())
}

/// Returns the name of the endpoint that a `TrafficWatch` queries.
#[must_use]
pub fn endpoint(watch: &TrafficWatch) -> &str {
    &watch.spec.prometheus
}
