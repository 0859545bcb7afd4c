//! Each defect of the original operator, by its number in the list of defects.
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{agent, selector, served, with};
use crate::bench::{eventually, run};

mod children;
mod failures;

/// The original's sample, word for word.
const SAMPLE: &str = include_str!("../../../deploy/samples/networkprober-original.yaml");

/// The spec of the original's sample.
fn original() -> Value {
    let sample: Value = serde_yaml::from_str(SAMPLE).expect("sample");
    sample["spec"].clone()
}

#[test]
fn the_original_sample_gets_what_it_got() {
    served(async |bench, _operator| {
        bench.prober("networkprober-sample", original()).await;
        bench.intercepted("default").await;
        let pod = bench.pod("default", "a", json!({})).await;
        assert_eq!(pod.annotations()["netprober-container-deployed"], "true");
        let container = agent(&pod).expect("the agent");
        assert_eq!(container.image.as_deref(), Some("bigmikes/kube-net-prober:test-version-v8"));
        assert_eq!(container.restart_policy.as_deref(), Some("Always"), "a native sidecar");
        assert_eq!(container.args, None, "its image needs no arguments");
        let mounts = container.volume_mounts.iter().flatten();
        let token = mounts.filter(|mount| mount.name != "net-prober-vol");
        assert_eq!(token.count(), 0, "it has no access to the token of the pod's account");
        let ports: Vec<_> = container.ports.iter().flatten().collect();
        let ports: Vec<_> = ports.iter().map(|p| (p.name.as_deref(), p.container_port)).collect();
        assert_eq!(ports, [(Some("np-ping"), 9090), (Some("np-prometheus"), 1222)]);
        bench.pod("default", "b", json!({})).await;
        bench.runs("default", "a", "10.1.0.1").await;
        bench.runs("default", "b", "10.1.0.2").await;
        let listed = ["a 10.1.0.1:9090", "b 10.1.0.2:9090"];
        let file = bench.until_listed("default", "networkprober-sample", &listed).await;
        assert_eq!(file["pollingPeriod"], json!(10_000_000_000_u64));
        let expected =
            [("/selected", json!(2)), ("/injected", json!(2)), ("/pods", json!(["a", "b"]))];
        bench.until_prober("networkprober-sample", &expected).await;
        bench.until_condition("networkprober-sample", "Ready", "True", "Serving").await;
        bench.until_condition("networkprober-sample", "Covered", "True", "AllInjected").await;
    });
}

/// 1: the selection was cluster-wide, and pods of other namespaces never started.
#[test]
fn pods_of_other_namespaces_are_left_alone() {
    served(async |bench, _operator| {
        bench.namespace("elsewhere", json!({})).await;
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.pod("elsewhere", "a", json!({})).await;
        assert!(agent(&pod).is_none() && pod.annotations().is_empty());
        // Selected, but without consent: still left alone, and the status shows nothing of it.
        bench.change("np", json!({"namespaceSelector": {}})).await;
        let generation = json!(2);
        let unseen = [("/observedGeneration", generation), ("/selected", json!(0))];
        bench.until_prober("np", &unseen).await;
        let reported = bench.until_condition("np", "Covered", "Unknown", "NoPods").await;
        assert!(reported.contains("probes.bigmikes.io/allow"), "{reported}");
        let pod = bench.pod("elsewhere", "b", json!({})).await;
        assert!(agent(&pod).is_none());
    });
}

/// 3: without the operator no pod could be created anywhere.
#[test]
fn without_the_operator_pods_are_created_in_every_namespace() {
    served(async |bench, operator| {
        bench
            .namespace("elsewhere", json!({"annotations": {"probes.bigmikes.io/allow": "*"}}))
            .await;
        bench.prober("np", with(selector(), &json!({"namespaceSelector": {}}))).await;
        bench.intercepted("elsewhere").await;
        let live = bench.entry("default", "np").await.expect("webhook");
        let [scope] = &live["namespaceSelector"]["matchExpressions"].as_array().unwrap()[..] else {
            panic!("{live}");
        };
        assert_eq!(
            (&scope["key"], &scope["operator"]),
            (&"kubernetes.io/metadata.name".into(), &"In".into())
        );
        // A namespace of another test may consent too.
        let values = scope["values"].as_array().unwrap();
        for (namespace, called) in [
            ("default", true),
            ("elsewhere", true),
            ("kube-system", false),
            ("traffic-operator-system", false),
        ] {
            assert_eq!(values.contains(&namespace.into()), called, "{namespace}: {scope}");
        }
        assert_eq!(live["failurePolicy"], "Ignore");
        assert_eq!(live["timeoutSeconds"], 2);
        operator.terminate().await;
        for namespace in ["default", "elsewhere", "kube-system", "traffic-operator-system"] {
            let pod = bench.pod(namespace, "alone", json!({})).await;
            assert!(agent(&pod).is_none(), "{namespace}");
        }
        // These pods are counted once the operator is back.
        let _operator = bench.ready_operator().await;
        let missed = json!([{"reason": "CreatedBefore", "count": 2}]);
        bench.until_prober("np", &[("/notInjected", missed)]).await;
    });
}

/// 16: Jobs never ended, and restricted namespaces and quotas refused the pod.
#[test]
fn restricted_namespaces_and_quotas_take_the_pod_and_jobs_can_end() {
    served(async |bench, _operator| {
        let metadata = json!({
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            "annotations": {"probes.bigmikes.io/allow": "*"},
        });
        bench.namespace("restricted", metadata).await;
        let quota = json!({"metadata": {"name": "all"}, "spec": {"hard": {
            "requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "1", "limits.memory": "1Gi"}}});
        let quota = serde_json::from_value(quota).expect("quota");
        let quotas = kube::Api::<k8s_openapi::api::core::v1::ResourceQuota>::namespaced(
            bench.client.clone(),
            "restricted",
        );
        // It may be left from an earlier run.
        let _ = quotas.create(&PostParams::default(), &quota).await;
        bench.prober("np", with(selector(), &json!({"namespaceSelector": {}}))).await;
        let clean = json!({"spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "app", "image": "app",
                "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"cpu": "10m", "memory": "8Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        }});
        let admitted = async || {
            let pod = bench.try_pod("restricted", "job", &clean, false).await.expect("admitted");
            let injected = agent(&pod).is_some();
            if !injected {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                bench.pods("restricted").delete("job", &now).await.expect("delete");
            }
            injected.then_some(pod)
        };
        let pod = eventually("a pod with the agent", admitted).await;
        let container = agent(&pod).expect("agent");
        assert_eq!(container.restart_policy.as_deref(), Some("Always"), "a native sidecar");
        let resources = container.resources.as_ref().expect("resources");
        assert_eq!(resources.requests, resources.limits, "the pod stays Guaranteed");
        let class = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        assert_eq!(class, Some("Guaranteed"));
    });
}

/// Without an image in the spec and in the flags, agents get the image of the operator's own pod:
/// one GET in its own namespace.
#[test]
fn agents_have_the_image_of_the_operators_own_pod() {
    run(async |bench| {
        let namespace = traffic_operator::manifests::NAMESPACE;
        let account = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
            bench.client.clone(),
            namespace,
        );
        let there = async || account.get_opt("default").await.ok().flatten();
        eventually("the service account of the namespace", there).await;
        let image = "registry.example.com/traffic-operator@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let containers = json!([
            {"name": "other", "image": "other"}, {"name": "operator", "image": image},
        ]);
        bench.pod(namespace, "operator-pod", json!({"spec": {"containers": containers}})).await;
        let operator = bench.operator_in_pod("operator-pod");
        operator.ready().await;
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.pod("default", "a", json!({})).await;
        assert_eq!(agent(&pod).and_then(|agent| agent.image.as_deref()), Some(image));
        let now = DeleteParams::default();
        bench.pods(namespace).delete("operator-pod", &now).await.expect("delete");
    });
}
