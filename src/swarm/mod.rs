//! Swarm: every stream on exactly one worker, at every instant.
//!
//! - [`handover`]: how a stream gets from one worker to another without ever being on both. Pure.
//! - [`natural`]: the order of names that end in numbers.
pub mod handover;
pub mod natural;
