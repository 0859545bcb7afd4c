//! Faults of the API server that requests meet: it is away, or answers wrongly.
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, CustomResourceExt, ResourceExt, api::DeleteParams};
use lab::fault::{Fault, Rule, Wire};
use serde_json::json;
use traffic_operator::api::TrafficWatch;

use super::{WRITES, staged, start};
use crate::{
    bench::{define, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

#[test]
fn an_operator_that_starts_without_an_api_server_begins_when_it_is_there() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = bench.proxy().await;
        proxy.wire(Wire::Refused);
        let operator = start(&bench, &proxy, "15s", "operator-1");
        let alive = async || operator.page("/livez").await.filter(|(code, _)| *code == 200);
        eventually("it to be alive", alive).await;
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert_eq!(operator.page("/livez").await.map(|(code, _)| code), Some(200));
        assert_eq!(operator.page("/readyz").await.map(|(code, _)| code), Some(503));
        proxy.wire(Wire::Open);
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.condition("web", "Ready", "True", "Judged").await;
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// Shorter than the lease: a longer outage ends the process, which its supervisor restarts.
#[test]
fn an_outage_changes_no_label_and_is_over_when_the_api_server_is_back() {
    staged("30s", async |mut stage| {
        stage.proxy.wire(Wire::Refused);
        stage.measures("1");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

#[test]
fn ten_interruptions_cost_no_list_of_all_nodes_each() {
    staged("30s", async |mut stage| {
        let lists = stage.about_nodes("list");
        for _ in 0..10 {
            stage.reconnects().await;
            tokio::time::sleep(Duration::from_millis(1200)).await;
        }
        let more = stage.about_nodes("list") - lists;
        assert!(more <= 2, "{more} lists in ten interruptions: watches go on where they were");
        stage.recovers().await;
    });
}

/// A real one: the API server runs, and its store does not answer.
#[test]
fn a_store_that_stands_still_changes_nothing() {
    staged("60s", async |mut stage| {
        stage.bench.plane().pause("etcd").expect("pause");
        stage.measures("1");
        tokio::time::sleep(Duration::from_secs(15)).await;
        stage.bench.plane().resume("etcd").expect("resume");
        let back = async || stage.bench.nodes().get("node-2").await.ok();
        eventually("the API server to be back", back).await;
        stage.assert_alive().await;
        // A patch that timed out may have been executed, and is then made once more.
        stage.measures("1");
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        stage.bench.until("web", &[("/summary/fit", json!(3))]).await;
        stage.bench.condition("web", "Ready", "True", "Judged").await;
        stage.rests().await;
    });
}

#[test]
fn a_write_that_is_never_answered_is_given_up_after_its_deadline() {
    staged("15s", async |mut stage| {
        stage.proxy.set([Rule::new(Fault::Never).verbs(&["patch"]).resource("nodes")]);
        stage.measures("1");
        let message = stage.bench.condition("web", "Ready", "Unknown", "ApiError").await;
        assert!(message.contains("patch node"), "{message}");
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

/// The write is executed and its answer is lost: making it once more does no harm.
#[test]
fn a_write_whose_answer_is_lost_is_not_made_over_and_over() {
    staged("15s", async |stage| {
        let rule = Rule::new(Fault::Lost).verbs(&["patch"]).resource("nodes").name("node-2");
        stage.proxy.set([rule.times(1)]);
        stage.measures("1");
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        // The watch brings the label long before the deadline; nothing is left to do then.
        stage.bench.judgments(12).await;
        stage.bench.condition("web", "Ready", "True", "Judged").await;
        assert!(super::written(&stage.bench, stage.began, "node-2").await <= 2);
        stage.rests().await;
    });
}

#[test]
fn while_all_writes_are_throttled_few_are_tried() {
    staged("60s", async |mut stage| {
        stage.proxy.set([Rule::new(Fault::Throttle(1)).verbs(WRITES)]);
        stage.measures("1");
        tokio::time::sleep(Duration::from_secs(15)).await;
        stage.assert_alive().await;
        let requests = stage.proxy.requests();
        let refused = requests.iter().filter(|r| r.fault.is_some());
        let to_nodes = refused.filter(|r| r.call.resource == "nodes").count();
        assert!((1..=3).contains(&to_nodes), "{to_nodes} tries in 15 s");
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        stage.recovers().await;
    });
}

#[test]
fn every_second_write_is_a_conflict_and_each_change_is_written_once() {
    staged("15s", async |mut stage| {
        let rule = Rule::new(Fault::Refuse(409)).verbs(&["patch"]).resource("nodes/");
        stage.proxy.set([rule.every(2)]);
        for (percent, unfit) in [("1", "false"), ("90", "true")] {
            stage.measures(percent);
            stage.bench.until_label("node-2", KEY, Some(unfit)).await;
        }
        assert!(stage.proxy.faults() >= 2, "{} conflicts", stage.proxy.faults());
        stage.recovers_after(3).await;
    });
}

#[test]
fn credentials_that_are_refused_for_a_while_end_nothing() {
    staged("30s", async |mut stage| {
        stage.proxy.set([Rule::new(Fault::Refuse(401))]);
        stage.reconnects().await;
        stage.measures("1");
        tokio::time::sleep(Duration::from_secs(8)).await;
        stage.assert_alive().await;
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        stage.recovers().await;
    });
}

#[test]
fn a_definition_that_is_deleted_and_created_again_is_served_again_without_a_flood() {
    staged("15s", async |mut stage| {
        let definitions = Api::<CustomResourceDefinition>::all(stage.bench.client.clone());
        let name = TrafficWatch::crd().name_any();
        definitions.delete(&name, &DeleteParams::default()).await.expect("delete");
        let gone = async || definitions.get_opt(&name).await.ok()?.is_none().then_some(());
        eventually("the definition to go", gone).await;
        // The finalizer of the object held the definition until the labels were gone.
        assert_eq!(stage.bench.label("node-2", KEY).await, None);
        let of_kind = || {
            let requests = stage.proxy.requests();
            requests.iter().filter(|r| r.call.resource == "trafficwatches").count()
        };
        let before = of_kind();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let asked = of_kind() - before;
        assert!(asked <= 20, "{asked} requests in 10 s about a definition that is missing");
        define(&stage.bench.client).await;
        let again = async || stage.bench.watch_in("default", "web", json!({})).await.ok();
        eventually("the object", again).await;
        stage.bench.until_label("node-2", KEY, Some("true")).await;
        // The clean-up, the mark, and the change to fit.
        stage.recovers_after(3).await;
    });
}
