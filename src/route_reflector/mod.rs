//! Serves [`RouteReflectorSet`](crate::api::RouteReflectorSet).
pub mod datastore;
