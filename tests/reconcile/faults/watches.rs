//! Faults of watches, and of the lists that they begin with.
use std::time::Duration;

use kube::api::DeleteParams;
use lab::fault::{EventFault, Fault, Rule};
use serde_json::json;

use super::{Stage, staged, touch, unlabel};
use crate::{bench::eventually, traffic_watch::judging::KEY};

const WATCH: &[&str] = &["watch"];

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
fn a_watch_that_is_refused_as_too_old_is_opened_again() {
    staged("15s", async |mut stage| {
        let lists = stage.about_nodes("list");
        stage.proxy.set([
            next(EventFault::End, "node-1"),
            Rule::new(Fault::Refuse(410)).verbs(WATCH).resource("nodes").times(2),
        ]);
        touch(&stage.bench, "node-1").await;
        stage.repairs().await;
        // With the same version it would be refused for ever.
        let refused = async || (stage.about_nodes("list") >= lists + 2).then_some(());
        eventually("a list after each refusal", refused).await;
        stage.recovers_after(2).await;
    });
}

#[test]
fn a_watch_whose_version_is_gone_begins_with_a_list() {
    staged("15s", async |mut stage| {
        let lists = stage.about_nodes("list");
        stage.proxy.set([next(EventFault::Gone, "node-2")]);
        // The very change that is lost is in the list.
        stage.repairs().await;
        let more = stage.about_nodes("list") - lists;
        assert!((1..=2).contains(&more), "{more} lists");
        stage.recovers_after(2).await;
    });
}

#[test]
fn watches_that_end_each_second_lose_no_change_and_list_nothing() {
    staged("15s", async |mut stage| {
        stage.proxy.set([Rule::new(Fault::Close(Duration::from_secs(1))).verbs(WATCH)]);
        stage.reconnects().await;
        let (lists, watches) = (stage.about_nodes("list"), stage.about_nodes("watch"));
        for _ in 0..3 {
            stage.repairs().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        assert!(stage.about_nodes("list") <= lists + 1, "a watch goes on where it was");
        assert!(stage.about_nodes("watch") > watches + 3, "the watches did not end");
        stage.recovers_after(4).await;
    });
}

/// Behind a firewall that drops: the request leaves, and nothing ever comes back.
#[test]
fn a_watch_that_hangs_is_given_up_and_brings_what_it_missed() {
    staged("15s", async |mut stage| {
        stage.proxy.set([
            next(EventFault::End, "node-1"),
            Rule::new(Fault::Never).verbs(WATCH).resource("nodes").times(1),
        ]);
        let faults = stage.proxy.faults();
        touch(&stage.bench, "node-1").await;
        let hangs = async || (stage.proxy.faults() > faults).then_some(());
        eventually("a watch to hang", hangs).await;
        let began = std::time::Instant::now();
        stage.repairs().await;
        // The client's patience with a request is 10 s; a pause of the watch follows.
        assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
        stage.recovers_after(2).await;
    });
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

#[test]
fn events_that_come_twice_are_acted_upon_once() {
    staged("15s", async |mut stage| {
        stage.proxy.set([Rule::event(EventFault::Duplicate)]);
        for _ in 0..3 {
            stage.repairs().await;
        }
        stage.recovers_after(4).await;
    });
}

/// The last state of an object counts: neither the order of events about different objects, nor a
/// state between two others.
#[test]
fn events_in_another_order_or_missing_between_two_end_in_the_same_state() {
    staged("15s", async |mut stage| {
        stage.proxy.set([next(EventFault::Swap, "node-2")]);
        unlabel(&stage.bench, "node-2").await;
        touch(&stage.bench, "node-1").await;
        stage.bench.until_label("node-2", KEY, Some("true")).await;
        stage.proxy.set([next(EventFault::Drop, "node-2")]);
        touch(&stage.bench, "node-2").await;
        stage.repairs().await;
        stage.recovers_after(3).await;
    });
}

/// An API server that lags behind, with a node in its view that is gone.
#[test]
fn an_old_view_makes_no_write_that_the_present_does_not_need() {
    staged("15s", async |mut stage| {
        stage.proxy.freeze().await.expect("freeze");
        // Watches that are open hold newer events back; those that begin now do so as well.
        stage.reconnects().await;
        let nodes = stage.bench.nodes();
        nodes.delete("node-3", &DeleteParams::default()).await.expect("delete");
        unlabel(&stage.bench, "node-2").await;
        stage.bench.judgments(4).await;
        // In its view the label is there.
        assert_eq!(super::written(&stage.bench, stage.began, "node-2").await, 0);
        assert_eq!(stage.bench.status("web").await["summary"]["nodes"], 3);
        stage.proxy.thaw();
        stage.bench.until("web", &[("/summary/nodes", json!(2))]).await;
        stage.bench.until_label("node-2", KEY, Some("true")).await;
        assert!(nodes.get_opt("node-3").await.expect("get").is_none(), "a write brought it back");
        assert_eq!(super::written(&stage.bench, stage.began, "node-2").await, 1);
        stage.rests().await;
        stage.assert_alive().await;
    });
}
