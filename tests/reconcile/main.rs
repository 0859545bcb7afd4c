//! Whole passes: the operator's own process, under its own RBAC, against a real API server and a
//! Prometheus with scripted answers.
//!
//! A few control planes serve all tests, each one after the other, because a cluster has only one
//! operator.
mod authors;
mod bench;
mod commands;
mod faults;
mod hostile;
mod kinds;
mod leadership;
mod lifecycle;
mod limits;
mod network_prober;
mod owned;
mod prometheus;
mod ready_condition;
mod route_reflector;
mod samples;
mod schema;
mod scraping;
mod shipped;
mod swarm;
mod traffic_watch;
mod unholdable;
