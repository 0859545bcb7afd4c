//! RouteReflectorSet: whole passes against a real API server with Calico's kinds, with live nodes
//! and simulated BIRDs. The puppet that simulates them also knows each node's routes at any time,
//! by the lab's model of confd and BIRD and not by the operator's.
mod bgp_daemons;
mod datastore;
pub mod stage;

mod at_rest;
mod calico_api_down;
mod deleting;
mod documented;
mod fitness;
mod groups;
mod invalid_specs;
mod labels;
mod migrating;
mod no_writes;
mod other_clusters;
mod retiring;

pub use stage::Stage;
