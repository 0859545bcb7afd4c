//! The recordings of Prometheus about one `NetworkProber`: the nodes, the paths between them, the
//! worst of these, and the silent agents.
//!
//! Two requests, whatever the size of the cluster: of a large one the worst nodes, and the paths
//! between these.
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::{
    agent::{budget::TARGETS, destination::Phase, metrics::TRACE, pinglist::DEFAULT_TIMEOUT},
    api::NetworkProber,
    prometheus::{
        Client, DEFAULT, Endpoints, Payer, QueryError, decode,
        promql::{duration, string},
    },
};

/// Maximum number of nodes in the matrix: 4,096 fields, which a person can still survey, and an
/// answer of at most two mebibytes.
pub const LARGEST_MATRIX: usize = 64;

/// Number of worst paths to name: two screens; after repairing these, the user can ask again.
pub const WORST: usize = 20;

/// Number of silent agents to name.
const SILENT: usize = 20;

/// No node, pod or zone has a longer name; a longer label is invalid.
const LONGEST_NAME: usize = 253;

/// The hops of a trace: sixteen IPv6 addresses.
const LONGEST_HOPS: usize = 640;

/// Number of traces to name, the newest.
const TRACES: usize = 20;

/// Minimum period of an agent's results: the window of the recording rules.
const RECENT: Duration = Duration::from_mins(5);

/// The measurements of one `NetworkProber` over the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// Number of agents that Prometheus scrapes.
    pub scraped: u64,
    /// The number of those that probe no peer.
    pub silent_agents: u64,
    /// Some of them.
    pub silent: Vec<Silent>,
    /// The loss above which a node is bad: that of the alert `NetworkProberLossHigh`.
    pub lossy: f64,
    /// The 99th percentile above which it is, in seconds: that of `NetworkProberLatencyHigh`.
    pub slow: f64,
    /// The number of nodes that have figures.
    pub measured_nodes: usize,
    /// The nodes of the matrix: all, by zone and name; of more than [`LARGEST_MATRIX`] the worst.
    pub nodes: Vec<NodeFigures>,
    /// Loss from each of these nodes (the rows) to each (the columns), 0 to 1.
    pub loss: Vec<Vec<Option<f64>>>,
    /// The 99th percentile of round-trip times likewise, in seconds.
    pub p99: Vec<Vec<Option<f64>>>,
    /// The worst paths of all: those that lose most, then the slowest.
    pub worst: Vec<PathFigures>,
    /// The paths that agents have traced within an hour, the newest first.
    #[serde(default)]
    pub traces: Vec<Traced>,
    /// The phases of each target, those that are bad from most nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<PhaseFigures>,
}

/// A path that an agent has traced, because it had lost most of its probes for a minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Traced {
    /// When that was, in Unix seconds.
    pub at: f64,
    /// The node that probes.
    pub from: String,
    /// The node that is probed.
    pub to: String,
    /// The address that is probed.
    pub to_ip: String,
    /// `answered`, `undeliverable`, `loop`, `lost` or `silent`.
    pub result: String,
    /// The addresses of the routers, with `*` for those that do not answer.
    pub hops: String,
    /// The number of the first hop from which on nothing answers.
    pub silent_hop: String,
}

/// One phase of the probes of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseFigures {
    /// Name of the target.
    pub target: String,
    /// `dns`, `connect`, `tls` or `first_byte`.
    pub phase: String,
    /// Its mean duration in seconds, if it ever succeeded.
    pub seconds: Option<f64>,
    /// The number of nodes that probe.
    pub nodes: u64,
    /// The number of those from which it fails or is slow, by the limit of the alert `NetworkProberTargetFailing`.
    pub bad_nodes: u64,
}

/// An agent that is scraped and probes no peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Silent {
    /// The namespace of its pod.
    pub namespace: String,
    /// Pod of the agent.
    pub pod: String,
    /// Number of peers that it should probe.
    pub peers: u64,
}

/// The values for which a node is to blame: as bad as more than half of its paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Its name.
    pub node: String,
    /// Its zone; empty if it has none, or no path is known.
    pub zone: String,
    /// Its loss, 0 to 1.
    pub loss: Option<f64>,
    /// Its 99th percentile, in seconds.
    pub p99: Option<f64>,
    /// True if one of the two is above what the alerts allow.
    pub bad: bool,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathFigures {
    /// The node that probes.
    pub from: String,
    /// Its zone.
    pub from_zone: String,
    /// The node that is probed.
    pub to: String,
    /// Its zone.
    pub to_zone: String,
    /// The loss of the worst protocol, 0 to 1.
    pub loss: Option<f64>,
    /// The 99th percentile of the slowest protocol, in seconds.
    pub p99: Option<f64>,
    /// True if one of the two is above what the alerts allow of a node.
    pub bad: bool,
    /// The end to blame.
    pub blame: Blame,
}

/// The end of a path to which its figures point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The node that probes: most of its other paths are bad too.
    From,
    /// The node that is probed.
    To,
    /// Both ends are equally to blame.
    Both,
    /// Neither: what lies between them.
    #[default]
    Between,
}

/// The subject of the requested figures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// `<namespace>/<name>`, which is the job of its agents too.
    pub prober: String,
    /// The time from one probe of a peer to the next.
    pub period: Duration,
    /// A probe without an answer for this long has failed.
    pub timeout: Duration,
}

impl Subject {
    /// Reads the values from a spec.
    #[must_use]
    pub fn of(prober: &NetworkProber) -> Self {
        let period = Duration::from(prober.spec.polling_period);
        let timeout = prober.spec.timeout.map_or(period.min(DEFAULT_TIMEOUT), Into::into);
        let namespace = prober.namespace().unwrap_or_default();
        Self { prober: format!("{namespace}/{}", prober.name_any()), period, timeout }
    }
}

/// The thresholds above which figures are bad.
#[derive(Clone, Copy, Debug)]
struct Limits {
    lossy: f64,
    slow: f64,
}

impl Limits {
    fn of(subject: &Subject) -> Self {
        Self { lossy: rules::LOSS, slow: rules::latency_limit(subject.timeout) }
    }

    fn exceeded(self, loss: Option<f64>, p99: Option<f64>) -> bool {
        loss.is_some_and(|loss| loss > self.lossy) || p99.is_some_and(|p99| p99 > self.slow)
    }
}

/// The origin of a request.
pub enum Querier {
    /// A command, once.
    Command(Client),
    /// The operator, which queries for many users and has a budget.
    Operator(Client, Endpoints, Payer),
}

impl Querier {
    /// Returns that of the operator, for objects of a namespace.
    ///
    /// # Errors
    /// When no endpoint is for this namespace.
    pub fn of_operator(endpoints: &Endpoints, namespace: &str) -> Result<Self, String> {
        let client = endpoints.named("figures", DEFAULT, Some(namespace))?;
        let payer = Payer::BuiltIn(namespace.into());
        Ok(Self::Operator(Client::clone(client), endpoints.clone(), payer))
    }

    async fn ask(&self, promql: &str) -> Result<Vec<Row>, QueryError> {
        let read = |answer: &crate::prometheus::Answer| {
            let mut rows = Vec::new();
            decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
                rows.extend(Row::of(&series));
                Ok(())
            })?;
            Ok(rows)
        };
        match self {
            Self::Command(client) => client.query(promql, client.timeout(), read).await,
            Self::Operator(client, endpoints, payer) => {
                let permit = endpoints.permit(client.name(), payer).await;
                client.query_with_permit(promql, permit, read).await
            }
        }
    }
}

/// Queries Prometheus.
///
/// # Errors
/// When Prometheus does not answer, or not with numbers.
pub async fn measure(querier: &Querier, subject: &Subject) -> Result<Measurement, QueryError> {
    let rows = querier.ask(&overview_query(subject)).await?;
    let measured = Overview::of(rows, Limits::of(subject));
    let nodes = measured.chosen();
    if nodes.is_empty() {
        return Ok(measured.measurement(&nodes, vec![]));
    }
    let all = nodes.len() == measured.nodes.len();
    let rows = querier.ask(&paths_query(subject, (!all).then_some(&nodes))).await?;
    Ok(measured.measurement(&nodes, rows))
}

/// Queries Prometheus about the traced paths alone.
///
/// # Errors
/// As [`measure`].
pub async fn traced(querier: &Querier, subject: &Subject) -> Result<Vec<Traced>, QueryError> {
    let rows = querier.ask(&labeled("traced", &traced_query(subject))).await?;
    Ok(rows.iter().map(Traced::of).collect())
}

/// The report of one agent over the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFigures {
    /// Seconds since its list was confirmed; none if it is not scraped.
    pub list_age: Option<f64>,
    /// Number of its peers.
    pub peers: Option<u64>,
    /// Its probes, by protocol, result and reason.
    pub probes: Vec<Probes>,
    /// Probes that it did not send, by reason.
    pub skipped: BTreeMap<String, f64>,
}

/// Probes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// `http`, `tcp` or `udp`.
    pub protocol: String,
    /// `success` or `failure`.
    pub result: String,
    /// Why they failed.
    pub reason: String,
    /// About how many.
    pub count: f64,
}

/// Queries Prometheus about one agent.
///
/// # Errors
/// As [`measure`].
pub async fn agent(
    querier: &Querier,
    subject: &Subject,
    (namespace, pod): (&str, &str),
) -> Result<AgentFigures, QueryError> {
    let mut found = AgentFigures::default();
    for row in querier.ask(&agent_query(subject, namespace, pod)).await? {
        match row.figure.as_str() {
            "list_age" => found.list_age = Some(row.value),
            "peers" => found.peers = Some(row.count()),
            "skipped" if row.value > 0.0 => {
                found.skipped.insert(row.label("reason"), row.value);
            }
            "probes" | "failures" if row.value > 0.0 => found.probes.push(Probes {
                protocol: row.label("protocol"),
                result: row.label("result"),
                reason: row.label("reason"),
                count: row.value,
            }),
            _ => {}
        }
    }
    found.probes = by_reason(found.probes);
    found.probes.sort_by(|a, b| b.count.total_cmp(&a.count));
    Ok(found)
}

/// Combines the counts by result with those by reason, which may be lower: a series that is new does
/// not show how it began.
fn by_reason(all: Vec<Probes>) -> Vec<Probes> {
    let (reasons, mut results): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| one.result.is_empty());
    for mut one in reasons {
        "failure".clone_into(&mut one.result);
        let of = |all: &&mut Probes| (&all.protocol, &*all.result) == (&one.protocol, "failure");
        if let Some(all) = results.iter_mut().filter(|all| all.reason.is_empty()).find(of) {
            all.count -= one.count;
        }
        results.push(one);
    }
    // Increases are extrapolated, each for itself.
    results.retain(|one| one.count >= 0.5);
    results
}

impl Blame {
    /// Decides by the ends with mostly bad paths.
    #[must_use]
    pub fn of(from: bool, to: bool) -> Self {
        match (from, to) {
            (true, true) => Self::Both,
            (true, false) => Self::From,
            (false, true) => Self::To,
            (false, false) => Self::Between,
        }
    }
}

impl Traced {
    fn of(row: &Row) -> Self {
        Self {
            at: row.value,
            from: row.label("src_node"),
            to: row.label("dst_node"),
            to_ip: row.label("dst_ip"),
            result: row.label("result"),
            hops: row.label("hops"),
            silent_hop: row.label("silent_hop"),
        }
    }

    /// What the trace shows, in words: an answer shows that packets arrive there, silence alone
    /// nothing.
    #[must_use]
    pub fn finding(&self) -> String {
        let last = self.hops.rsplit(' ').next().filter(|last| !last.is_empty());
        match (self.result.as_str(), last) {
            ("answered", _) => "the peer answered the trace: not every packet is lost".into(),
            ("undeliverable", Some(last)) => format!("{last} reports that it cannot deliver"),
            ("loop", _) => "packets go in circles".into(),
            ("lost", Some(last)) => format!(
                "packets reach {last}, and nothing behind it answers, as it does on a path that works"
            ),
            ("lost", None) => {
                "no hop answers, not even the first, as it does on a path that works".into()
            }
            (_, Some(last)) => format!(
                "packets reach {last}; nothing behind it answers, which may be so on paths that work"
            ),
            (_, None) => "no hop answers, which may be so on paths that work".into(),
        }
    }
}

impl PathFigures {
    /// The end to blame, in words.
    #[must_use]
    pub fn to_blame(&self) -> String {
        match self.blame {
            Blame::From => self.from.clone(),
            Blame::To => self.to.clone(),
            Blame::Both => format!("{} and {}", self.from, self.to),
            Blame::Between => "what lies between".into(),
        }
    }
}

/// A result that all readers share.
pub type Shared<T> = Result<Arc<T>, QueryError>;

/// About one agent.
fn agent_query(subject: &Subject, namespace: &str, pod: &str) -> String {
    let [job, namespace, pod] = [&*subject.prober, namespace, pod].map(string);
    let of = format!("{{job={job}, namespace={namespace}, pod={pod}}}");
    let recent = duration(RECENT.max(subject.period.saturating_mul(3)));
    let counted =
        |by: &str, metric: &str| format!("sum by ({by}) (increase({metric}{of}[{recent}]))");
    let parts = [
        ("list_age", format!("max(netprober_pinglist_age_seconds{of})")),
        ("peers", format!("max(netprober_peers{of})")),
        ("probes", counted("protocol, result", "netprober_probes_total")),
        ("failures", counted("protocol, reason", "netprober_failures_total")),
        ("skipped", counted("reason", "netprober_skipped_probes_total")),
    ];
    parts.map(|(figure, promql)| labeled(figure, &promql)).join(" or ")
}

/// Returns the query for everything but the matrix. A label identifies each part: names of series
/// are lost where vectors are combined.
fn overview_query(subject: &Subject) -> String {
    let of = format!("{{prober={}}}", string(&subject.prober));
    let job = format!("job={}", string(&subject.prober));
    let agents = format!("group by (namespace, pod) (netprober_build_info{{{job}}})");
    let silent = format!(
        "(max by (namespace, pod) (netprober_peers{{{job}}}) and on (namespace, pod) ({}))",
        rules::silent_agents(&job, subject.period)
    );
    let loss = per_path(&format!("netprober:pair_loss:ratio5m{of}"));
    let p99 = per_path(&format!("netprober:pair_rtt_seconds:p99_5m{of}"));
    let target = format!("netprober:target_bad:ratio5m{of}");
    let took = |of: &str| {
        format!(
            "sum by (target, phase) (increase(netprober_target_phase_seconds_{of}{{{job}}}[5m]))"
        )
    };
    let (lossy, slow) = (format!("topk({WORST}, {loss} > 0)"), format!("topk({WORST}, {p99})"));
    let parts = [
        ("node_loss", format!("netprober:node_loss:ratio5m{of}")),
        ("node_p99", format!("netprober:node_rtt_seconds:p99_5m{of}")),
        ("pair_loss", lossy.clone()),
        ("pair_p99", slow.clone()),
        // The values of this figure for the worst ones by the other.
        ("also_loss", format!("{loss} and on (src_node, dst_node) {slow}")),
        ("also_p99", format!("{p99} and on (src_node, dst_node) {lossy}")),
        ("target_nodes", format!("count by (target, phase) ({target})")),
        ("target_bad", format!("count by (target, phase) ({target} > {})", rules::TARGET_BAD)),
        ("target_seconds", format!("{} / ({} > 0)", took("sum"), took("count"))),
        ("scraped", format!("count({agents})")),
        ("silent_agents", format!("count{silent}")),
        ("silent", format!("topk({SILENT}, {silent})")),
        ("traced", traced_query(subject)),
    ];
    let parts = parts.map(|(figure, promql)| labeled(figure, &promql));
    parts.join(" or ")
}

/// The newest traces. The time of a series is that of its trace, in every replica of Prometheus.
fn traced_query(subject: &Subject) -> String {
    let job = string(&subject.prober);
    format!(
        "topk({TRACES}, max by (src_node, dst_node, dst_ip, result, hops, silent_hop) \
         ({TRACE}{{job={job}}}))"
    )
}

/// The worst value of each path: replicas of Prometheus record it again, and an agent may name many
/// zones. None of them displaces other paths.
fn per_path(series: &str) -> String {
    format!("topk by (src_node, dst_node) (1, {series})")
}

fn labeled(figure: &str, promql: &str) -> String {
    format!("label_replace({promql}, \"figure\", {}, \"\", \"\")", string(figure))
}

/// The paths between some nodes, or all.
fn paths_query(subject: &Subject, nodes: Option<&Vec<String>>) -> String {
    let mut selector = format!("prober={}", string(&subject.prober));
    if let Some(nodes) = nodes {
        let any = nodes.iter().map(|node| literally(node)).collect::<Vec<_>>().join("|");
        let any = string(&any);
        selector = format!("{selector}, src_node=~{any}, dst_node=~{any}");
    }
    let loss = format!("netprober:pair_loss:ratio5m{{{selector}}}");
    let p99 = format!("netprober:pair_rtt_seconds:p99_5m{{{selector}}}");
    let parts = [("pair_loss", loss), ("pair_p99", p99)];
    parts.map(|(figure, series)| labeled(figure, &per_path(&series))).join(" or ")
}

/// A name as a regular expression that matches nothing else.
fn literally(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_ascii_punctuation() {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// One element of an answer.
#[derive(Debug)]
struct Row {
    figure: String,
    labels: BTreeMap<&'static str, String>,
    value: f64,
}

impl Row {
    /// `None` for a value that is not a figure.
    fn of(series: &decode::Series<'_>) -> Option<Self> {
        let value = series.value.filter(|value| value.is_finite() && *value >= 0.0)?;
        let names = [
            "node",
            "src_node",
            "src_zone",
            "dst_node",
            "dst_zone",
            "namespace",
            "pod",
            "protocol",
            "result",
            "reason",
            "dst_ip",
            "hops",
            "silent_hop",
            "target",
            "phase",
        ];
        let mut labels = BTreeMap::new();
        for name in names {
            let text = series.labels.get(name).unwrap_or_default();
            let longest = if name == "hops" { LONGEST_HOPS } else { LONGEST_NAME };
            if text.len() > longest {
                return None;
            }
            labels.insert(name, text.to_owned());
        }
        Some(Self { figure: series.labels.get("figure")?.to_owned(), labels, value })
    }

    fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_default()
    }

    fn ends(&self) -> (String, String) {
        (self.label("src_node"), self.label("dst_node"))
    }

    fn count(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of series, finite and not negative; `as` saturates"
        )]
        let count = self.value as u64;
        count
    }
}

/// The first answer, sorted.
#[derive(Debug)]
struct Overview {
    limits: Limits,
    scraped: u64,
    silent_agents: u64,
    silent: Vec<Silent>,
    nodes: BTreeMap<String, NodeFigures>,
    worst: BTreeMap<(String, String), PathFigures>,
    traces: Vec<Traced>,
    targets: BTreeMap<(String, String), PhaseFigures>,
}

impl Overview {
    fn of(rows: Vec<Row>, limits: Limits) -> Self {
        let mut found = Self {
            limits,
            scraped: 0,
            silent_agents: 0,
            silent: vec![],
            nodes: BTreeMap::new(),
            worst: BTreeMap::new(),
            traces: vec![],
            targets: BTreeMap::new(),
        };
        for row in rows {
            match row.figure.as_str() {
                "node_loss" => worse(&mut found.node(&row).loss, row.value),
                "node_p99" => worse(&mut found.node(&row).p99, row.value),
                "pair_loss" | "also_loss" => worse(&mut found.path(&row).loss, row.value),
                "pair_p99" | "also_p99" => worse(&mut found.path(&row).p99, row.value),
                "target_nodes" => found.phase(&row).nodes = row.count(),
                "target_bad" => found.phase(&row).bad_nodes = row.count(),
                "target_seconds" => found.phase(&row).seconds = Some(row.value),
                "scraped" => found.scraped = row.count(),
                "silent_agents" => found.silent_agents = row.count(),
                "silent" => found.silent.push(Silent {
                    namespace: row.label("namespace"),
                    pod: row.label("pod"),
                    peers: row.count(),
                }),
                "traced" => found.traces.push(Traced::of(&row)),
                _ => {}
            }
        }
        found.traces.sort_by(|a, b| b.at.total_cmp(&a.at));
        found.traces.truncate(TRACES);
        found.silent.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
        for node in found.nodes.values_mut() {
            node.bad = limits.exceeded(node.loss, node.p99);
        }
        let nodes = &found.nodes;
        let bad = |name: &str| nodes.get(name).is_some_and(|node| node.bad);
        for path in found.worst.values_mut() {
            path.bad = limits.exceeded(path.loss, path.p99);
            path.blame = Blame::of(bad(&path.from), bad(&path.to));
        }
        found
    }

    fn node(&mut self, row: &Row) -> &mut NodeFigures {
        let node = row.label("node");
        let new = || NodeFigures { node, zone: String::new(), loss: None, p99: None, bad: false };
        self.nodes.entry(row.label("node")).or_insert_with(new)
    }

    fn phase(&mut self, row: &Row) -> &mut PhaseFigures {
        let (target, phase) = (row.label("target"), row.label("phase"));
        let key = (target.clone(), phase.clone());
        self.targets.entry(key).or_insert_with(|| PhaseFigures {
            target,
            phase,
            ..PhaseFigures::default()
        })
    }

    /// Pods may serve any series: no more than honest agents have.
    fn phases(&self) -> Vec<PhaseFigures> {
        let place = |of: &str| Phase::ALL.iter().position(|phase| phase.label() == of);
        let phases = self.targets.values().filter(|phase| phase.nodes > 0);
        let mut phases: Vec<_> =
            phases.filter_map(|phase| Some((place(&phase.phase)?, phase))).collect();
        phases.sort_by_key(|(place, phase)| (Reverse(phase.bad_nodes), &phase.target, *place));
        phases.truncate(TARGETS * Phase::ALL.len());
        phases.into_iter().map(|(_, phase)| phase.clone()).collect()
    }

    fn path(&mut self, row: &Row) -> &mut PathFigures {
        self.worst.entry(row.ends()).or_insert_with(|| path_of(row))
    }

    /// The names of the nodes of the matrix.
    fn chosen(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.nodes.values().collect();
        if nodes.len() > LARGEST_MATRIX {
            nodes.sort_by(|a, b| {
                let key = |n: &NodeFigures| (n.loss.unwrap_or(0.0), n.p99.unwrap_or(0.0));
                let ((x, y), (v, w)) = (key(b), key(a));
                x.total_cmp(&v).then(y.total_cmp(&w)).then_with(|| a.node.cmp(&b.node))
            });
            nodes.truncate(LARGEST_MATRIX);
        }
        nodes.into_iter().map(|node| node.node.clone()).collect()
    }

    fn measurement(&self, chosen: &[String], rows: Vec<Row>) -> Measurement {
        let mut zones = HashMap::new();
        for row in &rows {
            for (node, zone) in [("src_node", "src_zone"), ("dst_node", "dst_zone")] {
                zones.insert(row.label(node), row.label(zone));
            }
        }
        let mut nodes: Vec<_> = chosen.iter().filter_map(|name| self.nodes.get(name)).collect();
        let zone = |node: &NodeFigures| zones.get(&node.node).cloned().unwrap_or_default();
        nodes.sort_by_cached_key(|node| (zone(node), node.node.clone()));
        let places: HashMap<_, _> =
            nodes.iter().enumerate().map(|(i, node)| (node.node.clone(), i)).collect();
        let empty = || vec![vec![None; nodes.len()]; nodes.len()];
        let (mut loss, mut p99) = (empty(), empty());
        for row in rows {
            let (from, to) = row.ends();
            let (Some(&from), Some(&to)) = (places.get(&from), places.get(&to)) else { continue };
            match row.figure.as_str() {
                "pair_loss" => worse(&mut loss[from][to], row.value),
                "pair_p99" => worse(&mut p99[from][to], row.value),
                _ => {}
            }
        }
        Measurement {
            scraped: self.scraped,
            silent_agents: self.silent_agents,
            silent: self.silent.clone(),
            lossy: self.limits.lossy,
            slow: self.limits.slow,
            measured_nodes: self.nodes.len(),
            nodes: nodes.into_iter().map(|n| NodeFigures { zone: zone(n), ..n.clone() }).collect(),
            loss,
            p99,
            worst: self.worst(),
            traces: self.traces.clone(),
            targets: self.phases(),
        }
    }

    /// Those that lose anything, by loss; then the slowest.
    fn worst(&self) -> Vec<PathFigures> {
        let mut worst: Vec<_> = self.worst.values().cloned().collect();
        worst.sort_by(|a, b| {
            let key = |p: &PathFigures| (p.loss.unwrap_or(0.0), p.p99.unwrap_or(0.0));
            let ((x, y), (v, w)) = (key(b), key(a));
            x.total_cmp(&v)
                .then(y.total_cmp(&w))
                .then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to)))
        });
        worst.truncate(WORST);
        worst
    }
}

/// Of two values of one subject, as replicas of Prometheus have them, the worse one counts.
fn worse(known: &mut Option<f64>, value: f64) {
    *known = Some(known.map_or(value, |known| known.max(value)));
}

fn path_of(row: &Row) -> PathFigures {
    PathFigures {
        from: row.label("src_node"),
        from_zone: row.label("src_zone"),
        to: row.label("dst_node"),
        to_zone: row.label("dst_zone"),
        ..PathFigures::default()
    }
}

#[cfg(test)]
mod tests;
