//! Whole passes: the operator's own process, under its own RBAC, against a real API server and a
//! Prometheus whose answers the test chooses.
//!
//! One control plane serves all tests, one after the other: the operator is a cluster's only one.
mod admission;
mod authors;
mod bad_days;
mod bench;
mod commands;
mod deploying;
mod faults;
mod fields;
mod hostile;
mod judging;
mod kinds;
mod leadership;
mod lifecycle;
mod limits;
mod owned;
mod policies;
mod probing;
mod prometheus;
mod reflecting;
mod rights;
mod samples;
mod schema;
mod scraping;
mod shipped;
mod swarming;
