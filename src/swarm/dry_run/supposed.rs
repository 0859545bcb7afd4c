//! What the final assignment supposes: facts that cannot be known beforehand, or not from where a
//! command runs.
use super::Surroundings;
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
    let mut pods = |which: &dyn Fn(&PodFacts) -> bool, text: &str| {
        let pods = around.view.pods.iter().filter(|pod| !pod.stopped && which(pod));
        let pods: Vec<_> = pods.map(|pod| &*pod.name).collect();
        if !pods.is_empty() {
            all.push(format!("{}: {text}", names(&pods)));
        }
    };
    let going = |pod: &PodFacts| pod.terminating || pod.ended;
    pods(
        &going,
        "the containers end. If the node is gone for good, confirm it: \
         docs/reference/swarm.md#unreachable-nodes",
    );
    pods(&|pod| !going(pod) && !pod.ready, "not ready, and becomes ready");
    let report = |pod: &PodFacts| around.reports.get(&*pod.name);
    pods(
        &|pod| report(pod).is_some_and(Result::is_err),
        "does not answer, and keeps its streams until it does or its pod is gone",
    );
    let refresh = &spec.refresh;
    let unknown = format!(
        "what they run is unknown here. They run no stream of another file, and answer the operator \
         at port {}, path {}",
        refresh.port, refresh.path
    );
    pods(&|pod| pod.started && !pod.terminating && report(pod).is_none(), &unknown);
    if spec.weights.is_some() {
        all.push(
            "spec.weights: this command does not ask Prometheus; streams weigh what spec.streams says, 1 \
             each if it says nothing, and the operator's endpoint is configured"
                .into(),
        );
    }
    if refresh.strategy == Some(Strategy::None) {
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

/// The first of them, and the number of the others.
pub(super) fn names(all: &[&str]) -> String {
    let first = all[..all.len().min(NAMED)].join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}
