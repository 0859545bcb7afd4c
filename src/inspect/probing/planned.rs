//! Gathers what `plan` needs to know of a cluster for `NetworkProber`s in a file.
use std::sync::Arc;

use anyhow::{Context, anyhow};
use k8s_openapi::{
    api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::{Client, ResourceExt, api::ListParams};

use crate::{
    api::NetworkProber,
    infra::{Api, watch::Metadata},
    inspect::{
        cluster::{describe, list, name_of},
        population::Population,
    },
    network_prober::{
        constraints::reading,
        dry_run::{Cluster, DryRun},
        scope::NamespaceFacts,
        settings::Tenancy,
        snapshot::Setup,
    },
    pods::PodObject,
};

/// The image of agents whose spec names none: only its digest, which nobody can know here, could
/// make a difference.
const OWN_IMAGE: &str = "the operator's own image";

/// Decides about each of these, as if they were in the cluster.
///
/// # Errors
/// The error of the API server.
pub async fn plan(
    client: &Client,
    operator_namespace: &str,
    planned: Vec<NetworkProber>,
) -> anyhow::Result<Vec<DryRun>> {
    let refused = |action| move |error| anyhow!(describe(action, error));
    let existing = list::<NetworkProber>(client).await;
    let existing = existing.map_err(refused("list networkprobers"))?.read;
    let names: Vec<_> = planned.iter().map(name_of).collect();
    let mut probers: Vec<_> =
        existing.iter().filter(|prober| !names.contains(&name_of(*prober))).cloned().collect();
    probers.retain(|prober| prober.metadata.deletion_timestamp.is_none());
    for mut prober in planned {
        let there = existing.iter().find(|other| name_of(*other) == name_of(&prober));
        prober.metadata.creation_timestamp = match there {
            Some(there) => there.metadata.creation_timestamp.clone(),
            None => Some(Time(Timestamp::now())),
        };
        if let Some(there) = there {
            prober.metadata.uid.clone_from(&there.metadata.uid);
        }
        probers.push(prober);
    }
    probers.sort_by_cached_key(|prober| (prober.creation_timestamp(), name_of(prober)));
    let probers: Vec<_> = probers.iter().collect();
    let all = ListParams::default();
    let namespaces = Api::<Metadata<Namespace>>::all(client.clone()).list(&all).await;
    let namespaces: Vec<_> = namespaces
        .map_err(refused("list namespaces"))?
        .iter()
        .filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
        .map(|namespace| NamespaceFacts::of(&namespace.metadata))
        .collect();
    let Population::Cluster(nodes) = Population::of_cluster(client).await? else {
        return Ok(vec![]);
    };
    let setup = Setup {
        tenancy: Tenancy::of(operator_namespace),
        own_image: Some(OWN_IMAGE.into()),
        pinglist_url: String::new(),
        native_sidecars: true,
        runbooks: None,
    };
    let cluster =
        Cluster { setup: &setup, namespaces: &namespaces, probers: &probers, nodes: &nodes };
    let mut runs = Vec::new();
    for name in names {
        let place = probers.iter().position(|prober| name_of(*prober) == name);
        let place = place.with_context(|| name.clone())?;
        let plan = match cluster.plan(place) {
            Ok(plan) => plan,
            Err(why) => {
                let prober = probers[place];
                runs.push(DryRun {
                    namespace: prober.namespace().unwrap_or_default(),
                    name: prober.name_any(),
                    refused: Some(why),
                    ..DryRun::default()
                });
                continue;
            }
        };
        let selected = ListParams::default().labels(&plan.labels());
        let mut pods = Vec::new();
        for namespace in plan.namespaces() {
            let api = Api::<PodObject>::namespaced(client.clone(), namespace);
            let listed = api.list(&selected).await.map_err(refused("list pods"))?;
            pods.extend(listed.into_iter().map(Arc::new));
        }
        let constraints = reading::of_namespaces(client, plan.namespaces()).await;
        let constraints = constraints.map_err(refused("list limitranges and resourcequotas"))?;
        let now = Timestamp::now().as_duration().unsigned_abs();
        let there = existing.iter().find(|other| name_of(*other) == name);
        runs.push(plan.decide(&cluster, &pods, &constraints, there, now));
    }
    Ok(runs)
}
