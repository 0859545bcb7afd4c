//! A simulation of all that the operator would do, to the end. The passes are the operator's own
//! (`observe::look`, `plan::plan`, `apply::apply`); only the cluster below them is simulated.
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{Client, Resource, ResourceExt, api::ListParams};

use super::{
    apply, cluster, conflict,
    handover::Published,
    inspection,
    memory::Memories,
    observe,
    plan::{self, Observed},
    polls,
    settings::Settings,
    watches,
    watches::WorkloadView,
};
use crate::{
    api::{Mode, Swarm, SwarmStatus},
    controller::{Error, Plan},
    infra::Api,
    nodes::NodeStore,
};

mod answer;
mod compare;
mod find;
mod known;
mod simulated_cluster;
mod supposed;
mod text;

#[cfg(test)]
mod tests;

pub use answer::{Condition, DryRun, Figures, Move, Unplaced, WorkerPlan};
pub use find::{is_listed, is_written, may_be_of};
pub use known::Known;
use simulated_cluster::{Done, SimulatedCluster};
pub use text::text;

/// The most passes: a thousand workers restarted one by one are three thousand.
const MOST_PASSES: usize = 5_000;

/// The longest that it may take on this machine: a person waits for it.
const LONGEST: Duration = Duration::from_mins(1);

/// Above this many workers the simulation restarts all at once, regardless of `maxUnavailable`: the
/// final owners are the same, and it takes seconds.
const MANY: usize = 200;

/// Longer than a free stream waits for others that go to the same worker.
const GATHERED: Duration = Duration::from_secs(6);

/// Longer than any cooldown that a spec may have, so that everything known before the first pass is
/// older.
const BEFORE: Duration = Duration::from_hours(200);

/// The state that the operator would observe.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// True if the `Swarm` is there already.
    pub exists: bool,
    /// The objects that it depends on.
    pub(super) view: WorkloadView,
    /// The nodes that streams should leave.
    pub(super) unfit: BTreeSet<String>,
    /// The objects claimed by this `Swarm` that an older one holds.
    pub(super) held: Option<String>,
    /// The last reports of workers.
    pub known: Known,
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
    let known = swarm.status.as_ref().map(Known::of_status).unwrap_or_default();
    Ok(Surroundings { exists, view, unfit: BTreeSet::new(), held, known, no_namespace })
}

impl Surroundings {
    /// Reports whether nodes must be read.
    #[must_use]
    pub fn asks_for_nodes(&self) -> bool {
        self.view.fitness.is_some()
    }

    /// Keeps the facts about nodes that the simulation needs.
    pub fn look_at(&mut self, nodes: &NodeStore) {
        if let Some(key) = &self.view.fitness {
            self.unfit = observe::unfit(nodes, key);
        }
    }
}

/// One simulated pass.
struct Passed {
    plan: Plan<(), SwarmStatus>,
    idle: bool,
}

async fn pass(
    simulated: &SimulatedCluster<'_>,
    swarm: &Swarm,
    around: &Surroundings,
    memories: &Memories,
) -> Result<Passed, Error> {
    let mut view = simulated.view();
    let mut memory = memories.get(&swarm.key());
    let confirmed = observe::look(simulated, swarm, &mut view, &mut memory).await?;
    let observed = Observed {
        now: cluster::Cluster::now(simulated),
        held: around.held.clone(),
        view: Some(view),
        confirmed,
        memory,
        unfit: around.unfit.clone(),
        measuring: None,
    };
    let Plan { desired, status, conditions, notices, period } = plan::plan(swarm, &observed)?;
    let idle = desired.publish.is_none()
        && desired.immutable.is_none()
        && desired.refresh.is_empty()
        && desired.scale.is_none();
    apply::apply(simulated, swarm, memories, desired).await?;
    Ok(Passed { plan: Plan { desired: (), status, conditions, notices, period }, idle })
}

/// Simulates the whole way. Reads and writes nothing.
///
/// # Errors
/// Never because of the spec: its errors are part of the answer.
pub async fn dry_run(swarm: &Swarm, around: &Surroundings) -> DryRun {
    let began = Instant::now();
    let now = began + BEFORE;
    let memories = Memories::default();
    let key = swarm.key();
    if let Some(workload) = &around.view.workload {
        // The cooldown of autoscale has passed: the time of the last change is unknown here.
        memories.change(&key, |memory| memory.replicas = Some((workload.replicas, began)));
    }
    let published = polls::published(swarm, &around.view, &memories.get(&key)).unwrap_or_default();
    let mut run = DryRun::of(swarm, around, Arc::clone(&published));
    let first = {
        let memories = Memories::default();
        let simulated = SimulatedCluster::new(swarm, &around.known, around.view.clone(), now);
        let first = pass(&simulated, swarm, around, &memories).await;
        run.first = memories.get(&key).decision().map(|last| inspection::page(&key, &last, now));
        first
    };
    match first {
        Ok(first) => run.conditions = first.plan.conditions.iter().map(Condition::from).collect(),
        Err(error) => run.conditions = vec![Condition::from(&error.verdict())],
    }
    // The result if the Swarm were served.
    let mut served = swarm.clone();
    served.spec.mode = Mode::Enforce;
    served.spec.paused = false;
    let many =
        around.view.workload.as_ref().is_some_and(|workload| {
            usize::try_from(workload.replicas).unwrap_or(usize::MAX) > MANY
        });
    if many {
        served.spec.refresh.max_unavailable = u32::MAX;
    }
    let simulated = SimulatedCluster::new(swarm, &around.known, around.view.clone(), now);
    let mut rested = 0;
    let mut passes = 0;
    loop {
        let passed = match pass(&simulated, &served, around, &memories).await {
            Ok(passed) => passed,
            Err(error) => {
                run.outcome = vec![Condition::from(&error.verdict())];
                break;
            }
        };
        passes += 1;
        run.outcome = passed.plan.conditions.iter().map(Condition::from).collect();
        served.status = Some(passed.plan.status);
        let stirred = simulated.advance(passed.plan.period);
        if !passed.idle || stirred {
            // Between two waits that only a change ends: such conditions are those on the way.
            rested = 0;
            run.hindered();
        } else if rested == 0 {
            simulated.advance(GATHERED);
            rested = 1;
        } else if rested == 1 {
            simulated.advance(patience(&served));
            rested = 2;
        } else {
            break;
        }
        if passes >= MOST_PASSES || began.elapsed() > LONGEST {
            run.refused = Some(format!("the way has no end after {passes} steps"));
            break;
        }
    }
    run.end(swarm, around, &simulated, &memories);
    if many {
        run.supposed.push(format!(
            "more than {MANY} workers are restarted all at once here, and by spec.refresh.maxUnavailable \
             there: they may be restarted more often than it says"
        ));
    }
    run
}

/// Longer than anything in the spec is waited for.
fn patience(swarm: &Swarm) -> Duration {
    let spec = &swarm.spec;
    let cooldown = spec.autoscale.as_ref().map(|autoscale| Duration::from(autoscale.cooldown));
    let heavy = spec.weights.as_ref().map(|weights| Duration::from(weights.for_));
    let timeout = Duration::from(spec.refresh.timeout);
    let longest = [cooldown, heavy].into_iter().flatten().fold(timeout, Duration::max);
    longest + Duration::from_secs(1)
}

impl DryRun {
    fn of(swarm: &Swarm, around: &Surroundings, published: Arc<Published>) -> Self {
        let (namespace, name) = swarm.key();
        let workload = &swarm.spec.workload;
        Self {
            namespace,
            name,
            workload: format!("{} {}", workload.kind.as_str(), workload.name),
            exists: around.exists,
            supposed: supposed::supposed(swarm, around),
            published,
            ..Self::default()
        }
    }

    /// Keeps the conditions of this moment that a move does not have by itself.
    fn hindered(&mut self) {
        let ordinary = ["Moving", "Refreshing", "AwaitingWorkers"];
        for condition in &self.outcome {
            let known = self
                .hindrances
                .iter()
                .any(|other| (other.type_, other.reason) == (condition.type_, condition.reason));
            if condition.status != "True" && !ordinary.contains(&condition.reason) && !known {
                self.hindrances.push(condition.clone());
            }
        }
    }

    fn end(
        &mut self,
        swarm: &Swarm,
        around: &Surroundings,
        simulated: &SimulatedCluster<'_>,
        memories: &Memories,
    ) {
        let key = swarm.key();
        let memory = memories.get(&key);
        let Done { files, refreshes, scaled } = simulated.done();
        (self.files, self.scaled) = (files, scaled);
        if let Some(last) = memory.decision() {
            let page = inspection::page(&key, &last, Instant::now());
            self.after = Figures::of(&page);
            let unassigned = page.unassigned.into_iter().map(|one| Unplaced {
                meaning: inspection::meaning(&one.reason),
                id: one.id,
                reason: one.reason,
            });
            self.unassigned = unassigned.collect();
        }
        let after = memory.published.unwrap_or_else(|| Arc::clone(&self.published));
        self.before = Figures::now(&self.published, self.first.as_ref());
        if let Ok(settings) = Settings::of(swarm, around.view.source.as_ref()) {
            self.streams = settings.streams.len();
            let compared = compare::Compared {
                settings: &settings,
                around,
                before: &self.published,
                after: &after,
                unassigned: &self.unassigned,
                last: &simulated.view(),
            };
            (self.moves, self.stay) = compared.moves();
            self.workers = compared.workers(&refreshes);
            self.spec = settings.streams;
        }
        let failed = |c: &&Condition| c.type_ == "Ready" && c.status != "True";
        if self.refused.is_none()
            && let Some(Condition { reason, message, .. }) = self.outcome.iter().find(failed)
        {
            self.refused = Some(format!("Ready=False {reason}: {message}"));
        }
        if around.no_namespace {
            let text = format!("there is no namespace {}", self.namespace);
            self.refused = Some(text);
        }
    }
}
