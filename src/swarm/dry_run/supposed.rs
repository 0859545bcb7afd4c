//! The assumptions of a dry run: facts that cannot be known beforehand, or not from where a command
//! runs.
use super::{Surroundings, known::LastReport};
use crate::{
    api::{
        Mode, Swarm,
        swarm::{Strategy, WorkloadKind},
    },
    swarm::watches::PodFacts,
};

/// The number of workers that are named in one line.
const NAMED: usize = 5;

pub(super) fn supposed(swarm: &Swarm, around: &Surroundings) -> Vec<String> {
    let mut all = Vec::new();
    let spec = &swarm.spec;
    if spec.paused {
        all.push("spec.paused is false: while it is true, nothing is decided or written".into());
    }
    if spec.mode == Mode::Observe {
        all.push("spec.mode is Enforce: with Observe, none of this is written".into());
    }
    let pods = |which: &dyn Fn(&PodFacts) -> bool| {
        let pods = around.view.pods.iter().filter(|pod| which(pod));
        names(&pods.map(|pod| &*pod.name).collect::<Vec<_>>())
    };
    let live = |pod: &PodFacts| !pod.terminating && !pod.stopped && !pod.ended;
    if let Some(names) = pods(&|pod| !live(pod) && !pod.stopped) {
        all.push(format!(
            "{names}: the containers end. If the node is gone for good, confirm it: \
             docs/reference/swarm.md#unreachable-nodes"
        ));
    }
    if let Some(names) = pods(&|pod| live(pod) && pod.started && !pod.ready) {
        all.push(format!("{names}: not ready, and becomes ready"));
    }
    if let Some(names) = pods(&|pod| live(pod) && !pod.started) {
        all.push(format!("{names}: not started, and starts once there is a file"));
    }
    reports(swarm, around, &mut all);
    if spec.weights.is_some() {
        all.push(
            "spec.weights: this command does not ask Prometheus; streams weigh what spec.streams says, 1 \
             each if it says nothing, and the operator's endpoint is configured"
                .into(),
        );
    }
    if spec.refresh.strategy == Some(Strategy::None) {
        all.push("spec.refresh.strategy None: someone makes each worker load its new list".into());
    }
    let workload = around.view.workload.as_ref();
    if spec.workload.kind == WorkloadKind::Deployment
        && workload.is_some_and(|workload| workload.observed_generation < workload.generation)
    {
        all.push("the Deployment is rolling out: run this again once it has ended".into());
    }
    all
}

/// Returns the unknown facts about workers, because a command cannot reach pod addresses.
fn reports(swarm: &Swarm, around: &Surroundings, all: &mut Vec<String>) {
    let running = || {
        let pods = around.view.pods.iter();
        pods.filter(|pod| pod.started && !pod.stopped && !pod.terminating)
    };
    let unknown =
        running().filter(|pod| *around.known.last_report(&pod.name) == LastReport::Unknown);
    let unknown: Vec<_> = unknown.map(|pod| &*pod.name).collect();
    if let Some(names) = names(&unknown) {
        let refresh = &swarm.spec.refresh;
        all.push(format!(
            "{names}: what they run is unknown here. They run no stream of another file, and answer the \
             operator at port {}, path {}",
            refresh.port, refresh.path
        ));
    }
    for pod in running().take(NAMED) {
        if let LastReport::Silent(why) = around.known.last_report(&pod.name) {
            all.push(format!("{}: still does not answer ({why})", pod.name));
        }
    }
}

fn names(all: &[&str]) -> Option<String> {
    let first = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => None,
        n if n > NAMED => Some(format!("{first} and {} more", n - NAMED)),
        _ => Some(first),
    }
}
