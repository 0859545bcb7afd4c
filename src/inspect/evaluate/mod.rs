//! `evaluate`: one judgment, by the operator's own code.
use std::{fmt::Write, num::NonZeroU64, sync::Arc};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::Serialize;

use super::{cluster::name_of, offers::Offers, population::Population, remedies};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Consecutive, NodeState},
    },
    controller::Verdict,
    manifests,
    prometheus::{
        Answer, Class, Client, Endpoints, Exporters, QueryError, decode, exporters::untrusted_nodes,
    },
    text::{Tone, figures::value, printable, table},
    traffic_watch::{
        Claim, Quota, claim,
        overview::{MeasureView, NodeView},
        replay::{Inquiry, Replay},
    },
};

/// The decision of one `TrafficWatch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evaluation {
    /// `namespace/name`.
    pub watch: String,
    /// The measure and its threshold.
    pub measures: Vec<MeasureView>,
    /// The number of equal judgments in a row that the operator waits for.
    pub consecutive: Consecutive,
    /// The number of nodes that may be unfit.
    pub limit: usize,
    /// The number of nodes that can take the pods in question, from which the limit is computed.
    pub room: usize,
    /// The nodes; those that need attention come first.
    pub nodes: Vec<NodeView>,
    /// The resulting conditions.
    pub conditions: Vec<Condition>,
    /// The limits of the answer.
    pub warnings: Vec<String>,
    /// Offers of nodes to pods, if the spec has them offer anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offers: Option<Offers>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: &'static str,
    /// The reason, as in the condition of the object.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

impl Evaluation {
    /// Returns the reason why no node was judged: a query failed, or no node has evidence.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let problem = self.measures.iter().find_map(|measure| measure.problem.clone());
        let mut values = self.nodes.iter().flat_map(|node| &node.values);
        if problem.is_some() || values.any(|value| value.value.is_some()) {
            return problem;
        }
        let metrics = self.conditions.iter().find(|one| one.type_ == "MetricsAvailable");
        Some(match metrics.filter(|metrics| metrics.status != "True") {
            Some(Condition { reason, message, .. }) => format!("{reason}: {message}"),
            None => "no node has evidence".into(),
        })
    }
}

/// Asks Prometheus, and judges once what many equal judgments would, as if nothing was judged
/// before. `pod_request` are the units that a pod requests of what nodes offer.
///
/// # Errors
/// When the spec is invalid.
pub async fn evaluate(
    watch: &TrafficWatch,
    endpoints: &Endpoints,
    exporters: &Exporters,
    mut population: Population,
    pod_request: Option<NonZeroU64>,
) -> anyhow::Result<Evaluation> {
    let consecutive = watch.spec.consecutive;
    let mut at_once = watch.clone();
    at_once.spec.consecutive = Consecutive { unfit: 1, fit: 1 };
    let watch = &at_once;
    let inquiry = Inquiry::of(watch, exporters)?;
    let mut measures = inquiry.measures();
    let mut answers = Vec::new();
    for measure in &measures {
        answers.push(ask(endpoints, measure, &exporters.node_labels, &mut population).await);
    }
    let identity = population.identity();
    let readings: Vec<_> = answers
        .into_iter()
        .enumerate()
        .map(|(i, answer)| inquiry.read(i, &answer?, &identity).map(Arc::new))
        .collect();
    for (measure, reading) in measures.iter_mut().zip(&readings) {
        measure.problem = reading.as_ref().err().map(ToString::to_string);
    }
    let mut warnings = warnings(watch, &population);
    let believed = readings.iter().flatten().filter(|reading| !reading.other_jobs.is_empty());
    warnings.extend(believed.map(|reading| untrusted_nodes(&reading.other_jobs)));
    let nodes = population.select(inquiry.selector(), &watch.label_key(), i64::MAX);
    let unnamed = population.grows() && nodes.is_empty();
    let mut replay = Replay::new(watch, population.grows());
    let mut step = replay.step(Timestamp::now(), nodes, &readings)?;
    if unnamed {
        let failed = readings.iter().find_map(|reading| reading.as_ref().err());
        blame_series(&mut step.conditions, failed);
    }
    let mut nodes = replay.nodes();
    nodes.sort_by_key(|node| node.state);
    Ok(Evaluation {
        watch: name_of(watch),
        measures,
        consecutive,
        limit: replay.limit(),
        room: replay.room(),
        nodes,
        conditions: step
            .conditions
            .into_iter()
            .map(|verdict| Condition {
                type_: verdict.type_.into(),
                status: verdict.status.map_or("Unknown", |yes| if yes { "True" } else { "False" }),
                reason: verdict.reason.into(),
                message: verdict.message,
            })
            .collect(),
        warnings,
        offers: Offers::of(&replay, pod_request),
    })
}

/// Replaces the reason `NoNodes`, which blames `spec.nodeSelector`. Without a cluster, the selector
/// is not applied: the series name the nodes, and here none did.
fn blame_series(conditions: &mut [Verdict], failed: Option<&QueryError>) {
    for condition in conditions.iter_mut().filter(|condition| condition.reason == "NoNodes") {
        condition.status = Some(false);
        (condition.reason, condition.message) = match failed {
            Some(error) => (error.class.reason(), error.message.clone()),
            None => ("NoSamples", "no series names a node".into()),
        };
    }
}

/// Queries one measure; its nodes are added to the population.
async fn ask(
    endpoints: &Endpoints,
    measure: &MeasureView,
    node_labels: &[String],
    population: &mut Population,
) -> Result<Answer, QueryError> {
    let client = client(endpoints, &measure.endpoint)?;
    let result = client.query(&measure.query, client.timeout(), |answer| {
        decode::vector(answer.status, &answer.content_type, &answer.body, |series| {
            population.meet(&series.labels, node_labels, i64::MIN);
            Ok(())
        })?;
        Ok(owned(answer))
    });
    result.await
}

/// Copies an answer, which is read twice: the first time for its nodes.
pub(super) fn owned(answer: &Answer) -> Answer {
    let Answer { status, content_type, body } = answer;
    Answer { status: *status, content_type: content_type.clone(), body: body.clone() }
}

/// Returns the client of the endpoint that a spec names.
pub(super) fn client<'a>(endpoints: &'a Endpoints, name: &str) -> Result<&'a Client, QueryError> {
    endpoints
        // The user of a command has separate credentials.
        .named("spec.prometheus", name, None)
        .map_err(|message| QueryError::new(Class::QueryInvalid, message))
}

/// Returns warnings about facts that an answer without a cluster ignores.
pub(super) fn warnings(watch: &TrafficWatch, population: &Population) -> Vec<String> {
    let mut warnings = Vec::new();
    if population.grows() {
        let nodes = "nodes are read from the series, without labels, addresses and annotations";
        warnings.push(match &watch.spec.node_selector {
            Some(_) => format!("{nodes}: spec.nodeSelector is not applied; use --cluster"),
            None => format!("{nodes}; --cluster reads them from the API server"),
        });
    }
    if watch.spec.reservation.is_some() {
        let text = "what pods request is not read: nodes offer what they would without any request";
        warnings.push(format!("spec.reservation: {text}"));
    }
    if watch.spec.paused {
        warnings.push("spec.paused is true: the operator would not judge at all".into());
    }
    warnings
}

/// Returns why the operator would not judge this object beside those of a cluster: its label or its
/// place belongs to an older one. An object that the cluster does not have would be the youngest.
#[must_use]
pub fn in_excess(watch: &TrafficWatch, all: &[TrafficWatch], now: Timestamp) -> Option<String> {
    let mut watch = watch.clone();
    let name = name_of(&watch);
    let (own, others): (Vec<_>, Vec<_>) = all.iter().partition(|it| name_of(*it) == name);
    let created = own.first().and_then(|own| own.metadata.creation_timestamp.clone());
    watch.metadata.creation_timestamp = Some(created.unwrap_or(Time(now)));
    if let Claim::HeldBy(holder) = claim(&watch, others.iter().copied()) {
        let key = watch.label_key();
        return Some(format!("Conflict: {key} belongs to the older {holder}; set spec.label"));
    }
    let quota = Quota {
        per_namespace: Quota::PER_NAMESPACE,
        in_all: Quota::IN_ALL,
        own: manifests::NAMESPACE.into(),
    };
    match quota.claim(&watch, others) {
        Claim::TooMany(text) => {
            Some(format!("TooMany: {text}, if the operator runs with the defaults of its flags"))
        }
        Claim::Ours | Claim::HeldBy(_) => None,
    }
}

/// Returns one row per node and measure, then the conditions.
#[must_use]
pub fn text(evaluation: &Evaluation) -> String {
    let mut text = format!("{}\n", evaluation.watch);
    for warning in &evaluation.warnings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  warning: {}", printable(warning));
    }
    let mut rows = Vec::new();
    for node in &evaluation.nodes {
        for (i, measure) in evaluation.measures.iter().enumerate() {
            rows.push(row(node, measure, evaluation.consecutive, i == 0));
        }
    }
    let head = ["NODE", "STATE", "MEASURE", "VALUE", "THRESHOLD", "DEVICE", "REMARK"];
    text.push_str(&table(head, &rows));
    let (limit, room) = (evaluation.limit, evaluation.room);
    let _ = writeln!(text, "{limit} of {room} nodes that can take pods may be unfit");
    if let Some(offers) = &evaluation.offers {
        text.push_str(&offers.text());
    }
    for condition in &evaluation.conditions {
        let _ = writeln!(
            text,
            "{}={} {}{}",
            condition.type_,
            condition.status,
            condition.reason,
            if condition.message.is_empty() {
                String::new()
            } else {
                format!(": {}", printable(&condition.message))
            }
        );
    }
    text
}

fn row(
    node: &NodeView,
    measure: &MeasureView,
    consecutive: Consecutive,
    first: bool,
) -> [String; 7] {
    let its = node.values.iter().find(|v| v.measure == measure.name);
    let number = its.and_then(|v| v.value);
    let shown = |x: f64| value(x, &measure.unit);
    let dash = || "-".to_owned();
    [
        if first { node.name.clone() } else { String::new() },
        if first { Tone::of(node.state).paint(node.state.as_str()) } else { String::new() },
        measure.name.clone(),
        number.map_or_else(dash, shown),
        shown(measure.max),
        its.and_then(|v| v.device.clone()).unwrap_or_else(dash),
        remark(node, measure, consecutive),
    ]
}

fn remark(node: &NodeView, measure: &MeasureView, consecutive: Consecutive) -> String {
    let its = node.values.iter().find(|v| v.measure == measure.name);
    let unknown = node.reason.as_deref().filter(|_| node.state == NodeState::Unknown);
    if let Some(reason) = its.and_then(|v| v.reason.as_deref()).or(unknown) {
        return format!("{reason}: {}", remedies::meaning(reason));
    }
    let number = its.and_then(|v| v.value).unwrap_or_default();
    if is_above(measure, node) {
        let remark = "above the threshold";
        match consecutive.unfit {
            _ if node.state == NodeState::Suppressed => {
                format!("{remark}; too many nodes are unfit")
            }
            1 => remark.to_owned(),
            needed => format!("{remark}; marked after {needed} such judgments in a row"),
        }
    } else if number > measure.recover {
        format!(
            "between recovery ({}) and threshold: stays as it is",
            value(measure.recover, &measure.unit)
        )
    } else {
        format!("at or below recovery ({})", value(measure.recover, &measure.unit))
    }
}

/// Reports whether a node's value is above the threshold, regardless of hysteresis and limits.
fn is_above(measure: &MeasureView, node: &NodeView) -> bool {
    node.state != NodeState::Unknown
        && node
            .values
            .iter()
            .any(|v| v.measure == measure.name && v.value.is_some_and(|value| value > measure.max))
}

#[cfg(test)]
mod tests;
