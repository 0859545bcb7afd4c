//! Limits on the resources that may wait for Prometheus, by endpoint and namespace.
//!
//! The memory of answers depends on the number of concurrent ones and their size: both are bounded
//! here, in total and for each namespace. Custom queries and the built-in one have separate
//! permits, so that neither waits for the other.
//!
//! At most `16 × 4 + 16 × 2 + 2 × 32` = 160 MiB are in flight, of the 384 MiB that the Deployment
//! of the controllers allows. A request first takes its namespace's permit for the endpoint, then
//! one of the endpoint, and then queues for a common one, first come, first served: each namespace
//! has only a few requests in these queues, no matter how many it makes. Of several endpoints, one
//! that hangs holds half of the common permits, and the others are asked all the same.
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Class, Late, QueryError};

/// The largest answer that is read, after decompression: 5,000 nodes need two and a half mebibytes,
/// and a wrong query must not exceed the memory limit.
pub(super) const MAX_ANSWER: usize = 32 << 20;

/// The same for a custom query: one value for each of 5,000 nodes, with ten labels.
const MAX_OWN: usize = 4 << 20;

/// An answer to the built-in query that is larger waits for one of [`LARGE`] permits.
const SMALL: usize = 2 << 20;

/// Maximum number of large answers that are read concurrently.
const LARGE: usize = 2;

/// Maximum number of concurrent requests, separately for custom queries and the built-in one: an
/// answer about ten nodes takes milliseconds, about 5,000 half a second.
const AT_ONCE: usize = 16;

/// The same for each of several endpoints.
const ENDPOINT: usize = AT_ONCE / 2;

/// The same for one namespace and endpoint. Its other requests wait for these; those of other
/// namespaces do not.
const EACH: usize = 4;

/// The number of requests that the `TrafficWatch`es of one namespace send at once, and each second.
/// Sixteen objects with an interval of ten seconds and three criteria each need five a second.
pub const REQUESTS: (f64, f64) = (60.0, 5.0);

/// The permits of all namespaces; clones share them.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    own: Pool,
    built_in: Pool,
    large: Arc<Semaphore>,
}

#[derive(Debug)]
struct Pool {
    all: Arc<Semaphore>,
    /// The permits of each endpoint that is asked.
    endpoints: Permits<Arc<str>>,
    /// The number of these.
    endpoint: usize,
    /// The permits of each endpoint and namespace.
    namespaces: Permits<(Arc<str>, Arc<str>)>,
}

type Permits<K> = Mutex<HashMap<K, Arc<Semaphore>>>;

/// The owner of a request. The namespace of objects without one is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payer {
    /// A custom query, in this namespace.
    Own(Arc<str>),
    /// The built-in query, for an object in this namespace.
    BuiltIn(Arc<str>),
}

/// The permission to make one request, with the size limit of its answer.
#[derive(Debug)]
pub struct Permit {
    pub(super) limits: Limits,
    _permits: [OwnedSemaphorePermit; 3],
}

/// The size limits of an answer.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub max: usize,
    /// An answer is large above this.
    pub small: usize,
    /// Permits to read a large one.
    pub large: Option<Arc<Semaphore>>,
    /// True if the query is custom: its author must change it if the answer is too large.
    pub own: bool,
}

impl Limits {
    /// The limits of a command, which makes one request and ends.
    pub const COMMAND: Self = Self { max: MAX_ANSWER, small: MAX_ANSWER, large: None, own: false };

    /// Returns the error for an answer above the limit.
    pub fn exceeded(&self) -> QueryError {
        let max = self.max >> 20;
        if self.own {
            let message = format!(
                "answer is larger than {max} MiB, the most for a query of an object's own: \
                 aggregate it to one value for each node or stream"
            );
            QueryError::new(Class::OverBudget, message)
        } else {
            QueryError::new(Class::BadAnswer, format!("answer is larger than {max} MiB"))
        }
    }
}

impl Budget {
    /// Creates the budget of this many endpoints.
    #[must_use]
    pub fn new(endpoints: usize) -> Self {
        let endpoint = if endpoints > 1 { ENDPOINT } else { AT_ONCE };
        let pool = || Pool {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            endpoints: Permits::default(),
            endpoint,
            namespaces: Permits::default(),
        };
        Self(Arc::new(Inner {
            own: pool(),
            built_in: pool(),
            large: Arc::new(Semaphore::new(LARGE)),
        }))
    }

    /// Waits for the permission to make a request to an endpoint.
    pub async fn permit(&self, endpoint: &str, payer: &Payer) -> Permit {
        let large = Some(Arc::clone(&self.0.large));
        let (pool, namespace, limits) = match payer {
            Payer::Own(namespace) => {
                let limits = Limits { max: MAX_OWN, small: MAX_OWN, large: None, own: true };
                (&self.0.own, namespace, limits)
            }
            Payer::BuiltIn(namespace) => {
                let limits = Limits { max: MAX_ANSWER, small: SMALL, large, own: false };
                (&self.0.built_in, namespace, limits)
            }
        };
        let endpoint: Arc<str> = endpoint.into();
        let key = (Arc::clone(&endpoint), Arc::clone(namespace));
        // In this order: what waits for an endpoint that hangs holds no common permit.
        let of_namespace = permit(permits(&pool.namespaces, key, EACH)).await;
        let of_endpoint = permit(permits(&pool.endpoints, endpoint, pool.endpoint)).await;
        let of_all = permit(Arc::clone(&pool.all)).await;
        Permit { limits, _permits: [of_namespace, of_endpoint, of_all] }
    }
}

/// Returns the permits of one key, of which there are this many.
fn permits<K: Eq + Hash>(all: &Permits<K>, key: K, count: usize) -> Arc<Semaphore> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    // No other request holds or waits for a permit there.
    all.retain(|_, permits| Arc::strong_count(permits) > 1);
    Arc::clone(all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(count))))
}

pub(super) async fn permit(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.acquire_owned().await {
        Ok(permit) => permit,
        // The semaphore is never closed.
        Err(_) => std::future::pending().await,
    }
}

impl Late {
    /// Converts it into the error for the object that asked.
    #[must_use]
    pub(super) fn error(self, payer: &Payer) -> QueryError {
        match (self, payer) {
            (Self::Answer, _) => {
                QueryError::new(Class::Timeout, "no answer within the interval of this object")
            }
            (Self::Permit, Payer::Own(namespace)) if !namespace.is_empty() => {
                let message = format!(
                    "not asked: namespace {namespace} has more queries than are answered in time, \
                     at most {EACH} of its own run at once, and {REQUESTS} a second of its \
                     TrafficWatches",
                    REQUESTS = REQUESTS.1
                );
                QueryError::new(Class::OverBudget, message)
            }
            (Self::Permit, Payer::Own(_)) => {
                let message = "not asked: more queries than are answered in time";
                QueryError::new(Class::OverBudget, message)
            }
            (Self::Permit, Payer::BuiltIn(_)) => {
                let message = format!(
                    "not asked: more measurements than are answered in time, at most {EACH} of a \
                     namespace run at once, and {REQUESTS} a second; objects with the same devices, \
                     direction and window share one",
                    REQUESTS = REQUESTS.1
                );
                QueryError::new(Class::OverBudget, message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn own(namespace: &str) -> Payer {
        Payer::Own(namespace.into())
    }

    async fn waits(budget: &Budget, payer: &Payer) -> bool {
        tokio::time::timeout(Duration::from_millis(20), budget.permit("default", payer))
            .await
            .is_err()
    }

    #[tokio::test]
    async fn one_namespace_leaves_seats_to_others() {
        let budget = Budget::new(1);
        let mut permits = vec![];
        for _ in 0..EACH {
            permits.push(budget.permit("default", &own("greedy")).await);
        }
        assert!(waits(&budget, &own("greedy")).await);
        // The queue of a namespace does not fill the common one.
        let greedy = own("greedy");
        let queue = (0..1000).map(|_| begun(Box::pin(budget.permit("default", &greedy))));
        let mut queue: Vec<_> = queue.collect();
        assert!(!waits(&budget, &own("other")).await);
        permits.clear();
        assert!(!waits(&budget, &own("other")).await);
        queue.clear();
        assert!(!waits(&budget, &own("greedy")).await);
    }

    /// One Prometheus that hangs held all permits, and objects with a healthy one were not judged.
    #[tokio::test]
    async fn an_endpoint_that_hangs_keeps_no_request_to_another_one_waiting() {
        let budget = Budget::new(2);
        let mut hanging = vec![];
        for i in 0..ENDPOINT {
            let namespace = if i < EACH { "a" } else { "b" };
            hanging.push(budget.permit("edge", &own(namespace)).await);
        }
        // More of them than there are permits at all.
        let others: Vec<_> = (0..2 * AT_ONCE).map(|i| own(&format!("ns-{i}"))).collect();
        let queue = others.iter().map(|payer| begun(Box::pin(budget.permit("edge", payer))));
        let queue: Vec<_> = queue.collect();
        for namespace in ["a", "b", "c"] {
            assert!(!waits(&budget, &own(namespace)).await, "{namespace}");
        }
        drop((hanging, queue));
    }

    #[tokio::test]
    async fn all_endpoints_together_have_no_more_requests_than_one() {
        let budget = Budget::new(3);
        let mut permits = vec![];
        for endpoint in ["edge", "core"] {
            for i in 0..ENDPOINT {
                permits.push(budget.permit(endpoint, &own(&format!("ns-{i}"))).await);
            }
        }
        assert!(waits(&budget, &own("late")).await);
        permits.pop();
        assert!(!waits(&budget, &own("late")).await);
    }

    /// Polls a future once, so that it begins to wait.
    fn begun<F: Future + Unpin>(mut future: F) -> F {
        use futures::FutureExt;
        let _ = (&mut future).now_or_never();
        future
    }

    #[tokio::test]
    async fn authors_and_the_built_in_query_do_not_wait_for_each_other() {
        let budget = Budget::new(1);
        let mut permits = vec![];
        for i in 0..AT_ONCE {
            permits.push(budget.permit("default", &own(&format!("ns-{i}"))).await);
        }
        assert!(waits(&budget, &own("late")).await);
        let built_in = Payer::BuiltIn("ns-1".into());
        assert!(!waits(&budget, &built_in).await);
        assert_eq!(budget.permit("default", &built_in).await.limits.max, 32 << 20);
        permits.pop();
        assert!(!waits(&budget, &own("late")).await);
    }

    #[tokio::test]
    async fn namespaces_that_ask_no_more_are_forgotten() {
        let budget = Budget::new(1);
        for i in 0..10_000 {
            drop(budget.permit("default", &own(&format!("ns-{i}"))).await);
        }
        assert_eq!(budget.0.own.namespaces.lock().unwrap().len(), 1);
    }
}
