//! Pods that are left alone, and the reason given for each.
use super::*;

#[test]
fn every_reason_to_leave_a_pod_alone() {
    let container = |spec: Value| with("/spec/containers", json!([{"name": "app"}, spec]));
    for (pod, expected) in [
        (with("/spec/hostNetwork", json!(true)), SkipReason::HostNetwork),
        (with("/spec/os", json!({"name": "windows"})), SkipReason::Windows),
        (with("/spec/nodeSelector", json!({"kubernetes.io/os": "windows"})), SkipReason::Windows),
        (
            with("/metadata/annotations/kubernetes.io~1config.mirror", json!("x")),
            SkipReason::MirrorPod,
        ),
        (
            container(json!({"name": "a", "ports": [{"containerPort": 8080}]})),
            SkipReason::PortTaken,
        ),
        (
            container(json!({"name": "a", "ports": [{"containerPort": 2112}]})),
            SkipReason::PortTaken,
        ),
        (container(json!({"name": "net-prober", "image": "the author's"})), SkipReason::NameTaken),
        (
            with("/spec/volumes", json!([{"name": "net-prober-vol", "emptyDir": {}}])),
            SkipReason::NameTaken,
        ),
        (
            with("/metadata/annotations/probes.bigmikes.io~1injected-by", json!("a/b")),
            SkipReason::OtherProber,
        ),
    ] {
        assert_eq!(reason(&pod, &recipe()), Some(expected), "{pod}");
    }
    assert_eq!(reason(&plain(), &recipe()), None);
}

#[test]
fn opting_out_by_annotation() {
    let deployed = "/metadata/annotations/netprober-container-deployed";
    let inject = "/metadata/annotations/probes.bigmikes.io~1inject";
    for (path, value, out) in [
        (deployed, "true", true),
        (deployed, "false", true),
        (deployed, "", true),
        (inject, "false", true),
        (inject, "False", true),
        (inject, "true", false),
        (inject, "", false),
    ] {
        let expected = out.then_some(SkipReason::OptedOut);
        assert_eq!(reason(&with(path, json!(value)), &recipe()), expected, "{path} {value}");
    }
}

#[test]
fn the_second_prober_leaves_the_first_ones_pod_alone() {
    let other = Recipe { prober: "other/mesh".into(), ..recipe() };
    let first = inject(&plain(), &other);
    assert_eq!(reason(&first, &recipe()), Some(SkipReason::OtherProber));
    assert_eq!(inject(&first, &recipe()), first);
}

#[test]
fn the_original_operators_agent_is_an_agent() {
    let mut pod = plain();
    pod["metadata"]["annotations"]["netprober-container-deployed"] = json!("true");
    let theirs = json!({"name": "net-prober", "image": "bigmikes/kube-net-prober", "ports": [
        {"name": "np-ping", "containerPort": 9090}, {"name": "np-prometheus", "containerPort": 1222}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(theirs);
    assert_eq!(reason(&pod, &recipe()), Some(SkipReason::AlreadyInjected));
}

#[test]
fn every_word_is_there_once() {
    let words: std::collections::BTreeSet<_> = SkipReason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(words.len(), SkipReason::ALL.len());
    assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
}

#[test]
fn a_reason_is_shown_by_its_name() {
    assert_eq!(SkipReason::HostNetwork.to_string(), "HostNetwork");
}
