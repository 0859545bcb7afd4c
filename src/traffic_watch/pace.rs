//! How often the objects of one namespace may write to nodes, and ask Prometheus.
//!
//! Both are token buckets: what a namespace does not use is its own later, up to a limit. Objects of
//! the operator's own namespace are not limited.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Quota;
use crate::{clock, controller::Error, prometheus::REQUESTS};

/// The time in which a namespace may write each of its labels once to every node.
const ALL_LABELS: Duration = Duration::from_mins(15);

/// At least as many writes, at once and each second: in a cluster of some nodes, all of them flip in
/// turn.
const WRITES: (f64, f64) = (1000.0, 10.0);

/// The pace of every namespace.
#[derive(Debug)]
pub struct Pace {
    quota: Quota,
    writes: Buckets,
    requests: Buckets,
}

#[derive(Debug, Default)]
struct Buckets(Mutex<HashMap<Arc<str>, Bucket>>);

/// What is left of it, and since when.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Buckets {
    /// Takes one, if there is one; else returns the time until there is.
    fn take(
        &self,
        namespace: &str,
        (most, rate): (f64, f64),
        now: Instant,
    ) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = |bucket: &Bucket| {
            let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + passed * rate).min(most)
        };
        buckets.retain(|_, bucket| filled(bucket) < most);
        let left = buckets.get(namespace).map_or(most, filled);
        if left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - left) / rate));
        }
        buckets.insert(namespace.into(), Bucket { left: left - 1.0, at: now });
        Ok(())
    }
}

impl Pace {
    /// The pace of namespaces that may have as many labels as the quota says.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self { quota, writes: Buckets::default(), requests: Buckets::default() }
    }

    /// Counts a write of a label to one of this many nodes.
    ///
    /// # Errors
    /// When the objects of the namespace write too often.
    pub fn write(&self, namespace: &str, nodes: usize) -> Result<(), Error> {
        if self.quota.is_free(namespace) {
            return Ok(());
        }
        let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let labels = count(self.quota.per_namespace) * count(nodes);
        let most = labels.max(WRITES.0);
        let rate = (labels / ALL_LABELS.as_secs_f64()).max(WRITES.1);
        self.writes.take(namespace, (most, rate), clock::instant()).map_err(|_| {
            Error::TooMany(format!(
                "TrafficWatches of this namespace have written {most:.0} labels to nodes in a short \
                 time, and now write {rate:.0} each second: with a longer spec.interval, a \
                 lower spec.recoverPercent or a larger spec.consecutive, verdicts change less often"
            ))
        })
    }

    /// Waits until the objects of a namespace may make one more request.
    pub async fn request(&self, namespace: &str) {
        if self.quota.is_free(namespace) {
            return;
        }
        while let Err(wait) = self.requests.take(namespace, REQUESTS, clock::instant()) {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_burst_and_then_its_rate_and_others_have_theirs() {
        let (buckets, start) = (Buckets::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let take = |namespace, millis| buckets.take(namespace, (3.0, 2.0), at(millis));
        for _ in 0..3 {
            assert_eq!(take("a", 0), Ok(()));
        }
        assert_eq!(take("a", 0), Err(Duration::from_millis(500)));
        assert_eq!(take("b", 0), Ok(()));
        assert_eq!(take("a", 250), Err(Duration::from_millis(250)));
        assert_eq!(take("a", 500), Ok(()));
        assert!(take("a", 501).is_err());
        // It saves no more than the burst, and is forgotten then.
        for _ in 0..3 {
            assert_eq!(take("a", 60_000), Ok(()));
        }
        assert!(take("a", 60_000).is_err());
        assert_eq!(take("c", 120_000), Ok(()));
        assert_eq!(buckets.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_first_labels_of_a_large_cluster_are_written_at_once_and_floods_are_not() {
        let quota = |per_namespace| Quota { per_namespace, in_all: 0, own: "ops".into() };
        let refused = |quota, namespace, nodes: usize, writes: usize| {
            let pace = Pace::new(quota);
            (0..writes).filter(|_| pace.write(namespace, nodes).is_err()).count()
        };
        assert_eq!(refused(quota(16), "a", 5_000, 80_000), 0);
        assert!(refused(quota(16), "a", 20, 2_000) > 500);
        assert_eq!(refused(quota(16), "ops", 20, 2_000), 0);
        assert_eq!(refused(quota(0), "a", 20, 2_000), 0, "no limit");
    }
}
