//! `TrafficWatch`: whole passes, from what Prometheus answers to labels, pods and the status.
mod bad_days;
mod faults;
mod fields;
pub mod judging;
mod policies;
