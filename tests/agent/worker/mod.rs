//! The worker of a Swarm as a process: the streams that it runs, the time at which it reports them,
//! and the faults that it survives.
mod ending;
mod following;
mod processes;
mod reports;
mod signing;
pub mod stage;
