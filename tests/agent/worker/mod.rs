//! The worker of a Swarm as a process: what it runs, when it says so, and what it survives.
mod ending;
mod following;
mod processes;
mod reports;
mod signing;
pub mod stage;
