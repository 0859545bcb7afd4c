//! Decisions, and the formats that operator and agent share: no Kubernetes, no network, no clock.
//!
//! The operator and the agent are both built on this crate. Its dependencies keep it pure: there is
//! no client and no runtime among them.
//!
//! - [`placement`]: pairs things: streams with workers, and agents with the peers that they probe.
//! - [`handover`]: how a stream goes from one worker to another, file by file, and never runs
//!   twice.
//! - [`bgp_model`]: the BGP sessions, and the routes that arrive at each node, by BIRD's rules.
//! - [`election`]: which nodes reflect routes, in which slots, with which cluster ids.
//! - [`series`], [`identity`]: the elements of an answer of Prometheus, and the node of each.
//! - [`pinglist`]: the peers that an agent probes, as the operator serves them; [`budget`]: their
//!   maximum number.
//! - [`disruption`]: which object may disrupt which zone, over all kinds.
//! - [`acknowledgement`]: how workers sign their reports to the operator.
//! - [`exposition`]: the formats of a page of metrics.
//! - [`places`]: limits connections; [`natural_sort`]: the order in which people list names.
pub mod acknowledgement;
pub mod bgp_model;
pub mod budget;
pub mod disruption;
pub mod election;
pub mod exposition;
pub mod handover;
pub mod identity;
pub mod natural_sort;
pub mod pinglist;
pub mod placement;
pub mod places;
pub mod series;

/// Gives an enum the list of its variants, and each variant its name in specs, status and metrics.
#[macro_export]
macro_rules! named {
    ($type:ident { $($variant:ident),+ $(,)? }) => {
        impl $type {
            /// All variants, in their order.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            /// Returns its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}
