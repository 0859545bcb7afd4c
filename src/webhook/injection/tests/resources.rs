//! Resources of an agent, in addition to those of its pod.
use super::*;
use crate::pods::Qos;

#[test]
fn qos_is_kept() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let guaranteed = json!({"requests": both, "limits": both});
    let init = |resources: &Value| json!([{"name": "init", "resources": resources}]);
    let main = |resources: &Value| json!([{"name": "app", "resources": resources}]);
    let burstable = json!({"requests": {"cpu": "1m"}});
    for (resources, class, expected) in [
        (&json!({}), Qos::BestEffort, json!({})),
        (
            &burstable,
            Qos::Burstable,
            json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}),
        ),
        (
            &guaranteed,
            Qos::Guaranteed,
            json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}),
        ),
    ] {
        let mut pod = plain();
        pod["spec"]["containers"] = main(resources);
        pod["spec"]["initContainers"] = init(resources);
        assert_eq!(read(&pod).qos(), class);
        for recipe in [recipe(), Recipe { native_sidecar: false, ..recipe() }] {
            let injected = inject(&pod, &recipe);
            assert_eq!(read(&injected).qos(), class);
            assert_eq!(agent(&injected)["resources"], expected);
        }
        pod["spec"]["resources"] = json!({"limits": both});
        assert_eq!(agent(&inject(&pod, &recipe()))["resources"], json!({}));
    }
}

/// A quota refuses a pod with a container that does not set the counted resource.
#[test]
fn an_agent_states_what_all_containers_of_its_pod_state() {
    let none = Recipe { resources: Resources::default(), ..recipe() };
    let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let requests = json!({"requests": both("1m", "1Mi")});
    let limits = json!({"requests": both("1m", "1Mi"), "limits": both("1", "1Gi")});
    let cpu = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1"}});
    let written = |requests: Value, limits: Value| json!({"requests": requests, "limits": limits});
    for (first, second, recipe, expected) in [
        (&requests, &requests, &none, json!({"requests": both("10m", "16Mi")})),
        (&limits, &limits, &none, json!({"limits": both("100m", "64Mi")})),
        (&limits, &requests, &none, json!({"requests": both("10m", "16Mi")})),
        (&limits, &cpu, &none, json!({"limits": {"cpu": "100m"}})),
        // The author's values stay.
        (&limits, &limits, &recipe(), written(both("10m", "32Mi"), both("100m", "64Mi"))),
        (&requests, &requests, &recipe(), written(both("10m", "32Mi"), json!({"memory": "64Mi"}))),
    ] {
        let mut pod = plain();
        pod["spec"]["containers"][0]["resources"] = first.clone();
        pod["spec"]["initContainers"][0]["resources"] = second.clone();
        let injected = inject(&pod, recipe);
        assert_eq!(agent(&injected)["resources"], expected, "{first} {second}");
        assert_eq!((read(&pod).qos(), read(&injected).qos()), (Qos::Burstable, Qos::Burstable));
    }
    // A request above the usual limit becomes the limit.
    let mut large = none.clone();
    large.resources.requests.insert("cpu".into(), "1".into());
    let mut pod = plain();
    pod["spec"]["containers"][0]["resources"] = cpu.clone();
    pod["spec"]["initContainers"][0]["resources"] = cpu;
    assert_eq!(agent(&inject(&pod, &large))["resources"]["limits"]["cpu"], "1");
}

#[test]
fn a_guaranteed_agent_has_what_was_asked_if_that_is_more() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": both}}]}});
    let mut recipe = recipe();
    recipe.resources.requests.insert("cpu".into(), "200m".into());
    recipe.resources.limits.insert("memory".into(), "128Mi".into());
    recipe.resources.limits.insert("ephemeral-storage".into(), "1Gi".into());
    let resources = agent(&inject(&pod, &recipe))["resources"].clone();
    assert_eq!(
        resources["limits"],
        json!({"cpu": "200m", "memory": "128Mi", "ephemeral-storage": "1Gi"})
    );
    assert_eq!(resources["requests"], json!({"cpu": "200m", "memory": "128Mi"}));
}

#[test]
fn huge_pages_are_dropped_with_what_they_need() {
    let mut recipe = recipe();
    for (name, amount) in [("hugepages-2Mi", "2Mi"), ("ephemeral-storage", "1Gi")] {
        recipe.resources.limits.insert(name.into(), amount.into());
    }
    let resources = agent(&inject(&plain(), &recipe))["resources"].clone();
    assert_eq!(resources, json!({"limits": {"ephemeral-storage": "1Gi"}}));
}

/// Zero is no limit to the kubelet, and would change the class.
#[test]
fn a_guaranteed_agent_has_no_limit_of_zero() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": both}}]}});
    let mut recipe = recipe();
    recipe.resources.limits.insert("cpu".into(), "0".into());
    let injected = inject(&pod, &recipe);
    assert_eq!(agent(&injected)["resources"]["limits"]["cpu"], "50m");
    assert_eq!(read(&injected).qos(), Qos::Guaranteed);
}

/// The limits of a namespace are compared with these.
#[test]
fn the_resources_of_a_pods_agent_are_those_that_it_is_given() {
    let mut pod = plain();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}});
    let resources = super::super::resources(&read(&pod), &recipe());
    assert!(!resources.requests.is_empty());
    assert_eq!(
        serde_json::to_value(resources).unwrap(),
        agent(&inject(&pod, &recipe()))["resources"]
    );
}
