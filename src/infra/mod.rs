//! The ground on which every other part stands: it knows no kind, and imports none.
//!
//! - `api`: the objects of one kind, none of which keeps others from being read.
//! - `client`: the client of the API server, with deadlines and the fence.
//! - [`lease`]: the Lease of the leader.
//! - `watch`: the behavior of every watch, and the common parts of the caches.
//! - `shutdown`: the signal to end.
//! - `log`: log lines.
pub(crate) mod api;
pub(crate) mod client;
pub mod lease;
pub(crate) mod log;
pub(crate) mod shutdown;
pub(crate) mod watch;

pub use api::Api;
