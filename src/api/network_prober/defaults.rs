//! The defaults of a spec, each with its reason.
use std::{collections::BTreeMap, time::Duration as Std};

use crate::api::Duration;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};

use super::Protocol;

/// The default of the original agent.
pub(super) fn http_port() -> IntOrString {
    IntOrString::String("22080".into())
}
/// The default of the original agent.
pub(super) fn http_prometheus_port() -> IntOrString {
    IntOrString::String("22112".into())
}
/// The value in the original's sample.
pub(super) fn polling_period() -> Duration {
    Std::from_secs(10).into()
}
/// The protocol of the original.
pub(super) fn probes() -> Vec<Protocol> {
    vec![Protocol::Http]
}
/// With eight probers, the loss of one link can be distinguished from the loss of the pod.
pub(super) fn in_zone() -> u32 {
    8
}
/// One prober of another zone could itself be the fault; two can disagree.
pub(super) fn per_other_zone() -> u32 {
    2
}
/// The needs of an agent with 20 peers and three protocols, with room to spare.
pub(super) fn requests() -> BTreeMap<String, Quantity> {
    [("cpu".into(), Quantity("10m".into())), ("memory".into(), Quantity("16Mi".into()))].into()
}
/// No CPU limit: a throttled prober would measure its own waiting.
pub(super) fn limits() -> BTreeMap<String, Quantity> {
    [("memory".into(), Quantity("64Mi".into()))].into()
}
/// The default of kube-prometheus.
pub(super) fn interval() -> Duration {
    Std::from_secs(30).into()
}
pub(super) fn yes() -> bool {
    true
}
