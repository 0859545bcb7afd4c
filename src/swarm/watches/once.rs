//! The same facts without a watch: one list for each object that a `Swarm` names.
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{Client, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::{
    MapFacts, Names, Watched, WorkloadFacts, WorkloadView,
    facts::fitness_label,
    objects::{Fitness, MapObject, WorkloadObject},
    pods,
};
use crate::{api::Swarm, api::swarm::WorkloadKind, controller::Error, infra::Api};

/// Reads everything that a `Swarm` depends on, as
/// [`WorkloadCache::view`](super::WorkloadCache::view) has it from the watches. Lists by name, as
/// they do, so that an account with their rights may do this.
///
/// # Errors
/// The API server's error, with the request that it refused.
pub(in crate::swarm) async fn read(client: &Client, swarm: &Swarm) -> Result<WorkloadView, Error> {
    let names = Names::of(swarm);
    let workload = match &names.workload {
        Watched::Workload(WorkloadKind::StatefulSet, namespace, name) => {
            one::<WorkloadObject<StatefulSet>>(client, (namespace, name), "list StatefulSets")
                .await?
                .map(|object| WorkloadFacts::from(&object))
        }
        Watched::Workload(WorkloadKind::Deployment, namespace, name) => {
            one::<WorkloadObject<Deployment>>(client, (namespace, name), "list Deployments")
                .await?
                .map(|object| WorkloadFacts::from(&object))
        }
        _ => None,
    };
    let pods = match &workload {
        Some(workload) => {
            let (namespace, _) = swarm.key();
            let mut pods =
                pods(client, &namespace, workload).await.map_err(Error::kube("list Pods"))?;
            pods.sort_by(|a, b| a.name.cmp(&b.name));
            pods
        }
        None => vec![],
    };
    let fitness = match &names.fitness {
        Some(Watched::Fitness(namespace, name)) => {
            let watch = one::<Fitness>(client, (namespace, name), "list TrafficWatches").await?;
            watch.as_ref().map(fitness_label)
        }
        _ => None,
    };
    Ok(WorkloadView { workload, fitness, pods, ..maps(client, swarm).await? })
}

/// The `ConfigMap`s alone: those with the shares and that with the streams.
///
/// # Errors
/// As [`read`].
pub(in crate::swarm) async fn maps(client: &Client, swarm: &Swarm) -> Result<WorkloadView, Error> {
    let names = Names::of(swarm);
    let mut parts = Vec::with_capacity(names.parts.len());
    for part in &names.parts {
        parts.push(map(client, Some(part)).await?);
    }
    let share = map(client, Some(&names.share)).await?;
    let source = map(client, names.source.as_ref()).await?;
    Ok(WorkloadView { share, parts, source, ..WorkloadView::default() })
}

async fn map(client: &Client, watched: Option<&Watched>) -> Result<Option<MapFacts>, Error> {
    let Some(Watched::Map(namespace, name)) = watched else { return Ok(None) };
    let map = one::<MapObject>(client, (namespace, name), "list ConfigMaps").await?;
    Ok(map.map(|map| MapFacts::from(&map)))
}

async fn one<K>(
    client: &Client,
    (namespace, name): (&str, &str),
    action: &'static str,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = Api::<K>::namespaced(client.clone(), namespace).list(&params).await;
    Ok(found.map_err(Error::kube(action))?.into_iter().next())
}
