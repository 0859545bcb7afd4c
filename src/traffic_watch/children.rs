//! The Deployment of a `TrafficWatch`: the author's, kept away from unfit nodes.
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use crate::{
    api::{TrafficWatch, traffic_watch::Placement},
    controller::{Error, FIELD_MANAGER, MANAGED_BY, contest::Rounds},
    selector::Selector,
};

/// A Deployment as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// The whole object, for server-side apply.
    pub object: Value,
    /// Changes exactly when the object does.
    pub hash: u64,
}

/// A Deployment as it was last applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The [`Child::hash`] of the applied object.
    pub hash: u64,
    /// The result from the API server.
    pub outcome: Outcome,
}

impl Applied {
    /// Counts this apply among the rounds of the last one, if it has the same content; returns
    /// whether it has restored the object.
    pub fn follows(&mut self, last: &Self) -> bool {
        let same = self.hash == last.hash;
        if let Outcome::Accepted { restored, at, rounds, .. } = &mut self.outcome
            && let Outcome::Accepted { at: before, rounds: were, .. } = &last.outcome
            && same
        {
            if *restored {
                *rounds = were.again(at.duration_since(*before).unsigned_abs());
            } else {
                // A change of what is not ours, as of the replicas by an autoscaler.
                (*at, *rounds) = (*before, *were);
            }
            return *restored;
        }
        false
    }

    /// Returns the time for which the object is left as it is, because another client contests it,
    /// and the name of that client.
    #[must_use]
    pub fn contest(&self, now: Timestamp) -> Option<(Duration, Option<&str>)> {
        let Outcome::Accepted { at, rounds, other, .. } = &self.outcome else { return None };
        let left = rounds.left(now.duration_since(*at).unsigned_abs())?;
        Some((left, other.as_deref()))
    }
}

/// The API server's result of an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object, by UID and generation: another generation means another writer's edit.
    Accepted {
        /// The object's UID.
        uid: String,
        /// Its generation after the apply.
        generation: i64,
        /// True if the object was gone, or something of ours in it had been changed.
        restored: bool,
        /// The last time at which it was restored, or was applied for the first time.
        at: Timestamp,
        /// How often it was restored.
        rounds: Rounds,
        /// The client that had changed the object before, if it has left its name.
        other: Option<String>,
    },
    /// Refused: an immediate retry would be refused again.
    Refused {
        /// Why, in the API server's words.
        text: String,
        /// The time of the attempt.
        at: Timestamp,
        /// The Deployment that was there, by UID and generation.
        there: Option<(String, i64)>,
    },
    /// Not applied: another owner's Deployment has the name. Retried at every pass.
    Taken(String),
}

/// The Deployment that a `TrafficWatch` describes.
///
/// Only the affinity is added to the author's spec: template labels and annotations stay as they
/// are. Its text is constant, so that nodes that turn fit or unfit never roll the Deployment.
///
/// # Errors
/// When the author's selector does not match the author's template.
pub fn deployment(watch: &TrafficWatch) -> Result<Option<Child>, Error> {
    let Some(spec) = &watch.spec.deployment else { return Ok(None) };
    let mut spec = without_nulls(spec);
    check_selector(&spec)?;
    let template = object(&mut spec, "template");
    let affinity = object(object(object(template, "spec"), "affinity"), "nodeAffinity");
    let requirement = json!({
        "key": watch.label_key(), "operator": "NotIn", "values": ["true"],
    });
    match watch.spec.placement {
        Placement::Required => require(affinity, &requirement),
        Placement::Preferred => prefer(affinity, &requirement),
    }
    let selector_labels = spec.pointer("/selector/matchLabels").and_then(Value::as_object);
    let mut labels = selector_labels.cloned().unwrap_or_default();
    labels.insert("app.kubernetes.io/managed-by".into(), MANAGED_BY.into());
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": watch.name_any(),
            "namespace": watch.namespace(),
            "labels": labels,
            "ownerReferences": [watch.controller_owner_ref(&())],
        },
        "spec": spec,
    });
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    Ok(Some(Child { object, hash: hasher.finish() }))
}

/// The field manager that keeps the number of replicas while the author hands it to an autoscaler.
pub const REPLICAS_MANAGER: &str = "traffic-operator-replicas";

/// Returns the client that was the last to change the spec of an object, other than us, by its
/// managed fields: its name, and the subresource that it used.
#[must_use]
pub fn last_writer<K: Resource>(object: &K) -> Option<String> {
    let entries = object.meta().managed_fields.iter().flatten();
    let others = entries.filter(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        let spec = entry.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:spec"].is_null());
        spec && ![FIELD_MANAGER, REPLICAS_MANAGER, ""].contains(&manager)
    });
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let manager = last.manager.clone()?;
    Some(match last.subresource.as_deref() {
        Some(part) if !part.is_empty() => format!("{manager} ({part})"),
        _ => manager,
    })
}

/// Reports whether the number of replicas of a Deployment is ours, by its managed fields.
#[must_use]
pub fn owns_replicas<K: Resource>(deployment: &K) -> bool {
    deployment.meta().managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && entry.fields_v1.as_ref().is_some_and(|f| !f.0["f:spec"]["f:replicas"].is_null())
    })
}

/// Returns the selector of the pods in a `TrafficWatch`'s Deployment.
#[must_use]
pub fn selector(watch: &TrafficWatch) -> Option<Selector> {
    let selector = watch.spec.deployment.as_ref()?.get("selector")?;
    let selector: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
    Selector::new(&selector).ok()
}

/// Server-side apply refuses nulls that a client-side create would drop.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), without_nulls(v)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

/// Returns the object at `key`, and creates it if it is missing. The schema guarantees the types.
fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = json!({});
    }
    let child = &mut parent[key];
    if !child.is_object() {
        *child = json!({});
    }
    child
}

fn list<'a>(parent: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let child = &mut parent[key];
    if !child.is_array() {
        *child = json!([]);
    }
    match child {
        Value::Array(items) => items,
        _ => unreachable!("made an array above"),
    }
}

/// The label of the node that exists only in a simulation of cluster-autoscaler: a copy of a real
/// node of the group, with all its labels. The kubelet of a real node may not set it.
const TEMPLATE_NODE: &str = "cluster-autoscaler.kubernetes.io/template-node";

/// ANDs the requirement into *every* term: terms are alternatives, so a term without it would let
/// the author's own affinity bypass the exclusion. Each is also an alternative for a node that is
/// simulated: the mark on the node that was copied is not a mark of the one that would come, and a
/// pod that fits nowhere else would make none come. These are last: Karpenter begins with the first.
fn require(affinity: &mut Value, requirement: &Value) {
    let required = object(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = list(required, "nodeSelectorTerms");
    if terms.is_empty() {
        terms.push(json!({}));
    } else {
        // A term without expressions matches no node; with ours it would match nearly all.
        let empty = |term: &Value| {
            ["matchExpressions", "matchFields"]
                .iter()
                .all(|key| term[key].as_array().is_none_or(Vec::is_empty))
        };
        if terms.iter().all(empty) {
            return;
        }
        terms.retain(|term| !empty(term));
    }
    let template = json!({"key": TEMPLATE_NODE, "operator": "In", "values": ["true"]});
    let mut simulated = terms.clone();
    for (terms, requirement) in [(&mut *terms, requirement), (&mut simulated, &template)] {
        for term in terms {
            let expressions = list(term, "matchExpressions");
            if !expressions.contains(requirement) {
                expressions.push(requirement.clone());
            }
        }
    }
    terms.append(&mut simulated);
}

fn prefer(affinity: &mut Value, requirement: &Value) {
    // 100 is the largest weight there is.
    let preference = json!({"weight": 100, "preference": {"matchExpressions": [requirement]}});
    let preferred = list(affinity, "preferredDuringSchedulingIgnoredDuringExecution");
    if !preferred.contains(&preference) {
        preferred.push(preference);
    }
}

fn check_selector(spec: &Value) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::Invalid(text));
    let selector: LabelSelector = match serde_json::from_value(spec["selector"].clone()) {
        Ok(selector) => selector,
        Err(error) => return invalid(format!("spec.deployment.selector: {error}")),
    };
    if selector.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        return invalid(
            "spec.deployment.selector: is empty; set matchLabels to labels of the template".into(),
        );
    }
    let requirements = match Selector::new(&selector) {
        Ok(requirements) => requirements,
        Err(error) => return invalid(format!("spec.deployment.selector.{error}")),
    };
    let labels = &spec["template"]["metadata"]["labels"];
    if requirements.matches(|key| labels[key].as_str()) {
        return Ok(());
    }
    let missing: Vec<_> = selector
        .match_labels
        .iter()
        .flatten()
        .filter(|(key, value)| labels[key.as_str()].as_str() != Some(value))
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    let fix = if missing.is_empty() {
        "change one of them so that matchExpressions hold".to_owned()
    } else {
        format!("add {} to the template", missing.join(", "))
    };
    invalid(format!(
        "spec.deployment.selector: does not match spec.deployment.template.metadata.labels; {fix}"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_other_writer_of_a_spec_is_named() {
        let object = |fields: Value| {
            serde_json::from_value::<k8s_openapi::api::apps::v1::Deployment>(json!({
                "metadata": {"name": "web", "managedFields": fields}
            }))
            .unwrap()
        };
        let field = |manager: &str, minute: u8, part: Value, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1",
                "time": format!("2026-01-01T00:{minute:02}:00Z"), "subresource": part,
                "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let spec = || json!({"f:spec": {"f:replicas": {}}});
        let all = json!([
            field("kubectl", 1, Value::Null, spec()),
            field("kube-controller-manager", 2, json!("scale"), spec()),
            field(FIELD_MANAGER, 3, Value::Null, spec()),
            field("kube-controller-manager", 4, json!("status"), json!({"f:status": {}})),
        ]);
        assert_eq!(last_writer(&object(all)).unwrap(), "kube-controller-manager (scale)");
        assert_eq!(
            last_writer(&object(json!([field(FIELD_MANAGER, 3, Value::Null, spec())]))),
            None
        );
    }

    const REQUIREMENT: &str = "requiredDuringSchedulingIgnoredDuringExecution";

    fn watch(deployment: Value, spec: Value) -> TrafficWatch {
        let mut spec = spec;
        spec["maxBandwidthPercent"] = "60".into();
        spec["deployment"] = deployment;
        serde_json::from_value(json!({
            "apiVersion": "traffic.example.com/v1alpha1", "kind": "TrafficWatch",
            "metadata": {"name": "web", "namespace": "ns", "uid": "u-1"}, "spec": spec
        }))
        .unwrap()
    }

    fn author(affinity: &Value) -> Value {
        json!({
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web", "team": "a"}, "annotations": {"x": "y"}},
                "spec": {"affinity": affinity, "containers": [{"name": "c", "newField": 1, "stdin": null}]}
            }
        })
    }

    fn built(affinity: &Value, spec: Value) -> Value {
        deployment(&watch(author(affinity), spec)).unwrap().unwrap().object
    }

    fn not_unfit() -> Value {
        json!({"key": "web.traffic.example.com/unfit", "operator": "NotIn", "values": ["true"]})
    }

    fn template_node() -> Value {
        let key = "cluster-autoscaler.kubernetes.io/template-node";
        json!({"key": key, "operator": "In", "values": ["true"]})
    }

    /// Original 1.4 #10: template and Deployment labels were overwritten by the selector's.
    #[test]
    fn the_authors_template_is_kept() {
        let child = built(&json!({}), json!({}));
        let template = &child["spec"]["template"];
        assert_eq!(template["metadata"]["labels"], json!({"app": "web", "team": "a"}));
        assert_eq!(template["metadata"]["annotations"], json!({"x": "y"}));
        // A field newer than this operator is passed through; nulls, which apply refuses, are not.
        assert_eq!(template["spec"]["containers"][0], json!({"name": "c", "newField": 1}));
        assert_eq!(child["metadata"]["labels"]["app"], "web");
        assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/managed-by"], MANAGED_BY);
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], "u-1");
    }

    /// Original 1.4 #1: without `label` the affinity's key was ".traffic.example.com/unfit".
    #[test]
    fn without_a_label_the_affinity_uses_the_name_as_the_node_label_does() {
        for spec in [json!({}), json!({"label": "custom"})] {
            let watch = watch(author(&json!({})), spec);
            let child = deployment(&watch).unwrap().unwrap().object;
            let term = &child["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIREMENT]
                ["nodeSelectorTerms"][0];
            assert_eq!(term["matchExpressions"][0]["key"], watch.label_key());
        }
    }

    /// Original 1.4 #8: a term of the author's own bypassed the exclusion.
    #[test]
    fn the_exclusion_is_anded_into_every_term_of_the_author() {
        let zone = |z: &str| json!({"key": "zone", "operator": "In", "values": [z]});
        let affinity = json!({"nodeAffinity": {REQUIREMENT: {"nodeSelectorTerms": [
            {"matchExpressions": [zone("a")]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            {},
        ]}}, "podAntiAffinity": {"kept": true}});
        let child = built(&affinity, json!({}));
        let result = &child["spec"]["template"]["spec"]["affinity"];
        assert_eq!(result["podAntiAffinity"]["kept"], true);
        let terms = result["nodeAffinity"][REQUIREMENT]["nodeSelectorTerms"].as_array().unwrap();
        let expressions: Vec<_> = terms.iter().map(|term| &term["matchExpressions"]).collect();
        let expected = [
            json!([zone("a"), not_unfit()]),
            json!([not_unfit()]),
            json!([zone("a"), template_node()]),
            json!([template_node()]),
        ];
        assert_eq!(expressions, expected.each_ref(), "a term that matches nothing is dropped");
        let nothing = json!({"nodeAffinity": {REQUIREMENT: {"nodeSelectorTerms": [{}]}}});
        let child = built(&nothing, json!({}));
        let terms = &child["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIREMENT];
        assert_eq!(terms["nodeSelectorTerms"], json!([{}]), "no node stays no node");
    }

    #[test]
    fn preferred_adds_one_term_of_the_largest_weight() {
        let child = built(&json!({}), json!({"placement": "Preferred"}));
        let affinity = &child["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        assert_eq!(affinity[REQUIREMENT], Value::Null);
        let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            *preferred,
            json!([{"weight": 100, "preference": {"matchExpressions": [not_unfit()]}}])
        );
    }

    #[test]
    fn a_selector_that_does_not_match_is_refused_with_the_fix() {
        let mut deployment_spec = author(&json!({}));
        deployment_spec["selector"] = json!({"matchLabels": {"app": "other"}});
        let error = deployment(&watch(deployment_spec.clone(), json!({}))).unwrap_err();
        assert_eq!(error.reason(), "InvalidSpec");
        assert_eq!(
            error.to_string(),
            "spec.deployment.selector: does not match spec.deployment.template.metadata.labels; \
             add app: other to the template"
        );
        deployment_spec["selector"] = json!({});
        assert!(deployment(&watch(deployment_spec, json!({}))).is_err());
    }

    #[test]
    fn the_same_spec_has_the_same_hash_and_another_another() {
        let hash = |spec| deployment(&watch(author(&json!({})), spec)).unwrap().unwrap().hash;
        assert_eq!(hash(json!({})), hash(json!({"interval": "30s"})));
        assert_ne!(hash(json!({})), hash(json!({"label": "other"})));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-z]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(
                    prop_oneof![
                        Just("nodeAffinity".to_owned()),
                        Just(REQUIREMENT.to_owned()),
                        Just("nodeSelectorTerms".to_owned()),
                        Just("matchExpressions".to_owned()),
                        "[a-z]{1,4}",
                    ],
                    inner,
                    0..4
                )
                .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn only_a_simulated_node_is_taken_without_the_exclusion(affinity in any_json()) {
            let child = built(&affinity, json!({}));
            let terms = &child["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIREMENT]
                ["nodeSelectorTerms"];
            let terms = terms.as_array().unwrap();
            prop_assert!(!terms.is_empty());
            for term in terms {
                let expressions = term["matchExpressions"].as_array();
                let excluded = expressions
                    .is_some_and(|e| e.contains(&not_unfit()) || e.contains(&template_node()));
                let matches_nothing = expressions.is_none_or(Vec::is_empty)
                    && term["matchFields"].as_array().is_none_or(Vec::is_empty);
                prop_assert!(excluded || matches_nothing, "{term}");
            }
        }
    }
}
