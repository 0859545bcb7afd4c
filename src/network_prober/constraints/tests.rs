//! Pods that are refused with an agent, and those that are not.
use serde_json::{Value, json};

use super::*;
use crate::webhook::injection::Delivery;

fn recipe(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Recipe {
    let map = |amounts: &[(&str, &str)]| {
        amounts.iter().map(|(name, amount)| ((*name).into(), (*amount).into())).collect()
    };
    Recipe {
        prober: "team/np".into(),
        image: "agent".into(),
        own_image: true,
        http_port: 8080,
        prometheus_port: 2112,
        delivery: Delivery::ConfigMap,
        config_map: "np".into(),
        resources: Resources { requests: map(requests), limits: map(limits) },
        pull_policy: "IfNotPresent",
        run_as_user: None,
        native_sidecar: true,
    }
}

/// Returns the recipe of a `NetworkProber` with defaults.
fn usual() -> Recipe {
    recipe(&[("cpu", "10m"), ("memory", "16Mi")], &[("memory", "64Mi")])
}

fn range(type_: &str, item: &Value) -> Constraints {
    let mut item = item.clone();
    item["type"] = json!(type_);
    let range = json!({"metadata": {"name": "range"}, "spec": {"limits": [item]}});
    let mut constraints = Constraints::default();
    constraints.add_range(&serde_json::from_value(range).unwrap());
    constraints
}

fn quota(spec: &Value, hard: &Value, used: &Value) -> Constraints {
    let quota = json!({
        "metadata": {"name": "quota"}, "spec": spec, "status": {"hard": hard, "used": used},
    });
    let mut constraints = Constraints::default();
    constraints.add_quota(&serde_json::from_value(quota).unwrap());
    constraints
}

fn pod(resources: &Value) -> PodObject {
    let spec = json!({"containers": [{"name": "app", "resources": resources}]});
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

fn burstable() -> PodObject {
    pod(&json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}))
}

#[test]
fn a_limit_range_is_met_or_named() {
    for (item, words) in [
        (json!({"min": {"cpu": "10m", "memory": "16Mi"}}), None),
        (json!({"min": {"cpu": "0.02"}}), Some("less than the minimum of cpu")),
        (json!({"min": {"memory": "32Mi"}}), Some("less than the minimum of memory")),
        (json!({"max": {"memory": "64Mi"}}), None),
        (json!({"max": {"memory": "50Mi"}}), Some("more than the maximum of memory")),
        (json!({"maxLimitRequestRatio": {"memory": "4"}}), None),
        (json!({"maxLimitRequestRatio": {"memory": "2"}}), Some("too far apart in memory")),
        // The range sets what the agent does not.
        (json!({"max": {"cpu": "1"}, "default": {"cpu": "1"}}), None),
        (
            json!({"maxLimitRequestRatio": {"cpu": "10"}, "default": {"cpu": "1"}}),
            Some("too far apart in cpu"),
        ),
        (json!({}), None),
    ] {
        let constraints = range("Container", &item);
        let text = constraints.refusal(&burstable(), &usual());
        let named = text.as_deref().map(|text| text.starts_with("LimitRange range: "));
        assert_eq!(named, words.map(|_| true), "{item}: {text:?}");
        assert!(words.is_none_or(|words| text.unwrap().ends_with(words)), "{item}");
        assert_eq!(constraints.refusal_of_all(&usual()).is_some(), words.is_some(), "{item}");
        // It does not affect other things.
        let volumes = range("PersistentVolumeClaim", &item);
        assert!(volumes.is_empty() && volumes.refusal(&burstable(), &usual()).is_none());
    }
    // A pod without CPU and memory gets an agent without.
    let strict = range("Container", &json!({"min": {"cpu": "1"}}));
    assert_eq!(strict.refusal(&pod(&json!({})), &usual()), None);
    let asked = recipe(&[("cpu", "1")], &[]);
    assert_eq!(strict.refusal(&burstable(), &asked), None);
    // The pod as a whole: 50m and the agent's 10m.
    let whole = |max: &str| range("Pod", &json!({"max": {"cpu": max}}));
    assert_eq!(whole("60m").refusal(&burstable(), &usual()), None);
    let text = whole("55m").refusal(&burstable(), &usual());
    assert_eq!(text.unwrap(), "LimitRange range: no room for the agent in requests.cpu");
}

/// The range adds up the limits of the pod's containers, and their requests.
#[test]
fn the_ratio_of_a_pod_is_its_agents_fault_only_if_the_pod_alone_meets_it() {
    let whole = |ratio: &str| range("Pod", &json!({"maxLimitRequestRatio": {"memory": ratio}}));
    let says = |ratio: &str| whole(ratio).refusal(&burstable(), &usual());
    // 64Mi and 16Mi are requested, 128Mi and 64Mi are the limits: 2.4 times as much.
    let text = "LimitRange range: with the agent, limits and requests of the pod are too far apart \
                in memory";
    assert_eq!(says("2").as_deref(), Some(text));
    assert_eq!(says("3"), None);
    assert_eq!(says("1"), None, "it is refused without an agent too");
    // A pod that exists has its own sums as well.
    let existing = |ratio: &str| whole(ratio).refusal_of_existing(&burstable(), &usual());
    assert_eq!((existing("2").as_deref(), existing("3")), (Some(text), None));
    // A ratio belongs to one pod.
    assert_eq!(whole("2").refusal_of_all(&usual()), None);
    // Without a limit the pod is refused anyway, and without both there is no agent's.
    for resources in [json!({}), json!({"requests": {"memory": "64Mi"}})] {
        assert_eq!(whole("2").refusal(&pod(&resources), &usual()), None, "{resources}");
    }
    assert!(!whole("2").is_empty());
    let none = range("Pod", &json!({"maxLimitRequestRatio": {}}));
    assert!(none.is_empty());
}

#[test]
fn a_quota_is_to_blame_only_if_the_pod_fits_without_its_agent() {
    let quota = |hard: &str, used: &str| {
        quota(
            &json!({}),
            &json!({"requests.cpu": hard, "pods": "1"}),
            &json!({"requests.cpu": used}),
        )
    };
    let says = |constraints: &Constraints| constraints.refusal(&burstable(), &usual());
    assert_eq!(says(&quota("100m", "40m")), None, "50m and 10m fit exactly");
    let text = says(&quota("100m", "41m")).unwrap();
    assert_eq!(text, "ResourceQuota quota: no room for the agent in requests.cpu");
    assert_eq!(says(&quota("100m", "51m")), None, "it is refused without an agent too");
    assert_eq!(quota("100m", "90m").refusal_of_all(&usual()), None);
    assert!(quota("100m", "91m").refusal_of_all(&usual()).is_some());
    assert!(quota("100m", "95m").refusal_of_existing(&burstable(), &usual()).is_some());
}

#[test]
fn quotas_of_other_pods_and_of_other_things_are_passed_over() {
    let full = json!({"limits.memory": "1Mi"});
    let add = |spec: &Value, hard: &Value| quota(spec, hard, hard);
    for spec in [json!({"scopes": ["BestEffort"]}), json!({"scopes": ["Terminating"]})] {
        let scoped = add(&spec, &full);
        assert_eq!(scoped.refusal_of_all(&usual()), None, "{spec}: not of ordinary pods");
        assert_eq!(scoped.refusal(&burstable(), &usual()), None, "{spec}");
    }
    let unknown = json!({"scopes": ["CrossNamespacePodAffinity"]});
    assert!(add(&unknown, &full).is_empty());
    assert!(add(&json!({}), &json!({"pods": "1", "requests.nvidia.com/gpu": "1"})).is_empty());
    let scoped = add(&json!({"scopes": ["NotBestEffort", "NotTerminating"]}), &full);
    assert!(scoped.refusal_of_all(&usual()).is_some());
    // Before the controller has counted, no pod is delayed.
    let mut new = Constraints::default();
    new.add_quota(&serde_json::from_value(json!({"spec": {"hard": full}})).unwrap());
    assert!(new.is_empty());
}

/// It has room for the pod, and none for its agent.
#[test]
fn a_quota_concerns_the_pods_of_its_scopes() {
    let with = |change: Value| {
        let resources = json!({"requests": {"cpu": "50m", "memory": "64Mi"}});
        let mut pod = json!({"spec": {"containers": [{"name": "app", "resources": resources}]}});
        json_patch::merge(&mut pod["spec"], &change);
        serde_json::from_value::<PodObject>(pod).unwrap()
    };
    let class = |operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    let (job, high) = (json!({"activeDeadlineSeconds": 600}), json!({"priorityClassName": "high"}));
    for (spec, change, concerned) in [
        (json!({"scopes": ["Terminating"]}), job.clone(), true),
        (json!({"scopes": ["Terminating"]}), json!({}), false),
        (json!({"scopes": ["NotTerminating"]}), job, false),
        (json!({"scopes": ["NotBestEffort"]}), json!({}), true),
        (json!({"scopes": ["PriorityClass"]}), high.clone(), true),
        (class("In", json!(["high"])), high.clone(), true),
        (class("In", json!(["low"])), high.clone(), false),
        (class("NotIn", json!(["low"])), high.clone(), true),
        (class("Exists", json!(null)), json!({}), false),
        (class("DoesNotExist", json!(null)), json!({}), true),
    ] {
        let quota = quota(&spec, &json!({"requests.cpu": "50m"}), &json!({"requests.cpu": "0"}));
        let refused = quota.refusal(&with(change), &usual()).is_some();
        assert_eq!(refused, concerned, "{spec}");
    }
}

/// No user input breaks anything, nor does it take many resources.
#[test]
fn odd_constraints_are_no_trouble() {
    let mut constraints = Constraints::default();
    for number in 0..1_000 {
        let mut limits: Vec<_> = (0..10)
            .map(|_| json!({"type": "Container", "min": {"cpu": "-1"}, "max": {"memory": "1e400"}}))
            .collect();
        limits.push(json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "-1"}}));
        let range = json!({"metadata": {"name": format!("r{number}")}, "spec": {"limits": limits}});
        constraints.add_range(&serde_json::from_value(range).unwrap());
        let quota = json!({"status": {"hard": {"cpu": "0", "limits.cpu": "nonsense"}}});
        constraints.add_quota(&serde_json::from_value(quota).unwrap());
    }
    assert_eq!((constraints.ranges.len(), constraints.quotas.len()), (MOST, MOST));
    assert_eq!(constraints.ratios.len(), MOST);
    assert!(constraints.refusal(&PodObject::default(), &usual()).is_none());
    assert!(constraints.refusal_of_all(&usual()).is_some(), "no CPU at all");
}
