//! `TrafficWatch`: whole passes, from the answers of Prometheus to labels, pods and the status.
mod deployments;
mod faults;
mod fields;
pub mod judging;
mod limits;
mod policies;
mod refusals;
mod unreadable;
