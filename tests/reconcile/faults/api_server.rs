//! Faults of an API server that the simulation does not have: it is not there yet, stands still, throttles, answers
//! garbage, or is behind a slow line.
use std::time::Duration;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams},
};
use lab::fault::{EventFault, Fault, Rule, Wire};
use serde_json::json;
use traffic_operator::api::TrafficWatch;

use super::{Stage, WRITES, edit, staged, start, unlabel};
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

/// Of fifty marks that take 5 s each, eight at a time, the last would be written after half a
/// minute, when the nodes have long recovered.
#[test]
fn marks_are_not_written_when_their_judgment_is_over() {
    run(async |bench| {
        let nodes: Vec<_> = (0..100).map(|i| format!("slow-{i}")).collect();
        for name in &nodes {
            bench.node(name).await;
            bench.prometheus.set(name, Sample::percent("1"));
        }
        let spec = json!({"interval": "2s", "consecutive": {"unfit": 1, "fit": 1}});
        bench.watch("web", spec).await;
        let proxy = bench.proxy().await;
        let operator = start(&bench, &proxy, "60s", "operator-1");
        bench.until("web", &[("/summary/fit", json!(100))]).await;
        for name in &nodes {
            bench.until_label(name, KEY, Some("false")).await;
        }
        let delay = Fault::Delay(Duration::from_secs(5));
        proxy.set([Rule::new(delay).resource("nodes").verbs(&["patch"])]);
        let since = Timestamp::now();
        for name in &nodes {
            bench.prometheus.set(name, Sample::percent("99"));
        }
        // The nodes recover while the first marks are written.
        let marked = ListParams::default().labels(&format!("{KEY}=true"));
        let any = async || {
            let nodes = bench.nodes().list(&marked).await.ok()?;
            nodes.items.first().map(drop)
        };
        eventually("a mark", any).await;
        for name in &nodes {
            bench.prometheus.set(name, Sample::percent("1"));
        }
        bench.until("web", &[("/summary/unfit", json!(50))]).await;
        bench.until("web", &[("/summary/unfit", json!(0)), ("/summary/fit", json!(100))]).await;
        for name in &nodes {
            bench.until_label(name, KEY, Some("false")).await;
        }
        let writes = bench.writes_since(since).await;
        let marks = writes.iter().filter(|write| write.resource == "nodes").count() / 2;
        assert!((1..=30).contains(&marks), "{marks} of 50 marks written");
        assert_eq!(operator.terminate().await, Some(0));
    });
}

/// The first page takes longer than a request may, and makes progress all the time.
#[test]
fn a_slow_line_delays_the_first_judgment_and_no_more() {
    run(async |bench| {
        three_nodes(&bench).await;
        // 600 kB of nodes, whatever of them is asked for.
        let large = json!({"metadata": {"annotations": {"example.com/large": "x".repeat(20_000)}}});
        for i in 0..30 {
            let name = format!("large-{i}");
            bench.node(&name).await;
            edit(&bench, &name, large.clone()).await;
            bench.prometheus.set(&name, Sample::percent("10"));
        }
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = bench.proxy().await;
        proxy.wire(Wire::Slow(50_000));
        let operator = start(&bench, &proxy, "30s", "operator-1");
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.until("web", &[("/ready", json!(true)), ("/summary/nodes", json!(33))]).await;
        let since = Timestamp::now();
        proxy.wire(Wire::Open);
        bench.judgments(3).await;
        assert_eq!(super::written(&bench, since, "node-2").await, 0);
        assert_eq!(operator.terminate().await, Some(0));
    });
}

fn next(fault: EventFault, node: &str) -> Rule {
    Rule::event(fault).resource("nodes").name(node).times(1)
}

impl Stage {
    /// Removes our label from node-2, and asserts that it comes back: only a watch can bring this.
    async fn repairs(&self) {
        unlabel(&self.bench, "node-2").await;
        self.bench.until_label("node-2", KEY, Some("true")).await;
    }
}

#[test]
fn garbage_in_a_watch_ends_nothing() {
    staged("15s", async |mut stage| {
        stage.proxy.set([next(EventFault::Garbage, "node-2").times(2)]);
        stage.repairs().await;
        stage.recovers_after(2).await;
    });
}

#[test]
fn lists_that_are_cut_off_or_garbage_are_read_again() {
    staged("15s", async |mut stage| {
        let list = |fault| Rule::new(fault).verbs(&["list"]).resource("nodes");
        let half = "{\"kind\":\"NodeList\",\"items\":[".to_owned();
        stage.proxy.set([
            next(EventFault::Gone, "node-2"),
            list(Fault::Cut(300)).times(1),
            list(Fault::Answer(200, "application/json", half)).skip(1).times(1),
            list(Fault::Answer(200, "text/html", "<html>login".into())).skip(2).times(1),
        ]);
        stage.repairs().await;
        assert_eq!(stage.proxy.faults(), 3);
        // An empty or broken list removes no node.
        assert_eq!(stage.bench.status("web").await["summary"]["nodes"], 3);
        stage.recovers_after(2).await;
    });
}
