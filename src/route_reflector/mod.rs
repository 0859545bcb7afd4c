//! Serves [`crate::api::RouteReflectorSet`]: which nodes reflect BGP routes.
//!
//! - [`planner`]: which nodes are to be reflectors, and who is to peer with whom (pure).
//! - [`original`]: what the environment of the original operator means as one.
pub mod original;
pub mod planner;
