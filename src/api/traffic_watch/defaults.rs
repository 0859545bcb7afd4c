//! The defaults of a spec, each with its reason.
use std::time::Duration as Std;

use crate::api::Duration;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

/// Two replicas of one Prometheus differ by a few percent; ten keep their disagreement from
/// flipping a node.
pub(super) fn recover_percent() -> u32 {
    90
}
pub(super) fn devices() -> String {
    super::DEFAULT_DEVICES.into()
}
/// The original's period.
pub(super) fn interval() -> Duration {
    Std::from_secs(10).into()
}
/// Four scrapes of the Helm chart (30 s), eight of kube-prometheus (15 s).
pub(super) fn window() -> Duration {
    Std::from_mins(2).into()
}
/// Three missed scrapes of 30 s.
pub(super) fn max_sample_age() -> Duration {
    Std::from_secs(90).into()
}
/// The original's hysteresis.
pub(super) fn consecutive() -> u32 {
    2
}

/// Half: more unfit nodes than fit ones are a sign of a wrong threshold, or of trouble that moving
/// pods makes worse.
pub(super) fn max_unfit() -> IntOrString {
    IntOrString::String("50%".into())
}

/// Required node affinity with no fit node left would leave every new pod pending.
pub(super) fn min_fit() -> IntOrString {
    IntOrString::Int(1)
}

/// An exporter that is replaced or a node that reboots is back long before.
pub(super) fn unknown_after() -> Duration {
    Std::from_mins(10).into()
}

/// The original's only Prometheus: kube-prometheus, as `--prometheus-url` names it.
pub(super) fn endpoint() -> String {
    "default".into()
}

/// One at a time: the pod must run elsewhere before the next leaves.
pub(super) fn max_per_pass() -> u32 {
    1
}

/// Megabits: whole numbers of them are what people say of services.
pub(super) fn unit() -> Quantity {
    Quantity("1M".into())
}

/// Twice the step: what a change below a step hides, and a burst.
pub(super) fn reserve() -> String {
    "10%".into()
}

/// A link in steady use changes its rate over two minutes by a few percent.
pub(super) fn step() -> String {
    "5%".into()
}
