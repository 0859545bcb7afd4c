//! An operator that runs some of the kinds, and one with some definitions missing.
use std::time::Duration;

use k8s_openapi::{
    api::rbac::v1::ClusterRoleBinding,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use traffic_operator::{
    api::{KINDS, NetworkProber},
    manifests::{self, Account},
};

use crate::{
    bench::{ACCOUNT, Bench, Operator, WEBHOOK_ACCOUNT, eventually, free_address, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

/// Removes the definitions and bindings of all kinds but one, and restores them.
struct Only<'b> {
    bench: &'b Bench,
    bindings: Vec<ClusterRoleBinding>,
}

impl<'b> Only<'b> {
    async fn of(bench: &'b Bench, kept: &str) -> Self {
        let all = Api::<ClusterRoleBinding>::all(bench.client.clone());
        let mut bindings = all.list(&ListParams::default()).await.expect("bindings").items;
        bindings.retain(|binding| {
            let name = binding.name_any();
            // One process does everything here, under the controller's account.
            Account::of_role(&name) == Some(Account::Controller)
                && name != manifests::NAME
                && !name.ends_with(&format!("-{kept}"))
        });
        assert_eq!(bindings.len(), KINDS.len() - 1);
        for binding in &bindings {
            all.delete(&binding.name_any(), &DeleteParams::default()).await.expect("delete");
        }
        for name in others(kept) {
            remove(bench, &name).await;
        }
        Self { bench, bindings }
    }

    async fn restore(self) {
        let all = Api::<ClusterRoleBinding>::all(self.bench.client.clone());
        for mut binding in self.bindings {
            let name = binding.name_any();
            binding.metadata.resource_version = None;
            binding.metadata.uid = None;
            binding.metadata.managed_fields = None;
            let params = PatchParams::apply("test").force();
            all.patch(&name, &params, &Patch::Apply(&binding)).await.expect("binding");
        }
        crate::bench::define(&self.bench.client).await;
    }
}

/// The definitions of all kinds but one.
fn others(kept: &str) -> Vec<String> {
    let all = KINDS.iter().map(|kind| (kind.crd)());
    let names = all.filter(|crd| crd.spec.names.singular.as_deref() != Some(kept));
    names.map(|crd| crd.name_any()).collect()
}

async fn remove(bench: &Bench, name: &str) {
    let definitions = Api::<CustomResourceDefinition>::all(bench.client.clone());
    definitions.delete(name, &DeleteParams::default()).await.expect("delete");
    let gone = async || definitions.get_opt(name).await.ok()?.is_none().then_some(());
    eventually(&format!("{name} to go"), gone).await;
}

/// Returns the operator's requests since then that were refused, or that were about one of these
/// kinds.
async fn requests(bench: &Bench, since: Timestamp, about: &[&str]) -> Vec<String> {
    let events = bench.requests_since(since).await.into_iter();
    let ours = events.filter(|e| e.user == ACCOUNT && e.user_agent.starts_with("traffic-operator"));
    let wrong = ours.filter(|event| {
        let about = about.iter().any(|what| event.resource.split('.').next() == Some(what));
        event.code == 403 || about
    });
    wrong.map(|event| format!("{} {} {}", event.verb, event.uri, event.code)).collect()
}

#[test]
fn one_kind_runs_with_its_definition_and_its_role_alone() {
    run(async |bench| {
        let only = Only::of(&bench, "trafficwatch").await;
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let since = Timestamp::now();
        let args = ["--lease-duration", "15s", "--kinds=TrafficWatch"];
        let operator = bench.operator_args(&["--prometheus-url", &bench.prometheus.url], &args);
        operator.ready().await;
        bench.until("web", &[("/ready", json!(true)), ("/summary/unfit", json!(1))]).await;
        bench.judgments(3).await;
        assert_eq!(bench.label("node-2", KEY).await.as_deref(), Some("true"));
        let of_others = [
            "networkprobers",
            "swarms",
            "routereflectorsets",
            "pods",
            "namespaces",
            "configmaps",
            "daemonsets",
            "statefulsets",
            "secrets",
            "mutatingwebhookconfigurations",
            "bgppeers",
        ];
        assert_eq!(requests(&bench, since, &of_others).await, Vec::<String>::new());
        // There is no listener where the webhook would be.
        let webhook = operator.webhook.trim_start_matches("https://").to_owned();
        assert!(tokio::net::TcpStream::connect(&webhook).await.is_err(), "{webhook}");
        let log = operator.log();
        assert!(!log.contains("its definition is not installed"), "{log}");
        let (_, metrics) = operator.page("/metrics").await.expect("/metrics");
        assert!(metrics.contains("traffic_operator_trafficwatch_nodes"), "{metrics}");
        drop(operator);
        only.restore().await;
    });
}

#[test]
fn a_kind_whose_definition_is_missing_is_off_with_one_line_until_it_is_there() {
    run(async |bench| {
        for name in ["swarms.traffic.example.com", "networkprobers.probes.bigmikes.io"] {
            remove(&bench, name).await;
        }
        three_nodes(&bench).await;
        bench.watch("web", json!({})).await;
        let since = Timestamp::now();
        let operator = bench.operator();
        // Readiness does not wait for definitions that are not installed.
        operator.ready().await;
        bench.until("web", &[("/ready", json!(true))]).await;
        bench.judgments(3).await;
        let lines = |kind: &str| {
            let log = operator.log();
            let of = |line: &&str| line.contains("its definition is not installed");
            log.lines().filter(of).filter(|line| line.contains(kind)).count()
        };
        assert_eq!((lines("Swarm"), lines("NetworkProber"), lines("TrafficWatch")), (1, 1, 0));
        let asked = requests(&bench, since, &["swarms", "networkprobers", "configmaps"]).await;
        assert_eq!(asked, Vec::<String>::new());

        crate::bench::define(&bench.client).await;
        // The operator looks for it every half minute: longer than a test usually waits.
        let end = std::time::Instant::now() + Duration::from_mins(1);
        while operator.log().matches("its definition is there now").count() < 2 {
            assert!(std::time::Instant::now() < end, "not found again:\n{}", operator.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bench.prober("np", crate::network_prober::selector()).await;
        bench.intercepted("default").await;
        operator.ready().await;
    });
}

/// A webhook that cannot answer gets no traffic: it is alive, and not ready.
#[test]
fn a_webhook_whose_definition_is_not_installed_is_not_ready() {
    run(async |bench| {
        remove(&bench, &NetworkProber::crd().name_any()).await;
        let kubeconfig = bench.kubeconfig_of(WEBHOOK_ACCOUNT);
        let webhook = Operator::start_at(free_address(), kubeconfig, &["--component=webhook"]);
        eventually("the webhook to look for the definition", async || {
            webhook.log().contains("its definition is not installed").then_some(())
        })
        .await;
        let expected = Some((503, "waiting for: certificate, networkprobers\n".to_owned()));
        assert_eq!(webhook.page("/readyz").await, expected);
        assert_eq!(webhook.page("/livez").await.map(|answer| answer.0), Some(200));
        crate::bench::define(&bench.client).await;
        assert_eq!(webhook.terminate().await, Some(0));
    });
}
