//! The webhook and the controller as two processes under two accounts, as deployed.
use std::net::TcpStream;

use k8s_openapi::{
    api::core::v1::{Secret, ServiceAccount},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::AuditEvent;
use reqwest::StatusCode;
use serde_json::json;
use traffic_operator::manifests::{NAMESPACE, WEBHOOK};

use super::{agent, lists::Agent, message, selector};
use crate::bench::{
    ACCOUNT, AGENT_IMAGE, Bench, Operator, WEBHOOK_ACCOUNT, eventually, free_address, run,
};

/// The pod whose image agents get.
const POD: &str = "webhook-pod";

/// Starts the webhook's process.
fn webhook(bench: &Bench) -> Operator {
    let args = ["--component=webhook", "--identity", POD];
    Operator::start_at(free_address(), bench.kubeconfig_of(WEBHOOK_ACCOUNT), &args)
}

/// Starts the controller's process, and gives the API server the webhook's address.
fn controller(bench: &Bench, webhook: &Operator) -> Operator {
    let args = [
        "--component=controller",
        "--identity=operator-1",
        "--lease-duration=5s",
        "--agent-image",
        AGENT_IMAGE,
        "--prometheus-url",
        &bench.prometheus.url,
        "--webhook-url",
        &webhook.webhook,
        "--pinglist-url",
        &webhook.pinglists,
    ];
    Operator::start_at(free_address(), bench.kubeconfig_of(ACCOUNT), &args)
}

fn secrets(bench: &Bench) -> Api<Secret> {
    Api::namespaced(bench.client.clone(), NAMESPACE)
}

/// Creates the pod that `--identity` names as the webhook's own.
async fn own_pod(bench: &Bench) {
    let account = Api::<ServiceAccount>::namespaced(bench.client.clone(), NAMESPACE);
    let there = async || account.get_opt("default").await.ok().flatten();
    eventually("the service account of the namespace", there).await;
    let containers = json!([{"name": "operator", "image": AGENT_IMAGE}]);
    bench.pod(NAMESPACE, POD, json!({"spec": {"containers": containers}})).await;
}

fn listens(url: &str) -> bool {
    let address = url.strip_prefix("https://").expect("https");
    TcpStream::connect(address).is_ok()
}

/// Returns the webhook's requests to the API server since then that store something.
async fn writes(bench: &Bench, since: Timestamp) -> Vec<AuditEvent> {
    let events = bench.requests_since(since).await.into_iter();
    let of_webhook = events.filter(|event| event.user == WEBHOOK_ACCOUNT);
    of_webhook.filter(|e| e.is_write() && !e.resource.contains("reviews.")).collect()
}

/// Gets the list of one pod's agent: the list itself, and then a 304.
async fn served(bench: &Bench, webhook: &Operator, pod: &k8s_openapi::api::core::v1::Pod) {
    let agent = Agent::of(bench, webhook, pod).await;
    let first = agent.until(&["b"]).await;
    assert_eq!(first.status, StatusCode::OK);
    let again = agent.ask("default/np", 0, first.etag.as_deref()).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
}

#[test]
fn the_webhook_serves_under_an_account_that_writes_nothing() {
    run(async |bench| {
        let since = Timestamp::now();
        own_pod(&bench).await;
        bench.node("node-1").await;
        // No certificate exists yet, and the webhook must not create one.
        let _ = secrets(&bench).delete(WEBHOOK, &DeleteParams::default()).await;
        let webhook = webhook(&bench);
        let waiting = async || {
            let (code, text) = webhook.page("/readyz").await?;
            (code == 503 && text.trim_end() == "waiting for: certificate").then_some(())
        };
        eventually("the webhook to wait for its certificate", waiting).await;
        let controller = controller(&bench, &webhook);
        controller.ready().await;
        webhook.ready().await;
        // The controller leads and answers no requests; the webhook answers requests and does not
        // lead.
        assert!(!listens(&controller.webhook) && !listens(&controller.pinglists));
        assert!(listens(&webhook.webhook) && listens(&webhook.pinglists));
        eventually("the controller to lead", async || {
            (controller.metric("traffic_operator_leader", &[]).await > 0.5).then_some(())
        })
        .await;

        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        let pod = bench.running_pod("a", "10.1.0.1").await;
        bench.running_pod("b", "10.1.0.2").await;
        assert_eq!(agent(&pod).and_then(|agent| agent.image.as_deref()), Some(AGENT_IMAGE));
        served(&bench, &webhook, &pod).await;
        let injected = ["result=\"injected\""];
        assert!(webhook.metric("traffic_operator_injector_requests_total", &injected).await > 0.0);

        // A spoilt Secret is written again, and its new authority reaches both sides
        // without a restart.
        let bundle = async || {
            let secret = secrets(&bench).get_opt(WEBHOOK).await.expect("get")?;
            Some(secret.data?.remove("ca.crt")?.0)
        };
        let (before, expiry) = (bundle().await, "traffic_operator_injector_cert_not_after_seconds");
        let spoil = Patch::Merge(json!({"data": {"tls.crt": "bm9uc2Vuc2U="}}));
        let params = PatchParams::default();
        secrets(&bench).patch(WEBHOOK, &params, &spoil).await.expect("spoil");
        let after = eventually("another authority", async || {
            bundle().await.filter(|now| Some(now) != before.as_ref())
        })
        .await;
        eventually("agents to trust it", async || {
            let map = bench.maps("default").get_opt("np").await.ok()??;
            (map.data?.remove("ca.crt")?.as_bytes() == after).then_some(())
        })
        .await;
        bench.intercepted("default").await;
        served(&bench, &webhook, &pod).await;
        assert!(webhook.metric(expiry, &["leaf"]).await > 0.0);

        // Without the controller the webhook continues.
        controller.terminate().await;
        let pod = bench.running_pod("c", "10.1.0.3").await;
        assert!(agent(&pod).is_some());
        Agent::of(&bench, &webhook, &pod).await.until(&["a", "b"]).await;
        let written = writes(&bench, since).await;
        assert!(written.is_empty(), "{written:?}");
        assert_eq!(webhook.terminate().await, Some(0));
        bench.pods(NAMESPACE).delete(POD, &DeleteParams::default()).await.expect("delete");
    });
}

/// The webhook is away: pods are still created, and the controller's own work continues.
#[test]
fn without_the_webhook_pods_are_created_and_the_controller_goes_on() {
    run(async |bench| {
        own_pod(&bench).await;
        bench.node("node-1").await;
        let first = webhook(&bench);
        let controller = controller(&bench, &first);
        first.ready().await;
        bench.prober("np", selector()).await;
        bench.intercepted("default").await;
        bench.running_pod("a", "10.1.0.1").await;
        // It takes connections and answers nothing.
        first.signal("STOP");
        let pod = bench.pod("default", "b", json!({})).await;
        assert!(agent(&pod).is_none(), "no webhook injects an agent");
        // Pods show it that are younger than the entry and the last one that was seen.
        let mut number = 0;
        let not_called = async || {
            number += 1;
            bench.pod("default", &format!("c-{number}"), json!({})).await;
            let status = bench.prober_status("np").await;
            message(&status, "Ready", "False", "NotCalled")
        };
        let text = eventually("the missing calls to be reported", not_called).await;
        assert!(text.contains("the API server does not call the webhook"), "{text}");
        first.signal("CONT");
        bench.intercepted("default").await;
        bench.pod("default", "d", json!({})).await;
        bench.until_condition("np", "Ready", "True", "Serving").await;
        assert_eq!(first.terminate().await, Some(0));
        assert_eq!(controller.terminate().await, Some(0));
        bench.pods(NAMESPACE).delete(POD, &DeleteParams::default()).await.expect("delete");
    });
}
