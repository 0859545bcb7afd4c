//! The defaults of a spec, each with its reason.
use std::time::Duration as Std;

use crate::api::Duration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The original's file.
pub(super) fn key() -> String {
    "config.yml".into()
}
/// The original's one file.
pub(super) fn files() -> u32 {
    1
}
/// The original's port.
pub(super) fn port() -> u16 {
    9090
}
/// The original's path.
pub(super) fn path() -> String {
    "/internal/version".into()
}
pub(super) fn weight() -> u32 {
    1
}
/// One at a time, as a StatefulSet's own update does it.
pub(super) fn max_unavailable() -> u32 {
    1
}
/// A pod that is drained (30 s), rescheduled and started has time; more is worth a look.
pub(super) fn timeout() -> Duration {
    Std::from_mins(2).into()
}
/// One scrape of most installations.
pub(super) fn weights_interval() -> Duration {
    Std::from_secs(30).into()
}
/// A move costs a gap; a third more than the mean is worth one.
pub(super) fn rebalance_above() -> Quantity {
    Quantity("1.3".into())
}
/// Longer than a peak, shorter than an hour of overload.
pub(super) fn rebalance_for() -> Duration {
    Std::from_mins(10).into()
}
pub(super) fn min_workers() -> u32 {
    1
}
/// As long as the scale-down window of the horizontal pod autoscaler.
pub(super) fn cooldown() -> Duration {
    Std::from_mins(5).into()
}
/// The endpoint that `--prometheus-url` names.
pub(super) fn endpoint() -> String {
    "default".into()
}
