//! The recordings of Prometheus about one `NetworkProber`: the nodes, the paths between them, the
//! worst of these, and the silent agents.
//!
//! Two requests, whatever the size of the cluster: of a large one the worst nodes, and the paths
//! between these.
//!
//! `queries` writes the queries, `reading` turns answers into figures.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::{
    agent::pinglist::DEFAULT_TIMEOUT,
    api::NetworkProber,
    prometheus::{Client, Endpoints, Payer, QueryError, decode},
};

mod queries;
mod reading;

#[cfg(test)]
mod tests;

use reading::{Overview, Row};

/// Maximum number of nodes in the matrix: 4,096 fields, which a person can still survey, and an
/// answer of at most two mebibytes.
pub const LARGEST_MATRIX: usize = 64;

/// Number of worst paths to name: two screens; after repairing these, the user can ask again.
pub const WORST: usize = 20;

/// Number of silent agents to name.
const SILENT: usize = 20;

/// No node, pod or zone has a longer name; a longer label is invalid.
const LONGEST_NAME: usize = 253;

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
    let rows = querier.ask(&queries::overview(subject)).await?;
    let measured = Overview::of(rows, Limits::of(subject));
    let nodes = measured.chosen();
    if nodes.is_empty() {
        return Ok(measured.measurement(&nodes, vec![]));
    }
    let all = nodes.len() == measured.nodes.len();
    let rows = querier.ask(&queries::paths(subject, (!all).then_some(&nodes))).await?;
    Ok(measured.measurement(&nodes, rows))
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
    for row in querier.ask(&queries::of_agent(subject, namespace, pod)).await? {
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
