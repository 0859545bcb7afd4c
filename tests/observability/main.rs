//! Everything that is installed beside the operator fits the operator: alerts and dashboards query
//! only existing metrics, every metric is documented, and the rendered manifests contain what the
//! documentation promises.
//!
//! Needs promtool, kubectl and jsonnet (no cluster); `cargo run --bin lab -- tools` builds them
//! beforehand.
mod agreement;
mod alerts;
mod dashboards;
mod examples;
mod files;
mod flags;
mod images;
mod kinds;
mod manifests;
mod mixin;
mod names;
mod objects;
mod processes;
mod reading;
mod roles;
mod samples;
mod shape;
mod supply;
