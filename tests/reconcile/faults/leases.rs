//! Faults of leadership: at every moment at most one process writes.
use std::time::{Duration, Instant};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::fault::{Fault, Rule, Wire};
use serde_json::{Value, json};
use traffic_operator::manifests;

use super::{Stage, start, written};
use crate::{
    bench::{Bench, Operator, eventually, run},
    prometheus::Sample,
    traffic_watch::judging::{KEY, three_nodes},
};

fn leases(bench: &Bench) -> Api<Lease> {
    Api::namespaced(bench.client.clone(), manifests::NAMESPACE)
}

pub(super) async fn until_holder(bench: &Bench, identity: &str) {
    let held = async || {
        let lease = leases(bench).get_opt(manifests::NAME).await.ok()??;
        (lease.spec?.holder_identity.as_deref() == Some(identity)).then_some(())
    };
    eventually(&format!("{identity} to lead"), held).await;
}

/// Edits the record of the lease by hand.
async fn edit(bench: &Bench, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    leases(bench).patch(manifests::NAME, &params, &patch).await.expect("patch");
}

/// Waits for the moment after a renewal, so that an edit is there before the next one.
async fn renewed(stage: &Stage) {
    let renewals = || {
        let requests = stage.proxy.requests().into_iter();
        let leases = requests.filter(|r| r.call.resource == "leases" && r.call.verb == "update");
        leases.filter(|r| r.code == 200).count()
    };
    let before = renewals();
    eventually("a renewal", async || (renewals() > before).then_some(())).await;
}

/// Waits for the end of a process that lost its lease.
pub(super) async fn ends(operator: &mut Operator) -> Option<i32> {
    let ended = async || operator.child.try_wait().expect("wait");
    eventually("the operator to end", ended).await.code()
}

#[test]
fn l01_after_the_leader_is_killed_the_other_leads_within_the_lease() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let first = bench.operator_with("first", "6s");
        until_holder(&bench, "first").await;
        bench.until_label("node-2", KEY, Some("true")).await;
        bench.until("web", &[("/ready", json!(true))]).await;
        let second = bench.operator_with("second", "6s");
        second.ready().await;
        let since = Timestamp::now();
        let began = Instant::now();
        first.signal("KILL");
        until_holder(&bench, "second").await;
        // The lease, a look, and what a busy machine adds.
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        bench.judgments(4).await;
        assert_eq!(written(&bench, since, "node-2").await, 0, "it decides as the first one did");
        bench.prometheus.set("node-2", Sample::percent("1"));
        bench.until_label("node-2", KEY, Some("false")).await;
        assert_eq!(second.terminate().await, Some(0));
    });
}

/// The old leader has another decision to write than its successor: it must never be written.
#[test]
fn l04_a_leader_that_is_cut_off_writes_nothing_of_what_it_had_decided() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        let second = stage.bench.operator_with("second", "6s");
        second.ready().await;
        stage.proxy.wire(Wire::Silent);
        // It decides this, and cannot write it.
        stage.measures("1");
        let code = ends(&mut stage.operator).await;
        assert_eq!(code, Some(1));
        // The successor decides the opposite.
        stage.measures("95");
        until_holder(&stage.bench, "second").await;
        stage.bench.judgments(3).await;
        stage.bench.until_label("node-2", KEY, Some("true")).await;
        let since = Timestamp::now();
        // The bytes of a partition are lost; the network works again.
        stage.reconnects().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let writes = stage.bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        assert_eq!(second.terminate().await, Some(0));
    });
}

#[test]
fn l05_of_two_that_start_together_exactly_one_leads_each_time() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({})).await;
        for round in 0..6 {
            let (one, two) = (bench.operator_with("one", "6s"), bench.operator_with("two", "6s"));
            one.ready().await;
            two.ready().await;
            let leading = async |operator: &Operator| {
                operator.metric("traffic_operator_leader", &[]).await > 0.5
            };
            let found = async || {
                let both = (leading(&one).await, leading(&two).await);
                assert_ne!(both, (true, true), "round {round}");
                (both.0 || both.1).then_some(both.0)
            };
            let first = eventually("one of them to lead", found).await;
            let holder = if first { "one" } else { "two" };
            until_holder(&bench, holder).await;
            // Half of the rounds end with the leader, and half with the follower.
            let (leader, follower) = if first { (one, two) } else { (two, one) };
            if round % 2 == 0 {
                assert_eq!(leader.terminate().await, Some(0));
                let other = if first { "two" } else { "one" };
                until_holder(&bench, other).await;
                assert_eq!(follower.terminate().await, Some(0));
            } else {
                assert_eq!(follower.terminate().await, Some(0));
                assert_eq!(leader.terminate().await, Some(0));
            }
        }
    });
}

#[test]
fn l06_a_lease_that_is_deleted_is_made_again_by_its_holder() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        renewed(&stage).await;
        leases(&stage.bench).delete(manifests::NAME, &DeleteParams::default()).await.expect("it");
        until_holder(&stage.bench, "operator-1").await;
        stage.assert_alive().await;
        stage.recovers().await;
    });
}

#[test]
fn l07_a_record_without_a_holder_or_with_absurd_times_is_written_again() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        for spec in [
            json!({"holderIdentity": "", "renewTime": null, "acquireTime": null}),
            json!({"renewTime": "1970-01-01T00:00:00.000000Z", "leaseTransitions": 2_147_483_647}),
            json!({"renewTime": "2999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}),
        ] {
            renewed(&stage).await;
            edit(&stage.bench, spec).await;
            until_holder(&stage.bench, "operator-1").await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            stage.assert_alive().await;
        }
        stage.recovers().await;
    });
}

#[test]
fn l07_a_leader_whose_lease_is_given_to_another_ends_and_writes_nothing() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        edit(&stage.bench, json!({"holderIdentity": "nobody"})).await;
        assert_eq!(ends(&mut stage.operator).await, Some(1));
        let since = Timestamp::now();
        stage.measures("1");
        assert_eq!(stage.bench.writes_since(since).await, vec![]);
        // Started again, it leads when nobody has renewed for the time of a lease.
        stage.operator = start(&stage.bench, &stage.proxy, "6s", "operator-1");
        stage.recovers().await;
    });
}

/// The record shows a clock that is an hour off. Only the time for which the record does not change
/// counts, by the follower's own monotonic clock.
#[test]
fn l08_a_clock_that_is_an_hour_off_neither_shortens_nor_prolongs_a_lease() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.watch("web", json!({})).await;
        for hours in [-1, 1] {
            let first = bench.operator_with("first", "6s");
            until_holder(&bench, "first").await;
            // It ends without giving the lease back, and its last record has another clock's time.
            first.signal("KILL");
            drop(first);
            let renewed = Timestamp::from_second(Timestamp::now().as_second() + hours * 3600);
            let renewed = format!("{:.6}", renewed.expect("a time"));
            edit(&bench, json!({"holderIdentity": "lost", "renewTime": renewed})).await;
            let began = Instant::now();
            let second = bench.operator_with("second", "6s");
            until_holder(&bench, "second").await;
            let took = began.elapsed();
            assert!((5..15).contains(&took.as_secs()), "{hours} h: {took:?}");
            assert_eq!(second.terminate().await, Some(0));
        }
    });
}

#[test]
fn l09_a_leader_that_cannot_renew_in_time_ends_before_anybody_may_take_over() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "9s").await;
        let nine = Duration::from_secs(9);
        stage.proxy.set([Rule::new(Fault::Delay(nine, nine)).resource("leases")]);
        let began = Instant::now();
        assert_eq!(ends(&mut stage.operator).await, Some(1));
        // Two thirds of the lease, after the last renewal.
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
        let since = Timestamp::now();
        assert_eq!(stage.bench.writes_since(since).await, vec![]);
        stage.proxy.clear();
        stage.operator = start(&stage.bench, &stage.proxy, "9s", "operator-1");
        stage.recovers().await;
    });
}

/// The default lease. A renewal is one request, for which there is a third of it.
#[test]
fn l09_while_each_request_for_the_lease_takes_four_seconds_there_is_a_leader() {
    run(async |bench| {
        three_nodes(&bench).await;
        bench.prometheus.set("node-2", Sample::percent("90"));
        bench.watch("web", json!({})).await;
        let proxy = bench.proxy().await;
        let four = Duration::from_secs(4);
        proxy.set([Rule::new(Fault::Delay(four, four)).resource("leases")]);
        let mut operator = start(&bench, &proxy, "15s", "operator-1");
        bench.until_label("node-2", KEY, Some("true")).await;
        // Several renewals.
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert!(operator.child.try_wait().expect("wait").is_none(), "the operator ended");
        bench.prometheus.set("node-2", Sample::percent("1"));
        bench.until_label("node-2", KEY, Some("false")).await;
    });
}

/// Requests for the Lease are never answered, and all others are.
#[test]
fn l09_while_requests_for_the_lease_hang_nobody_writes_and_then_the_other_one_leads() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        let second = start(&stage.bench, &stage.proxy, "6s", "second");
        second.ready().await;
        stage.proxy.set([Rule::new(Fault::Never).resource("leases")]);
        assert_eq!(ends(&mut stage.operator).await, Some(1));
        let since = Timestamp::now();
        stage.measures("1");
        // Longer than the lease: nobody may take it unseen.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let writes = stage.bench.writes_since(since).await;
        assert!(writes.iter().all(|w| w.resource != "nodes"), "{writes:?}");
        assert_eq!(stage.bench.label("node-2", KEY).await.as_deref(), Some("true"));
        stage.proxy.clear();
        until_holder(&stage.bench, "second").await;
        stage.bench.until_label("node-2", KEY, Some("false")).await;
        assert_eq!(second.terminate().await, Some(0));
    });
}

/// Annotations and labels of the Lease are not ours: tools of the cluster write them.
#[test]
fn l07_an_edit_by_a_stranger_that_leaves_the_holder_ends_nothing() {
    run(async |bench| {
        let mut stage = Stage::new(bench, "6s").await;
        for round in 0..40 {
            let change = json!({"metadata": {"annotations": {"example.com/x": round.to_string()}}});
            let (api, params) = (leases(&stage.bench), PatchParams::default());
            api.patch(manifests::NAME, &params, &Patch::Merge(change)).await.expect("patch");
            tokio::time::sleep(Duration::from_millis(270)).await;
        }
        until_holder(&stage.bench, "operator-1").await;
        stage.assert_alive().await;
        stage.recovers().await;
    });
}
