//! RouteReflectorSet: whole passes against a real API server that has Calico's kinds, with nodes that stay
//! alive, and BIRDs that a puppet has for them. The puppet also knows at each instant who has whose routes.
mod birds;
mod datastore;
mod stage;

mod deleting;
mod killed;
mod migrating;

pub use stage::Stage;
