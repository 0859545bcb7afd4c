//! The number of streams in each state.
use std::collections::HashSet;

use super::{Published, Target};

/// Every stream of the spec and of the file is in exactly one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Listed for a worker (though another may still release it, if the handover is not exclusive).
    pub owned: usize,
    /// Removed from a worker that has not released it.
    pub releasing: usize,
    /// With no worker yet, on its way to one.
    pub free: usize,
    /// With no worker, and none may have it.
    pub unassigned: usize,
}

impl Counts {
    /// Counts the streams of this file.
    #[must_use]
    pub fn of(published: &Published, target: &Target) -> Self {
        let mut counted: HashSet<&str> = HashSet::new();
        let mut new = |stream| usize::from(counted.insert(stream));
        let listed = published.shares.values().flat_map(|share| &share.streams);
        let owned = listed.map(|stream| new(stream)).sum();
        let releasing = published.releasing.keys().map(|(stream, _)| new(stream)).sum();
        let mut counts = Self { owned, releasing, free: 0, unassigned: 0 };
        for (stream, worker) in target {
            let place = if worker.is_some() { &mut counts.free } else { &mut counts.unassigned };
            *place += new(stream);
        }
        counts
    }
}
