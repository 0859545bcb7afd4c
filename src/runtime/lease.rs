//! Leadership: one `Lease`, judged by our own monotonic clock.
//!
//! Another replica's claim is dead when its record has not changed for the longer of both durations
//! by *our* clock; the times written in it are never compared with our clock, so that clocks that
//! differ or jump do not cause a second leader. Our own claim ends at two thirds of the duration
//! after the *start* of the last good renewal, earlier than anybody may take it. Each write is
//! checked against that end just before it leaves ([`Fence`]).
//!
//! Like every lease this cannot recall a write that has left already; see
//! <https://pkg.go.dev/k8s.io/client-go/tools/leaderelection>.
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};

/// Time between two looks of a follower; from a release to the next leader it takes at most this
/// long plus a round trip.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// The longest a single call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Until when this process may write.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    /// A fence that is never shut: for commands that run alone.
    #[must_use]
    pub fn open() -> Self {
        // A century: the monotonic clock has no larger value that is safe to add to.
        let fence = Self::default();
        fence.set(Instant::now().checked_add(Duration::from_hours(100 * 365 * 24)));
        fence
    }

    /// Reports whether this process may write now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.get().is_some_and(|end| Instant::now() < end)
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, end: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// The name and the timing of the lease.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Identity of this replica; unique among the replicas.
    pub identity: String,
    /// The time for which a claim stands without renewal.
    pub duration: Duration,
}

impl LeaseConfig {
    /// A leader renews this often: seven attempts before its claim ends.
    fn renew_period(&self) -> Duration {
        self.duration / 10
    }

    /// A leader stops writing this long after its last good renewal began.
    fn hold(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// Why leadership ended.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Our claim ran out.
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
    /// The last record of another replica, and when it was first seen.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    /// A candidate that opens and shuts `fence`.
    #[must_use]
    pub fn new(client: Client, config: LeaseConfig, fence: Fence) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        Self { api, config, fence, seen: None }
    }

    /// Waits until the lease is ours.
    ///
    /// `looked` is called after each look that reached the API server: a follower that can look is
    /// ready to take over.
    pub async fn acquire(&mut self, looked: impl Fn()) {
        let mut failing = false;
        loop {
            match self.attempt(CALL_TIMEOUT).await {
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
            tokio::time::sleep(self.config.renew_period()).await;
            let Some(left) =
                self.fence.get().and_then(|end| end.checked_duration_since(Instant::now()))
            else {
                return Lost::Expired;
            };
            match self.attempt(left.min(CALL_TIMEOUT)).await {
                Ok(Attempt::Held) => {}
                Ok(Attempt::HeldBy(holder)) => {
                    self.fence.set(None);
                    return Lost::Taken(holder);
                }
                Err(error) => tracing::warn!(%error, "lease not renewed, trying again"),
            }
        }
    }

    /// Gives the lease back, so that the next leader need not wait for it to run out.
    pub async fn release(&mut self) {
        if !self.fence.is_open() {
            return;
        }
        let release = async {
            let Some(mut lease) = self.api.get_opt(&self.config.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.config.identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.api.replace(&self.config.name, &PostParams::default(), &lease).await.map(drop)
        };
        let result = tokio::time::timeout(Duration::from_secs(2), release).await;
        self.fence.set(None);
        match result {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "lease not released, it will run out"),
            Err(_) => tracing::warn!("lease not released in time, it will run out"),
        }
    }

    /// One look, and a claim if the lease is free or ours.
    async fn attempt(&mut self, timeout: Duration) -> Result<Attempt, AttemptError> {
        let start = Instant::now();
        let outcome = tokio::time::timeout(timeout, self.claim(start)).await??;
        if matches!(outcome, Attempt::Held) {
            self.fence.set(Some(start + self.config.hold()));
        }
        Ok(outcome)
    }

    async fn claim(&mut self, now: Instant) -> Result<Attempt, kube::Error> {
        let post = PostParams::default();
        let Some(lease) = self.api.get_opt(&self.config.name).await? else {
            let lease = self.record(None);
            return match self.api.create(&post, &lease).await {
                Ok(_) => Ok(Attempt::Held),
                Err(kube::Error::Api(s)) if s.is_already_exists() => {
                    Ok(Attempt::HeldBy("somebody who was faster".into()))
                }
                Err(error) => Err(error),
            };
        };
        if let Some(holder) = self.held_by_other(&lease, now) {
            return Ok(Attempt::HeldBy(holder));
        }
        let lease = self.record(Some(lease));
        // The resourceVersion in it makes the server refuse if anybody wrote since we read.
        match self.api.replace(&self.config.name, &post, &lease).await {
            Ok(_) => Ok(Attempt::Held),
            Err(kube::Error::Api(s)) if s.is_conflict() => {
                Ok(Attempt::HeldBy("somebody who was faster".into()))
            }
            Err(error) => Err(error),
        }
    }

    /// The other holder whose claim is alive.
    fn held_by_other(&mut self, lease: &Lease, now: Instant) -> Option<String> {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == self.config.identity {
            self.seen = None;
            return None;
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => {
                self.seen = Some((version, now));
                now
            }
        };
        let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or(0);
        let alive = now.saturating_duration_since(since)
            < self.config.duration.max(Duration::from_secs(theirs));
        alive.then_some(holder)
    }

    fn record(&self, old: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = old.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec { lease_transitions: Some(-1), ..LeaseSpec::default() }),
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.config.identity) {
            spec.holder_identity = Some(self.config.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions =
                Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds =
            Some(i32::try_from(self.config.duration.as_secs().max(1)).unwrap_or(i32::MAX));
        lease
    }
}

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
