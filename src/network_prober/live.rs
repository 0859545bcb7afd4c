//! The knowledge of this replica about the `NetworkProber`s, with the figures of Prometheus.
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch as latest;

use super::{
    measurement::{self, AgentFigures, Measurement, Querier, Subject},
    overview::{self, Filter, Measured, Overview, PodView, ProberView},
    snapshot::Snapshot,
    state::ClusterState,
};
use crate::prometheus::{Class, Client, DEFAULT, Endpoints, Late, Payer, QueryError, Shared};

/// Maximum age of figures: the rules that record them are evaluated every 30 s by default, so more
/// frequent queries would return the same.
const FRESH: Duration = Duration::from_secs(30);

/// The time for which a page waits for Prometheus: less than its own timeout, so that it shows the
/// rest.
const PATIENCE: Duration = Duration::from_secs(8);

/// A source of knowledge about the `NetworkProber`s.
pub trait ProberSource: Send + Sync + 'static {
    /// Returns the current knowledge, filtered.
    fn overview<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Overview>;
    /// Returns the knowledge about a pod.
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, PodView>;
}

/// The knowledge of this process.
pub struct LiveProbers {
    identity: String,
    cluster: OnceLock<latest::Receiver<Option<ClusterState>>>,
    endpoints: Endpoints,
    /// Shares one request among all viewers within [`FRESH`], whatever their number.
    figures: Shared<Subject, measurement::Shared<Measurement>>,
    agents: Shared<(Subject, String, String), measurement::Shared<AgentFigures>>,
}

impl LiveProbers {
    /// Creates one without any state yet.
    #[must_use]
    pub fn new(identity: &str, endpoints: &Endpoints) -> Self {
        Self {
            identity: identity.to_owned(),
            cluster: OnceLock::new(),
            endpoints: endpoints.clone(),
            figures: Shared::default(),
            agents: Shared::default(),
        }
    }

    /// Sets the source of the cluster's state, and returns it.
    pub fn follow(
        &self,
        cluster: &latest::Receiver<Option<ClusterState>>,
    ) -> latest::Receiver<Option<ClusterState>> {
        self.cluster.get_or_init(|| cluster.clone()).clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        let cluster = self.cluster.get().and_then(|cluster| cluster.borrow().clone());
        cluster.map(|cluster| cluster.snapshot()).unwrap_or_default()
    }

    async fn measured(&self, prober: &ProberView) -> Measured {
        let (figures, problem) = match self.ask(prober).await {
            Ok(figures) => (Some((*figures).clone()), None),
            Err(problem) => (None, Some(problem)),
        };
        Measured { endpoint: DEFAULT.to_owned(), problem, figures }
    }

    /// The figures of one `NetworkProber`, which are queried once for all readers.
    async fn ask(&self, prober: &ProberView) -> Result<Arc<Measurement>, String> {
        let (subject, querier) = (subject(prober), self.querier(&prober.namespace)?);
        let asked = subject.clone();
        let request =
            |()| async move { measurement::measure(&querier, &asked).await.map(Arc::new) };
        answered(self.figures.get(&subject, fresh(), PATIENCE, || async {}, request).await)
    }

    /// Returns the same for one agent.
    async fn ask_of_agent(
        &self,
        prober: &ProberView,
        (namespace, pod): (&str, &str),
    ) -> Result<Arc<AgentFigures>, String> {
        let querier = self.querier(&prober.namespace)?;
        let key = (subject(prober), namespace.to_owned(), pod.to_owned());
        let asked = key.clone();
        let request = |()| async move {
            let (subject, namespace, pod) = &asked;
            measurement::agent(&querier, subject, (namespace, pod)).await.map(Arc::new)
        };
        answered(self.agents.get(&key, fresh(), PATIENCE, || async {}, request).await)
    }

    fn querier(&self, namespace: &str) -> Result<Querier, String> {
        let client = self.endpoints.named("figures", DEFAULT, Some(namespace))?;
        let payer = Payer::BuiltIn(namespace.into());
        Ok(Querier::Operator(Client::clone(client), self.endpoints.clone(), payer))
    }
}

fn subject(prober: &ProberView) -> Subject {
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let (period, timeout) = (seconds(prober.period_seconds), seconds(prober.timeout_seconds));
    Subject { prober: prober.key(), period, timeout }
}

/// The moment after which an answer is fresh.
fn fresh() -> Instant {
    let now = Instant::now();
    now.checked_sub(FRESH).unwrap_or(now)
}

fn answered<T>(answer: Result<measurement::Shared<T>, Late>) -> Result<Arc<T>, String> {
    let late = |_| QueryError::new(Class::Timeout, "Prometheus has not responded yet");
    answer.map_err(late).flatten().map_err(|error| error.message)
}

impl ProberSource for LiveProbers {
    fn overview<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Overview> {
        Box::pin(async move {
            let snapshot = self.snapshot();
            let mut probers = overview::probers(&snapshot, filter);
            if filter.one().is_some() {
                for prober in probers.iter_mut().filter(|prober| prober.problem.is_none()) {
                    prober.measured = Some(self.measured(prober).await);
                }
            }
            Overview {
                identity: self.identity.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                now: Timestamp::now(),
                synced: snapshot.synced,
                probers,
            }
        })
    }

    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, PodView> {
        Box::pin(async move {
            let snapshot = self.snapshot();
            let mut pod = overview::pod(&snapshot, namespace, name);
            let Some(prober) = pod.prober.as_deref().and_then(|key| of_key(&snapshot, key)) else {
                return pod;
            };
            match self.ask_of_agent(&prober, (namespace, name)).await {
                Ok(agent) => pod.agent = Some((*agent).clone()),
                Err(problem) => pod.problem = Some(problem),
            }
            pod
        })
    }
}

fn of_key(snapshot: &Snapshot, key: &str) -> Option<ProberView> {
    let (namespace, name) = key.split_once('/')?;
    let key = (namespace.to_owned(), name.to_owned());
    Some(ProberView::of(&key, snapshot.views.get(&key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One query for each interval, for any number of readers.
    #[tokio::test]
    async fn viewers_share_their_questions() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let shared = Shared::<Subject, usize>::default();
        let subject = Subject {
            prober: "n/p".into(),
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
        };
        let look = || {
            let request = |()| async {
                tokio::task::yield_now().await;
                ASKED.fetch_add(1, Ordering::Relaxed)
            };
            shared.get(&subject, fresh(), PATIENCE, || async {}, request)
        };
        let seen = futures::future::join_all((0..100).map(|_| look())).await;
        assert!(seen.into_iter().all(|answer| answer == Ok(0)));
        assert_eq!(look().await, Ok(0));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_does_not_answer_in_time_reports_it() {
        let late: Result<Arc<()>, _> = answered(Err(Late::Answer));
        assert_eq!(late.unwrap_err(), "Prometheus has not responded yet");
    }
}
