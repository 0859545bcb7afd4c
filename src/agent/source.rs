//! Where lists come from.
use super::pinglist::Pinglist;

pub mod file;
pub mod pull;

/// What a look for a new list came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Another list.
    Changed(Box<Pinglist>),
    /// The list is still the right one.
    Unchanged,
    /// Nobody knows: the last list stays for its time to live.
    Error,
}
