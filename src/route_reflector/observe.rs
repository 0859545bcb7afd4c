//! Reads all that a decision needs.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt;

use super::{
    KIND, Others, Question, RouteReflectorReconciler, conflict,
    datastore::{self, Report},
    fitness,
    gate::{self, Asked, Measured},
    memory::Memory,
    plan::{self, Calico, Observed, Questions},
    settings::Settings,
    topology::BgpTopology,
    workloads,
};
use crate::{
    api::{Mode, RouteReflectorSet},
    clock,
    controller::{Error, disruptions, key},
    prometheus::{Class, Payer, QueryError},
};

/// For how long counted pods are good: until the node that was chosen by them is promoted, as a
/// rule.
const COUNTED: Duration = Duration::from_mins(10);

impl RouteReflectorReconciler {
    /// All objects.
    async fn bgp(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        sets: &BTreeSet<String>,
    ) -> Result<(Arc<datastore::Snapshot>, BgpTopology), datastore::Error> {
        let snapshot = self.datastore(set)?.read().await?;
        let speakers = self.nodes.speakers();
        let bgp = BgpTopology::new(&speakers, &snapshot, settings.keys(), &set.name_any(), sets);
        Ok((snapshot, bgp))
    }

    /// The sessions that are established, by node.
    async fn measure(
        &self,
        set: &RouteReflectorSet,
        settings: &Settings,
        questions: &Questions,
    ) -> Option<Result<Arc<Measured>, String>> {
        let sessions = questions.sessions.as_ref()?;
        let interval = questions.interval;
        if let Err(text) = self.check(set) {
            return Some(Err(text));
        }
        let built_in = || gate::query(&self.exporters, sessions);
        let query = settings.query.clone().unwrap_or_else(built_in);
        // A custom query counts, and knows no names.
        let wanted = settings.query.is_none().then(|| Arc::clone(sessions));
        let endpoint = set.spec.transition.prometheus.as_str();
        let tick = self.schedule.tick_start(clock::instant(), interval);
        let key: Question = (endpoint.into(), query.into());
        // It has no namespace.
        let payer = match &settings.query {
            Some(_) => Payer::Own("".into()),
            None => Payer::BuiltIn("".into()),
        };
        let client = self.prometheus.get(endpoint).cloned();
        let ask = |permit| {
            let ((endpoint, query), client) = (key.clone(), client.clone());
            let (nodes, labels) = (self.nodes.clone(), self.exporters.node_labels.clone());
            let (metrics, wanted) = (self.metrics.clone(), wanted.clone());
            async move {
                // Before it is sent: no sample counts as younger than it is.
                let asked = Asked { wanted, at: plan::seconds(clock::timestamp()) };
                let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
                let client = client.ok_or_else(gone)?;
                let result = client.query_with_permit(&query, permit, |answer| {
                    let identity = nodes.identity();
                    let answer = (answer.status, answer.content_type.as_str(), &*answer.body);
                    Measured::read(answer, &identity, &labels, &asked)
                });
                let result = result.await.map(Arc::new);
                match &result {
                    Ok(measured) => metrics.samples_rejected("session", measured.rejected),
                    Err(error) => tracing::warn!(
                        endpoint = &*endpoint, reason = error.class.reason(), %error,
                        "sessions not counted, reflectors stay as they are"
                    ),
                }
                result
            }
        };
        // An answer after the next tick would be late, but no server answers in zero time.
        let patience = interval.clamp(Duration::from_secs(5), Duration::from_secs(10));
        let permit = || self.prometheus.permit(endpoint, &payer);
        let asked = self.measurements.get(&key, tick, patience, permit, ask).await;
        let result = asked.unwrap_or_else(|late| Err(self.prometheus.late(endpoint, late, &payer)));
        Some(result.map_err(|error| error.to_string()))
    }

    /// Adds Calico's new reports to those since the last step. If they cannot be read there are
    /// none: the gate stays shut, and repair goes on.
    async fn hear_reports(&self, set: &RouteReflectorSet, memory: &mut Memory) {
        if memory.asked.is_empty() {
            return;
        }
        match self.reports(set).await {
            Ok(reports) => memory.statuses.hear(reports, plan::seconds(clock::timestamp())),
            Err(error) => tracing::warn!(
                set = set.name_any(),
                reason = error.reason(),
                error = error.to_text(),
                "CalicoNodeStatuses not read, sessions count as not reported"
            ),
        }
    }

    async fn reports(&self, set: &RouteReflectorSet) -> Result<BTreeMap<String, Report>, Error> {
        let datastore = self.datastore(set)?;
        let Some(statuses) = datastore.node_status() else { return Ok(BTreeMap::new()) };
        Ok(statuses.read_reports().await?)
    }
}

/// All facts.
pub(super) async fn observe(
    reconciler: &RouteReflectorReconciler,
    set: &RouteReflectorSet,
    others: &Others,
    deleting: bool,
) -> Result<Observed, Error> {
    let all = others.state();
    let readable = || all.iter().filter_map(|other| other.0.as_ref().ok());
    // A set that writes nothing takes over no BGPPeers either.
    let keeps = |other: Option<&RouteReflectorSet>| {
        set.spec.mode == Mode::Observe || conflict::precedes(other, set)
    };
    let keep = all.iter().filter(|other| keeps(other.0.as_ref().ok()));
    let sets = keep.map(|other| other.name_any()).collect();
    let mut observed = Observed {
        now: clock::timestamp(),
        held: conflict::held(set, readable()),
        settings: Settings::of(set).map_err(|error| error.to_string()),
        // On the way back to the mesh, a gate that cannot be evaluated counts as shut.
        misconfigured: if deleting { None } else { reconciler.check(set).err() },
        speakers: vec![],
        bgp: Err(Calico { reason: "Unknown", text: "not read".into() }),
        fitness: None,
        measured: None,
        busy: BTreeMap::new(),
        memory: reconciler.memories.get(&key(set)),
    };
    observed.memory.began.get_or_insert(observed.now);
    let Ok(settings) = observed.settings.clone() else { return Ok(observed) };
    if observed.held.is_some() || set.spec.paused && !deleting {
        return Ok(observed);
    }
    observed.speakers = reconciler.nodes.speakers();
    let holder = disruptions::holder(KIND, &key(set));
    let nodes = observed.speakers.iter().map(|speaker| &speaker.name);
    observed.busy = reconciler.disruptions.blocked(&holder, nodes);
    // On the way back to the mesh, no node is chosen.
    if !deleting {
        observed.fitness =
            fitness::read_or_freeze(&reconciler.client, &reconciler.nodes, set).await;
    }
    observed.bgp = match reconciler.bgp(set, &settings, &sets).await {
        Ok(bgp) => Ok(bgp),
        Err(datastore::Error::Kube { action, source }) => {
            return Err(Error::Kube { action, source });
        }
        Err(datastore::Error::Invalid(text)) => return Err(Error::Invalid(text)),
        Err(error) => Err(Calico { reason: error.reason(), text: error.to_string() }),
    };
    // The second phase.
    let questions = plan::questions(set, &observed, deleting);
    if questions.workloads {
        let known = observed.memory.workloads.as_ref();
        let fresh = known.is_some_and(|(at, _)| clock::instant().duration_since(*at) < COUNTED);
        if !fresh {
            let count = workloads::count(&reconciler.client);
            let known = observed.memory.workloads.take();
            observed.memory.workloads = workloads::counted(count, known).await;
        }
    }
    // They are Calico's objects too.
    if !matches!(&observed.bgp, Ok((snapshot, _)) if snapshot.stale.is_some()) {
        reconciler.hear_reports(set, &mut observed.memory).await;
    }
    observed.measured = reconciler.measure(set, &settings, &questions).await;
    Ok(observed)
}

#[cfg(test)]
mod tests;
