//! The defaults of a spec, each with its reason.
use std::{collections::BTreeMap, time::Duration as Std};

use crate::api::Duration;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

use super::Protocol;

/// The original agent's.
pub(super) fn http_port() -> IntOrString {
    IntOrString::String("8080".into())
}
/// The original agent's.
pub(super) fn http_prometheus_port() -> IntOrString {
    IntOrString::String("2112".into())
}
/// The original's sample.
pub(super) fn polling_period() -> Duration {
    Std::from_secs(10).into()
}
/// What the original sends.
pub(super) fn probes() -> Vec<Protocol> {
    vec![Protocol::Http]
}
/// With eight probers, the loss of one link is told from the loss of the pod.
pub(super) fn in_zone() -> u32 {
    8
}
/// One prober of another zone could itself be the fault; two can disagree.
pub(super) fn per_other_zone() -> u32 {
    2
}
/// What an agent with 20 peers and three protocols needs, with room to spare.
pub(super) fn requests() -> BTreeMap<String, Quantity> {
    [("cpu".into(), Quantity("10m".into())), ("memory".into(), Quantity("16Mi".into()))].into()
}
/// No processor limit: a throttled prober measures its own waiting.
pub(super) fn limits() -> BTreeMap<String, Quantity> {
    [("memory".into(), Quantity("64Mi".into()))].into()
}
/// kube-prometheus' own.
pub(super) fn interval() -> Duration {
    Std::from_secs(30).into()
}
pub(super) fn yes() -> bool {
    true
}
