//! Reads the objects with the most important figures of each kind, the Lease, and the image of the
//! leader's pod.
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Client,
    api::{DynamicObject, ListParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};

use super::{Facts, Judgment, KindFacts, NodeReport, Object, Unread, nodes};
use crate::{
    api::{
        Kind, NetworkProber, RouteReflectorSet, Swarm, TrafficWatch,
        network_prober::NotInjected,
        route_reflector_set::{PlannedStep, RouteReflectorSetStatus},
        swarm::SwarmStatus,
        traffic_watch::{Summary, TrafficWatchStatus},
    },
    infra::Api,
    inspect::{
        cluster::{describe, name_of},
        leader::{self, Leadership},
    },
};

/// Reads everything, in one namespace or in all; cluster-scoped objects in both cases. The Lease
/// has a namespace and a name.
///
/// If one part cannot be read, the others are still read.
pub async fn gather(client: &Client, lease: (&str, &str), namespace: Option<&str>) -> Facts {
    let ((leadership, image), watches, probers, swarms, sets) = tokio::join!(
        gather_operator(client, lease),
        list::<TrafficWatch>(client, namespace),
        list::<NetworkProber>(client, namespace),
        list::<Swarm>(client, namespace),
        list::<RouteReflectorSet>(client, namespace),
    );
    Facts {
        now: Timestamp::now(),
        lease: format!("{}/{}", lease.0, lease.1),
        leadership,
        image,
        kinds: vec![watches, probers, swarms, sets],
    }
}

/// Reads the Lease, and the image of the pod that holds it.
pub async fn gather_operator(
    client: &Client,
    lease: (&str, &str),
) -> (Result<Option<Leadership>, Unread>, Option<String>) {
    let leads = leader::lease(client, lease).await;
    let holder = leads.as_ref().ok().and_then(Option::as_ref).map(|leader| &leader.holder);
    let image = match holder {
        Some(holder) => image(client, lease.0, holder).await,
        None => None,
    };
    (leads.map_err(|error| unread("get Lease", error)), image)
}

/// Reads the nodes that the TrafficWatches judge, in one namespace or in all.
///
/// # Errors
/// Why they cannot be listed.
pub async fn gather_nodes(
    client: &Client,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<NodeReport>> {
    let objects = list::<TrafficWatch>(client, namespace).await.objects;
    let objects = objects.map_err(|why| match why {
        Unread::NotInstalled => anyhow::anyhow!("the kind TrafficWatch is not installed"),
        Unread::Forbidden(why) | Unread::Failed(why) => anyhow::anyhow!(why),
    })?;
    Ok(nodes::by_node(objects.into_iter().flat_map(|object| object.nodes)))
}

/// Returns the image of a pod; none if the operator runs outside the cluster, or if the caller may
/// not read this pod.
async fn image(client: &Client, namespace: &str, pod: &str) -> Option<String> {
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(pod).await.ok()??;
    pod.spec?.containers.into_iter().next()?.image
}

async fn list<K: Reported>(client: &Client, namespace: Option<&str>) -> KindFacts {
    let resource = ApiResource::erase::<K>(&());
    let namespace = namespace.filter(|_| K::NAMESPACED);
    let api = Api::<DynamicObject>::dynamic(client.clone(), &resource, namespace);
    let listed = api.list(&ListParams::default()).await;
    let objects = listed.map(|list| {
        let mut objects: Vec<_> = list.items.into_iter().map(read::<K>).collect();
        objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        objects
    });
    KindFacts {
        kind: K::kind(&()).into_owned(),
        command: K::COMMAND,
        columns: K::COLUMNS,
        objects: objects.map_err(|error| unread("list", error)),
    }
}

/// Reads one object; one of another version is only named, and the others are shown.
fn read<K: Reported>(object: DynamicObject) -> Object {
    let meta = object.metadata.clone();
    match object.try_parse::<K>() {
        Ok(object) => self::object(&object),
        Err(error) => Object {
            namespace: meta.namespace,
            name: meta.name.unwrap_or_default(),
            unreadable: Some(error.to_string()),
            ..Object::default()
        },
    }
}

fn unread(action: &'static str, error: kube::Error) -> Unread {
    let (missing, forbidden) = match &error {
        kube::Error::Api(status) => (status.is_not_found(), status.is_forbidden()),
        _ => (false, false),
    };
    if missing {
        return Unread::NotInstalled;
    }
    let why = describe(action, error);
    if forbidden { Unread::Forbidden(why) } else { Unread::Failed(why) }
}

/// A kind in the report.
pub(super) trait Reported: Kind {
    /// The command after `explain` that explains one object.
    const COMMAND: &'static str;
    /// True if its objects are in namespaces.
    const NAMESPACED: bool = true;
    /// Names of the figures.
    const COLUMNS: &'static [&'static str];

    /// The figures, one for each column.
    fn figures(status: &Self::Status) -> Vec<Value>;

    /// Findings that no condition reports.
    fn notes(_status: &Self::Status) -> Vec<String> {
        vec![]
    }

    /// What an object of this name says of nodes.
    fn nodes(_name: &str, _status: &Self::Status) -> Vec<(String, Judgment)> {
        vec![]
    }
}

impl Reported for TrafficWatch {
    const COMMAND: &'static str = "trafficwatch";
    const COLUMNS: &'static [&'static str] =
        &["nodes", "fit", "unfit", "unknown", "suppressed", "max"];

    fn figures(status: &TrafficWatchStatus) -> Vec<Value> {
        let of = |count: fn(&Summary) -> u32| status.summary.as_ref().map(count);
        vec![
            json!(of(|summary| summary.nodes)),
            json!(of(|summary| summary.fit)),
            json!(of(|summary| summary.unfit)),
            json!(of(|summary| summary.unknown)),
            json!(of(|summary| summary.suppressed)),
            json!(status.max),
        ]
    }

    fn notes(status: &TrafficWatchStatus) -> Vec<String> {
        let unknown = status.summary.map_or(0, |summary| summary.unknown);
        match unknown {
            0 => vec![],
            1 => vec!["1 node has no evidence".into()],
            many => vec![format!("{many} nodes have no evidence")],
        }
    }

    fn nodes(name: &str, status: &TrafficWatchStatus) -> Vec<(String, Judgment)> {
        nodes::judged(name, status)
    }
}

impl Reported for NetworkProber {
    const COMMAND: &'static str = "prober";
    const COLUMNS: &'static [&'static str] = &["selected", "injected", "failing", "restart"];

    fn figures(status: &Self::Status) -> Vec<Value> {
        vec![
            json!(status.selected),
            json!(status.injected),
            json!(status.failing),
            json!(status.need_restart),
        ]
    }

    fn notes(status: &Self::Status) -> Vec<String> {
        if status.failing == 0 {
            return vec![];
        }
        let reason = |one: &NotInjected| format!("{} {}", one.count, one.reason);
        let reasons: Vec<_> = status.failing_reasons.iter().map(reason).collect();
        vec![format!("{} agents cannot start: {}", status.failing, reasons.join(", "))]
    }
}

impl Reported for Swarm {
    const COMMAND: &'static str = "swarm";
    const COLUMNS: &'static [&'static str] =
        &["streams", "owned", "releasing", "unowned", "workers", "epoch"];

    fn figures(status: &SwarmStatus) -> Vec<Value> {
        let all = &status.summary;
        vec![
            json!(all.streams),
            json!(all.owned),
            json!(all.releasing),
            json!(all.free + all.unassigned),
            json!(format!("{}/{}", all.ready, all.workers)),
            json!(status.epoch),
        ]
    }
}

impl Reported for RouteReflectorSet {
    const COMMAND: &'static str = "routereflectorset";
    const NAMESPACED: bool = false;
    const COLUMNS: &'static [&'static str] = &["reflectors", "topology", "mesh", "step"];

    fn figures(status: &RouteReflectorSetStatus) -> Vec<Value> {
        vec![
            json!(format!("{}/{}", status.ready, status.desired)),
            json!(status.topology),
            json!(status.mesh),
            json!(status.plan.first().map(step)),
        ]
    }
}

/// Describes one step: its type and its subject.
fn step(step: &PlannedStep) -> String {
    let subject = step.node.as_ref().or(step.peer.as_ref());
    subject.map_or_else(|| step.step.clone(), |subject| format!("{} {subject}", step.step))
}

/// Reads the parts of an object that the report needs.
pub(super) fn object<K: Reported>(object: &K) -> Object {
    let meta = object.meta();
    let mut status = object.status().cloned();
    Object {
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        generation: meta.generation,
        figures: status.as_ref().map(K::figures).unwrap_or_default(),
        notes: status.as_ref().map(K::notes).unwrap_or_default(),
        nodes: status.as_ref().map(|status| K::nodes(&name_of(object), status)).unwrap_or_default(),
        observed: status.as_mut().and_then(|status| *K::observed_generation_mut(status)),
        conditions: status.as_mut().map(K::conditions_mut).cloned().unwrap_or_default(),
        unreadable: None,
    }
}
