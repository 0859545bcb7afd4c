//! Checks of the `Swarm`s and `RouteReflectorSet`s: what their conditions claim, and for `Swarm`s
//! whether workers answer.
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Client,
    api::{ApiResource, DynamicObject},
};

use super::{
    Check, CheckResult,
    series::{BirdExporters, bird_exporters},
    some,
};
use crate::{
    api::{
        Kind, Mode, RouteReflectorSet, Swarm,
        route_reflector_set::{Gate, Mesh},
        swarm::WorkloadKind,
    },
    infra::Api,
    inspect::{
        cluster::{self, Listed, describe, name_of},
        remedies,
        status::conditions::{sentence, troubling},
    },
    prometheus::{self, Exporters, QueryError},
};

/// The port that the operator's own network policy admits.
const ADMITTED: u16 = 9090;

/// The objects of a kind.
#[derive(Debug)]
pub struct Served<K> {
    /// The objects; none if the kind does not run.
    pub objects: Option<Result<Listed<K>, String>>,
}

impl<K> Default for Served<K> {
    fn default() -> Self {
        Self { objects: None }
    }
}

impl<K: Kind> Served<K> {
    pub(super) async fn gather(client: &Client) -> Self {
        let listed = cluster::list(client).await.map_err(|error| describe("list", error));
        Self { objects: Some(listed) }
    }

    fn read(&self) -> &[K] {
        match &self.objects {
            Some(Ok(listed)) => &listed.read,
            _ => &[],
        }
    }

    /// One check for each problem of an object; for an object without any, what it does.
    fn checks(&self, name: &'static str, sound: impl Fn(&K) -> String) -> Vec<Check> {
        let kind = K::kind(&());
        let listed = match &self.objects {
            None => return vec![],
            Some(Ok(listed)) => listed,
            Some(Err(error)) => {
                let fix = format!("ask for the right to list {} everywhere", K::plural(&()));
                return vec![Check::warn(name, format!("cannot be listed: {error}"), fix)];
            }
        };
        if listed.read.is_empty() && listed.unreadable.is_empty() {
            return vec![Check::ok(name, format!("there is no {kind}"))];
        }
        let unreadable = listed.unreadable.iter().map(|(object, error)| {
            let message = format!("{object}: its spec cannot be read: {error}");
            Check::fail(name, message, "correct the field, or use the binary of its version")
        });
        let read = listed.read.iter().flat_map(|object| {
            let problems = problems(name, object);
            if problems.is_empty() { vec![Check::ok(name, sound(object))] } else { problems }
        });
        unreadable.chain(read).collect()
    }
}

/// What the conditions of an object complain about. Where two say the same, the first one does.
fn problems<K: Kind>(name: &'static str, object: &K) -> Vec<Check> {
    let of = name_of(object);
    let mut status = object.status().cloned();
    let observed = status.as_mut().and_then(|status| *K::observed_generation_mut(status));
    let conditions = status.as_mut().map(K::conditions_mut).cloned().unwrap_or_default();
    let running = "is the operator running, and with this kind (--kinds)?";
    if conditions.is_empty() {
        let message = format!("{of} has no status: the operator has not looked at it");
        return vec![Check::fail(name, message, running)];
    }
    let mut reasons: Vec<&str> = Vec::new();
    let mut checks = Vec::new();
    for condition in troubling(&conditions) {
        if reasons.contains(&&*condition.reason) {
            continue;
        }
        reasons.push(&condition.reason);
        let fix = remedies::remedy(&condition.reason)
            .unwrap_or("see the message; the operator's log has the rest");
        let message = format!("{of}: {}", sentence(condition));
        checks.push(Check { verdict: weight(condition), ..Check::warn(name, message, fix) });
    }
    if let (Some(observed), Some(generation)) = (observed, object.meta().generation)
        && observed < generation
    {
        let message = format!("{of}: the operator has not looked at its present spec");
        checks.push(Check::warn(name, message, running));
    }
    checks
}

/// An object that is not ready does not do what it is for; all else passes, or works in part.
fn weight(condition: &Condition) -> CheckResult {
    let fails = condition.type_ == "Ready" && condition.status == "False";
    if fails { CheckResult::Fail } else { CheckResult::Warn }
}

/// The facts about `Swarm`s.
#[derive(Debug, Default)]
pub struct Streams {
    /// The objects.
    pub swarms: Served<Swarm>,
    /// By name: the ports that the containers of its workload declare.
    pub ports: BTreeMap<String, Vec<u16>>,
}

impl Streams {
    pub(super) async fn gather(client: &Client) -> Self {
        let swarms = Served::gather(client).await;
        let mut ports = BTreeMap::new();
        for swarm in swarms.read() {
            // Without the right to read it, the advice is less exact.
            if let Ok(Some(declared)) = declared_ports(client, swarm).await {
                ports.insert(name_of(swarm), declared);
            }
        }
        Self { swarms, ports }
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let sound = |swarm: &Swarm| {
            let summary = swarm.status.as_ref().map(|status| status.summary).unwrap_or_default();
            let (streams, workers) = (summary.streams, summary.workers);
            format!(
                "{}: {streams} streams on {workers} workers, {} ready",
                name_of(swarm),
                summary.ready
            )
        };
        let mut checks = self.swarms.checks("swarms", sound);
        checks.extend(self.swarms.read().iter().filter_map(|swarm| self.answers(swarm)));
        checks
    }

    /// Checks that workers acknowledge their lists, where they are asked to.
    fn answers(&self, swarm: &Swarm) -> Option<Check> {
        if swarm.spec.config_map.immutable || swarm.spec.mode == Mode::Observe {
            return None;
        }
        let workers = swarm.status.iter().flat_map(|status| &status.workers);
        let (read, unread): (Vec<_>, Vec<_>) =
            workers.filter(|worker| worker.streams > 0).partition(|w| w.loaded.is_some());
        if unread.is_empty() {
            return None;
        }
        let names: Vec<_> = unread.iter().map(|worker| worker.name.clone()).collect();
        let refresh = &swarm.spec.refresh;
        let (of, port) = (name_of(swarm), refresh.port);
        let message = format!(
            "{of}: {} of {} workers have acknowledged no list at port {port}, path {}: {}",
            unread.len(),
            unread.len() + read.len(),
            refresh.path,
            some(&names)
        );
        let declared = self.ports.get(&of).map(Vec::as_slice).unwrap_or_default();
        let fix = if !declared.is_empty() && !declared.contains(&port) {
            let ports: Vec<_> = declared.iter().map(ToString::to_string).collect();
            format!(
                "set spec.refresh.port: no container of {} {} declares {port}, but {}",
                swarm.spec.workload.kind.as_str(),
                swarm.spec.workload.name,
                ports.join(", ")
            )
        } else if port != ADMITTED {
            format!("admit port {port} in the operator's NetworkPolicy, which admits {ADMITTED}")
        } else {
            "a worker answers as docs/reference/worker.md says; for one that cannot, set \
             spec.configMap.immutable"
                .into()
        };
        Some(Check::warn("swarms", message, fix).with(names))
    }
}

/// Reads the ports that the containers of a workload declare, if there is such a workload.
async fn declared_ports(client: &Client, swarm: &Swarm) -> kube::Result<Option<Vec<u16>>> {
    use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
    let resource = match swarm.spec.workload.kind {
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
    };
    let (namespace, _) = swarm.key();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
    let found = api.get_opt(&swarm.spec.workload.name).await?;
    Ok(found.map(|workload| {
        let spec = &workload.data["spec"]["template"]["spec"];
        let each = ["containers", "initContainers"].into_iter();
        let containers = each.flat_map(|list| spec[list].as_array().into_iter().flatten());
        let ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
        let number = |port: &serde_json::Value| u16::try_from(port["containerPort"].as_u64()?).ok();
        ports.filter_map(number).collect()
    }))
}

/// The facts about `RouteReflectorSet`s.
#[derive(Debug, Default)]
pub struct Routes {
    /// The objects.
    pub sets: Served<RouteReflectorSet>,
    /// By name of the endpoint: the series of sessions that a gate asks for.
    pub exporters: BTreeMap<String, Result<BirdExporters, QueryError>>,
}

impl Routes {
    /// Asks one Prometheus, if a gate does.
    pub async fn ask(&mut self, client: &prometheus::Client, exporters: &Exporters) {
        if !self.sets.read().iter().any(|set| asks(set, client.name())) {
            return;
        }
        let found = bird_exporters(client, exporters).await;
        self.exporters.insert(client.name().to_owned(), found);
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks = sets(&self.sets);
        for set in self.sets.read() {
            let gate = &set.spec.transition.prometheus;
            let found = self.exporters.get(gate).filter(|_| asks(set, gate));
            checks.extend(found.map(|found| sessions(set, found)));
        }
        checks
    }
}

/// Reports whether the gate of a set counts sessions by the series of `bird_exporter` at this
/// endpoint.
fn asks(set: &RouteReflectorSet, endpoint: &str) -> bool {
    let transition = &set.spec.transition;
    let in_use = set.status.as_ref().is_some_and(|status| status.topology.is_some());
    // What retires waits for no session.
    (set.spec.mesh != Mesh::Retire || in_use)
        && transition.gate == Gate::Prometheus
        && transition.query.is_none()
        && transition.prometheus == endpoint
}

/// Checks that the gate of a set can ever open.
fn sessions(set: &RouteReflectorSet, found: &Result<BirdExporters, QueryError>) -> Check {
    let (name, of) = ("routes", name_of(set));
    let endpoint = &set.spec.transition.prometheus;
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let message = format!("{of}: Prometheus {endpoint} says nothing of sessions: {error}");
            return Check::warn(name, message, "see the check of this Prometheus above");
        }
    };
    if found.accepted > 0 {
        let message = format!("{of}: Prometheus {endpoint} has series of {} BIRDs", found.accepted);
        return Check::ok(name, message);
    }
    let never = "the gate never opens, so that no reflector is demoted and the mesh stays";
    match &found.other_jobs[..] {
        [] => Check::fail(
            name,
            format!("{of}: Prometheus {endpoint} has no series of bird_exporter: {never}"),
            "run bird_exporter (docs/reference/routereflectorset.md#the-gate), or set \
             spec.transition.gate: NodeStatus",
        ),
        jobs => Check::fail(
            name,
            format!("{of}: series of bird_exporter are of another job ({}): {never}", some(jobs)),
            format!("set the operator's flag --bird-exporter-selector 'job=\"{}\"'", jobs[0]),
        ),
    }
}

fn sets(sets: &Served<RouteReflectorSet>) -> Vec<Check> {
    sets.checks("routes", |set| {
        let status = set.status.clone().unwrap_or_default();
        format!(
            "{}: {} of {} reflectors are ready, topology {}",
            name_of(set),
            status.ready,
            status.desired,
            match (status.topology, set.spec.mesh) {
                (Some(topology), _) => topology,
                (None, Mesh::Retire) => "none, mesh: Retire".into(),
                (None, _) => "unknown".into(),
            }
        )
    })
}
