//! `explain pod`: the reasons why a pod has no agent, and why its paths are bad.
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, ResourceExt};
use serde::Serialize;

use super::{Advice, Asked, measure, paths, pods, source};
use crate::{
    api::NetworkProber,
    infra::Api,
    inspect::{
        cluster::{self, Listed, describe},
        explain::Source,
        leader::{self, Place},
        lines,
    },
    network_prober::{
        measurement::{self, AgentFigures, Blame, Measurement, PathFigures, Querier, Subject},
        members::Nodes,
        overview::{Measured, Overview, PodView},
        places::Places,
        reasons,
        scope::{NamespaceFacts, Scope, Standing},
        settings::{Settings, Tenancy},
        snapshot::{Pods, ProberState, Reach, Setup, Snapshot, Surroundings},
    },
    pods::{INJECTED_BY_ANNOTATION, PodObject},
    runtime::status_page::PROBERS_PATH,
    text::{Tone, figures::number},
    webhook::injection::SkipReason,
};

/// Maximum number of its paths that are named.
const PATHS: usize = 10;

/// The time without an answer after which a list is old: agents that wait for changes ask every 50
/// seconds, and the kubelet updates files within a minute or two.
const OLD_LIST: f64 = 180.0;

/// The facts that an explanation uses.
pub struct PodFacts {
    /// The pod, reduced to the fields that the operator uses.
    pub pod: PodObject,
    /// Its namespace, or why it cannot be read.
    pub namespace: Result<NamespaceFacts, String>,
    /// All `NetworkProber`s that can be read.
    pub probers: Vec<NetworkProber>,
    /// The names of those that cannot, and why.
    pub unreadable: Vec<(String, String)>,
    /// The operator's namespace.
    pub operator: String,
    /// The operator's view of all `NetworkProber`s and of the pod; or the reason why there is none.
    pub live: Result<(Overview, PodView), String>,
    /// The figures of the `NetworkProber` that has the pod.
    pub measured: Option<Measured>,
    /// The report of its agent, if Prometheus was queried directly.
    pub agent: Option<Result<AgentFigures, String>>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// `namespace/name`.
    pub pod: String,
    /// Node of the pod; none before it is scheduled.
    pub node: Option<String>,
    /// The `NetworkProber` whose agent it has.
    pub agent_of: Option<String>,
    /// True if it probes and is probed; absent if only the operator knows.
    pub takes_part: Option<bool>,
    /// The peers in its list, by node.
    pub peers: BTreeMap<String, Vec<String>>,
    /// The report of its agent.
    pub agent: Option<AgentFigures>,
    /// The relation of each `NetworkProber` to it.
    pub standpoints: Vec<Standpoint>,
    /// Paths from and to its node: the bad ones, else the worst.
    pub paths: Vec<PathFigures>,
    /// The source of this.
    pub source: Source,
    /// Advice, the most important first.
    pub next: Vec<Advice>,
}

/// The relation of one `NetworkProber` to the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standpoint {
    /// `namespace/name`.
    pub prober: String,
    /// True if it selects the pod and its namespace.
    pub selects: bool,
    /// The reason why the pod has no agent of it, as in status and metrics.
    pub reason: Option<String>,
    /// The same in words.
    pub because: String,
}

/// Reads everything about one pod.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather_pod(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
    asked: &Asked,
) -> anyhow::Result<PodFacts> {
    let api = Api::<PodObject>::namespaced(client.clone(), namespace);
    let pod = api.get_opt(name).await;
    let pod = pod.map_err(|error| anyhow::anyhow!(describe("get Pod", error)))?;
    let Some(pod) = pod else {
        anyhow::bail!(
            "there is no pod {name:?} in namespace {namespace:?}; kubectl -n {namespace} get pods"
        );
    };
    let all = cluster::list::<NetworkProber>(client).await;
    let Listed { read: probers, unreadable } =
        all.map_err(|error| anyhow::anyhow!(describe("list NetworkProbers", error)))?;
    let of_namespace = Api::<Namespace>::all(client.clone()).get(namespace).await;
    let of_namespace = of_namespace
        .map(|n| NamespaceFacts::of(&n.metadata))
        .map_err(|e| describe("get Namespace", e));
    // Any prober that names it; the operator may know better.
    let by = pod.annotation(INJECTED_BY_ANNOTATION).map(str::to_owned);
    let live = match super::live(client, place, None).await {
        Ok(overview) => {
            let path = format!("{PROBERS_PATH}/pods/{namespace}/{name}");
            let view = leader::ask::<PodView>(client, place, &path).await;
            view.map(|(view, _)| (overview, view))
        }
        Err(because) => Err(because),
    };
    let by = live.as_ref().ok().and_then(|(_, view)| view.prober.clone()).or(by);
    let by = by.as_deref().and_then(|by| by.split_once('/'));
    let (mut measured, mut agent) = (None, None);
    if let Some((home, prober)) = by {
        let is =
            |p: &&NetworkProber| (p.namespace().as_deref(), &*p.name_any()) == (Some(home), prober);
        match (asked, probers.iter().find(is)) {
            (Some(client), Some(prober)) => {
                measured = Some(measure(client, prober).await);
                let querier = Querier::Command(client.clone());
                let figures =
                    measurement::agent(&querier, &Subject::of(prober), (namespace, name)).await;
                agent = Some(figures.map_err(|error| error.message));
            }
            _ if live.is_ok() => {
                let one = super::live(client, place, Some((home, prober))).await.ok();
                measured = one.and_then(|one| one.probers.into_iter().next()?.measured);
            }
            _ => {}
        }
    }
    let operator = place.namespace.clone();
    let namespace = of_namespace;
    Ok(PodFacts { pod, namespace, probers, unreadable, operator, live, measured, agent })
}

/// Explains one pod.
#[must_use]
pub fn explain_pod(facts: &PodFacts) -> PodExplanation {
    let pod = &facts.pod;
    let standpoints = standpoints(facts);
    let live = facts.live.as_ref().ok();
    let by = standpoints.iter().find(|one| one.selects && one.reason.is_none());
    let agent_of = by.map(|one| one.prober.clone());
    let source = facts.live.as_ref().map(|(overview, _)| (&overview.identity, &overview.version));
    let mut peers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for peer in live.iter().flat_map(|(_, view)| &view.peers) {
        let names = peers.entry(peer.node.clone()).or_default();
        names.push(format!("{}/{}", peer.namespace, peer.name));
    }
    let figures = facts.measured.as_ref().and_then(|measured| measured.figures.as_ref());
    let node = pod.node().map(str::to_owned);
    let paths = match (figures, &node) {
        (Some(figures), Some(node)) => paths_of(figures, node),
        _ => vec![],
    };
    let agent = match &facts.agent {
        Some(agent) => agent.as_ref().ok().cloned(),
        None => live.and_then(|(_, view)| view.agent.clone()),
    };
    let mut made = PodExplanation {
        pod: format!("{}/{}", pod.namespace(), pod.name()),
        node,
        takes_part: live.filter(|_| agent_of.is_some()).map(|(_, view)| view.takes_part),
        agent_of,
        peers,
        agent,
        standpoints,
        paths,
        source: Source::of(source),
        next: vec![],
    };
    made.next = next(facts, &made);
    made
}

/// Computes the relation of each `NetworkProber` to it, older ones first, with the operator's own
/// code.
fn standpoints(facts: &PodFacts) -> Vec<Standpoint> {
    let tenancy = Tenancy::of(&facts.operator);
    let mut read: Vec<_> =
        facts.probers.iter().map(|prober| (prober, Settings::of(prober, &tenancy))).collect();
    read.sort_by_key(|(p, _)| (p.creation_timestamp(), p.namespace(), p.name_any()));
    let mut before = Snapshot { synced: true, ..Snapshot::default() };
    let mut all = Vec::new();
    for (prober, settings) in read {
        let name = super::super::cluster::name_of(prober);
        let absent = |because: String| Standpoint {
            prober: name.clone(),
            selects: false,
            reason: None,
            because,
        };
        let settings = match settings {
            Ok(settings) => settings,
            Err(error) => {
                all.push(absent(format!("its spec cannot stand: {}", error.to_text())));
                continue;
            }
        };
        if !settings.pods.matches(|key| facts.pod.label(key)) {
            all.push(absent(format!("its podSelector wants {}", settings.pods)));
            continue;
        }
        let namespace = match &facts.namespace {
            Ok(namespace) => namespace,
            Err(error) => {
                all.push(absent(format!("its namespace cannot be looked at: {error}")));
                continue;
            }
        };
        all.push(standpoint(facts, &mut before, prober, settings, namespace));
    }
    all.extend(facts.unreadable.iter().map(|(name, error)| Standpoint {
        prober: name.clone(),
        selects: false,
        reason: None,
        because: format!("it cannot be read: {error}"),
    }));
    all
}

fn standpoint(
    facts: &PodFacts,
    before: &mut Snapshot,
    prober: &NetworkProber,
    settings: Settings,
    namespace: &NamespaceFacts,
) -> Standpoint {
    let key = (settings.namespace.clone(), settings.name.clone());
    let live = facts.live.as_ref().ok().and_then(|(overview, _)| {
        overview.probers.iter().find(|p| (&p.namespace, &p.name) == (&key.0, &key.1))
    });
    // Only the operator knows its own image, on which the consent to a digest depends.
    let image = live.and_then(|prober| prober.image.clone());
    let setup = Setup {
        tenancy: Tenancy::of(&facts.operator),
        own_image: image.or_else(|| Some("unknown".into())),
        pinglist_url: String::new(),
        native_sidecars: true,
        runbooks: None,
    };
    let pods = [std::sync::Arc::new(facts.pod.clone())];
    let surroundings = Surroundings {
        before,
        // Nor which of them have a webhook.
        places: &Places::new(&setup.tenancy),
        // The operator knows the quotas; this explains the reasons in the pod itself.
        constraints: &BTreeMap::new(),
        // This does not decide which of its pods take part.
        nodes: Nodes { zone: &|_| String::new(), readiness: &|_| None, ends: &|_| false },
        // The status tells whether the webhook is called.
        entry_written: None,
        // Turns concern lists, which are not computed here.
        now: std::time::Duration::ZERO,
    };
    let name = settings.key();
    let reach = Reach::of(Ok(settings), &setup, std::slice::from_ref(namespace));
    let view = ProberState::of(prober, reach, Pods::Listed(&pods), None, &surroundings);
    let paused = live.is_some_and(|prober| prober.paused.contains(&namespace.name));
    let found = match found(facts, &view, namespace, paused) {
        Found::Without(reason)
            if reason == SkipReason::CreatedBefore.as_str() && is_never_called(prober) =>
        {
            Found::Without(SkipReason::NotCalled.as_str().into())
        }
        found => found,
    };
    before.views.insert(key, std::sync::Arc::new(view));
    match found {
        Found::NotSelected => Standpoint {
            prober: name,
            selects: false,
            reason: None,
            because: "it does not select this namespace (spec.namespaceSelector)".into(),
        },
        Found::HasAgent => Standpoint {
            prober: name,
            selects: true,
            reason: None,
            because: "it has its agent in this pod".into(),
        },
        Found::Without(reason) => Standpoint {
            prober: name,
            selects: true,
            because: reasons::meaning(&reason).to_owned(),
            reason: Some(reason),
        },
    }
}

/// Reports whether all pods without a sign of the webhook are younger than its entry.
fn is_never_called(prober: &NetworkProber) -> bool {
    let counted = |reason: SkipReason| {
        let all = prober.status.iter().flat_map(|status| &status.not_injected);
        all.into_iter().any(|one| one.reason == reason.as_str())
    };
    counted(SkipReason::NotCalled) && !counted(SkipReason::CreatedBefore)
}

/// The relation of a `NetworkProber` to a pod.
enum Found {
    NotSelected,
    HasAgent,
    /// The reason why it has none, as in status and metrics.
    Without(String),
}

fn found(facts: &PodFacts, view: &ProberState, namespace: &NamespaceFacts, paused: bool) -> Found {
    let scope: &Scope = &view.scope;
    let word = |reason: SkipReason| Found::Without(reason.as_str().to_owned());
    match scope.standing(&namespace.name) {
        None => return Found::NotSelected,
        Some(Standing::NotConsenting) => return word(SkipReason::NamespaceNotConsenting),
        Some(Standing::Excluded) => return word(SkipReason::NamespaceExcluded),
        Some(Standing::OptedOut) => return word(SkipReason::OptedOut),
        Some(Standing::Allowed) => {}
    }
    if facts.pod.is_finished() || facts.pod.is_terminating() {
        return Found::Without("Ended".into());
    }
    match view.members.not_injected.keys().next() {
        Some(reason) if *reason == SkipReason::CreatedBefore.as_str() && paused => {
            word(SkipReason::AgentFailing)
        }
        Some(reason) => Found::Without((*reason).to_string()),
        None if view.members.selected == 0 => Found::NotSelected,
        None => Found::HasAgent,
    }
}

/// Returns the bad paths from and to a node, else its worst.
fn paths_of(figures: &Measurement, node: &str) -> Vec<PathFigures> {
    let bad = |i: usize| figures.nodes[i].bad;
    let Some(own) = figures.nodes.iter().position(|one| one.node == node) else { return vec![] };
    let field = |matrix: &[Vec<Option<f64>>], from: usize, to: usize| {
        matrix.get(from).and_then(|row| row.get(to)).copied().flatten()
    };
    let ends = (0..figures.nodes.len()).flat_map(|other| [(own, other), (other, own)]);
    let mut paths: Vec<_> = ends
        .filter(|(from, to)| from != to)
        .filter_map(|(from, to)| {
            let (loss, p99) = (field(&figures.loss, from, to), field(&figures.p99, from, to));
            let path = PathFigures {
                from: figures.nodes[from].node.clone(),
                from_zone: figures.nodes[from].zone.clone(),
                to: figures.nodes[to].node.clone(),
                to_zone: figures.nodes[to].zone.clone(),
                loss,
                p99,
                bad: loss.is_some_and(|loss| loss > figures.lossy)
                    || p99.is_some_and(|p99| p99 > figures.slow),
                blame: Blame::of(bad(from), bad(to)),
            };
            (loss.is_some() || p99.is_some()).then_some(path)
        })
        .collect();
    paths.sort_by(|a, b| {
        let key = |p: &PathFigures| (p.loss.unwrap_or(0.0), p.p99.unwrap_or(0.0));
        let ((x, y), (v, w)) = (key(b), key(a));
        x.total_cmp(&v).then(y.total_cmp(&w))
    });
    paths.truncate(PATHS);
    paths
}

fn next(facts: &PodFacts, made: &PodExplanation) -> Vec<Advice> {
    let mut next = Vec::new();
    if made.agent_of.is_none() {
        let selecting = made.standpoints.iter().filter(|one| one.selects);
        for one in selecting {
            let Some(reason) = &one.reason else { continue };
            let remedy = reasons::remedy(reason).unwrap_or("nothing: it has ended or ends");
            let remedy = remedy
                .replace(
                    "allow=NAMESPACE/NAME of the NetworkProber",
                    &format!("allow={}", one.prober),
                )
                .replace("namespace NAMESPACE", &format!("namespace {}", facts.pod.namespace()));
            next.push(Advice::of(format!("{}: {}", one.prober, one.because), remedy));
        }
        if next.is_empty() {
            let fix = "label the pod, or widen the selector of a NetworkProber";
            next.push(Advice::of("no NetworkProber selects it", fix));
        }
        return next;
    }
    next.extend(of_agent(facts, made));
    let node = made.node.as_deref().unwrap_or_default();
    let bad: Vec<_> = made.paths.iter().filter(|path| path.bad).collect();
    let ours = bad.iter().filter(|path| {
        matches!(path.blame, Blame::Both)
            || (path.blame == Blame::From && path.from == node)
            || (path.blame == Blame::To && path.to == node)
    });
    if ours.count() > 0 {
        let what = format!("most paths of its node {node} are bad: the node is to blame");
        let fix = format!("kubectl describe node {node}; docs/runbooks/NetworkProberLossHigh.md");
        next.push(Advice::of(what, fix));
    } else if let Some(path) = bad.first() {
        let what = format!("{} → {} is bad; to blame: {}", path.from, path.to, path.to_blame());
        let prober = made.agent_of.as_deref().and_then(|of| of.split_once('/')).unwrap_or_default();
        next.push(Advice::of(what, format!("explain prober -n {} {}", prober.0, prober.1)));
    }
    next
}

fn of_agent(facts: &PodFacts, made: &PodExplanation) -> Vec<Advice> {
    let (namespace, pod) = (facts.pod.namespace(), facts.pod.name());
    let logs = format!("kubectl -n {namespace} logs {pod} -c net-prober");
    let mut next = Vec::new();
    let agent = facts.pod.agent();
    if let Some(why) = agent.and_then(|agent| agent.waiting) {
        let fix = format!("kubectl -n {namespace} describe pod {pod}");
        next.push(Advice::of(format!("its agent does not run: {why}"), fix));
        return next;
    }
    let Some(figures) = &made.agent else { return next };
    let Some(age) = figures.list_age else {
        let fix = "`doctor`; a network policy has to admit Prometheus to the port np-prometheus";
        next.push(Advice::of("Prometheus does not scrape its agent", fix));
        return next;
    };
    if age > OLD_LIST {
        let what = format!("its list was confirmed {age:.0} s ago: it does not reach the operator");
        let fix = format!(
            "{logs}; a network policy has to admit it to the Service traffic-operator-pinglists"
        );
        next.push(Advice::of(what, fix));
    }
    let listed: usize = made.peers.values().map(Vec::len).sum();
    if figures.probes.is_empty() && listed > 0 {
        let what =
            format!("its agent is silent: it has {listed} peers and has probed none of them");
        next.push(Advice::of(what, logs));
    }
    next
}

/// Maximum number of nodes of peers that are named.
const NODES: usize = 8;

/// Returns the explanation as text, with a line break at its end.
#[must_use]
pub fn pod_text(made: &PodExplanation) -> String {
    let node = made.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let selected = made.standpoints.iter().any(|one| one.selects);
    let agent = match &made.agent_of {
        Some(prober) => Tone::Good.paint(&format!("has an agent of {prober}")),
        None if selected => Tone::Bad.paint("has no agent"),
        None => Tone::Notable.paint("has no agent"),
    };
    let mut text = format!("{}{node} {agent}\n", made.pod);
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    for one in made.standpoints.iter().filter(|one| one.selects) {
        line(&one.prober, &why(one));
    }
    if let Some(takes_part) = made.takes_part {
        let reported = if takes_part {
            Tone::Good.paint("yes: it probes and is probed")
        } else {
            Tone::Notable.paint("not yet")
        };
        line("takes part", &reported);
    }
    if !made.peers.is_empty() {
        let all: usize = made.peers.values().map(Vec::len).sum();
        let nodes = made.peers.iter().take(NODES);
        let mut nodes: Vec<_> =
            nodes.map(|(node, pods)| format!("{node} {}", pods.len())).collect();
        if made.peers.len() > NODES {
            nodes.push(format!("{} more", made.peers.len() - NODES));
        }
        let value = format!("{} on {} nodes: {}", pods(all), made.peers.len(), nodes.join(", "));
        line("probes", &value);
    }
    if let Some(agent) = &made.agent {
        if let Some(age) = agent.list_age {
            let peers = agent.peers.map(|peers| format!(", {peers} peers")).unwrap_or_default();
            line("list", &format!("confirmed {} s ago{peers}", number(age.round())));
        }
        for probes in &agent.probes {
            let reason = if probes.reason.is_empty() { &probes.result } else { &probes.reason };
            let count = number(probes.count.round());
            line("results", &format!("{} {reason}: {count} in five minutes", probes.protocol));
        }
        for (reason, count) in &agent.skipped {
            line("not sent", &format!("{reason}: {}", number(count.round())));
        }
    }
    let others: Vec<_> = made.standpoints.iter().filter(|one| !one.selects).collect();
    if !others.is_empty() {
        text.push_str("\nNot selected by\n");
        for one in others {
            lines::line(&mut text, &one.prober, &one.because);
        }
    }
    if !made.paths.is_empty() {
        text.push_str("\nPaths of its node, the worst first, over five minutes\n");
        text.push_str(&paths(made.paths.iter()));
    }
    lines::advise(&mut text, &made.next);
    text.push_str(&source(&made.source));
    text
}

fn why(one: &Standpoint) -> String {
    match &one.reason {
        Some(reason) => format!("{reason}: {}", one.because),
        None => one.because.clone(),
    }
}
