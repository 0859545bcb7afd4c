//! Serves [`TrafficWatch`]: observes, applies; what is decided stands in `plan`.
//!
//! `query` writes the PromQL, `reading` sorts the answer by node, `evidence` says what it proves,
//! `judgement` makes states of it (with `limits`, the breaker), `plan` says what to write, `report`
//! words it, `children` builds the Deployment.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::reflector::Store,
};
use tokio::sync::Semaphore;

use crate::{
    api::{TrafficWatch, TrafficWatchStatus, traffic_watch::Mode},
    controller::{
        Error, FIELD_MANAGER, Notice, Plan, Reconciler, error::is_refusal, schedule::Schedule,
    },
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{Class, Client, Endpoints, Exporters, Late, QueryError, Seat, Shared},
};

mod apply;
pub mod ceiling;
mod children;
mod conflict;
mod deployments;
mod evictions;
mod evidence;
mod findings;
mod judgement;
pub mod limits;
mod live;
mod memory;
mod metrics;
pub mod overview;
mod plan;
pub mod query;
mod reading;
pub mod replay;
mod report;
mod retries;
mod room;
mod settings;

pub use ceiling::Ceiling;
use children::{Applied, Child, Outcome};
pub(crate) use conflict::{Claim, claim};
use deployments::DeploymentFacts;
pub use deployments::DeploymentStore;
pub use findings::Evaluation;
pub use judgement::Transition;
use judgement::{Observed, Stray};
pub use memory::Decisions;
use memory::Memory;
use memory::{Decided, Facts};
use plan::{Desired, NodeWrite};
use query::Request;
use reading::{Names, Reading};
pub(crate) use settings::{BANDWIDTH, Settings};

/// How many nodes are patched at once, by all objects together: enough for a mass flip to end soon,
/// few enough to leave the API server's fair share to others.
pub const LABEL_CONCURRENCY: usize = 8;

/// What the controller works with.
pub struct TrafficWatchReconciler {
    /// Writes.
    pub client: kube::Client,
    /// The nodes.
    pub nodes: NodeStore,
    /// The Deployments we own.
    pub deployments: DeploymentStore,
    /// The endpoints.
    pub prometheus: Endpoints,
    /// Whether the PromQL of authors is asked.
    pub own_queries: bool,
    /// Labels that may name a node, beside `instance`.
    pub exporters: Exporters,
    /// The ticks.
    pub schedule: Schedule,
    /// Memories, and the metrics read from them.
    pub decisions: Decisions,
    /// Counters.
    pub metrics: Metrics,
    /// Permits to patch a node: [`LABEL_CONCURRENCY`] of them.
    pub label_writes: Semaphore,
    /// How many nodes all objects together may mark.
    pub ceiling: Ceiling,
    /// One request for all who ask the same.
    pub readings: Shared<Request, Measured>,
}

type Measured = Result<Arc<Reading>, QueryError>;

/// The field that names the endpoint.
const ENDPOINT: &str = "spec.prometheus";

type Others = Store<DeserializeGuard<TrafficWatch>>;

impl Reconciler for TrafficWatchReconciler {
    type Kind = TrafficWatch;
    type Observed = Observed;
    type Desired = Desired;
    const NAME: &'static str = "trafficwatch";
    const FINALIZER: &'static str = "traffic.example.com/node-labels";

    fn needs_cleanup(&self, watch: &TrafficWatch) -> bool {
        watch.spec.mode == Mode::Enforce
    }

    async fn observe(&self, watch: &TrafficWatch, others: &Others) -> Result<Observed, Error> {
        let settings = Settings::of(watch)?;
        self.check(watch, &settings)?;
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        let all = readable(others);
        let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
        let claim = conflict::claim(watch, all());
        let nodes = self.nodes.select(&settings.selector, &watch.label_key());
        let decides = claim == Claim::Ours && !watch.spec.paused;
        let readings = if decides && !nodes.is_empty() {
            Some(self.measure(&namespace, &settings).await)
        } else {
            None
        };
        let memory = self.decisions.get(&namespace, &name);
        let deployment = self.owned_deployment(watch);
        let now = Timestamp::now();
        let pods = match (&settings.eviction, &deployment) {
            (Some((after, _)), Some(deployment)) if decides && watch.spec.mode == Mode::Enforce => {
                // Asked for only while there is a node to leave.
                let leave = memory.nodes.iter().any(|(_, n)| plan::stayed_unfit(n, *after, now));
                if leave {
                    // Nodes are judged whether or not pods can be listed.
                    self.pods(watch, deployment).await.map_err(|error| error.to_text())
                } else {
                    Ok(vec![])
                }
            }
            _ => Ok(vec![]),
        };
        Ok(Observed {
            now,
            tick: self.schedule.tick(Instant::now(), settings.interval),
            stray: self.strays(watch, &memory, &nodes, |key| conflict::has_heir(watch, key, all())),
            nodes,
            readings,
            memory,
            claim,
            headroom: self.ceiling.headroom(),
            insecure: self.prometheus.get(&watch.spec.prometheus).is_some_and(Client::insecure),
            deployment,
            pods,
        })
    }

    fn plan(
        watch: &TrafficWatch,
        observed: &Observed,
    ) -> Result<Plan<Desired, TrafficWatchStatus>, Error> {
        plan::plan(watch, observed)
    }

    async fn apply(&self, watch: &TrafficWatch, desired: Desired) -> Result<Vec<Notice>, Error> {
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        let deployment = self.owned_deployment(watch);
        let facts = Facts {
            label: watch.label_key(),
            mode: watch.spec.mode,
            paused: watch.spec.paused,
            interval: watch.spec.interval.into(),
            consecutive: watch.spec.consecutive,
            replicas: deployment.map(|deployment| (deployment.wanted, deployment.available)),
        };
        match desired.memory {
            Some(memory) => {
                let (transitions, evaluation) = (desired.transitions, desired.evaluation);
                let decided = Decided { memory, facts, transitions, evaluation };
                self.decisions.put((&namespace, &name), decided);
            }
            None => self.decisions.pause(&namespace, &name, facts),
        }
        // What fails leaves nothing else undone.
        let results = self.write_nodes(desired.nodes).await;
        self.decisions.wrote(&namespace, &name, &results, Timestamp::now());
        let mut errors: Vec<_> =
            results.into_iter().filter_map(|(_, result)| result.err()).take(1).collect();
        if let Some(child) = desired.deployment
            && let Err(error) = self.apply_child(watch, &namespace, &name, child).await
        {
            errors.push(error);
        }
        let notices = self.evict(&namespace, &name, desired.evictions).await;
        Error::stages(notices, errors)
    }

    async fn cleanup(&self, watch: &TrafficWatch, others: &Others) -> Result<Vec<Notice>, Error> {
        let all = readable(others);
        let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
        // A loser of the claim never wrote; a holder whose key somebody else waits for leaves the
        // labels as they are, so that no node is without a verdict in between.
        let memory = self.decisions.get(&watch.namespace().unwrap_or_default(), &watch.name_any());
        let keys = keys_of(watch, &memory).into_iter();
        let keys = keys.filter(|key| !conflict::has_heir(watch, key, all()));
        let removals: Vec<_> = keys
            .flat_map(|key| {
                let carriers = self.nodes.carriers(&key);
                carriers.into_iter().map(move |carrier| NodeWrite::removal(carrier, key.clone()))
            })
            .collect();
        let count = removals.len();
        let results = self.write_nodes(removals).await;
        results.into_iter().try_for_each(|(_, result)| result)?;
        self.forget(&watch.namespace().unwrap_or_default(), &watch.name_any());
        let notice = (count > 0).then(|| Notice {
            warning: false,
            reason: "LabelsRemoved",
            note: format!("removed the label of {count} nodes"),
            node: None,
        });
        Ok(notice.into_iter().collect())
    }

    fn forget(&self, namespace: &str, name: &str) {
        self.decisions.forget(namespace, name);
    }
}

/// All objects of the store. Another's unreadable spec claims nothing.
fn readable(others: &Others) -> Vec<Arc<DeserializeGuard<TrafficWatch>>> {
    others.state()
}

/// The keys that this object may have put on nodes: the one it has, and those it had.
fn keys_of(watch: &TrafficWatch, memory: &Memory) -> BTreeSet<String> {
    let told = watch.status.as_ref().and_then(|status| status.label.clone());
    told.into_iter().chain(memory.key.clone()).chain([watch.label_key()]).collect()
}

/// Whether `spec.deployment` can be made a Deployment.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_deployment(watch: &TrafficWatch) -> Result<(), Error> {
    children::deployment(watch).map(drop)
}

impl TrafficWatchReconciler {
    /// What of a spec only the operator's configuration can tell to be wrong.
    fn check(&self, watch: &TrafficWatch, settings: &Settings) -> Result<(), Error> {
        let endpoint = &watch.spec.prometheus;
        let namespace = watch.namespace().unwrap_or_default();
        self.prometheus.named(ENDPOINT, endpoint, Some(&namespace)).map_err(Error::Invalid)?;
        if settings.has_own_queries() && !self.own_queries {
            let path = if watch.spec.query.is_some() { "query" } else { "criteria" };
            return Err(Error::Invalid(format!(
                "spec.{path}: this operator runs with --own-queries=false: PromQL in a TrafficWatch \
                 is switched off"
            )));
        }
        Ok(())
    }

    /// One answer for each measure; measures that need the same one share it.
    async fn measure(&self, namespace: &str, settings: &Settings) -> Vec<Measured> {
        let tick = self.schedule.tick_start(Instant::now(), settings.interval);
        // An answer that comes after the next tick is late; but nothing answers in no time.
        let patience = settings.interval.max(Duration::from_secs(2));
        let requests = settings.criteria.iter().map(async |criterion| {
            let request = &criterion.request;
            let payer = request.payer(namespace);
            let seat = || self.prometheus.seat(&payer);
            let ask = |seat| self.ask(request, seat);
            let asked = self.readings.get(request, tick, patience, seat, ask).await;
            asked.unwrap_or_else(|late| {
                let error = late.error(&payer);
                if late == Late::Seat
                    && let Some(client) = self.prometheus.get(&request.endpoint)
                {
                    client.not_asked(&error);
                }
                Err(error)
            })
        });
        futures::future::join_all(requests).await
    }

    /// A request of its own, which does not end with the one that began it.
    fn ask(&self, request: &Request, seat: Seat) -> impl Future<Output = Measured> + Send + use<> {
        let client = self.prometheus.get(&request.endpoint).cloned();
        let (request, exporters) = (request.clone(), self.exporters.clone());
        let (nodes, metrics) = (self.nodes.clone(), self.metrics.clone());
        async move {
            let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
            let client = client.ok_or_else(gone)?;
            let promql = request.question.promql(&exporters);
            let result = client.query_seated(&promql, seat, |answer| {
                let identity = nodes.identity();
                let names = Names { identity: &identity, labels: &exporters.node_labels };
                let (status, content_type) = (answer.status, answer.content_type.as_str());
                Reading::read(status, content_type, &answer.body, &request.question, names)
            });
            let reading = result.await.map(Arc::new);
            match &reading {
                Ok(reading) => metrics.samples_rejected("unmapped", reading.unmapped.0),
                Err(error) => tracing::warn!(
                    endpoint = &*request.endpoint, reason = error.class.reason(), %error,
                    "no measurement, labels stay as they are"
                ),
            }
            reading
        }
    }

    /// Labels and taints that are to go: of nodes that left the selection, and of a key that was
    /// renamed.
    fn strays(
        &self,
        watch: &TrafficWatch,
        memory: &Memory,
        selected: &[crate::nodes::NodeFacts],
        has_heir: impl Fn(&str) -> bool,
    ) -> Vec<Stray> {
        // A selection that is empty is more likely a mistake than a wish: freeze.
        if selected.is_empty() {
            return vec![];
        }
        let current = watch.label_key();
        let is_selected =
            |node: &Arc<str>| selected.binary_search_by(|facts| facts.name.cmp(node)).is_ok();
        let keys = keys_of(watch, memory).into_iter();
        let keys = keys.filter(|key| *key == current || !has_heir(key));
        keys.flat_map(|key| {
            let mut carriers = self.nodes.carriers(&key);
            if key == current {
                carriers.retain(|carrier| !is_selected(&carrier.node));
            }
            carriers.into_iter().map(move |carrier| Stray { carrier, key: key.clone() })
        })
        .collect()
    }

    /// The Deployment of this object; one of its name that belongs to somebody else is none.
    fn owned_deployment(&self, watch: &TrafficWatch) -> Option<DeploymentFacts> {
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        let deployment = self.deployments.get(&namespace, &name)?;
        (deployment.owner.is_some() && deployment.owner == watch.metadata.uid).then_some(deployment)
    }

    async fn apply_child(
        &self,
        watch: &TrafficWatch,
        namespace: &str,
        name: &str,
        child: Child,
    ) -> Result<(), Error> {
        let api = Api::<PartialObjectMeta<Deployment>>::namespaced(self.client.clone(), namespace);
        let there = api.get_opt(name).await.map_err(Error::kube("get Deployment"))?;
        if let Some(there) = &there
            && !there.owner_references().iter().any(|o| Some(&o.uid) == watch.metadata.uid.as_ref())
        {
            let text = format!(
                "Deployment {namespace}/{name} exists and is not owned by this TrafficWatch; \
                 delete it or rename one of them"
            );
            let outcome = Outcome::Taken(text.clone());
            let known =
                self.decisions.get(namespace, name).applied.as_ref().is_some_and(|applied| {
                    applied.hash == child.hash && applied.outcome == outcome
                });
            self.decisions.applied(namespace, name, Applied { hash: child.hash, outcome });
            // Told once; then the condition stands, and the nodes are judged as ever.
            return if known { Ok(()) } else { Err(Error::Taken(text)) };
        }
        if let Some(there) = &there {
            self.hand_over_replicas(&api, there, &child).await?;
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let outcome = match api.patch(name, &params, &Patch::Apply(&child.object)).await {
            Ok(applied) => {
                self.deployments.wrote(&applied);
                Outcome::Accepted {
                    uid: applied.uid().unwrap_or_default(),
                    generation: applied.metadata.generation.unwrap_or_default(),
                }
            }
            Err(kube::Error::Api(status)) if is_refusal(&status) => Outcome::Refused {
                text: status.message.clone(),
                at: Timestamp::now(),
                there: self.owned_deployment(watch).as_ref().map(DeploymentFacts::version),
            },
            Err(error) => return Err(Error::kube("apply Deployment")(error)),
        };
        let refused = match &outcome {
            Outcome::Refused { text, .. } => {
                Some(Error::Refused(format!("spec.deployment: {text}")))
            }
            Outcome::Accepted { .. } | Outcome::Taken(_) => None,
        };
        self.decisions.applied(namespace, name, Applied { hash: child.hash, outcome });
        refused.map_or(Ok(()), Err)
    }
}
