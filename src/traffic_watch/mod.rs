//! Serves [`TrafficWatch`]: observes, applies; what is decided stands in `plan`.
//!
//! `query` writes the PromQL, `reading` sorts the answer by node, `evidence` says what it proves,
//! `judgement` makes states of it (with `limits`, the breaker), `plan` says what to write, `report`
//! words it, `children` builds the Deployment.
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::reflector::Store,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    api::{TrafficWatch, TrafficWatchStatus, traffic_watch::Mode},
    controller::{
        Error, FIELD_MANAGER, Notice, Plan, Reconciler, merge_params, schedule::Schedule,
    },
    metrics::Metrics,
    nodes::NodeStore,
    prometheus::{self, QueryError, Shared},
};

mod children;
mod claims;
mod decisions;
mod deployments;
mod evidence;
mod judgement;
mod limits;
mod memory;
mod plan;
pub mod query;
mod reading;
mod report;
mod settings;
pub mod view;

use children::{Applied, Child, Outcome};
use claims::Claim;
pub use decisions::Decisions;
pub use deployments::DeploymentStore;
use judgement::{Observed, Stray};
use plan::{Desired, LabelWrite};
use query::Question;
use reading::Reading;
use settings::Settings;

/// How many nodes are patched at once, by all objects together: enough for a mass flip to end soon,
/// few enough to leave the API server's fair share to others.
pub const LABEL_CONCURRENCY: usize = 8;

/// What the controller works with.
pub struct TrafficWatchReconciler {
    /// Writes.
    pub client: Client,
    /// The nodes.
    pub nodes: NodeStore,
    /// The Deployments we own.
    pub deployments: DeploymentStore,
    /// The endpoint.
    pub prometheus: prometheus::Client,
    /// Labels that may name a node, beside `instance`.
    pub node_labels: Vec<String>,
    /// The ticks.
    pub schedule: Schedule,
    /// Memories, and the metrics read from them.
    pub decisions: Decisions,
    /// Counters.
    pub metrics: Metrics,
    /// Permits to patch a node: [`LABEL_CONCURRENCY`] of them.
    pub label_writes: Semaphore,
    /// One request for all who ask the same.
    pub readings: Shared<Question, Result<Arc<Reading>, QueryError>>,
}

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
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        let all = readable(others);
        let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
        let claim = claims::claim(watch, all());
        let nodes = self.nodes.select(&settings.selector, &watch.label_key());
        let decides = claim == Claim::Ours && !watch.spec.paused;
        let reading =
            if decides && !nodes.is_empty() { Some(self.measure(&settings).await) } else { None };
        Ok(Observed {
            now: Timestamp::now(),
            tick: self.schedule.tick(Instant::now(), settings.interval),
            stray: self.strays(watch, &nodes, |key| claims::has_heir(watch, key, all())),
            nodes,
            reading,
            memory: self.decisions.get(&namespace, &name),
            claim,
            deployment: self.deployments.get(&namespace, &name),
        })
    }

    fn plan(
        watch: &TrafficWatch,
        observed: &Observed,
    ) -> Result<Plan<Desired, TrafficWatchStatus>, Error> {
        plan::plan(watch, observed)
    }

    async fn apply(&self, watch: &TrafficWatch, desired: Desired) -> Result<(), Error> {
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        match desired.memory {
            Some(memory) => {
                let key = (namespace.as_str(), name.as_str());
                self.decisions.put(key, memory, desired.transitions, desired.evaluation);
            }
            None => self.forget(&namespace, &name),
        }
        self.write_labels(desired.labels).await?;
        match desired.deployment {
            Some(child) => self.apply_child(watch, &namespace, &name, child).await,
            None => Ok(()),
        }
    }

    async fn cleanup(&self, watch: &TrafficWatch, others: &Others) -> Result<Vec<Notice>, Error> {
        let all = readable(others);
        let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
        // A loser of the claim never wrote; a holder whose key somebody else waits for leaves the
        // labels as they are, so that no node is without a verdict in between.
        let keys = keys_of(watch).into_iter().filter(|key| !claims::has_heir(watch, key, all()));
        let removals: Vec<_> = keys
            .flat_map(|key| {
                let nodes = self.nodes.labelled(&key);
                nodes.into_iter().map(move |node| LabelWrite {
                    node,
                    key: key.clone(),
                    value: None,
                })
            })
            .collect();
        let count = removals.len();
        self.write_labels(removals).await?;
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

/// The keys that this object may have put on nodes: the one it has, and the one it had.
fn keys_of(watch: &TrafficWatch) -> Vec<String> {
    let had = watch.status.as_ref().and_then(|status| status.label.clone());
    let has = watch.label_key();
    let had = had.filter(|had| *had != has);
    had.into_iter().chain([has]).collect()
}

impl TrafficWatchReconciler {
    async fn measure(&self, settings: &Settings) -> Result<Arc<Reading>, QueryError> {
        let tick = self.schedule.tick_start(Instant::now(), settings.interval);
        // An answer that comes after the next tick is late; but nothing answers in no time.
        let deadline = settings.interval.max(Duration::from_secs(2));
        let ask = || async {
            let promql = settings.question.promql(&self.node_labels);
            let result = self.prometheus.query(&promql, deadline, |answer| {
                let identity = self.nodes.identity();
                let (status, content_type) = (answer.status, answer.content_type.as_str());
                Reading::read(status, content_type, &answer.body, &identity, &self.node_labels)
            });
            let reading = result.await.map(Arc::new);
            match &reading {
                Ok(reading) => self.metrics.samples_rejected("unmapped", reading.unmapped.0),
                Err(error) => tracing::warn!(
                    reason = error.class.reason(), %error, "no measurement, labels stay as they are"
                ),
            }
            reading
        };
        self.readings.get(&settings.question, tick, ask).await
    }

    /// Labels that are to go: of nodes that left the selection, and of a key that was renamed.
    fn strays(
        &self,
        watch: &TrafficWatch,
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
        let keys = keys_of(watch).into_iter().filter(|key| *key == current || !has_heir(key));
        keys.flat_map(|key| {
            let mut nodes = self.nodes.labelled(&key);
            if key == current {
                nodes.retain(|node| !is_selected(node));
            }
            nodes.into_iter().map(move |node| Stray { node, key: key.clone() })
        })
        .collect()
    }

    async fn write_labels(&self, writes: Vec<LabelWrite>) -> Result<(), Error> {
        let nodes = Api::<Node>::all(self.client.clone());
        let results = futures::stream::iter(writes).map(|write| {
            let nodes = nodes.clone();
            async move {
                // Never closed, so there is always a permit to wait for.
                let _permit = self.label_writes.acquire().await;
                let value = write.value.map(|unfit| if unfit { "true" } else { "false" });
                let patch = json!({"metadata": {"labels": {write.key: value}}});
                match nodes.patch_metadata(&write.node, &merge_params(), &Patch::Merge(patch)).await
                {
                    Ok(written) => {
                        self.nodes.wrote(&written.metadata);
                        Ok(())
                    }
                    // The node went away in the meantime, and its label with it.
                    Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
                    Err(error) => Err(Error::kube("patch node label")(error)),
                }
            }
        });
        // Every node is tried, whatever became of the one before.
        let results: Vec<_> = results.buffer_unordered(LABEL_CONCURRENCY).collect().await;
        results.into_iter().collect()
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
        if let Some(there) = there
            && !there.owner_references().iter().any(|o| Some(&o.uid) == watch.metadata.uid.as_ref())
        {
            return Err(Error::Conflict(format!(
                "Deployment {namespace}/{name} exists and is not owned by this TrafficWatch; \
                 delete it or rename one of them"
            )));
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
            Err(kube::Error::Api(status)) if is_refusal(&status) => {
                Outcome::Refused(status.message.clone())
            }
            Err(error) => return Err(Error::kube("apply Deployment")(error)),
        };
        let refused = match &outcome {
            Outcome::Refused(text) => Some(Error::Refused(format!("spec.deployment: {text}"))),
            Outcome::Accepted { .. } => None,
        };
        self.decisions.applied(namespace, name, Applied { hash: child.hash, outcome });
        refused.map_or(Ok(()), Err)
    }
}

/// Whether the API server would refuse the same object again.
fn is_refusal(status: &kube::core::Status) -> bool {
    matches!(status.code, 400 | 422)
        // A field that the server does not know fails while the patch is typed, as code 500.
        || status.message.contains("field not declared in schema")
}
