//! `TrafficWatch`: whole passes, from Prometheus' answers to labels, pods and the status.
mod bad_answers;
pub mod evicting;
pub mod judging;
mod limits;
mod policies;
pub mod refusals;
mod reservation;
mod unreadable;
