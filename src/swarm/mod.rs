//! Serves [`Swarm`]: observes, applies; what is decided stands in `plan`.
//!
//! Read in this order: [`handover`], the protocol (pure, and explored state by state in its tests);
//! [`mod@file`], what is written; [`history`], what can be believed of it; [`workers`], who they are;
//! `plan`, which puts these and [`crate::placement::assignment`] together; [`watches`], what is watched;
//! [`acknowledge`], how workers are asked; `pass`, what is read and written, on the real cluster (`live`);
//! [`dry_run`], the same on paper.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt};
use kube::{
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    api::{Swarm, SwarmStatus},
    controller::{Error, Notice, Plan, Reconciler, schedule::Schedule},
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Class, Endpoints, Late, Payer, QueryError, Shared},
    selector::Selector,
};

pub mod acknowledge;
pub mod conflict;
pub mod dry_run;
pub mod evictions;
#[cfg(test)]
mod explorer;
pub mod file;
pub mod history;
pub mod inspection;
pub mod limits;
mod live;
pub mod memory;
mod metrics;
mod pass;
mod plan;
mod polls;
mod report;
pub mod secret;
pub mod settings;
pub mod snapshot;
pub mod watches;
pub mod weights;
pub mod workers;

use acknowledge::WorkerClient;
pub use traffic_operator_core::{handover, natural_sort};

use handover::Published;
pub use inspection::router;
use live::Live;
use memory::{Memories, Memory};
pub use metrics::Gauges;
use plan::{Desired, Observed};
use watches::{WorkloadCache, WorkloadView};
use weights::Measured;

/// How long a pass waits for what the watches bring: they begin when an object appears.
const CATCH_UP: Duration = Duration::from_secs(5);

/// How long changes of the surroundings are collected: a scaled workload is many events in a moment.
const COLLECT: Duration = Duration::from_millis(50);

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.weights.prometheus";

/// What is asked of Prometheus: the endpoint and the text.
type Question = (Arc<str>, Arc<str>);
type Measurement = Result<Arc<Measured>, QueryError>;

/// What the controller works with.
pub struct SwarmReconciler {
    /// Writes.
    pub client: kube::Client,
    /// What `Swarm`s depend on.
    pub cache: WorkloadCache,
    /// The nodes, for `fitnessRef`.
    pub nodes: NodeStore,
    /// The endpoints, for `weights`.
    pub prometheus: Endpoints,
    /// Whether the PromQL of authors is asked.
    pub own_queries: bool,
    /// Asks workers.
    pub workers: WorkerClient,
    /// What is remembered, and told.
    pub memories: Memories,
    /// The ticks.
    pub schedule: Schedule,
    /// Counters.
    pub metrics: Metrics,
    /// One request for all who ask the same.
    pub measurements: Shared<Question, Measurement>,
}

type Others = Store<DeserializeGuard<Swarm>>;

impl SwarmReconciler {
    /// The objects to look at though they did not change: their surroundings did.
    pub fn triggers(
        &self,
    ) -> impl Stream<Item = ObjectRef<DeserializeGuard<Swarm>>> + Send + 'static + use<> {
        self.cache
            .changes()
            .ready_chunks(1024)
            .then(async |keys| {
                tokio::time::sleep(COLLECT).await;
                let keys: BTreeSet<_> = keys.into_iter().collect();
                futures::stream::iter(keys)
            })
            .flatten()
            .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
    }

    fn live<'a>(&'a self, swarm: &'a Swarm) -> Live<'a> {
        Live { client: &self.client, workers: &self.workers, cache: &self.cache, swarm }
    }

    /// What an object depends on, waiting a moment for it.
    async fn view(&self, swarm: &Swarm) -> Option<WorkloadView> {
        let mut learnt = self.cache.learnt();
        let known = learnt.wait_for(|_| self.cache.view(swarm).is_some());
        // The sender lives in `self`.
        let _ = tokio::time::timeout(CATCH_UP, known).await;
        self.cache.view(swarm)
    }

    /// What of a spec only the operator's configuration can tell to be wrong.
    fn check(&self, swarm: &Swarm) -> Result<(), Error> {
        let Some(weights) = &swarm.spec.weights else { return Ok(()) };
        let (namespace, _) = swarm.key();
        let client = self.prometheus.named(ENDPOINT, &weights.prometheus, Some(&namespace));
        client.map_err(Error::Invalid)?;
        if !self.own_queries {
            let text = "spec.weights.query: this operator runs with --own-queries=false: PromQL in a \
                        Swarm is switched off";
            return Err(Error::Invalid(text.into()));
        }
        Ok(())
    }

    /// The weights of this tick. Objects that ask the same of the same endpoint share one request.
    async fn measure(&self, swarm: &Swarm, now: Instant) -> Option<Measurement> {
        let weights = swarm.spec.weights.as_ref()?;
        let interval = Duration::from(weights.interval);
        let tick = self.schedule.tick_start(now, interval);
        let key: Question = (weights.prometheus.as_str().into(), weights.query.as_str().into());
        let client = self.prometheus.get(&key.0).cloned();
        let payer = Payer::Own(swarm.key().0.into());
        let ask = |seat| {
            let ((endpoint, query), client) = (key.clone(), client.clone());
            let metrics = self.metrics.clone();
            async move {
                let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
                let client = client.ok_or_else(gone)?;
                let result = client.query_seated(&query, seat, |answer| {
                    Measured::read(answer.status, &answer.content_type, &answer.body)
                });
                let result = result.await.map(Arc::new);
                match &result {
                    Ok(measured) => metrics.samples_rejected("weight", measured.rejected),
                    Err(error) => tracing::warn!(
                        endpoint = &*endpoint, reason = error.class.reason(), %error,
                        "no weights, streams keep their last ones"
                    ),
                }
                result
            }
        };
        // An answer that comes after the next tick is late; but nothing answers in no time.
        let patience = interval.max(Duration::from_secs(2));
        let seat = || self.prometheus.seat(&payer);
        let asked = self.measurements.get(&key, tick, patience, seat, ask).await;
        Some(asked.unwrap_or_else(|late| {
            let error = late.error(&payer);
            if late == Late::Seat
                && let Some(client) = &client
            {
                client.not_asked(&error);
            }
            Err(error)
        }))
    }

    /// The nodes that streams are to leave.
    fn unfit(&self, view: &WorkloadView) -> BTreeSet<String> {
        view.fitness.as_ref().map_or_else(BTreeSet::new, |key| unfit(&self.nodes, key))
    }
}

/// The nodes that a label marks unfit.
fn unfit(nodes: &NodeStore, key: &str) -> BTreeSet<String> {
    let nodes = nodes.select(&Selector::linux(), key).into_iter();
    let unfit = nodes.filter(|node| node.label.as_deref() == Some("true"));
    unfit.map(|node| node.name.to_string()).collect()
}

impl Reconciler for SwarmReconciler {
    type Kind = Swarm;
    type Observed = Observed;
    type Desired = Desired;
    const NAME: &'static str = "swarm";
    const FINALIZER: &'static str = "traffic.example.com/swarm";

    /// What it owns stands beside it and goes with it.
    fn needs_cleanup(&self, _: &Swarm) -> bool {
        false
    }

    async fn observe(&self, swarm: &Swarm, others: &Others) -> Result<Observed, Error> {
        self.check(swarm)?;
        let key = swarm.key();
        let held = {
            let all = others.state();
            conflict::held(swarm, all.iter().filter_map(|other| other.0.as_ref().ok()))
        };
        let mut view = if held.is_some() { None } else { self.view(swarm).await };
        let mut memory = self.memories.get(&key);
        let mut measuring = None;
        let mut unfit = BTreeSet::new();
        let mut confirmed = pass::Confirmed::default();
        if let Some(view) = &mut view {
            unfit = self.unfit(view);
            confirmed = pass::look(&self.live(swarm), swarm, view, &mut memory).await?;
            match self.measure(swarm, Instant::now()).await {
                Some(Ok(measured)) => {
                    if let Ok(settings) = settings::Settings::of(swarm, view.source.as_ref()) {
                        let known = &memory.weights;
                        let known = weights::remember(known, &measured, &settings.streams);
                        memory.weights = Arc::new(known);
                    }
                }
                Some(Err(error)) => measuring = Some(error),
                None => memory.weights = Arc::default(),
            }
        }
        Ok(Observed { now: Instant::now(), held, view, confirmed, memory, unfit, measuring })
    }

    fn plan(swarm: &Swarm, observed: &Observed) -> Result<Plan<Desired, SwarmStatus>, Error> {
        plan::plan(swarm, observed)
    }

    async fn apply(&self, swarm: &Swarm, desired: Desired) -> Result<Vec<Notice>, Error> {
        pass::write(&self.live(swarm), swarm, &self.memories, desired).await
    }

    async fn cleanup(&self, _: &Swarm, _: &Others) -> Result<Vec<Notice>, Error> {
        Ok(vec![])
    }

    fn forget(&self, namespace: &str, name: &str) {
        self.memories.forget(&(namespace.to_owned(), name.to_owned()));
    }
}

impl Memory {
    /// Notes which pods are there. A pod without a node reads the file that is published now, or a later one;
    /// so does one that waits for the first file. One that was not there before has read the one that was
    /// published then, or a later one: its kubelet mounts the file before it starts the pod. Of those that are
    /// there when this process begins to look the newest is believed, so that its start restarts nobody,
    /// unless they have to let go of something, or the file says that they were there before their list: they
    /// may never have read it.
    fn seen(&mut self, view: &WorkloadView, published: Option<&Published>) {
        let epoch = published.map_or(0, |published| published.epoch);
        let before = self.looked.replace(epoch);
        let first = before.is_none();
        for pod in &view.pods {
            let untold = first
                && published.is_some_and(|published| {
                    published.barrier.is_some()
                        || published.releasing.keys().any(|(_, worker)| *worker == pod.name)
                        || published.outdated.get(&pod.name) == Some(&pod.uid)
                });
            let new = !self.born.contains_key(&pod.uid) && !untold;
            let waits = !pod.started && self.born.get(&pod.uid) == Some(&0);
            if pod.node.is_none() || waits {
                self.born.insert(Arc::clone(&pod.uid), epoch);
            } else if new && (first || !self.untold.contains(&pod.uid)) {
                // It may have come before the last file.
                let least = before.map_or(epoch, |before| before.min(epoch));
                self.born.insert(Arc::clone(&pod.uid), least);
            } else if untold {
                self.untold.insert(Arc::clone(&pod.uid));
            }
        }
    }

    /// Keeps what a worker said.
    fn reported(
        &mut self,
        uid: Arc<str>,
        answer: Result<acknowledge::Answer, String>,
        at: Instant,
    ) {
        let known = self.reports.remove(&uid);
        let loaded = known.as_ref().and_then(|known| known.loaded);
        let report = match answer {
            Ok(answer) => memory::Report {
                asked: at,
                failures: 0,
                error: None,
                // Where it starts anew it may not know yet. But one that says less than before has read
                // something else since: it comes back from a file that somebody else wrote, or that was
                // there before the `Swarm` was deleted.
                loaded: answer.version.or(loaded),
                answer: Some(Arc::new(answer)),
            },
            Err(text) => memory::Report {
                asked: at,
                failures: known.as_ref().map_or(1, |known| known.failures.saturating_add(1)),
                error: Some(text.into()),
                loaded,
                answer: known.and_then(|known| known.answer),
            },
        };
        self.reports.insert(uid, report);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        handover::{Epoch, Share},
        watches::PodFacts,
        *,
    };

    fn pod(uid: &str, started: bool) -> PodFacts {
        PodFacts {
            name: "w-0".into(),
            uid: uid.into(),
            created: None,
            controller: None,
            template: None,
            node: Some("n".into()),
            ip: None,
            ready: started,
            terminating: false,
            stopped: false,
            ended: false,
            started,
            mounts: vec![],
            nudged: None,
            signs: false,
        }
    }

    fn published(epoch: Epoch, releases: bool) -> Published {
        let mut published = Published { epoch, ..Published::default() };
        published.shares.insert("w-0".into(), Share::default());
        if releases {
            published.releasing.insert(("a".into(), "w-0".into()), epoch);
        }
        published
    }

    fn see(memory: &mut Memory, pod: PodFacts, published: &Published) -> Option<Epoch> {
        let uid = Arc::clone(&pod.uid);
        let view = WorkloadView { pods: vec![pod], ..WorkloadView::default() };
        memory.seen(&view, Some(published));
        memory.born.get(&uid).copied()
    }

    /// The operator was killed between a file and the eviction for it.
    #[test]
    fn a_pod_that_is_to_let_go_of_something_may_not_have_been_told_after_a_restart() {
        let mut memory = Memory::default();
        assert_eq!(see(&mut memory, pod("old", true), &published(7, true)), None);
        assert_eq!(see(&mut memory, pod("old", true), &published(7, true)), None, "nor later");
        // Its successor was made after the file.
        assert_eq!(see(&mut memory, pod("new", true), &published(7, true)), Some(7));
    }

    /// The `Swarm` was deleted and applied again, and a kubelet delivered the old file once more.
    #[test]
    fn w15_a_worker_that_came_back_from_a_file_nobody_knows_is_not_ahead_for_ever() {
        let mut memory = Memory::default();
        let mut says = |version| {
            let answer = acknowledge::Answer { version, jobs: vec![] };
            memory.reported("uid".into(), Ok(answer), Instant::now());
            memory.reports["uid"].loaded
        };
        assert_eq!(says(Some(3)), Some(3));
        assert_eq!(says(None), Some(3), "it starts anew, and has read nothing else");
        assert_eq!(says(Some(2)), Some(2));
    }

    #[test]
    fn a_restart_of_the_operator_restarts_no_worker() {
        let mut memory = Memory::default();
        assert_eq!(see(&mut memory, pod("old", true), &published(7, false)), Some(7));
        assert_eq!(see(&mut memory, pod("old", true), &published(8, false)), Some(7));
    }

    /// It came between the last look and the file that was written then: it has read the one before, and has
    /// to be refreshed, or nobody ever runs what that file gives it.
    #[test]
    fn w17_a_pod_that_came_just_before_a_file_has_not_read_it() {
        let mut memory = Memory::default();
        see(&mut memory, pod("old", true), &published(7, false));
        assert_eq!(see(&mut memory, pod("new", true), &published(8, false)), Some(7));
        assert_eq!(see(&mut memory, pod("newer", true), &published(8, false)), Some(8));
    }

    #[test]
    fn a_pod_that_waits_for_its_file_reads_the_newest() {
        let mut memory = Memory::default();
        let pending = || PodFacts { node: None, ..pod("new", false) };
        assert_eq!(see(&mut memory, pending(), &published(1, false)), Some(1));
        assert_eq!(see(&mut memory, pending(), &published(2, true)), Some(2));
        assert_eq!(see(&mut memory, pod("new", true), &published(3, true)), Some(2));
        // Nothing is mounted before there is a file.
        assert_eq!(see(&mut memory, pod("first", false), &Published::default()), Some(0));
        assert_eq!(see(&mut memory, pod("first", false), &published(7, false)), Some(7));
    }

    #[test]
    fn w17_a_pod_that_is_starting_may_have_mounted_the_file_before() {
        let mut memory = Memory::default();
        assert_eq!(see(&mut memory, pod("new", false), &published(1, false)), Some(1));
        assert_eq!(see(&mut memory, pod("new", false), &published(2, false)), Some(1));
        assert_eq!(see(&mut memory, pod("new", true), &published(2, false)), Some(1));
    }
}
