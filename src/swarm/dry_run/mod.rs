//! What the operator would do to a `Swarm` at once, and the worker that each stream gets in the end.
//! Both are decisions of the operator's own `observe::look` and `plan::plan`; nothing is written.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{Client, Resource, ResourceExt, api::ListParams};

use super::{
    conflict,
    file::stored,
    handover::{Published, Refresh},
    inspection,
    memory::Memory,
    observe,
    plan::{self, Desired, Observed},
    polls,
    settings::Settings,
    snapshot::Snapshot,
    watches::{self, WorkloadView},
};
use crate::{
    api::{
        Mode, Swarm,
        swarm::{Strategy, WorkloadKind},
    },
    controller::{Error, Verdict},
    infra::Api,
    nodes::NodeStore,
};

mod answer;
mod compare;
mod known_cluster;

pub use answer::{Condition, DryRun, Figures, Move, Unplaced, WorkerPlan, text};
use known_cluster::KnownCluster;
pub use known_cluster::{Reports, reports_of_page, reports_of_status};

/// The most passes at once: up to two files, the template of an immutable one, and the pods.
const PASSES_AT_ONCE: usize = 5;

/// The longest that the final assignment may take on this machine, because a person waits for it.
/// Only `spec.maxMoves` makes it take more than a few passes.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Longer than any cooldown that a spec may have: the time of the last change is unknown here.
const LONG_AGO: Duration = Duration::from_hours(200);

/// The state that the operator would observe.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// True if the `Swarm` is there already.
    pub exists: bool,
    pub(super) view: WorkloadView,
    /// The nodes that streams should leave.
    pub(super) unfit: BTreeSet<String>,
    /// The objects claimed by this `Swarm` that an older one holds.
    pub(super) held: Option<String>,
    pub reports: Reports,
    /// True if the namespace is known to be missing.
    pub(super) no_namespace: bool,
}

/// Reads the state that the operator would observe of an existing or a new `Swarm`. It is completed
/// by what the API server has of it.
///
/// # Errors
/// The API server's error, with the request that it refused.
pub async fn observe(client: &Client, swarm: &mut Swarm) -> Result<Surroundings, Error> {
    let (namespace, name) = swarm.key();
    let api = Api::<Swarm>::namespaced(client.clone(), &namespace);
    let all =
        api.each().list(&ListParams::default()).await.map_err(Error::kube("list Swarms"))?.items;
    let there = all.iter().find(|other| other.name_any() == name);
    let exists = there.is_some();
    if let Some(there) = there {
        swarm.metadata = there.meta().clone();
        swarm.status = there.0.as_ref().ok().and_then(|there| there.status.clone());
    } else {
        // The youngest: it is created after all existing ones.
        swarm.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::now(),
            ));
    }
    let held = conflict::held(swarm, all.iter().filter_map(|other| other.0.as_ref().ok()));
    let view = watches::read(client, swarm).await?;
    let mut no_namespace = false;
    if view.workload.is_none() {
        // Without the permission to read it, it is unknown.
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
        no_namespace = matches!(namespaces.get_opt(&namespace).await, Ok(None));
    }
    let reports = swarm.status.as_ref().map(reports_of_status).unwrap_or_default();
    Ok(Surroundings { exists, view, unfit: BTreeSet::new(), held, reports, no_namespace })
}

impl Surroundings {
    /// Reports whether nodes must be read.
    #[must_use]
    pub fn asks_for_nodes(&self) -> bool {
        self.view.fitness.is_some()
    }

    /// Keeps the facts about nodes that the decisions need.
    pub fn look_at(&mut self, nodes: &NodeStore) {
        if let Some(key) = &self.view.fitness {
            self.unfit = observe::unfit(nodes, key);
        }
    }
}

/// The file as it is.
fn published(swarm: &Swarm, view: &WorkloadView) -> Arc<Published> {
    let parts = stored::read(swarm, view, &[]);
    polls::published(swarm, view, &Memory { parts, ..Memory::default() }).unwrap_or_default()
}

/// One pass without its writes.
struct Pass {
    desired: Desired,
    conditions: Vec<Verdict>,
    snapshot: Arc<Snapshot>,
}

/// Plans a pass.
///
/// # Errors
/// The conditions that say why nothing is decided.
async fn pass(
    cluster: &KnownCluster<'_>,
    swarm: &Swarm,
    around: &Surroundings,
) -> Result<Pass, Vec<Verdict>> {
    let failed = |error: Error| vec![error.verdict()];
    let mut view = cluster.view.clone();
    let began = Instant::now();
    let replicas = view.workload.as_ref().map(|workload| (workload.replicas, began));
    let mut memory = Memory { replicas, ..Memory::default() };
    let confirmed = observe::look(cluster, swarm, &mut view, &mut memory).await.map_err(failed)?;
    for report in memory.reports.values_mut().filter(|report| report.error.is_some()) {
        // The leader has asked it often enough.
        report.failures = u32::MAX;
    }
    let observed = Observed {
        now: began + LONG_AGO,
        held: around.held.clone(),
        view: Some(view),
        confirmed,
        memory,
        unfit: around.unfit.clone(),
        measuring: None,
    };
    let plan = plan::plan(swarm, &observed).map_err(failed)?;
    match plan.desired.memory.as_ref().and_then(Memory::decision) {
        Some(snapshot) => Ok(Pass { desired: plan.desired, conditions: plan.conditions, snapshot }),
        None => Err(plan.conditions),
    }
}

/// Decides what happens at once, and the final assignment. Reads and writes nothing.
pub async fn dry_run(swarm: &Swarm, around: &Surroundings) -> DryRun {
    let (namespace, name) = swarm.key();
    let workload = &swarm.spec.workload;
    let mut run = DryRun {
        workload: format!("{} {}", workload.kind.as_str(), workload.name),
        exists: around.exists,
        supposed: known_cluster::supposed(swarm, around),
        published: published(swarm, &around.view),
        ..DryRun::default()
    };
    if let Ok(settings) = Settings::of(swarm, around.view.source.as_ref()) {
        run.streams = settings.streams.len();
        run.spec = settings.streams;
    }
    let decided = match run.at_once(swarm, around).await {
        Ok(()) => run.in_the_end(swarm, around).await,
        Err(conditions) => {
            run.conditions = conditions.iter().map(Condition::from).collect();
            Err(conditions)
        }
    };
    let (Ok(conditions) | Err(conditions)) = decided;
    run.refused = conditions.iter().find_map(|condition| {
        let Condition { type_, status, reason, message } = condition.into();
        let failed = type_ == "Ready" && status != "True";
        failed.then(|| format!("Ready={status} {reason}: {message}"))
    });
    if around.no_namespace {
        run.refused = Some(format!("there is no namespace {namespace}"));
    }
    DryRun { namespace, name, ..run }
}

impl DryRun {
    /// The first pass, and those that follow it before anything else happens: pods are acted on
    /// only for a file that is written.
    async fn at_once(&mut self, swarm: &Swarm, around: &Surroundings) -> Result<(), Vec<Verdict>> {
        let published = Arc::clone(&self.published);
        let mut cluster = KnownCluster::new(around.view.clone(), published, Some(&around.reports));
        for _ in 0..PASSES_AT_ONCE {
            let Pass { desired, conditions, snapshot } = pass(&cluster, swarm, around).await?;
            let page = inspection::page(&swarm.key(), &snapshot, Instant::now() + LONG_AGO);
            self.at_once.waiting.clone_from(&page.waiting);
            if self.page.is_none() {
                self.conditions = conditions.iter().map(Condition::from).collect();
                self.before = Figures::now(&self.published, &page);
                self.page = Some(page);
            }
            if let Some(publish) = &desired.publish {
                self.at_once.writes = Some(publish.published.epoch);
                let events = publish.notices.iter();
                let events = events.map(|event| format!("{}: {}", event.reason, event.note));
                self.at_once.events.extend(events);
                cluster.write(swarm, publish).map_err(|error| vec![error.verdict()])?;
            } else if let Some(immutable) = desired.immutable {
                cluster.pin(&immutable);
            } else {
                self.at_once.refresh = desired.refresh;
                break;
            }
        }
        Ok(())
    }

    /// The assignment once every worker is there, and reads each file as soon as it is written.
    async fn in_the_end(
        &mut self,
        swarm: &Swarm,
        around: &Surroundings,
    ) -> Result<Vec<Verdict>, Vec<Verdict>> {
        let failed = |error: Error| vec![error.verdict()];
        let mut served = swarm.clone();
        served.spec.mode = Mode::Enforce;
        served.spec.paused = false;
        // How they read it changes nothing then.
        served.spec.refresh.strategy = Some(Strategy::HotReload);
        served.spec.config_map.immutable = false;
        let began = Instant::now();
        let mut cluster = KnownCluster::new(around.view.clone(), Arc::clone(&self.published), None);
        let (conditions, snapshot) = loop {
            cluster.complete(served.spec.workload.kind);
            let Pass { desired, conditions, snapshot } = pass(&cluster, &served, around).await?;
            if desired.publish.is_none() && desired.scale.is_none() {
                break (conditions, snapshot);
            }
            if let Some(publish) = &desired.publish {
                cluster.write(&served, publish).map_err(failed)?;
            }
            if let (Some(scale), Some(workload)) = (desired.scale, &mut cluster.view.workload) {
                workload.replicas = scale.to;
                self.scaled = Some(scale.to);
            }
            if began.elapsed() > MAX_WAIT {
                let text = "the final assignment takes too many passes to compute here";
                return Err(failed(Error::Pending("Moving", text.into())));
            }
        };
        let page = inspection::page(&swarm.key(), &snapshot, Instant::now());
        self.after = Figures::then(&page);
        self.unassigned = page.unassigned.into_iter().map(Unplaced::from).collect();
        let settings = Settings::of(swarm, around.view.source.as_ref()).map_err(failed)?;
        let compared = compare::Compared::new(self, &settings, around, &cluster.published);
        let (moves, stay) = compared.moves();
        let workers = compared.workers();
        (self.moves, self.stay, self.workers) = (moves, stay, workers);
        Ok(conditions)
    }
}

/// The operator's action on the pod of a worker.
fn refreshed(all: &[Refresh], name: &str) -> &'static str {
    let its = all.iter().find_map(|refresh| match refresh {
        Refresh::Evict { worker, .. } => (**worker == *name).then_some("evicted"),
        Refresh::Nudge { worker, .. } => (**worker == *name).then_some("reloaded"),
    });
    its.unwrap_or("none")
}

/// Reports whether the spec itself lists a stream.
#[must_use]
pub fn is_listed(swarm: &Swarm, stream: &str) -> bool {
    let spec = &swarm.spec;
    spec.jobs.iter().flatten().any(|id| id == stream)
        || spec.streams.iter().flatten().any(|one| one.id == stream)
}

/// Reports whether one of the `ConfigMap`s contains the stream: that of `streamsFrom`, or that with
/// the shares, which may contain streams that are no longer in the spec.
///
/// # Errors
/// The error of the API server.
pub async fn is_written(client: &Client, swarm: &Swarm, stream: &str) -> Result<bool, Error> {
    let view = watches::maps(client, swarm).await?;
    let listed = Settings::of(swarm, view.source.as_ref())
        .is_ok_and(|settings| settings.streams.iter().any(|one| one.id == stream));
    let published = published(swarm, &view);
    let owned = published.owners().any(|(id, _)| **id == *stream);
    Ok(listed || owned || published.releasing.keys().any(|(id, _)| **id == *stream))
}

/// Reports whether a pod of this name can be a worker of a `Swarm`.
#[must_use]
pub fn may_be_of(swarm: &Swarm, worker: &str) -> bool {
    let workload = &swarm.spec.workload;
    let rest = worker.strip_prefix(&*workload.name).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| match workload.kind {
        WorkloadKind::StatefulSet => rest.parse::<u32>().is_ok(),
        // The hash of the template, and five letters.
        WorkloadKind::Deployment => rest.split('-').count() == 2,
    })
}

#[cfg(test)]
mod tests;
