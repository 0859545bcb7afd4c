//! The nodes that can take the pods in question: what limits, floor and evictions count as room.
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>.
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, Toleration};
use serde_json::Value;

use crate::{api::TrafficWatch, nodes::NodeFacts};

/// The requirements of pods on a node: those of the Deployment, or of ordinary pods without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// The key of the label and taint that are the mark itself, which must not count against a
    /// node.
    key: String,
    tolerations: Vec<Toleration>,
    labels: BTreeMap<String, String>,
    /// Alternatives; `None` restricts nothing.
    affinity: Option<NodeSelector>,
}

impl Room {
    /// Returns the requirements of a `TrafficWatch`'s pods. A template that cannot be read
    /// restricts nothing: the API server refuses it.
    #[must_use]
    pub fn of(watch: &TrafficWatch) -> Self {
        let template = watch.spec.deployment.as_ref().and_then(|d| d.pointer("/template/spec"));
        let field = |name: &str| template.and_then(|spec| spec.get(name)).cloned();
        let affinity = field("affinity").and_then(|affinity| {
            let required =
                affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
            read::<NodeSelector>(required?.clone())
        });
        Self {
            key: watch.label_key(),
            tolerations: field("tolerations").and_then(read).unwrap_or_default(),
            labels: field("nodeSelector").and_then(read).unwrap_or_default(),
            affinity,
        }
    }

    /// Reports whether labels of nodes decide.
    #[must_use]
    pub fn reads_labels(&self) -> bool {
        !self.labels.is_empty() || self.affinity.is_some()
    }

    /// Reports whether a node can take the pods, its mark apart.
    #[must_use]
    pub fn takes(&self, node: &NodeFacts) -> bool {
        node.schedulable && self.tolerates(node) && self.selects(node)
    }

    fn tolerates(&self, node: &NodeFacts) -> bool {
        node.taints.iter().all(|taint| {
            !taint.keeps_away()
                || *taint.key == *self.key
                || self.tolerations.iter().any(|toleration| taint.is_tolerated_by(toleration))
        })
    }

    fn selects(&self, node: &NodeFacts) -> bool {
        let labels = self.labels.iter().all(|(key, value)| node.label_of(key) == Some(value));
        labels
            && self.affinity.as_ref().is_none_or(|affinity| {
                affinity.node_selector_terms.iter().any(|term| {
                    let expressions = term.match_expressions.iter().flatten();
                    let fields = term.match_fields.iter().flatten();
                    // A term without requirements matches no node.
                    (expressions.clone().next().is_some() || fields.clone().next().is_some())
                        && expressions.filter(|requirement| requirement.key != self.key).all(
                            |requirement| matches(requirement, node.label_of(&requirement.key)),
                        )
                        && fields.clone().all(|requirement| {
                            requirement.key == "metadata.name"
                                && matches(requirement, Some(&node.name))
                        })
                })
            })
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.iter().any(|v| v == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|v| v != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, bound)| value > bound),
        "Lt" => compared().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::json;

    use super::*;
    use crate::nodes::{NodeObject, NodeStore};

    fn facts(node: &Value) -> NodeFacts {
        let mut node = node.clone();
        node["metadata"]["name"] = "n".into();
        node["metadata"]["resourceVersion"] = "1".into();
        let node: NodeObject = serde_json::from_value(node).unwrap();
        let store = NodeStore::default();
        store.apply(kube::runtime::watcher::Event::Apply(node));
        let everything = crate::selector::Selector::new(&LabelSelector::default()).unwrap();
        store.select(&everything, "k").nodes[0].clone()
    }

    fn room(template: &Value) -> Room {
        let spec = json!({
            "maxBandwidthPercent": "60",
            "deployment": {"template": {"spec": template}}
        });
        let watch = json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "web"}, "spec": spec
        });
        Room::of(&serde_json::from_value(watch).unwrap())
    }

    fn tainted(key: &str, effect: &str) -> Value {
        json!({"spec": {"taints": [{"key": key, "effect": effect}]}})
    }

    #[test]
    fn ordinary_pods_need_a_ready_uncordoned_node_without_a_taint_that_keeps_them_away() {
        let any = room(&json!({}));
        let control_plane = "node-role.kubernetes.io/control-plane";
        for (node, takes) in [
            (json!({}), true),
            (json!({"spec": {"unschedulable": true}}), false),
            (json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), false),
            (tainted(control_plane, "NoSchedule"), false),
            (tainted("maintenance", "NoExecute"), false),
            (tainted("spot", "PreferNoSchedule"), true),
            // Its own mark is what limits decide about.
            (tainted("web.traffic.example.com/unfit", "NoSchedule"), true),
            (tainted("other.traffic.example.com/unfit", "NoSchedule"), false),
        ] {
            assert_eq!(any.takes(&facts(&node)), takes, "{node}");
        }
        let tolerant =
            room(&json!({"tolerations": [{"key": control_plane, "operator": "Exists"}]}));
        assert!(tolerant.takes(&facts(&tainted(control_plane, "NoSchedule"))));
        assert!(!tolerant.takes(&facts(&tainted("maintenance", "NoExecute"))));
    }

    #[test]
    fn a_templates_node_selector_and_affinity_say_where_its_pods_can_go() {
        let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone, "cpus": "8"}}});
        let (a, b, none) = (facts(&zone("a")), facts(&zone("b")), facts(&json!({})));
        let terms = |terms: Value| {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            room(&json!({"affinity": {"nodeAffinity": required}}))
        };
        let expression = |key: &str, operator: &str, values: Value| {
            terms(
                json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]),
            )
        };
        for (room, expected) in [
            (room(&json!({"nodeSelector": {"zone": "a"}})), [true, false, false]),
            (expression("zone", "In", json!(["a"])), [true, false, false]),
            (expression("zone", "NotIn", json!(["a"])), [false, true, true]),
            (expression("zone", "Exists", json!([])), [true, true, false]),
            (expression("zone", "DoesNotExist", json!([])), [false, false, true]),
            (expression("cpus", "Gt", json!(["7"])), [true, true, false]),
            (expression("cpus", "Lt", json!(["8"])), [false, false, false]),
            (expression("zone", "Near", json!(["a"])), [false, false, false]),
            // The mark that the author wrote down himself.
            (expression("web.traffic.example.com/unfit", "Exists", json!([])), [true; 3]),
            (terms(json!([{}])), [false; 3]),
            (
                terms(json!([{}, {"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": ["n"]}
                ]}])),
                [true; 3],
            ),
        ] {
            assert_eq!([&a, &b, &none].map(|node| room.takes(node)), expected, "{room:?}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_read_restricts_nothing() {
        let odd = room(&json!({"nodeSelector": 7, "tolerations": "x", "affinity": []}));
        assert!(odd.takes(&facts(&json!({}))));
        assert_eq!(Arc::<str>::from("n"), facts(&json!({})).name);
    }
}
