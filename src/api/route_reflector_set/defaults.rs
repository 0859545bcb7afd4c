//! The defaults of a spec, each with its reason.
use std::time::Duration as Std;

use crate::api::Duration;

/// The original's: one reflector for 200 nodes.
pub(super) fn ratio() -> String {
    "0.005".into()
}
/// Fewer are no redundancy while one is replaced.
pub(super) fn min() -> u32 {
    3
}
/// As the original documents it.
pub(super) fn max() -> u32 {
    25
}
/// The label of cloud providers and the scheduler.
pub(super) fn zone_label() -> String {
    "topology.kubernetes.io/zone".into()
}
/// The original's.
pub(super) fn node_label() -> String {
    "calico-route-reflector".into()
}
/// The original's: two may fail at once.
pub(super) fn peers_per_client() -> u32 {
    3
}
/// The original's, as a range: ids need no routing, and nobody has a node in class D.
pub(super) fn pool() -> String {
    "224.0.0.0/16".into()
}
/// A node that is loaded for a moment is not worth two interruptions of its routes.
pub(super) fn demote_after() -> Duration {
    Std::from_mins(10).into()
}
/// Longer than BIRD's graceful restart (120 s): a node that restarts comes back as what it was.
pub(super) fn replace_after() -> Duration {
    Std::from_mins(3).into()
}
/// Sessions of peers by selector collide when they are made: up to 30 s with Calico's BIRD.
pub(super) fn wait() -> Duration {
    Std::from_secs(90).into()
}
/// Three times what a session needs at worst, with two scrapes in between.
pub(super) fn timeout() -> Duration {
    Std::from_mins(5).into()
}
/// Each costs its node two seconds of its routes.
pub(super) fn max_per_zone() -> u32 {
    1
}
/// The endpoint that `--prometheus-url` names.
pub(super) fn endpoint() -> String {
    "default".into()
}
