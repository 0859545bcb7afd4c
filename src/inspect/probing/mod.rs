//! `explain prober` and `explain pod`: the pods with and without an agent, their peers, and the
//! reasons for bad paths.
use std::fmt::Write;

use kube::{Client, ResourceExt};
use serde::Serialize;

pub(super) use super::lines::Advice;
use super::{
    cluster::{self, name_of},
    explain::Source,
    leader::{self, Place},
    lines,
    status::conditions::sentence,
};
use crate::{
    api::NetworkProber,
    network_prober::{
        measurement::{self, Blame, Measurement, PathFigures, PhaseFigures, Querier, Subject},
        overview::{Measured, NodeAgents, Overview, ProberView, Uncovered},
    },
    prometheus,
    runtime::status_page::PROBERS_PATH,
    text::{Tone, figures::number, table},
};

mod planned;
mod pod;
#[cfg(test)]
mod tests;

pub use planned::plan;
pub use pod::{explain_pod, gather_pod, pod_text};

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

/// A Prometheus that a command queries directly.
pub type Asked = Option<prometheus::Client>;

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

/// Reads everything about one `NetworkProber`.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
    asked: &Asked,
) -> anyhow::Result<Facts> {
    let prober = cluster::read(client, "get NetworkProber", Some(namespace), name).await?;
    let live = live(client, place, Some((namespace, name))).await.map(|overview| Live {
        identity: overview.identity,
        version: overview.version,
        prober: overview.probers.into_iter().next(),
    });
    let asked = match asked {
        Some(client) => Some(measure(client, &prober).await),
        None => None,
    };
    Ok(Facts { prober, live, asked })
}

/// Asks the operator about one `NetworkProber`, or all.
///
/// # Errors
/// The reason why it does not answer, with a remedy.
pub(in crate::inspect) async fn live(
    client: &Client,
    place: &Place,
    one: Option<(&str, &str)>,
) -> Result<Overview, String> {
    let path = match one {
        // Names in Kubernetes need no escapes.
        Some((namespace, name)) => format!("{PROBERS_PATH}?namespace={namespace}&name={name}"),
        None => PROBERS_PATH.to_owned(),
    };
    leader::ask::<Overview>(client, place, &path).await.map(|(overview, _)| overview)
}

async fn measure(client: &prometheus::Client, prober: &NetworkProber) -> Measured {
    let querier = Querier::Command(client.clone());
    let (figures, problem) = match measurement::measure(&querier, &Subject::of(prober)).await {
        Ok(figures) => (Some(figures), None),
        Err(error) => (None, Some(error.message)),
    };
    Measured { endpoint: client.name().to_owned(), problem, figures }
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
        prober: name_of(&facts.prober),
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
    if let Some(PhaseFigures { target, phase, nodes, bad_nodes, .. }) =
        figures.targets.first().filter(|phase| phase.bad_nodes > 0)
    {
        let what = format!(
            "target {target} fails or is slow in phase {phase}, from {bad_nodes} of {nodes} nodes"
        );
        next.push(Advice::of(what, "docs/runbooks/NetworkProberTargetFailing.md"));
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

/// Maximum number of nodes that are listed with their agents.
const NODES: usize = 10;

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn text(made: &Explanation) -> String {
    let agents = format!("{} of {} selected pods have an agent", made.injected, made.selected);
    let agents = Tone::of_part(made.injected, made.selected).paint(&agents);
    let mut text = format!("{} ({}): {agents}\n", made.prober, made.how);
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    if let Some((count, why)) = &made.failing {
        let cannot = Tone::Bad.paint(&format!("{count} agents cannot start"));
        line("failing", &format!("{cannot}: {why}"));
    }
    for one in &made.not_injected {
        line("without", &format!("{} {}: {}", one.count, one.reason, one.meaning));
    }
    if made.need_restart > 0 {
        line("restart", &format!("{} with an agent of an earlier spec", pods(made.need_restart)));
    }
    if !made.agents.is_empty() {
        let listed = made.agents.iter().take(NODES);
        let mut nodes: Vec<_> = listed.map(|n| format!("{} {}", n.node, n.agents)).collect();
        if made.agents.len() > NODES {
            nodes.push(format!("{} more nodes", made.agents.len() - NODES));
        }
        line("agents", &nodes.join(", "));
    }
    if let Some(figures) = made.measured.as_ref().and_then(|measured| measured.figures.as_ref()) {
        line("scraped", &format!("{} agents, by Prometheus", figures.scraped));
        text.push_str(&in_tables(figures));
    }
    lines::advise(&mut text, &made.next);
    text.push_str(&source(&made.source));
    text
}

/// Describes the source of the answer.
pub(super) fn source(source: &Source) -> String {
    match source {
        Source::Leader { identity, version } => {
            format!("\nFrom the operator, {identity} (version {version}), just now\n")
        }
        Source::Status { because } => {
            format!("\nFrom what the API server has; the operator was not asked: {because}\n")
        }
    }
}

fn in_tables(figures: &Measurement) -> String {
    let mut text = String::new();
    let bad = figures.nodes.iter().filter(|node| node.bad);
    let rows: Vec<_> = bad
        .map(|node| [Tone::Bad.paint(&node.node), zone(&node.zone), loss(node.loss), p99(node.p99)])
        .collect();
    if !rows.is_empty() {
        text.push_str("\nNodes to blame: most of their paths are bad\n");
        text.push_str(&table(["NODE", "ZONE", "LOSS", "P99"], &rows));
    }
    if !figures.worst.is_empty() {
        text.push_str("\nWorst paths, over five minutes\n");
        text.push_str(&paths(figures.worst.iter()));
    }
    if !figures.traces.is_empty() {
        text.push_str(
            "\nPaths that were lost for a minute within the last hour, as agents traced them\n",
        );
        let rows = figures.traces.iter().map(|traced| {
            let (from, to) = (traced.from.clone(), format!("{} ({})", traced.to, traced.to_ip));
            let hops = if traced.hops.is_empty() { "-".into() } else { traced.hops.clone() };
            [from, to, hops, traced.finding()]
        });
        text.push_str(&table(
            ["FROM", "TO", "HOPS THAT ANSWER", "FINDING"],
            &rows.collect::<Vec<_>>(),
        ));
    }
    if !figures.targets.is_empty() {
        text.push_str("\nTargets, over five minutes\n");
        let rows: Vec<_> = figures.targets.iter().map(of_phase).collect();
        text.push_str(&table(["TARGET", "PHASE", "MEAN", "BAD FROM"], &rows));
    }
    if !figures.silent.is_empty() {
        let _ = writeln!(text, "\nSilent agents: {} probe no peer", figures.silent_agents);
        let silent = figures.silent.iter();
        let rows: Vec<_> = silent
            .map(|agent| [format!("{}/{}", agent.namespace, agent.pod), agent.peers.to_string()])
            .collect();
        text.push_str(&table(["POD", "PEERS"], &rows));
    }
    text
}

fn of_phase(phase: &PhaseFigures) -> [String; 4] {
    let from = format!("{} of {} nodes", phase.bad_nodes, phase.nodes);
    let from = if phase.bad_nodes > 0 { Tone::Bad.paint(&from) } else { from };
    [phase.target.clone(), phase.phase.clone(), p99(phase.seconds), from]
}

/// Returns paths in a table, with the end that causes the loss.
fn paths<'a>(paths: impl Iterator<Item = &'a PathFigures>) -> String {
    let rows: Vec<_> = paths
        .map(|path| {
            let blame = if path.bad { Tone::Bad.paint(&path.to_blame()) } else { "-".into() };
            [path.from.clone(), path.to.clone(), loss(path.loss), p99(path.p99), blame]
        })
        .collect();
    table(["FROM", "TO", "LOSS", "P99", "TO BLAME"], &rows)
}

fn zone(zone: &str) -> String {
    if zone.is_empty() { "-".into() } else { zone.to_owned() }
}

/// Formats the figures of a node that has some.
pub(in crate::inspect) fn measured_by(of_loss: Option<f64>, of_p99: Option<f64>) -> String {
    format!(" (loss {}, p99 {})", loss(of_loss), p99(of_p99))
}

/// Formats a loss in percent.
fn loss(loss: Option<f64>) -> String {
    loss.map_or("-".into(), |loss| format!("{} %", number((loss * 1000.0).round() / 10.0)))
}

/// Formats a time in milliseconds.
fn p99(p99: Option<f64>) -> String {
    p99.map_or("-".into(), |p99| format!("{} ms", number((p99 * 10_000.0).round() / 10.0)))
}
