//! Objects that could not be applied: the same is not tried at every pass.
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::children::ChildKey;
use crate::{
    clock,
    controller::{Error, error::is_refusal},
};

/// Time after a refusal until the same object is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Why an object could not be applied: its fingerprint, and when that was.
struct Refusal {
    hash: u64,
    at: Instant,
    taken: bool,
    text: String,
}

impl Refusal {
    fn is_recent(&self) -> bool {
        clock::instant().duration_since(self.at) < TRY_AGAIN
    }

    fn error(&self) -> Error {
        if self.taken { Error::Taken(self.text.clone()) } else { Error::Refused(self.text.clone()) }
    }
}

/// The last refusal of each object.
#[derive(Default)]
pub struct Refusals(Mutex<HashMap<ChildKey, Refusal>>);

impl Refusals {
    /// Returns the recent error of the same object.
    pub fn of(&self, key: &ChildKey, hash: u64) -> Option<Error> {
        let all = self.all();
        let known = all.get(key).filter(|r| r.hash == hash && r.is_recent());
        known.map(Refusal::error)
    }

    /// Stores an object's error, with the time at which it first occurred.
    pub fn remember(&self, key: ChildKey, hash: u64, error: &Error) {
        let mut all = self.all();
        all.retain(|_, refusal| refusal.is_recent());
        let known = all.get(&key).is_some_and(|refusal| refusal.hash == hash);
        if !known {
            let (at, taken) = (clock::instant(), matches!(error, Error::Taken(_)));
            all.insert(key, Refusal { hash, at, taken, text: error.to_string() });
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ChildKey, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handles an error of an apply. A quota or a policy of one namespace, or a terminating namespace,
/// delays no other; nor does an object of the maximum size.
pub fn refused(key: &ChildKey, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status)
            if is_refusal(&status) || matches!(status.code, 403 | 404 | 409 | 413) =>
        {
            Error::Refused(format!("{key}: {}", status.message))
        }
        source => Error::Kube { action: "apply child", source },
    }
}
