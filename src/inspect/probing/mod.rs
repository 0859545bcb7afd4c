//! `explain prober` and `explain pod`: the pods with and without an agent, their peers, and the
//! reasons for bad paths.
use kube::ResourceExt;
use serde::Serialize;

use super::{explain::Source, status::conditions::sentence};
use crate::{
    api::NetworkProber,
    network_prober::{
        measurement::{Blame, Measurement},
        overview::{Measured, NodeAgents, ProberView, Uncovered},
    },
};

mod gather;
mod pod;
mod pod_text;
mod text;

#[cfg(test)]
mod tests;

pub(super) use super::lines::Advice;
pub use gather::{Asked, gather, gather_pod};
pub use pod::{PodExplanation, PodFacts, explain_pod};
pub use pod_text::text as pod_text;
pub(super) use text::source;
pub use text::text;

/// Maximum number of nodes that are named in one sentence.
const NAMED: usize = 5;

/// The facts about a `NetworkProber` that an explanation uses.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The object.
    pub prober: NetworkProber,
    /// The operator's answer, with its name and version; or the reason why there is none.
    pub live: Result<Live, String>,
    /// Prometheus' answer, if it was queried directly.
    pub asked: Option<Measured>,
}

/// A replica's view of one `NetworkProber`.
#[derive(Clone, Debug)]
pub struct Live {
    /// Its name.
    pub identity: String,
    /// Version of the answering replica.
    pub version: String,
    /// The object, if it knows it.
    pub prober: Option<ProberView>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`.
    pub prober: String,
    /// The way it measures, in words.
    pub how: String,
    /// The source of the coverage.
    pub source: Source,
    /// The number of pods that are selected.
    pub selected: usize,
    /// The number of them that have an agent.
    pub injected: usize,
    /// Number of pods with an agent of an earlier spec.
    pub need_restart: usize,
    /// The reasons why the others have none.
    pub not_injected: Vec<Uncovered>,
    /// Agents that cannot start: their number, and the reason.
    pub failing: Option<(usize, String)>,
    /// The nodes with agents, those with the fewest first; only if the operator was queried.
    pub agents: Vec<NodeAgents>,
    /// Conditions that are not true.
    pub conditions: Vec<String>,
    /// The report of Prometheus.
    pub measured: Option<Measured>,
    /// Advice on further checks, the most important first.
    pub next: Vec<Advice>,
}

/// Explains one `NetworkProber`.
#[must_use]
pub fn explain(facts: &Facts) -> Explanation {
    let status = facts.prober.status.clone().unwrap_or_default();
    let live = facts.live.as_ref().ok();
    let view = live.and_then(|live| live.prober.as_ref()).filter(|view| view.listed);
    let source = match (&facts.live, view) {
        (Ok(live), None) => {
            Source::Status { because: format!("{} does not know it yet", live.identity) }
        }
        (live, _) => Source::of(live.as_ref().map(|live| (&live.identity, &live.version))),
    };
    let number = |number: i64| usize::try_from(number).unwrap_or_default();
    let mut made = Explanation {
        prober: super::cluster::name_of(&facts.prober),
        how: how(&facts.prober),
        source,
        selected: number(status.selected),
        injected: number(status.injected),
        need_restart: number(status.need_restart),
        not_injected: status
            .not_injected
            .iter()
            .map(|one| Uncovered::of(&one.reason, number(one.count)))
            .collect(),
        failing: None,
        agents: vec![],
        conditions: status.conditions.iter().filter(|c| c.status != "True").map(sentence).collect(),
        measured: facts.asked.clone(),
        next: vec![],
    };
    if let Some(view) = view {
        made.selected = view.selected;
        made.injected = view.injected;
        made.need_restart = view.need_restart;
        made.not_injected.clone_from(&view.not_injected);
        made.failing.clone_from(&view.failing);
        made.agents.clone_from(&view.agents);
        made.measured = made.measured.or_else(|| view.measured.clone());
    }
    made.next = next(facts, &made);
    made
}

fn how(prober: &NetworkProber) -> String {
    let spec = &prober.spec;
    let probes: Vec<_> =
        spec.probes.iter().map(|probe| format!("{probe:?}").to_uppercase()).collect();
    let period = std::time::Duration::from(spec.polling_period);
    let period = humantime::format_duration(period);
    format!("mode {:?}, {} every {period}", spec.mode, probes.join(", "))
}

fn next(facts: &Facts, made: &Explanation) -> Vec<Advice> {
    let (namespace, name) = (facts.prober.namespace().unwrap_or_default(), facts.prober.name_any());
    let mut next = Vec::new();
    let invalid =
        made.conditions.iter().find(|c| c.starts_with("Ready=") && c.contains("InvalidSpec"));
    if let Some(invalid) = invalid {
        next.push(Advice::of(invalid, "correct the field that the message names"));
    }
    if let Some((count, why)) = &made.failing {
        let what = format!("{count} agents cannot start: {why}");
        let fix = "kubectl describe pod of one of them names the image and the error; correct \
                   spec.agentImage, or the registry's credentials";
        next.push(Advice::of(what, fix));
    }
    next.extend(of_figures(made, &namespace, &name));
    for one in &made.not_injected {
        let Some(remedy) = one.remedy.as_ref().filter(|remedy| *remedy != "leave it") else {
            continue;
        };
        let what =
            format!("{} without an agent ({}): {}", pods(one.count), one.reason, one.meaning);
        next.push(Advice::of(what, remedy));
    }
    if made.need_restart > 0 {
        let what = format!("{} with an agent of an earlier spec", pods(made.need_restart));
        next.push(Advice::of(what, "restart them when it suits you: kubectl rollout restart"));
    }
    next
}

fn of_figures(made: &Explanation, namespace: &str, name: &str) -> Vec<Advice> {
    let Some(measured) = &made.measured else {
        let what = "Prometheus was not asked: the operator could not be reached";
        let fix = "give its address: --prometheus-url";
        return vec![Advice::of(what, fix)];
    };
    if let Some(problem) = &measured.problem {
        let what = format!("no figures from Prometheus {:?}: {problem}", measured.endpoint);
        return vec![Advice::of(what, "`doctor` asks Prometheus itself")];
    }
    let Some(figures) = &measured.figures else { return vec![] };
    let mut next = Vec::new();
    let injected = u64::try_from(made.injected).unwrap_or(u64::MAX);
    if figures.scraped == 0 && injected > 0 {
        let fix = format!(
            "kubectl -n {namespace} get podmonitor {name}; then its Prometheus has to select it \
             (podMonitorSelector, podMonitorNamespaceSelector) and may list pods: `doctor`"
        );
        next.push(Advice::of("Prometheus scrapes none of the agents", fix));
    } else if figures.nodes.is_empty() && injected > 1 {
        let fix = format!(
            "kubectl -n {namespace} get prometheusrule {name}; then its Prometheus has to select it \
             (ruleSelector, ruleNamespaceSelector); paths appear some minutes after the first probes"
        );
        let what = format!("{} agents are scraped, and no path is recorded", figures.scraped);
        next.push(Advice::of(what, fix));
    } else if figures.scraped < injected {
        let what = format!("Prometheus scrapes {} of {injected} agents", figures.scraped);
        let fix = "look at its page of targets: network policies have to admit it to the port \
                   np-prometheus";
        next.push(Advice::of(what, fix));
    }
    if let Some(agent) = figures.silent.first() {
        let what = format!("{} agents have probed no peer for five minutes", figures.silent_agents);
        let fix = format!("explain pod -n {} {}", agent.namespace, agent.pod);
        next.push(Advice::of(what, fix));
    }
    next.extend(of_nodes(figures));
    next
}

fn of_nodes(figures: &Measurement) -> Vec<Advice> {
    let mut next = Vec::new();
    let bad: Vec<_> = figures.nodes.iter().filter(|node| node.bad).collect();
    if let Some(first) = bad.first() {
        let names: Vec<_> = bad.iter().take(NAMED).map(|node| node.node.as_str()).collect();
        let more = bad.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let what = format!("most paths of {}{more} are bad", names.join(", "));
        let fix = format!(
            "look at that node's link, its errors and its load (kubectl describe node {}); \
             docs/runbooks/NetworkProberLossHigh.md; a TrafficWatch marks such nodes \
             (deploy/samples/fitness-by-network.yaml)",
            first.node
        );
        next.push(Advice::of(what, fix));
    }
    let between = figures.worst.iter().find(|path| path.blame == Blame::Between && path.bad);
    if let Some(path) = between {
        let what = format!(
            "{} → {} is bad, most other paths of both are good: what lies between",
            path.from, path.to
        );
        let fix = "compare with other paths of the same racks and zones; a switch or a route between \
                   the two, or a network policy that refuses one of the ports";
        next.push(Advice::of(what, fix));
    }
    next
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}
