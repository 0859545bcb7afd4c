//! Leadership: one `Lease`, judged by our own monotonic clock.
//!
//! Let `d` be the duration of the lease. All times below are measured by the clock of the process
//! that uses them; those in the record are never compared with a clock, so that clocks that differ
//! or jump do not cause a second leader.
//!
//! **Two never write.** A claim is valid for its holder from the answer to its last write until
//! `2d/3` after that write was *sent*, and each request is checked against that end ([`Fence`]).
//! Another replica first sees the record after it was sent, and claims the lease when the record
//! has not changed for `d` since. That claim is refused if the record changed since it was read. So
//! between the last request of one holder and the first of the next there is at least `d/3`, for
//! requests that are on their way. A lease is free at once only after a release, by which its
//! holder has stopped to write. If it is gone, a follower creates one without a holder, and watches
//! that. There are two exceptions, in which nobody but the process itself can be the holder unless
//! a person edits the Lease in the very seconds in which it starts: a process that finds its own
//! name in the record when it starts, as after a restart of its container, and one that finds no
//! Lease for longer than from one renewal to the next, as at the first start of all.
//!
//! **A slow API server has a leader**, while each request for the Lease takes less than `d/3` (and
//! less than the ten seconds of any request): five seconds by default. A renewal is one request,
//! and the next one follows at once if the last took longer than the pause. It was sent less than
//! `d/3` after the one before, and is answered within another `d/3`, so before the end of the
//! claim. To claim takes two requests, of which the last leaves `d/3` or more for the renewal.
//!
//! Like every lease, this cannot recall a write that has already been sent; see
//! <https://pkg.go.dev/k8s.io/client-go/tools/leaderelection>. What refuses such a write is
//! in docs/operations/failure-modes.md.
use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Client, api::PostParams, core::ObjectMeta};
use tokio::time::Instant;

use crate::{clock, infra::Api};

mod fence;
#[cfg(test)]
mod tests;

pub use fence::Fence;

/// Time between two checks of a follower; a new leader follows a release within this time plus a
/// round trip.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// The time for which a release is tried: the grace period of a pod must also include the drain.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// The duration in a record that was released. No configured duration is this short.
const RELEASED_SECONDS: i32 = 1;

/// The longest duration that is believed of a record. An absurd one, which only an edit by hand can
/// leave behind, must not keep everyone from leading for good.
const LONGEST_CLAIM: Duration = Duration::from_hours(1);

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
    /// Returns the time between the starts of two renewals: four attempts before the claim ends.
    fn renew_period(&self) -> Duration {
        self.duration / 6
    }

    /// Returns the time for which a process that starts gives a holder whose Lease is gone the
    /// opportunity to renew it.
    fn first_wait(&self) -> Duration {
        self.duration / 5
    }

    /// Returns the time after the start of the last successful renewal for which a leader may
    /// write.
    fn hold(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Returns the deadline of one request: two of them fit into [`Self::hold`].
    fn request_deadline(&self) -> Duration {
        self.duration / 3
    }

    /// Returns the duration as a record has it.
    fn seconds(&self) -> i32 {
        i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX)
    }
}

/// The reason why leadership ended.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Our claim expired.
    #[error("the lease could not be renewed in time")]
    Expired,
    /// Another replica holds it.
    #[error("the lease was taken by {0}")]
    Taken(String),
}

/// A candidate for the lease.
pub struct Candidate {
    api: Api<Lease>,
    config: LeaseConfig,
    fence: Fence,
    /// The last finding that kept us from a claim, and the time when it was first made.
    seen: Option<(Seen, Instant)>,
    /// The acquire time of our claim: it tells our record from that of another process of the same
    /// identity. Known before the write, because its answer may be lost.
    acquired: Option<MicroTime>,
    /// Our record as the API server last returned it, until a write over it is refused.
    record: Option<Lease>,
    /// The start of the last attempt.
    began: Instant,
}

/// A finding that keeps a candidate from a claim while it does not change.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A record, by its version.
    Record(String),
    /// No lease, and never one before.
    Nothing,
}

impl Candidate {
    /// Creates a candidate that opens and closes `fence`.
    #[must_use]
    pub fn new(client: Client, config: LeaseConfig, fence: Fence) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        let began = Instant::now();
        Self { api, config, fence, seen: None, acquired: None, record: None, began }
    }

    /// Waits until the lease is ours.
    ///
    /// `looked` is called after each check that reached the API server: a follower that can reach
    /// it is ready to take over.
    pub async fn acquire(&mut self, looked: impl Fn()) {
        let mut failing = false;
        loop {
            match self.attempt().await {
                Ok(Attempt::Held) => return,
                Ok(Attempt::HeldBy(holder)) => {
                    tracing::debug!(holder, "following");
                    failing = false;
                    looked();
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "cannot look at the lease, trying again");
                    }
                    failing = true;
                }
            }
            tokio::time::sleep(FOLLOW_PERIOD).await;
        }
    }

    /// Renews until the lease is lost; returns only then.
    pub async fn renew(&mut self) -> Lost {
        loop {
            let Some(end) = self.fence.end() else { return Lost::Expired };
            let next = self.began + self.config.renew_period();
            tokio::time::sleep_until(next.min(end)).await;
            // A process that was stopped meanwhile wakes up here.
            if !self.fence.is_open() {
                return Lost::Expired;
            }
            match tokio::time::timeout_at(end, self.attempt()).await {
                Ok(Ok(Attempt::Held)) => {}
                Ok(Ok(Attempt::HeldBy(holder))) => {
                    self.fence.set(None);
                    return Lost::Taken(holder);
                }
                Ok(Err(error)) => tracing::warn!(%error, "lease not renewed, trying again"),
                Err(_) => return Lost::Expired,
            }
        }
    }

    /// Releases the lease, so that the next leader need not wait until it expires.
    pub async fn release(&mut self) {
        if !self.fence.is_open() {
            return;
        }
        // Before the release: from then on, another replica may write.
        self.fence.set(None);
        let release = async {
            loop {
                match self.give_up().await {
                    // Edited meanwhile.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    result => return result,
                }
            }
        };
        match tokio::time::timeout(RELEASE_DEADLINE, release).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "lease not released, it will run out"),
            Err(_) => tracing::warn!("lease not released in time, it will run out"),
        }
    }

    async fn give_up(&self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.config.name).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if !self.is_ours(spec) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(RELEASED_SECONDS);
        self.api.replace(&self.config.name, &PostParams::default(), &lease).await.map(drop)
    }

    /// Renews our claim; or checks the lease once, and claims it if it is free or ours.
    async fn attempt(&mut self) -> Result<Attempt, AttemptError> {
        self.began = Instant::now();
        if let Some(record) = self.record.take() {
            match self.write(Some(record)).await {
                // Edited, deleted or taken: that must be read.
                Err(error) if error.is_change() => {}
                result => return result.map(|()| Attempt::Held),
            }
        }
        let found = self.limited(self.api.get_opt(&self.config.name)).await?;
        let holder = match &found {
            Some(lease) => self.holder(lease),
            None => self.absent().await?,
        };
        if let Some(holder) = holder {
            if found.is_some() {
                // A claim of ours that is still on its way is refused now.
                self.acquired = None;
            }
            return Ok(Attempt::HeldBy(holder));
        }
        match self.write(found).await {
            // A leader reads it again, as long as its claim is valid.
            Err(error) if error.is_change() && !self.fence.is_open() => {
                Ok(Attempt::HeldBy("another replica, which was faster".into()))
            }
            result => result.map(|()| Attempt::Held),
        }
    }

    /// Writes our claim over the record that was read, or as a new one.
    async fn write(&mut self, found: Option<Lease>) -> Result<(), AttemptError> {
        let name = self.config.name.clone();
        let post = PostParams::default();
        let is_new = found.is_none();
        let lease = self.claim(found);
        let sent = Instant::now();
        let written = if is_new {
            self.limited(self.api.create(&post, &lease)).await?
        } else {
            // With its resourceVersion, the server refuses the write if the object changed since
            // we read it.
            self.limited(self.api.replace(&name, &post, &lease)).await?
        };
        self.fence.set(Some(sent + self.config.hold()));
        self.record = Some(written);
        Ok(())
    }

    async fn limited<T>(
        &self,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, AttemptError> {
        Ok(tokio::time::timeout(self.config.request_deadline(), call).await??)
    }

    /// Reports whether a record is our own claim. While we lead, it is that also without the time
    /// at which we acquired it: a stranger removed it.
    fn is_ours(&self, spec: &LeaseSpec) -> bool {
        let named = spec.holder_identity.as_deref() == Some(&self.config.identity);
        named
            && match (&self.acquired, &spec.acquire_time) {
                (Some(ours), Some(theirs)) => ours == theirs,
                (Some(_), None) => self.fence.is_open(),
                // The process that had this name before us has ended.
                (None, _) => self.seen.is_none(),
            }
    }

    /// Returns the holder of a claim that may be valid; `None` if the lease is ours or free.
    fn holder(&mut self, lease: &Lease) -> Option<String> {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        // Without a holder it is free after a release. Otherwise someone edited it: while we lead
        // it stays ours, and a follower cannot know that the holder has noticed.
        let released = spec.lease_duration_seconds == Some(RELEASED_SECONDS);
        let free = holder.is_empty() && (released || self.fence.is_open());
        if free || self.is_ours(&spec) {
            self.seen = None;
            return None;
        }
        let holder = if holder.is_empty() { "nobody, by an edit" } else { holder };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or(0);
        let theirs = Duration::from_secs(theirs).min(LONGEST_CLAIM);
        let valid = self.has_not_lasted(Seen::Record(version), self.config.duration.max(theirs));
        valid.then(|| holder.to_owned())
    }

    /// Returns what must be waited for if there is no lease; `None` if we may create ours.
    ///
    /// Someone may have deleted it while its holder writes, which creates it again at its next
    /// renewal. So a follower that has seen a record creates one without a holder, which it, as all
    /// others, claims only when it has not changed for the duration. A process that has seen
    /// nothing yet is mostly the first of all: it gives a holder the time of a renewal.
    async fn absent(&mut self) -> Result<Option<String>, AttemptError> {
        if self.fence.is_open() {
            return Ok(None);
        }
        let first = match &self.seen {
            Some((seen, _)) => *seen == Seen::Nothing,
            None => self.acquired.is_none(),
        };
        if first {
            if self.has_not_lasted(Seen::Nothing, self.config.first_wait()) {
                return Ok(Some("nobody, so far".to_owned()));
            }
            // If this creation fails, others have been here.
            self.seen = None;
            return Ok(None);
        }
        let unheld = Lease {
            spec: Some(LeaseSpec {
                lease_duration_seconds: Some(self.config.seconds()),
                ..LeaseSpec::default()
            }),
            ..self.named()
        };
        match self.limited(self.api.create(&PostParams::default(), &unheld)).await {
            Err(error) if !error.is_change() => Err(error),
            _ => Ok(Some("nobody, since it was deleted".to_owned())),
        }
    }

    /// Reports whether a finding is younger than this, by when it was first made.
    fn has_not_lasted(&mut self, finding: Seen, patience: Duration) -> bool {
        // After the answer: the holder's request was sent before it.
        let now = Instant::now();
        let since = match &self.seen {
            Some((seen, since)) if *seen == finding => *since,
            _ => {
                self.seen = Some((finding, now));
                now
            }
        };
        now.saturating_duration_since(since) < patience
    }

    fn claim(&mut self, old: Option<Lease>) -> Lease {
        let now = micro_time();
        let mut lease = old.unwrap_or_else(|| Lease {
            spec: Some(LeaseSpec { lease_transitions: Some(-1), ..LeaseSpec::default() }),
            ..self.named()
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.config.identity) {
            spec.holder_identity = Some(self.config.identity.clone());
            spec.lease_transitions =
                Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        let acquired = self.acquired.get_or_insert_with(|| now.clone());
        spec.acquire_time = Some(acquired.clone());
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(self.config.seconds());
        lease
    }

    fn named(&self) -> Lease {
        let name = Some(self.config.name.clone());
        Lease { metadata: ObjectMeta { name, ..ObjectMeta::default() }, spec: None }
    }
}

/// Returns the time as a record keeps it: it must be equal when it is read again.
fn micro_time() -> MicroTime {
    let now = clock::timestamp();
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

#[derive(Debug)]
enum Attempt {
    Held,
    HeldBy(String),
}

#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no answer in time")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

impl AttemptError {
    /// Reports whether a write was refused because the object is not as it was read.
    fn is_change(&self) -> bool {
        let Self::Kube(kube::Error::Api(status)) = self else { return false };
        status.is_conflict() || status.is_already_exists() || status.is_not_found()
    }
}
