//! The defaults of a spec, each with its reason.
use std::time::Duration as Std;

use crate::api::Duration;

/// The original's ratio: one reflector for 200 nodes.
pub(super) fn ratio() -> String {
    "0.005".into()
}
/// Fewer reflectors leave no redundancy while one is being replaced.
pub(super) fn min() -> u32 {
    3
}
/// The number that the original documents.
pub(super) fn max() -> u32 {
    25
}
/// The label of cloud providers and of the scheduler.
pub(super) fn zone_label() -> String {
    "topology.kubernetes.io/zone".into()
}
/// The label of the original.
pub(super) fn node_label() -> String {
    "calico-route-reflector".into()
}
/// The number of the original: two reflectors may fail at once.
pub(super) fn peers_per_client() -> u32 {
    3
}
/// The original's address as a range: ids need no routing, and no node has an address of class D.
pub(super) fn pool() -> String {
    "224.0.0.0/16".into()
}
/// A short peak of load does not justify two interruptions of the node's routes.
pub(super) fn demote_after() -> Duration {
    Std::from_mins(10).into()
}
/// Longer than BIRD's graceful restart (120 s): a node that restarts resumes its role.
pub(super) fn replace_after() -> Duration {
    Std::from_mins(3).into()
}
/// New sessions of peers by selector collide: they take up to 30 s with Calico's BIRD.
pub(super) fn wait() -> Duration {
    Std::from_secs(90).into()
}
/// Three times the longest setup of a session, including two scrapes.
pub(super) fn timeout() -> Duration {
    Std::from_mins(5).into()
}
/// Each change interrupts the routes of its node for two seconds.
pub(super) fn max_per_zone() -> u32 {
    1
}
/// The endpoint that `--prometheus-url` names.
pub(super) fn endpoint() -> String {
    "default".into()
}
