//! The sources of lists.
use super::{file::Found, pinglist::Pinglist};

pub mod file;
pub mod pull;

/// The result of a check for a new list: another list, the same one, or unknown, in which case the
/// last list stays for its time to live.
pub type Refresh = Found<Box<Pinglist>>;
