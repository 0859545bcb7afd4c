//! Chooses and replaces Calico's route reflectors so that no route is lost.
//!
//! - [`fabric`]: who peers with whom, and which routes arrive where. Pure.
pub mod fabric;
