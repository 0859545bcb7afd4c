//! Chooses and replaces Calico's route reflectors so that no route is lost.
pub mod datastore;
pub mod fabric;
