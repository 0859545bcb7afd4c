//! Swarm: every stream on exactly one worker, at every instant.
//!
//! - [`mod@file`]: the file that workers read, and the state beside it.
//! - [`handover`]: how a stream gets from one worker to another without ever being on both. Pure.
//! - [`natural`]: the order of names that end in numbers.
pub mod file;
pub mod handover;
pub mod natural;
