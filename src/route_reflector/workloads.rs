//! Number of workloads on each node that a short loss of its routes would affect.
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::Deserialize;

use super::memory::Workloads;
use crate::{
    clock,
    controller::Error,
    infra::Api,
    partial_resource::{self, partial_resource},
};

/// For how long a choice waits for the count.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pods in one answer: some hundred kilobytes.
const PAGE: u32 = 500;

/// A Pod without the fields that are not read.
#[derive(Clone, Debug, Deserialize)]
struct Workload {
    #[serde(deserialize_with = "partial_resource::metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

partial_resource!(Workload as Pod, NamespaceResourceScope);

impl Workload {
    /// Reports whether a loss of routes affects it: it runs, on the pod network, and not on every
    /// node.
    fn counts(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        let everywhere = owners.into_iter().any(|owner| owner.kind == "DaemonSet");
        self.status.phase == "Running" && !self.spec.host_network && !everywhere
    }
}

/// Running pods of the pod network, by node, without those of `DaemonSet`s. Read once when a
/// reflector must be chosen.
pub(super) async fn count(client: &kube::Client) -> Result<BTreeMap<Arc<str>, u32>, Error> {
    let api = Api::<Workload>::all(client.clone());
    let mut counted: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let add = |pod: Workload| {
        if let Some(node) = pod.spec.node_name.as_deref().filter(|_| pod.counts()) {
            match counted.get_mut(node) {
                Some(number) => *number += 1,
                None => drop(counted.insert(node.into(), 1)),
            }
        }
    };
    let listed = api.list_pages(ListParams::default().limit(PAGE), add).await;
    listed.map_err(Error::kube("list Pods")).map(|()| counted)
}

/// Returns the count and its time; if it fails or takes too long, the one that is known. It decides
/// only between nodes that are otherwise equal, and must not keep a dead reflector in its place.
pub(super) async fn counted(
    count: impl Future<Output = Result<BTreeMap<Arc<str>, u32>, Error>>,
    known: Option<(Instant, Workloads)>,
) -> Option<(Instant, Workloads)> {
    let why = match tokio::time::timeout(PATIENCE, count).await {
        Ok(Ok(counted)) => return Some((clock::instant(), Arc::new(counted))),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    tracing::warn!(why, "pods not counted, reflectors are chosen without");
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_count_that_fails_or_hangs_leaves_the_known_one() {
        let fails = || async { Err(Error::Invalid("429".into())) };
        let known = Some((clock::instant(), Arc::new(BTreeMap::from([("n".into(), 2)]))));
        assert_eq!(counted(fails(), None).await, None);
        assert_eq!(counted(fails(), known.clone()).await, known);
        assert_eq!(counted(std::future::pending(), known.clone()).await, known);
        let counts = async { Ok(BTreeMap::from([("n".into(), 3)])) };
        assert_eq!(counted(counts, known).await.unwrap().1["n"], 3);
    }

    #[test]
    fn only_workloads_that_would_notice_count() {
        for (pod, counts) in [
            (r#"{"metadata":{},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#, true),
            (r#"{"metadata":{},"spec":{"nodeName":"n"},"status":{"phase":"Succeeded"}}"#, false),
            (
                r#"{"metadata":{},"spec":{"nodeName":"n","hostNetwork":true},"status":{"phase":"Running"}}"#,
                false,
            ),
            (
                r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"u"}]},"spec":{},"status":{"phase":"Running"}}"#,
                false,
            ),
        ] {
            assert_eq!(serde_json::from_str::<Workload>(pod).unwrap().counts(), counts, "{pod}");
        }
    }
}
