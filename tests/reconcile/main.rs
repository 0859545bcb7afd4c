//! Whole passes: the operator's own process, under its own RBAC, against a real API server and a
//! Prometheus whose answers the test chooses.
//!
//! One control plane serves all tests, one after the other: the operator is a cluster's only one.
mod admission;
mod authors;
mod bench;
mod commands;
mod deploying;
mod hostile;
mod kinds;
mod leadership;
mod lifecycle;
mod limits;
mod network_prober;
mod owned;
mod prometheus;
mod rights;
mod route_reflector;
mod samples;
mod schema;
mod scraping;
mod shipped;
mod swarm;
mod traffic_watch;
