//! Reads what a judgment needs: nodes, measurements, the Deployment and its pods. Decides nothing.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};

use super::{
    ENDPOINT, Measured, Others, TrafficWatchReconciler, children,
    conflict::{self, Claim},
    deployments::DeploymentFacts,
    evictions::PodFacts,
    observed::Observed,
    plan,
    query::Request,
    reading::{Names, Sorter},
    reservation::Seen,
    settings::Settings,
};
use crate::{
    api::{TrafficWatch, traffic_watch::Mode},
    clock,
    controller::{Error, key},
    infra::Api,
    nodes::{Carrier, Identity, NodeStore, Selection},
    prometheus::{Class, Client, Permit, QueryError, decode::Series},
};

/// Reads everything that the plan for one object rests on.
///
/// Pods are read only where the plan may let some leave, and while the measurement is under way:
/// nodes are judged whether or not pods can be listed.
pub(super) async fn observe(
    reconciler: &TrafficWatchReconciler,
    watch: &TrafficWatch,
    others: &Others,
) -> Result<Observed, Error> {
    let settings = Settings::of(watch)?;
    reconciler.check(watch, &settings)?;
    let key = key(watch);
    let all = others.state();
    // An unreadable spec of another object claims nothing.
    let all = || all.iter().filter_map(|other| other.0.as_ref().ok());
    let claim = match conflict::claim(watch, all()) {
        Claim::Ours => reconciler.quota.claim(watch, all()),
        claim => claim,
    };
    let decides = claim == Claim::Ours && !watch.spec.paused;
    // Before the measurement: an answer that takes longer than its tick is of that tick.
    let began = clock::instant();
    let any = reconciler.nodes.any(&settings.selector);
    let tick = reconciler.schedule.tick(began, settings.interval);
    let memory = reconciler.memories.read(&key, |entry| Arc::clone(&entry.memory));
    let leave = decides
        && watch.spec.mode == Mode::Enforce
        && memory.tick != Some(tick)
        && plan::may_leave(&settings, &memory, clock::timestamp());
    let measured = async {
        if !decides || !any {
            return None;
        }
        Some(reconciler.measure(&key.0, &settings, began).await)
    };
    let listed = async {
        match reconciler.owned_deployment(watch) {
            Some(deployment) if leave => {
                let pods = reconciler.pods(watch, &deployment);
                match tokio::time::timeout(patience(&settings), pods).await {
                    Ok(pods) => pods.map_err(|error| error.to_text()),
                    Err(_) => Err("the API server takes too long to list them".to_owned()),
                }
            }
            _ => Ok(vec![]),
        }
    };
    let class = async {
        let reservation = watch.spec.reservation.as_ref().filter(|_| decides)?;
        let (client, resource) = (&reconciler.client, &reservation.resource);
        reconciler.device_classes.of(client, resource, patience(&settings)).await
    };
    let (readings, pods, class) = futures::future::join3(measured, listed, class).await;
    // After the answer: the objects that wait for it together hold no copy of the nodes each.
    let (store, selector, label) = (&reconciler.nodes, &settings.selector, watch.label_key());
    let selection = if !any {
        Selection::default()
    } else if settings.room.reads_labels() {
        store.select(selector, &label)
    } else {
        store.select_unlabeled(selector, &label)
    };
    let deployment = reconciler.owned_deployment(watch);
    let reservation = match claim {
        Claim::Ours => Seen {
            device_class: class,
            ..reconciler.reservation(watch, &all().collect::<Vec<_>>())
        },
        // It writes nothing at all.
        Claim::HeldBy(_) | Claim::TooMany(_) => Seen::default(),
    };
    Ok(Observed {
        now: clock::timestamp(),
        tick,
        strays: reconciler
            .strays(watch, &selection, |key| conflict::is_claimed_by_other(watch, key, all())),
        nodes: selection.nodes,
        readings,
        memory,
        claim,
        headroom: reconciler.ceiling.headroom(&key.0),
        insecure: reconciler.prometheus.get(&watch.spec.prometheus).is_some_and(Client::insecure),
        deployment,
        pods,
        reservation,
    })
}

/// The time that a judgment waits for an answer: one that comes after the next tick is late; but
/// nothing answers in no time.
fn patience(settings: &Settings) -> Duration {
    settings.interval.max(Duration::from_secs(2))
}

/// Begins to sort an answer by the nodes as they are called now.
fn begin(nodes: &NodeStore) -> (Arc<Identity>, Sorter) {
    let identity = nodes.identity();
    let sorter = Sorter::new(&identity);
    (identity, sorter)
}

impl TrafficWatchReconciler {
    /// Checks the parts of a spec that depend on the operator's configuration.
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
    async fn measure(&self, namespace: &str, settings: &Settings, now: Instant) -> Vec<Measured> {
        let tick = self.schedule.tick_start(now, settings.interval);
        let patience = patience(settings);
        let requests = settings.criteria.iter().map(async |criterion| {
            let request = &criterion.request;
            let payer = request.payer(namespace);
            let permit = async || {
                self.pace.request(namespace).await;
                self.prometheus.permit(&request.endpoint, &payer).await
            };
            let ask = |permit| self.ask(request, permit);
            let asked = self.readings.get(request, tick, patience, permit, ask).await;
            asked.unwrap_or_else(|late| Err(self.prometheus.late(&request.endpoint, late, &payer)))
        });
        futures::future::join_all(requests).await
    }

    /// A separate request, which does not end with the one that began it.
    fn ask(
        &self,
        request: &Request,
        permit: Permit,
    ) -> impl Future<Output = Measured> + Send + use<> {
        let client = self.prometheus.get(&request.endpoint).cloned();
        let (request, exporters) = (request.clone(), self.exporters.clone());
        let (nodes, metrics) = (self.nodes.clone(), self.metrics.clone());
        async move {
            let gone = || QueryError::new(Class::Unreachable, "the endpoint is not configured");
            let client = client.ok_or_else(gone)?;
            let promql = request.promql(&exporters);
            // The names of nodes are resolved when the answer begins.
            let mut sorting = None;
            let take = |series: Series<'_>| {
                let (identity, sorter) = sorting.get_or_insert_with(|| begin(&nodes));
                let names = Names { identity, labels: &exporters.node_labels };
                sorter.take(&request.question, names, &series)
            };
            let asked = Some(clock::timestamp().as_duration().as_secs_f64());
            let revision = Some(nodes.revision());
            let warnings = client.query_vector(&promql, permit, take).await;
            let (identity, sorter) = sorting.unwrap_or_else(|| begin(&nodes));
            let reading = warnings.map(|warnings| {
                let mut reading = sorter.end(&identity, warnings);
                (reading.asked, reading.revision) = (asked, revision);
                Arc::new(reading)
            });
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

    /// Labels and taints to remove: of nodes that left the selection, and of a former key, unless
    /// another object claims that.
    fn strays(
        &self,
        watch: &TrafficWatch,
        selection: &Selection,
        is_claimed: impl Fn(&str) -> bool,
    ) -> Vec<Carrier> {
        // A selection that is empty is more likely a mistake than a wish: freeze.
        if selection.nodes.is_empty() {
            return vec![];
        }
        let former = conflict::former_key(watch).filter(|key| !is_claimed(key));
        let former = former.map_or_else(Vec::new, |key| self.nodes.carriers(key));
        selection.strays.iter().cloned().chain(former).collect()
    }

    /// The Deployment of this object; one of its name that belongs to another owner does not count.
    pub(super) fn owned_deployment(&self, watch: &TrafficWatch) -> Option<DeploymentFacts> {
        let (namespace, name) = (watch.namespace().unwrap_or_default(), watch.name_any());
        let deployment = self.deployments.get(&namespace, &name)?;
        (deployment.owner.is_some() && deployment.owner == watch.metadata.uid).then_some(deployment)
    }

    /// The pods that belong to the Deployment: through a `ReplicaSet` that it owns, not by labels
    /// alone, which any other pod may carry.
    async fn pods(
        &self,
        watch: &TrafficWatch,
        deployment: &DeploymentFacts,
    ) -> Result<Vec<PodFacts>, Error> {
        let namespace = watch.namespace().unwrap_or_default();
        let Some(selector) = children::selector(watch) else { return Ok(vec![]) };
        let params = ListParams::default().labels(&selector.to_string()).limit(PAGE_SIZE);
        let sets =
            Api::<PartialObjectMeta<ReplicaSet>>::namespaced(self.client.clone(), &namespace);
        let mut ours = Vec::new();
        let add = |set: PartialObjectMeta<ReplicaSet>| {
            ours.extend(set.uid().filter(|_| controllers(&set).contains(&deployment.uid)));
        };
        sets.list_pages(params.clone(), add).await.map_err(Error::kube("list ReplicaSets"))?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        let mut facts = Vec::new();
        let add = |pod: Pod| {
            let is_ours = controllers(&pod).iter().any(|uid| ours.contains(uid));
            // A pod that has ended stays listed; it needs neither eviction nor waiting.
            facts.extend((is_ours && !has_ended(&pod)).then(|| pod_facts(&pod)));
        };
        pods.list_pages(params, add).await.map_err(Error::kube("list Pods"))?;
        Ok(facts)
    }
}

/// Objects per page: a Pod is some 8 kB.
const PAGE_SIZE: u32 = 100;

/// The UIDs of an object's controllers; there is one at most.
fn controllers<K: Resource>(object: &K) -> Vec<String> {
    let owners = object.owner_references().iter();
    owners.filter(|o| o.controller == Some(true)).map(|o| o.uid.clone()).collect()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn pod_facts(pod: &Pod) -> PodFacts {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        created: pod.creation_timestamp().map_or(0, |time| time.0.as_second()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(Into::into),
        ready: conditions.filter(|c| c.type_ == "Ready").any(|c| c.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_that_has_ended_is_none() {
        for (phase, ended) in
            [("Failed", true), ("Succeeded", true), ("Running", false), ("Pending", false)]
        {
            let pod = json!({"metadata": {"name": "a"}, "status": {"phase": phase}});
            assert_eq!(has_ended(&serde_json::from_value(pod).expect("pod")), ended, "{phase}");
        }
    }

    #[test]
    fn a_pod_that_is_not_known_to_be_ready_is_not() {
        let pod = |value: Value| pod_facts(&serde_json::from_value(value).expect("pod"));
        let bare = pod(json!({"metadata": {"name": "a", "uid": "u"}}));
        assert_eq!((bare.ready, bare.node.as_deref(), bare.terminating), (false, None, false));
        let ready = pod(json!({
            "metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        }));
        assert_eq!((ready.ready, ready.node.as_deref()), (true, Some("n")));
    }
}
