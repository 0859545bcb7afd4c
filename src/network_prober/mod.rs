//! Measures the network between pods.
//!
//! - [`rules`]: what Prometheus makes of the measurements: loss and round-trip times of pairs of nodes,
//!   the node that is to blame, and alerts.
pub mod rules;
