//! The lease passes from one replica to the next.

use k8s_openapi::{
    api::{coordination::v1::Lease, rbac::v1::RoleBinding},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use traffic_operator::manifests;

use crate::{
    bench::{Bench, eventually},
    traffic_watch::judging::with_three_nodes,
};

async fn holder(bench: &Bench) -> Option<String> {
    let leases = Api::<Lease>::namespaced(bench.client.clone(), manifests::NAMESPACE);
    leases.get_opt(manifests::NAME).await.ok()??.spec?.holder_identity
}

async fn until_holder(bench: &Bench, identity: &str) {
    let held = async || (holder(bench).await.as_deref() == Some(identity)).then_some(());
    eventually(&format!("{identity} to lead"), held).await;
}

#[test]
fn a_rollover_of_two_replicas_hands_the_lease_over_and_changes_no_label() {
    with_three_nodes(async |bench| {
        bench.watch("web", json!({})).await;
        let first = bench.operator_with("first", "15s");
        until_holder(&bench, "first").await;
        let second = bench.operator_with("second", "15s");
        // A follower that can read the lease is ready, and does nothing.
        second.ready().await;
        assert!(second.metric("traffic_operator_leader", &[]).await == 0.0);
        assert!(second.metric("traffic_operator_trafficwatch_nodes", &[]).await == 0.0);
        bench.until("web", &[("/ready", json!(true))]).await;
        let since = Timestamp::now();
        assert_eq!(first.terminate().await, Some(0));
        until_holder(&bench, "second").await;
        bench.judgments(3).await;
        let nodes: Vec<_> =
            bench.writes_since(since).await.into_iter().filter(|w| w.resource == "nodes").collect();
        assert_eq!(nodes, vec![]);
        assert!(second.metric("traffic_operator_leader", &[]).await > 0.5);
    });
}

/// After an upgrade of which only a part was applied: the process may lead and list nothing.
#[test]
fn a_leader_that_sees_nothing_says_so_and_gives_the_lease_up() {
    const BLIND: &str = "system:serviceaccount:blind:operator";
    with_three_nodes(async |bench| {
        bench.watch("web", json!({})).await;
        let binding = json!({
            "metadata": {"name": "blind", "namespace": manifests::NAMESPACE},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": manifests::NAME,
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BLIND,
            }],
        });
        let bindings = Api::<RoleBinding>::namespaced(bench.client.clone(), manifests::NAMESPACE);
        let binding = serde_json::from_value(binding).expect("RoleBinding");
        // It is there if this test has failed before.
        let _ = bindings.create(&PostParams::default(), &binding).await;
        // It gives up after twenty durations.
        let args = ["--lease-duration", "5s", "--identity", "blind"];
        let prometheus = ["--prometheus-url", &bench.prometheus.url];
        let mut blind = Bench::operator_from(bench.kubeconfig_of(BLIND), &prometheus, &args);
        until_holder(&bench, "blind").await;
        for resource in ["resource=\"nodes\"", "resource=\"trafficwatch\""] {
            let unlisted = async || {
                let count = blind.metric("traffic_operator_unlisted_watches", &[resource]).await;
                (count > 0.0).then_some(())
            };
            eventually(resource, unlisted).await;
        }
        let code = eventually("its end", async || blind.child.try_wait().unwrap()).await;
        assert_eq!(code.code(), Some(1));
        assert!(blind.log().contains("has not seen all objects of any kind"), "{}", blind.log());
        // Another replica, which sees everything, need not wait for the Lease to run out.
        let seeing = bench.operator_with("seeing", "15s");
        bench.until("web", &[("/ready", json!(true))]).await;
        let seen = async || {
            let unlisted = seeing.metric("traffic_operator_unlisted_watches", &[]).await;
            (unlisted <= 0.0).then_some(())
        };
        eventually("all watches to be listed", seen).await;
        assert!(bench.status("web").await["lastEvaluationTime"].is_string());
        bindings.delete("blind", &DeleteParams::default()).await.expect("delete");
    });
}
