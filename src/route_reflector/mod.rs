//! Serves [`crate::api::RouteReflectorSet`]: which nodes reflect BGP routes.
//!
//! - [`planner`]: which nodes are to be reflectors, and who is to peer with whom (pure).
pub mod planner;
