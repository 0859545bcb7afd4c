//! The defaults of a spec, each with its reason.
use std::time::Duration as Std;

use crate::api::Duration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The name of the original's file.
pub(super) fn key() -> String {
    "config.yml".into()
}
/// One file, as the original.
pub(super) fn files() -> u32 {
    1
}
/// The port of the original.
pub(super) fn port() -> u16 {
    9090
}
/// The path of the original.
pub(super) fn path() -> String {
    "/internal/version".into()
}
pub(super) fn weight() -> u32 {
    1
}
/// One at a time, as in a rolling update of a StatefulSet.
pub(super) fn max_unavailable() -> u32 {
    1
}
/// Enough for a pod to be drained (30 s), rescheduled and started; a longer time deserves
/// attention.
pub(super) fn timeout() -> Duration {
    Std::from_mins(2).into()
}
/// The scrape interval of most installations.
pub(super) fn weights_interval() -> Duration {
    Std::from_secs(30).into()
}
/// A move costs a gap; a load of a third above the mean justifies one.
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
/// The scale-down window of the horizontal pod autoscaler.
pub(super) fn cooldown() -> Duration {
    Std::from_mins(5).into()
}
/// The endpoint that `--prometheus-url` names.
pub(super) fn endpoint() -> String {
    "default".into()
}
