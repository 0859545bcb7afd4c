//! Decisions, and what both sides of a wire agree on: no Kubernetes, no network, no clock.
//!
//! The operator and the agent are both built on this crate. Its dependencies keep it pure: there is
//! no client and no runtime among them.
//!
//! - [`placement`]: who with whom: which worker has which stream, who probes whom.
//! - [`handover`]: how a stream goes from one worker to another, file by file, and never runs
//!   twice.
//! - [`bgp_model`]: who peers with whom, and which routes arrive where, by BIRD's rules.
//! - [`election`]: which nodes reflect routes, in which slots, with which cluster ids.
//! - [`series`], [`identity`]: the elements of an answer of Prometheus, and which node each is
//!   about.
//! - [`pinglist`]: whom an agent probes, as the operator serves it; [`budget`]: how many peers at
//!   most.
//! - [`acknowledgement`]: how workers sign what they report to the operator.
//! - [`places`]: who may hold a connection; [`natural_sort`]: the order in which people list names.
pub mod acknowledgement;
pub mod bgp_model;
pub mod budget;
pub mod election;
pub mod handover;
pub mod identity;
pub mod natural_sort;
pub mod pinglist;
pub mod placement;
pub mod places;
pub mod series;

/// Gives an enum its variants in their order, and each its name, as it is written in specs, status
/// and metrics.
#[macro_export]
macro_rules! named {
    ($type:ident { $($variant:ident),+ $(,)? }) => {
        impl $type {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            /// Its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}
