//! Decisions, and what both sides of a wire agree on: no Kubernetes, no network, no clock.
//!
//! The operator and the agent are both built on this crate. Its dependencies keep it pure: there is no
//! client and no runtime among them.
//!
//! - [`placement`]: who with whom.
//! - [`pinglist`]: whom an agent probes, as the operator serves it; [`budget`]: how many peers at most.
//! - [`acknowledgement`]: how workers sign what they report to the operator.
//! - [`places`]: who may hold a connection.
pub mod acknowledgement;
pub mod budget;
pub mod pinglist;
pub mod placement;
pub mod places;
