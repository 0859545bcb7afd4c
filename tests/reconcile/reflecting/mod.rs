//! RouteReflectorSet: whole passes against a real API server that has Calico's kinds, with nodes that stay
//! alive, and BIRDs that a puppet has for them. The puppet also knows at each instant who has whose routes.
mod birds;
mod datastore;
mod stage;

mod blind;
mod deleting;
mod documented;
mod fields;
mod fitness;
mod frozen;
mod groups;
mod killed;
mod labels;
mod migrating;
mod mistakes;
mod silence;
mod unserved;
mod zonal;

pub use stage::Stage;
