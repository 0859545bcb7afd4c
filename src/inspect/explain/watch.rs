//! `explain trafficwatch`: the nodes that one object judges, and the reasons for their states.
use std::fmt::Write;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use super::{Source, elapsed, limit, measures, percent, text::source as source_line};
use crate::{
    api::{
        TrafficWatch,
        traffic_watch::{Mode, NodeState, NodeStatus, Summary},
    },
    inspect::{
        cluster::{self, name_of},
        leader::{self, Place},
        lines::{self, Advice},
        remedies,
        status::conditions::{sentence, unsettled},
    },
    text::{
        Tone,
        figures::{number, span, value},
        table,
    },
    traffic_watch::{
        BANDWIDTH,
        overview::{MeasureView, NodeView, Overview, WatchView},
    },
};

/// The facts that the explanation of one `TrafficWatch` uses.
#[derive(Clone, Debug)]
pub struct WatchFacts {
    /// The object.
    pub watch: TrafficWatch,
    /// The leader's answer, or the reason why there is none.
    pub live: Result<Overview, String>,
    /// The current time.
    pub now: Timestamp,
}

/// One `TrafficWatch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchExplanation {
    /// `namespace/name`.
    pub watch: String,
    /// The writes that it may make.
    pub mode: Mode,
    /// True if `spec.paused` keeps it from judging.
    pub paused: bool,
    /// Key of its node label.
    pub label: String,
    /// Number of nodes in each state.
    pub summary: Summary,
    /// The number of nodes that can take the pods in question.
    pub room: u32,
    /// The number of them that may be unfit.
    pub limit: Option<u32>,
    /// Its measures with their thresholds.
    pub measures: Vec<MeasureView>,
    /// Its nodes; those that need attention come first.
    pub nodes: Vec<JudgedNode>,
    /// True if there are more nodes than are listed.
    pub truncated: bool,
    /// Conditions that indicate a problem.
    pub conditions: Vec<String>,
    /// The advice.
    pub next: Vec<Advice>,
    /// The source of the values.
    pub source: Source,
}

/// One node of a `TrafficWatch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedNode {
    /// Its name.
    pub node: String,
    /// Its state.
    pub state: NodeState,
    /// The reason for that.
    pub reason: Option<String>,
    /// The time at which it began.
    pub since: Option<Timestamp>,
    /// Seconds since then.
    pub seconds: Option<i64>,
    /// The value of each measure.
    pub values: Vec<NodeValue>,
}

/// The value of one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeValue {
    /// Name of the measure.
    pub measure: String,
    /// The last measured value.
    pub value: Option<f64>,
    /// The busiest link.
    pub device: Option<String>,
}

/// Reads everything about one `TrafficWatch`.
///
/// # Errors
/// When it does not exist, or the API server refuses.
pub async fn gather_watch(
    client: &Client,
    place: &Place,
    (namespace, name): (&str, &str),
) -> anyhow::Result<WatchFacts> {
    let watch = cluster::read(client, "get TrafficWatch", Some(namespace), name).await?;
    let live = leader::watch(client, place, (namespace, name)).await;
    Ok(WatchFacts { watch, live, now: Timestamp::now() })
}

/// Explains one `TrafficWatch`.
#[must_use]
pub fn explain_watch(facts: &WatchFacts) -> WatchExplanation {
    let watch = &facts.watch;
    let status = watch.status.clone().unwrap_or_default();
    let of_status = limit(watch);
    let mut made = WatchExplanation {
        watch: name_of(watch),
        mode: watch.spec.mode,
        paused: watch.spec.paused,
        label: watch.label_key(),
        summary: status.summary.unwrap_or_default(),
        room: of_status.nodes,
        limit: of_status.limit,
        measures: measures(watch).unwrap_or_default(),
        nodes: status.nodes.iter().map(|(name, node)| of_node(name, node, facts.now)).collect(),
        truncated: status.nodes_truncated,
        conditions: unsettled(&status.conditions).into_iter().map(sentence).collect(),
        next: vec![],
        source: source(facts),
    };
    if let Some(view) = view(facts) {
        made.summary = view.summary;
        made.room = view.room;
        made.limit = Some(view.limit);
        made.measures.clone_from(&view.measures);
        made.nodes = view.nodes.iter().map(|node| of_view(node, facts.now)).collect();
        made.truncated = view.nodes_truncated;
    }
    made.nodes.sort_by(|a, b| (a.state, &a.node).cmp(&(b.state, &b.node)));
    made.next = unsettled(&status.conditions).into_iter().filter_map(remedies::of).collect();
    made.next.extend(of_nodes(&made.nodes));
    made
}

/// Returns the leader's view of this object; while it is paused, the leader has no nodes to show.
fn view(facts: &WatchFacts) -> Option<&WatchView> {
    let overview = facts.live.as_ref().ok()?;
    let name = name_of(&facts.watch);
    let mut views = overview.watches.iter();
    views.find(|view| format!("{}/{}", view.namespace, view.name) == name && !view.paused)
}

fn source(facts: &WatchFacts) -> Source {
    match (&facts.live, view(facts)) {
        (Ok(overview), None) => {
            Source::Status { because: format!("{} judges no nodes for it", overview.identity) }
        }
        (live, _) => Source::of(live.as_ref().map(|view| (&view.identity, &view.version))),
    }
}

fn of_view(node: &NodeView, now: Timestamp) -> JudgedNode {
    let values = node.values.iter().map(|value| NodeValue {
        measure: value.measure.clone(),
        value: value.value,
        device: value.device.clone(),
    });
    JudgedNode {
        node: node.name.clone(),
        state: node.state,
        reason: node.reason.clone(),
        since: Some(node.since),
        seconds: Some(elapsed(node.since, now)),
        values: values.collect(),
    }
}

fn of_node(name: &str, node: &NodeStatus, now: Timestamp) -> JudgedNode {
    let since = node.since.as_ref().map(|time| time.0);
    let mut values: Vec<_> = node
        .criteria
        .iter()
        .map(|criterion| NodeValue {
            measure: criterion.name.clone(),
            value: criterion.value.as_deref().and_then(super::number),
            device: node.device.clone().filter(|_| criterion.name == BANDWIDTH),
        })
        .collect();
    if values.is_empty() {
        values.push(NodeValue {
            measure: BANDWIDTH.to_owned(),
            value: percent(node),
            device: node.device.clone(),
        });
    }
    JudgedNode {
        node: name.to_owned(),
        state: node.state.unwrap_or(if node.unfit { NodeState::Unfit } else { NodeState::Fit }),
        reason: node.reason.clone(),
        since,
        seconds: since.map(|since| elapsed(since, now)),
        values,
    }
}

/// Returns advice about the first node of each state and reason, as an example for the others.
fn of_nodes(nodes: &[JudgedNode]) -> Vec<Advice> {
    let mut seen = Vec::new();
    let mut next = Vec::new();
    for node in nodes.iter().filter(|node| node.state != NodeState::Fit) {
        let kind = (node.state, node.reason.as_deref().filter(|_| node.state != NodeState::Unfit));
        if seen.contains(&kind) {
            continue;
        }
        seen.push(kind);
        let (name, state) = (&node.node, node.state.as_str());
        let why = kind.1.map(|reason| format!(": {reason}, {}", remedies::meaning(reason)));
        let remedy = kind.1.and_then(remedies::of_evidence).map(|remedy| format!("; {remedy}"));
        next.push(Advice::of(
            format!("{name} is {state}{}", why.unwrap_or_default()),
            format!("explain node {name}{}", remedy.unwrap_or_default()),
        ));
    }
    next
}

/// Maximum number of listed nodes; the JSON has them all.
const LISTED: usize = 20;

/// Returns the explanation as text, with a line break at its end; with the PromQL of each measure if
/// `queries` is true.
#[must_use]
pub fn watch_text(made: &WatchExplanation, queries: bool) -> String {
    let summary = made.summary;
    let paused = if made.paused { ", paused" } else { "" };
    let mut text = format!(
        "{} (mode {:?}{paused}): {} nodes: {} fit, {} unfit, {} unknown, {} suppressed\n",
        made.watch,
        made.mode,
        summary.nodes,
        summary.fit,
        summary.unfit,
        summary.unknown,
        summary.suppressed
    );
    let mut line = |name: &str, value: &str| lines::line(&mut text, name, value);
    for measure in &made.measures {
        let MeasureView { name, unit, max, recover, problem, .. } = measure;
        let (max, recover) = (value(*max, unit), value(*recover, unit));
        let problem = problem.as_ref().map(|problem| format!("; {problem}")).unwrap_or_default();
        line(name, &format!("unfit above {max}, fit again at or below {recover}{problem}"));
    }
    line("label", &made.label);
    let limit = made.limit.map_or("a limited number".to_owned(), |limit| limit.to_string());
    line("limit", &format!("{limit} of {} nodes that can take pods may be unfit", made.room));
    for condition in &made.conditions {
        lines::condition(&mut text, condition);
    }
    let asked = made.measures.iter().filter(|measure| queries && !measure.query.is_empty());
    for measure in asked {
        let query = measure.query.split_whitespace().collect::<Vec<_>>().join(" ");
        let query = format!("{} (asked of {}): {query}", measure.name, measure.endpoint);
        lines::line(&mut text, "query", &query);
    }
    text.push_str(&nodes(made));
    lines::advise(&mut text, &made.next);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{}", source_line(&made.source));
    text
}

/// Returns the nodes that are not fit, in a table.
fn nodes(made: &WatchExplanation) -> String {
    let unfit: Vec<_> = made.nodes.iter().filter(|node| node.state != NodeState::Fit).collect();
    if unfit.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = unfit.iter().take(LISTED).map(|node| row(node, &made.measures)).collect();
    let mut text = format!("\n{}", table(["NODE", "STATE", "FOR", "VALUE", "REASON"], &rows));
    if unfit.len() > LISTED {
        let _ = writeln!(text, "{} more: -o json lists them", unfit.len() - LISTED);
    }
    if made.truncated {
        text.push_str("There are more nodes than are known here\n");
    }
    text
}

fn row(node: &JudgedNode, measures: &[MeasureView]) -> [String; 5] {
    let dash = || "-".to_owned();
    let values: Vec<_> = node.values.iter().filter_map(|value| shown(value, measures)).collect();
    [
        node.node.clone(),
        Tone::of(node.state).paint(node.state.as_str()),
        node.seconds.map_or_else(dash, span),
        if values.is_empty() { dash() } else { values.join(", ") },
        node.reason.clone().unwrap_or_else(dash),
    ]
}

/// Formats one value with its unit, and with its measure if there are several.
fn shown(of: &NodeValue, measures: &[MeasureView]) -> Option<String> {
    let x = of.value?;
    let unit = measures.iter().find(|measure| measure.name == of.measure).map(|m| &*m.unit);
    let text = unit.map_or_else(|| number(x), |unit| value(x, unit));
    let device = of.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
    let name = if measures.len() > 1 { format!("{} ", of.measure) } else { String::new() };
    Some(format!("{name}{text}{device}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::plain;
    use serde_json::{Value, json};

    /// Returns facts from a status: two nodes without evidence, one unfit and one fit.
    fn facts(more: &Value) -> WatchFacts {
        let node = |state: &str, reason: Value| {
            json!({
                "currentBandwidthPercent": "7.15e+01", "currentTransmitTotal": 5,
                "time": 1_790_000_690, "unfit": state == "Unfit", "state": state, "reason": reason,
                "device": "eth0", "since": "2026-09-21T14:13:20Z",
            })
        };
        let mut spec = json!({"maxBandwidthPercent": "60"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let watch = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default"}, "spec": spec,
            "status": {
                "summary": {"nodes": 4, "fit": 1, "unfit": 1, "unknown": 2, "suppressed": 0},
                "nodes": {
                    "a": node("Fit", Value::Null), "b": node("Unknown", json!("NoSample")),
                    "c": node("Unknown", json!("NoSample")), "d": node("Unfit", Value::Null),
                },
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Judged", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "MetricsAvailable", "status": "False", "reason": "Unauthorized",
                     "message": "401", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ]
            }
        }))
        .unwrap();
        let now = Timestamp::from_second(1_790_000_060).unwrap();
        WatchFacts { watch, live: Err("nobody leads".into()), now }
    }

    #[test]
    fn the_status_says_which_nodes_are_not_fit_and_what_to_do() {
        let made = explain_watch(&facts(&json!({})));
        let order: Vec<_> = made.nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(order, ["d", "b", "c", "a"]);
        // Two nodes with the same reason lead to one piece of advice.
        let advice: Vec<_> = made.next.iter().map(|advice| advice.what.as_str()).collect();
        assert_eq!(advice.len(), 3, "{advice:?}");
        let text = plain(&watch_text(&made, true));
        for expected in [
            "default/web (mode Enforce): 4 nodes: 1 fit, 1 unfit, 2 unknown, 0 suppressed\n",
            "  bandwidth    unfit above 60 %, fit again at or below 54 %\n",
            "  condition    MetricsAvailable=False Unauthorized: 401\n",
            "NODE  STATE    FOR  VALUE           REASON\n",
            "d     Unfit    1m   71.5 % on eth0  -\n",
            "b     Unknown  1m   71.5 % on eth0  NoSample\n",
            "    try: `doctor` asks Prometheus itself\n",
            "    try: explain node b; is the node exporter running",
            "the leader was not asked: nobody leads\n",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(!text.contains("\na "), "{text}");
    }

    #[test]
    fn the_leader_knows_better_unless_the_object_is_paused() {
        let view = |paused: bool| {
            serde_json::from_value::<Overview>(json!({
                "leader": true, "identity": "op", "version": "1", "now": "2026-09-21T14:25:24Z",
                "started": "2026-09-21T10:00:00Z",
                "watches": [{
                    "namespace": "default", "name": "web", "label": "l", "mode": "Enforce",
                    "paused": paused, "intervalSeconds": 10.0, "limit": 2, "room": 3,
                    "summary": {"nodes": 3, "fit": 3, "unfit": 0, "unknown": 0, "suppressed": 0},
                    "lastSuccess": null, "measures": [], "nodes": [], "nodesTruncated": false,
                    "transitions": []
                }]
            }))
            .unwrap()
        };
        let made = explain_watch(&WatchFacts { live: Ok(view(false)), ..facts(&json!({})) });
        assert_eq!((made.summary.fit, made.limit, made.room), (3, Some(2), 3));
        assert!(watch_text(&made, false).contains("From the leader, op (version 1), just now"));
        let paused = json!({"paused": true});
        let made = explain_watch(&WatchFacts { live: Ok(view(true)), ..facts(&paused) });
        assert_eq!(made.summary.fit, 1);
        assert!(watch_text(&made, false).contains("(mode Enforce, paused): 4 nodes"));
    }
}
