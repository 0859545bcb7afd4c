//! What the objects of the other kinds do on a node: agents that blame it, workers of Swarms that run
//! on it, and slots of route reflectors.
use std::collections::HashSet;

use k8s_openapi::{api::core::v1, jiff::Timestamp};
use kube::{Client, ResourceExt, api::ListParams};
use serde::Serialize;

use crate::{
    api::{Kind, NetworkProber, RouteReflectorSet, Swarm, swarm::WorkerStatus},
    infra::{Api, watch::Metadata},
    inspect::{
        cluster::{self, describe, name_of},
        leader::Place,
        probing,
    },
    network_prober::{measurement::NodeFigures, overview::ProberView},
};

/// Maximum number of `NetworkProber`s that are asked about a node: each answer is a query of
/// Prometheus.
const ASKED: usize = 5;

/// What the other kinds say of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Others {
    /// `NetworkProber`s whose agents run on the node or blame it.
    pub probers: Vec<Probed>,
    /// Workers of `Swarm`s on the node.
    pub workers: Vec<Worker>,
    /// Slots of `RouteReflectorSet`s that the node holds.
    pub slots: Vec<Slot>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// What a `NetworkProber` says of the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    /// `namespace/name`.
    pub prober: String,
    /// Number of its agents on the node; unknown if other nodes have fewer, and only those are
    /// listed.
    pub agents: Option<usize>,
    /// True if most of the node's paths are bad; unknown without measurements.
    pub to_blame: Option<bool>,
    /// Loss of more than half of its paths, 0 to 1.
    pub loss: Option<f64>,
    /// 99th percentile of the time to an answer on more than half of its paths, in seconds.
    pub p99: Option<f64>,
}

/// A worker of a `Swarm`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// `namespace/name` of the `Swarm`.
    pub swarm: String,
    /// Its streams, and the version of the file that it has.
    #[serde(flatten)]
    pub status: WorkerStatus,
}

/// A slot of a `RouteReflectorSet`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Name of the set.
    pub set: String,
    /// Number of the slot.
    pub id: i64,
    /// The time at which the node took it.
    pub since: Option<Timestamp>,
    /// The reason why another node takes it over.
    pub leaving: Option<String>,
}

/// Reads what the other kinds say of a node.
pub async fn gather(client: &Client, place: &Place, node: &str) -> Others {
    let mut others = Others::default();
    let sets = list::<RouteReflectorSet>(client, "list RouteReflectorSets", &mut others).await;
    others.slots = sets.iter().flat_map(|set| slots(set, node)).collect();
    let swarms = list::<Swarm>(client, "list Swarms", &mut others).await;
    if swarms.iter().any(has_workers) {
        match pods(client, node).await {
            Ok(pods) => others.workers = swarms.iter().flat_map(|it| workers(it, &pods)).collect(),
            Err(why) => others.unread.push(why),
        }
    }
    let probers = list::<NetworkProber>(client, "list NetworkProbers", &mut others).await;
    for prober in probers.iter().take(ASKED) {
        let (namespace, name) = (prober.namespace().unwrap_or_default(), prober.name_any());
        let live = probing::live(client, place, Some((&namespace, &name))).await;
        match live.map(|view| view.probers.into_iter().next()) {
            Ok(view) => others.probers.extend(view.and_then(|view| probed(prober, &view, node))),
            Err(why) => {
                others.unread.push(why);
                break;
            }
        }
    }
    if let more @ 1.. = probers.len().saturating_sub(ASKED) {
        others.unread.push(format!("{more} more NetworkProbers were not asked: explain prober"));
    }
    others
}

/// Lists a kind; none if it is not installed.
async fn list<K: Kind>(client: &Client, action: &'static str, others: &mut Others) -> Vec<K> {
    match cluster::list::<K>(client).await {
        Ok(listed) => {
            let unreadable = listed.unreadable.iter();
            others
                .unread
                .extend(unreadable.map(|(name, why)| format!("{} {name}: {why}", K::kind(&()))));
            listed.read
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => vec![],
        Err(error) => {
            others.unread.push(describe(action, error));
            vec![]
        }
    }
}

/// The pods on the node, as `namespace/name`.
async fn pods(client: &Client, node: &str) -> Result<HashSet<String>, String> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Metadata<v1::Pod>>::all(client.clone()).list(&on_node).await;
    Ok(pods.map_err(|error| describe("list pods", error))?.iter().map(name_of).collect())
}

fn has_workers(swarm: &Swarm) -> bool {
    swarm.status.as_ref().is_some_and(|status| !status.workers.is_empty())
}

fn workers(swarm: &Swarm, pods: &HashSet<String>) -> Vec<Worker> {
    let namespace = swarm.namespace().unwrap_or_default();
    let all = swarm.status.iter().flat_map(|status| &status.workers);
    let here = all.filter(|worker| pods.contains(&format!("{namespace}/{}", worker.name)));
    here.map(|worker| Worker { swarm: name_of(swarm), status: worker.clone() }).collect()
}

fn slots(set: &RouteReflectorSet, node: &str) -> Vec<Slot> {
    let all = set.status.iter().flat_map(|status| &status.slots);
    let held = all.filter(|slot| slot.node == node);
    held.map(|slot| Slot {
        set: set.name_any(),
        id: slot.id,
        since: slot.since.as_ref().map(|time| time.0),
        leaving: slot.leaving.clone(),
    })
    .collect()
}

/// What one prober says of the node; nothing if it has no agent there.
fn probed(prober: &NetworkProber, view: &ProberView, node: &str) -> Option<Probed> {
    let listed = view.agents.iter().find(|one| one.node == node);
    let figures = view.measured.as_ref().and_then(|measured| measured.figures.as_ref());
    let blamed: Option<&NodeFigures> =
        figures.and_then(|figures| figures.nodes.iter().find(|one| one.node == node));
    if listed.is_none() && blamed.is_none() {
        return None;
    }
    Some(Probed {
        prober: name_of(prober),
        agents: listed.map(|one| one.agents),
        to_blame: figures.map(|_| blamed.is_some_and(|one| one.bad)),
        loss: blamed.and_then(|one| one.loss),
        p99: blamed.and_then(|one| one.p99),
    })
}
