//! Where lists come from.
use super::{file::Found, pinglist::Pinglist};

pub mod file;
pub mod pull;

/// What a look for a new list came to: another list, the same, or nobody knows, and the last list stays
/// for its time to live.
pub type Refresh = Found<Box<Pinglist>>;
