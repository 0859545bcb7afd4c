//! The external view of the `TrafficWatch`es: the answer of `/api/v1/trafficwatches`, read by the
//! status page and by the commands that explain.
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::traffic_watch::{Mode, NodeState, Summary};

/// One replica and its state.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// True if this replica leads; one that does not has no watches.
    pub leader: bool,
    /// Its name in the Lease.
    pub identity: String,
    /// Version of the answering replica.
    pub version: String,
    /// Its clock, for comparison with all other times.
    pub now: Timestamp,
    /// The time at which the process started.
    pub started: Timestamp,
    /// By namespace and name.
    pub watches: Vec<WatchView>,
}

/// One `TrafficWatch`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WatchView {
    /// Namespace of the `TrafficWatch`.
    pub namespace: String,
    /// Name of the `TrafficWatch`.
    pub name: String,
    /// The key of its node label.
    pub label: String,
    /// The writes that it may make.
    pub mode: Mode,
    /// `spec.paused`: nothing is judged, and no nodes are shown.
    #[serde(default)]
    pub paused: bool,
    /// Seconds between two judgments.
    pub interval_seconds: f64,
    /// The number of nodes in each state; always complete.
    pub summary: Summary,
    /// The number of nodes that may be unfit at once.
    pub limit: u32,
    /// The number of nodes that can take the pods in question, from which the limit is computed.
    #[serde(default)]
    pub room: u32,
    /// The time of the last judgment.
    pub last_success: Option<Timestamp>,
    /// The measures, in the order of the spec.
    pub measures: Vec<MeasureView>,
    /// Unfit, Suppressed, Unknown, Fit; each by name; at most the requested number.
    pub nodes: Vec<NodeView>,
    /// True if there are more nodes than are listed.
    pub nodes_truncated: bool,
    /// Changes of the last hour, newest first, at most [`WatchView::TRANSITIONS`].
    pub transitions: Vec<TransitionView>,
}

impl WatchView {
    /// The number of transitions that are listed at most.
    pub const TRANSITIONS: usize = 200;
}

/// One measure.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MeasureView {
    /// `bandwidth`, or the name of the criterion.
    pub name: String,
    /// `percent`, `bits_per_second`, or "" for the author's own.
    pub unit: String,
    /// A node is unfit above this.
    pub max: f64,
    /// It is fit again at or below this.
    pub recover: f64,
    /// The name of the queried Prometheus.
    pub endpoint: String,
    /// The `PromQL` of the query.
    pub query: String,
    /// Why there is no answer now.
    pub problem: Option<String>,
}

/// One node in the eyes of one `TrafficWatch`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The node's name.
    pub name: String,
    /// State of the node for this `TrafficWatch`.
    pub state: NodeState,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// The time at which the state was entered.
    pub since: Timestamp,
    /// The value of the label, or the one it would have in mode Observe.
    pub unfit: bool,
    /// Age of the sample that was judged, in seconds.
    pub age_seconds: Option<f64>,
    /// One for each measure.
    pub values: Vec<ValueView>,
    /// Its offer to pods, if the object has nodes offer anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationView>,
}

/// The extended resource that a node offers, and the sum that leads to it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReservationView {
    /// Name of the resource.
    pub resource: String,
    /// Bits per second of one unit.
    pub unit: f64,
    /// Bits per second that pods and everything else may use together; none without evidence.
    pub limit: Option<f64>,
    /// Bits per second that they use; none without evidence.
    pub measured: Option<f64>,
    /// Sum of what its pods request, in units.
    pub requested: u64,
    /// Bits per second that no pod declared; none without evidence.
    pub foreign: Option<f64>,
    /// The amount that the node offers, in units; none if it never offered any.
    pub offered: Option<u64>,
    /// True if more is promised and used than the node may carry.
    pub over_promised: bool,
}

/// The state of one measure for one node.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ValueView {
    /// The name of the measure.
    pub measure: String,
    /// The value measured last, in the measure's unit.
    pub value: Option<f64>,
    /// The link it was measured on.
    pub device: Option<String>,
    /// The verdict after hysteresis; none before the first evidence.
    pub unfit: Option<bool>,
    /// Judgments in a row that speak against that.
    pub streak: u32,
    /// Number of them that changes it.
    pub needed: u32,
    /// Why there is no evidence now.
    pub reason: Option<String>,
}

/// One change of state.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TransitionView {
    /// The time of the change.
    pub at: Timestamp,
    /// The node's name.
    pub node: String,
    /// The state it left.
    pub from: NodeState,
    /// The state it entered.
    pub to: NodeState,
    /// Why.
    pub reason: String,
}

/// Selects the requested part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Watches of this namespace only.
    pub namespace: Option<String>,
    /// Watches of this name only.
    pub name: Option<String>,
    /// This node only.
    pub node: Option<String>,
    /// Maximum number of nodes of each watch.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self { namespace: None, name: None, node: None, limit: Self::DEFAULT_LIMIT }
    }
}

impl Filter {
    /// The number of nodes that a person can survey, in an answer of about 100 kB.
    pub const DEFAULT_LIMIT: usize = 200;
    /// An answer of some megabytes, which a browser can still display.
    pub const MAX_LIMIT: usize = 5000;
    /// No name in Kubernetes is longer.
    const NAME: usize = 253;

    /// Reads the query part of a URL.
    ///
    /// # Errors
    /// Returns the error for an invalid parameter, with the valid values.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        let mut seen = Vec::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if seen.contains(&key) {
                return Err(format!("{key}: given twice; give it once"));
            }
            match &*key {
                "namespace" => filter.namespace = Some(Self::text(&key, &value)?),
                "name" => filter.name = Some(Self::text(&key, &value)?),
                "node" => filter.node = Some(Self::text(&key, &value)?),
                "limit" => filter.limit = Self::number(&value)?,
                _ => {
                    let known = "namespace, name, node, limit";
                    return Err(format!("{key}: unknown parameter; known are {known}"));
                }
            }
            seen.push(key);
        }
        Ok(filter)
    }

    /// Reports whether a watch is requested.
    #[must_use]
    pub fn admits_watch(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
    }

    /// Reports whether a node is requested.
    #[must_use]
    pub fn admits_node(&self, node: &str) -> bool {
        self.node.as_deref().is_none_or(|wanted| wanted == node)
    }

    fn text(key: &str, value: &str) -> Result<String, String> {
        match value.chars().count() {
            0 => Err(format!("{key}: empty; leave it out to get all")),
            1..=Self::NAME => Ok(value.to_owned()),
            long => Err(format!("{key}: {long} characters; a name has at most {}", Self::NAME)),
        }
    }

    fn number(value: &str) -> Result<usize, String> {
        let number = value.parse().ok().filter(|number| (1..=Self::MAX_LIMIT).contains(number));
        number.ok_or_else(|| {
            let shown: String = value.chars().take(32).collect();
            format!("limit: {shown:?} is not a whole number from 1 to {}", Self::MAX_LIMIT)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_from_a_query() {
        assert_eq!(Filter::parse(""), Ok(Filter::default()));
        let filter = Filter::parse("namespace=shop&name=w%C3%A9b&node=n+1&limit=5000").unwrap();
        assert_eq!(filter.namespace.as_deref(), Some("shop"));
        assert_eq!(filter.name.as_deref(), Some("wéb"));
        assert_eq!(filter.node.as_deref(), Some("n 1"));
        assert_eq!(filter.limit, 5000);
        assert!(filter.admits_watch("shop", "wéb") && !filter.admits_watch("shop", "web"));
        assert!(filter.admits_node("n 1") && !filter.admits_node("n 2"));
        assert!(Filter::default().admits_watch("a", "b") && Filter::default().admits_node("c"));
    }

    #[test]
    fn bad_parameters_are_named() {
        let long = format!("node={}", "x".repeat(254));
        for (query, error) in [
            ("limit=0", "limit: \"0\" is not a whole number from 1 to 5000"),
            ("limit=5001", "limit: \"5001\" is not a whole number from 1 to 5000"),
            ("limit=-1", "limit: \"-1\" is not a whole number from 1 to 5000"),
            ("limit=", "limit: \"\" is not a whole number from 1 to 5000"),
            ("node=", "node: empty; leave it out to get all"),
            ("name=a&name=b", "name: given twice; give it once"),
            ("nodes=a", "nodes: unknown parameter; known are namespace, name, node, limit"),
            (&long, "node: 254 characters; a name has at most 253"),
        ] {
            assert_eq!(Filter::parse(query), Err(error.to_owned()), "{query}");
        }
    }

    #[test]
    fn the_answer_is_written_in_the_words_of_the_api() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let transition = TransitionView {
            at: now,
            node: "n1".into(),
            from: NodeState::Fit,
            to: NodeState::Unfit,
            reason: "Measured".into(),
        };
        let value = ValueView {
            measure: "bandwidth".into(),
            value: Some(81.5),
            device: None,
            unfit: Some(true),
            streak: 1,
            needed: 2,
            reason: None,
        };
        let node = NodeView {
            name: "n1".into(),
            state: NodeState::Unfit,
            reason: None,
            since: now,
            unfit: true,
            age_seconds: Some(1.5),
            values: vec![value],
            reservation: None,
        };
        let text = serde_json::to_value((transition, node)).unwrap();
        let expected = serde_json::json!([
            {"at": "2023-11-14T22:13:20Z", "node": "n1", "from": "Fit", "to": "Unfit", "reason": "Measured"},
            {"name": "n1", "state": "Unfit", "reason": null, "since": "2023-11-14T22:13:20Z",
             "unfit": true, "ageSeconds": 1.5, "values": [
                {"measure": "bandwidth", "value": 81.5, "device": null, "unfit": true, "streak": 1,
                 "needed": 2, "reason": null}]},
        ]);
        assert_eq!(text, expected);
    }
}
