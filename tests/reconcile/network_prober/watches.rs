//! Pods that the operator watches: those in consenting namespaces.
use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use k8s_openapi::{api::core::v1::Namespace, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{selector, with};
use crate::bench::{ACCOUNT, Bench, Operator, eventually, eventually_or, run};

/// Namespaces that do not consent.
const SILENT: usize = 20;

/// Maximum number of concurrent requests of a test.
const AT_A_TIME: usize = 20;

/// The annotation with which a namespace consents to probers.
const CONSENT: &str = "probes.bigmikes.io/allow";

fn silent(test: &str, number: usize) -> String {
    format!("s02-{test}-{number}")
}

/// Selects the namespaces of one test: namespaces of others may consent to every prober.
fn everywhere(test: &str) -> Value {
    json!({"namespaceSelector": {"matchLabels": {"test": test}}})
}

impl Bench {
    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    async fn make_silent(&self, test: &str, count: usize) {
        let api = self.namespaces();
        let make = async |number: usize| {
            let metadata = json!({"name": silent(test, number), "labels": {"test": test}});
            let object = json!({"metadata": metadata});
            let namespace = serde_json::from_value(object).expect("Namespace");
            // It may be left from a failed run.
            let _ = api.create(&PostParams::default(), &namespace).await;
        };
        stream::iter(0..count).for_each_concurrent(AT_A_TIME, make).await;
    }

    /// Removes them at once: other tests select all namespaces.
    async fn remove_silent(&self, test: &str, count: usize) {
        let api = self.namespaces();
        let remove = async |number: usize| {
            let name = silent(test, number);
            let _ = api.delete(&name, &DeleteParams::default()).await;
            let body = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
                "spec": {"finalizers": []},
            });
            let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"));
            let request = request.header("Content-Type", "application/json");
            let body = serde_json::to_vec(&body).expect("JSON");
            let _ = self.client.request::<Value>(request.body(body).expect("request")).await;
        };
        stream::iter(0..count).for_each_concurrent(AT_A_TIME, remove).await;
    }

    async fn consent(&self, namespace: &str, allow: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {CONSENT: allow}}}));
        let params = PatchParams::default();
        self.namespaces().patch(namespace, &params, &patch).await.expect("annotate");
    }

    /// Returns the namespaces in which the operator listed or watched pods since then; "" is all.
    async fn asked_for_pods(&self, since: Timestamp) -> BTreeSet<String> {
        let events = self.requests_since(since).await;
        let asked = events.into_iter().filter(|event| {
            event.user == ACCOUNT
                && event.resource == "pods"
                && event.user_agent.starts_with("traffic-operator/")
                && matches!(event.verb.as_str(), "list" | "watch")
        });
        asked.map(|event| event.namespace).collect()
    }
}

async fn open(operator: &Operator) -> f64 {
    operator.metric("traffic_operator_store_objects", &["resource=\"pod_watches\""]).await
}

async fn until_open(operator: &Operator, count: f64) {
    let holds = async || (open(operator).await - count).abs().lt(&0.5).then_some(());
    eventually_or(&format!("{count} watches of pods"), holds, async || {
        open(operator).await.to_string()
    })
    .await;
}

#[test]
fn pods_are_watched_only_where_the_namespace_consents() {
    run(async |bench| {
        bench.make_silent("silent", SILENT).await;
        bench.namespace("s02-team", json!({"labels": {"test": "silent"}})).await;
        let everywhere = with(selector(), &everywhere("silent"));
        bench.try_prober("s02-team", "np", everywhere.clone()).await.expect("NetworkProber");
        bench.pod("s02-team", "own", json!({})).await;
        let began = Timestamp::now();
        let operator = bench.ready_operator().await;
        let team = "s02-team/np";
        bench.until_prober(team, &[("/selected", json!(1))]).await;
        let own: BTreeSet<_> = ["s02-team".to_owned()].into();
        assert_eq!(bench.asked_for_pods(began).await, own, "{SILENT} namespaces do not consent");

        // A namespace is watched as soon as it consents.
        let shop = silent("silent", 7);
        let account = async || bench.try_pod(&shop, "there", &json!({}), false).await.ok();
        eventually("the service account of the namespace", account).await;
        bench.consent(&shop, Some("s02-team/np")).await;
        bench.until_prober(team, &[("/selected", json!(2))]).await;
        until_open(&operator, 2.0).await;
        let both: BTreeSet<_> = own.iter().cloned().chain([shop.clone()]).collect();
        assert_eq!(bench.asked_for_pods(began).await, both);

        // A second prober that selects the same pods opens no further watch.
        bench.try_prober("s02-team", "same", everywhere.clone()).await.expect("NetworkProber");
        bench.until_condition("s02-team/same", "Ready", "True", "Serving").await;
        until_open(&operator, 2.0).await;

        // The watch ends when consent is taken back.
        bench.consent(&shop, None).await;
        bench.until_prober(team, &[("/selected", json!(1))]).await;
        until_open(&operator, 1.0).await;
        assert_eq!(bench.asked_for_pods(began).await, both);

        // An administrator's prober covers all namespaces with one watch.
        let system = "traffic-operator-system";
        bench.try_prober(system, "all", everywhere).await.expect("NetworkProber");
        bench.until_prober(&format!("{system}/all"), &[("/selected", json!(2))]).await;
        until_open(&operator, 2.0).await;
        assert!(bench.asked_for_pods(began).await.contains(""));
        bench.remove_silent("silent", SILENT).await;
    });
}
