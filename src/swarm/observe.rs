//! Reads the inputs of a decision.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;

use super::{
    ENDPOINT, Measurement, Others, Question, SwarmReconciler,
    cluster::Cluster,
    conflict,
    file::stored,
    handover::Published,
    memory::Memory,
    plan::Observed,
    polls,
    settings::Settings,
    watches::WorkloadView,
    weights::{self, Measured},
    workers::Confirmed,
};
use crate::{
    api::Swarm,
    clock,
    controller::Error,
    nodes::NodeStore,
    prometheus::{Class, Payer, QueryError},
    selector::Selector,
};

/// The time for which a pass waits for the watches, which start when an object appears.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Pods read at a time.
const CONCURRENCY: usize = 16;

/// All facts.
pub(super) async fn observe(
    reconciler: &SwarmReconciler,
    swarm: &Swarm,
    others: &Others,
) -> Result<Observed, Error> {
    reconciler.check(swarm)?;
    let key = swarm.key();
    let held = {
        let all = others.state();
        conflict::held(swarm, all.iter().filter_map(|other| other.0.as_ref().ok()))
    };
    let mut view = if held.is_some() { None } else { reconciler.view(swarm).await };
    let mut memory = reconciler.memories.get(&key);
    let mut measuring = None;
    let mut unfit = BTreeSet::new();
    let mut confirmed = Confirmed::default();
    if let Some(view) = &mut view {
        unfit = reconciler.unfit(view);
        confirmed = look(&reconciler.live(swarm), swarm, view, &mut memory).await?;
        match reconciler.measure(swarm, clock::instant()).await {
            Some(Ok(measured)) => {
                if let Ok(settings) = Settings::of(swarm, view.source.as_ref()) {
                    let known = &memory.weights;
                    let known = weights::remember(known, &measured, &settings.streams);
                    memory.weights = Arc::new(known);
                }
            }
            Some(Err(error)) => measuring = Some(error),
            None => memory.weights = Arc::default(),
        }
    }
    Ok(Observed { now: clock::instant(), held, view, confirmed, memory, unfit, measuring })
}

impl SwarmReconciler {
    /// Returns the objects that a `Swarm` depends on, after a short wait for them.
    async fn view(&self, swarm: &Swarm) -> Option<WorkloadView> {
        let mut learned = self.cache.learned();
        let known = learned.wait_for(|_| self.cache.view(swarm).is_some());
        // The sender lives in `self`.
        let _ = tokio::time::timeout(CATCH_UP, known).await;
        self.cache.view(swarm)
    }

    /// Checks the parts of a spec that depend on the operator's configuration.
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

    /// Returns the weights of this tick. Objects with the same query to the same endpoint share one
    /// request.
    async fn measure(&self, swarm: &Swarm, now: Instant) -> Option<Measurement> {
        let weights = swarm.spec.weights.as_ref()?;
        let interval = Duration::from(weights.interval);
        let tick = self.schedule.tick_start(now, interval);
        let key: Question = (weights.prometheus.as_str().into(), weights.query.as_str().into());
        let client = self.prometheus.get(&key.0).cloned();
        let payer = Payer::Own(swarm.key().0.into());
        let ask = |permit| {
            let ((endpoint, query), client) = (key.clone(), client.clone());
            let metrics = self.metrics.clone();
            async move {
                let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
                let client = client.ok_or_else(gone)?;
                let result = client.query_with_permit(&query, permit, |answer| {
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
        // An answer after the next tick would be late, but no server answers in zero time.
        let patience = interval.max(Duration::from_secs(2));
        let permit = || self.prometheus.permit(&key.0, &payer);
        let asked = self.measurements.get(&key, tick, patience, permit, ask).await;
        Some(asked.unwrap_or_else(|late| Err(self.prometheus.late(&key.0, late, &payer))))
    }

    /// The nodes that streams should leave.
    fn unfit(&self, view: &WorkloadView) -> BTreeSet<String> {
        view.fitness.as_ref().map_or_else(BTreeSet::new, |key| unfit(&self.nodes, key))
    }
}

/// The nodes that a label marks unfit.
pub(super) fn unfit(nodes: &NodeStore, key: &str) -> BTreeSet<String> {
    let nodes = nodes.select_unlabeled(&Selector::linux(), key).nodes;
    let unfit = nodes.iter().filter(|node| node.label.as_deref() == Some("true"));
    unfit.map(|node| node.name.to_string()).collect()
}

/// Reads the inputs of the decision that no watch delivers.
pub(super) async fn look(
    cluster: &impl Cluster,
    swarm: &Swarm,
    view: &mut WorkloadView,
    memory: &mut Memory,
) -> Result<Confirmed, Error> {
    memory.knows(view, || cluster.secret());
    memory.parts = stored::read(swarm, view, &memory.parts);
    let published = polls::published(swarm, view, memory);
    let confirmed = match &published {
        Some(published) => confirm(cluster, view, published, memory).await?,
        None => Confirmed::default(),
    };
    if confirmed.all > 0 {
        memory.listed(view, confirmed.all);
    }
    // After that: a pod that was found in place of one that is gone has just been made, and is not
    // to be restarted because it has not answered yet.
    memory.seen(view, published.as_deref());
    memory.pending(view, cluster.now());
    memory.evictions.seen(&view.pods);
    if let Some(pinned) = &mut memory.pinned {
        pinned.maps = cluster.pinned().await?;
    }
    polls::ask(cluster, view, published.as_deref(), memory).await;
    Ok(confirmed)
}

/// Reads pods from the API server itself where their absence frees streams: the watch may not have
/// delivered yet a pod that was created, and has read its file, before the last file was published.
async fn confirm(
    cluster: &impl Cluster,
    view: &mut WorkloadView,
    published: &Published,
    memory: &Memory,
) -> Result<Confirmed, Error> {
    let mut confirmed = Confirmed::default();
    if (published.barrier.is_some() || waits_for_silent(view, published, memory))
        && let Some(workload) = &view.workload
    {
        // A barrier ends when all have acknowledged: also those that no watch has brought yet, and
        // those that have no pod yet. A silent worker releases its streams with another pod than
        // those of a list.
        view.pods = cluster.pods(workload).await?;
        confirmed.all = published.epoch;
    }
    let releasing: BTreeSet<_> = published.releasing.keys().map(|(_, worker)| worker).collect();
    let runs = |worker: &Arc<str>| {
        let pod = view.pods.iter().find(|pod| pod.name == *worker);
        pod.is_some_and(|pod| !pod.stopped && pod.node.is_some())
    };
    let gone: Vec<Arc<str>> = releasing.into_iter().filter(|w| !runs(w)).cloned().collect();
    let reads = gone.into_iter().map(|worker| async move { (cluster.pod(&worker).await, worker) });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENCY);
    while let Some((read, worker)) = reads.next().await {
        let pod = read?;
        view.pods.retain(|pod| pod.name != worker);
        view.pods.extend(pod);
        confirmed.each.insert(worker, published.epoch);
    }
    view.pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(confirmed)
}

/// Reports whether a pod that has never answered must release something.
fn waits_for_silent(view: &WorkloadView, published: &Published, memory: &Memory) -> bool {
    let silent = view.pods.iter().filter(|pod| {
        let loaded = memory.reports.get(&pod.uid).and_then(|report| report.loaded);
        !pod.stopped && pod.node.is_some() && loaded.is_none()
    });
    let silent: BTreeSet<_> = silent.map(|pod| &pod.name).collect();
    published.releasing.keys().any(|(_, worker)| silent.contains(worker))
}
