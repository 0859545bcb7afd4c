//! The name and the timing of the lease.
use std::time::Duration;

/// The name and the timing of the lease.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Identity of this replica; unique among the replicas.
    pub identity: String,
    /// The time for which a claim is valid without renewal.
    pub duration: Duration,
}

impl LeaseConfig {
    /// Returns the time between the starts of two renewals: seven attempts before the claim ends.
    pub(super) fn renew_period(&self) -> Duration {
        self.duration / 10
    }

    /// Returns the time after the start of the last successful renewal for which a leader may
    /// write.
    pub(super) fn hold(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Returns the deadline of one request: two of them fit into [`Self::hold`].
    pub(super) fn request_deadline(&self) -> Duration {
        self.duration / 3
    }

    /// Returns the duration as a record has it.
    pub(super) fn seconds(&self) -> i32 {
        i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX)
    }
}
