//! `TrafficWatch`: whole passes, from Prometheus' answers to labels, pods and the status.
mod deployments;
pub mod evicting;
mod faults;
pub mod judging;
mod limits;
mod policies;
pub mod refusals;
mod reservation;
mod unreadable;
