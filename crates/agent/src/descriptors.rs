//! The limit of files and sockets that this process may open.
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limit assumed if the system reports none: the usual initial limit of a process.
const USUAL: u64 = 1024;

/// Raises the soft limit to the hard limit, and returns the new limit. The soft limit exists for
/// programs that use `select()`; the hard limit is what the node's administrator intends.
pub(super) fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    if soft >= hard {
        return soft;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, hard, "the limit of open files stays");
            soft
        }
    }
}
