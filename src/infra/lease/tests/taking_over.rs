//! The followers: when a lease is free, and when it is not.
use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_of_all_creates_the_lease() {
    let server = Server::default();
    let replica = Replica::start(&server, "one");
    let took = until(&[&replica], || replica.leads()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let spec = server.spec();
    assert_eq!(spec["holderIdentity"], "one");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_leader_that_died_is_taken_by_exactly_one() {
    let server = Server::default();
    let first = leader(&server, "one").await;
    let (two, three) = (Replica::start(&server, "two"), Replica::start(&server, "three"));
    seconds(5).await;
    first.kill();
    let took = until(&[&two, &three], || two.leads() || three.leads()).await;
    assert!((13..=17).contains(&took.as_secs()), "{took:?}");
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_ne!(two.leads(), three.leads());
    }
    assert_eq!(server.spec()["leaseTransitions"], 1);
}

/// The claim was made, but its answer did not arrive: it is ours all the same.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_found_again() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    let replica = Replica::start(&server, "one");
    replica.line.next([QUICK, LOST]);
    let took = until(&[&replica], || replica.leads()).await;
    assert!((5..=6).contains(&took.as_secs()), "{took:?}");
}

/// It arrives after it was given up, and after the second claim was sent.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_late_is_not_taken_for_that_of_another_process() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    let replica = Replica::start(&server, "one");
    let late = |there| Trip { there, back: 5, end: End::Answered };
    replica.line.next([QUICK, late(6_000), QUICK, late(1_000)]);
    let took = until(&[&replica], || replica.leads()).await;
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_started_again_under_its_name_leads_at_once() {
    let server = Server::default();
    let first = leader(&server, "one").await;
    let before = server.spec()["acquireTime"].clone();
    first.kill();
    // The wall clock is not paused, and a time has microseconds.
    std::thread::sleep(Duration::from_millis(1));
    let second = Replica::start(&server, "one");
    let took = until(&[&second], || second.leads()).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_ne!(server.spec()["acquireTime"], before);
    assert_eq!(server.spec()["leaseTransitions"], 0, "the same holder");
}

/// A mistake of the one who deployed it: it must be noticed, and end.
#[tokio::test(start_paused = true)]
async fn of_two_processes_of_one_name_the_first_ends_at_its_next_renewal() {
    let server = Server::default();
    let first = leader(&server, "one").await;
    std::thread::sleep(Duration::from_millis(1));
    let second = Replica::start(&server, "one");
    seconds(3).await;
    assert!(!first.leads() && second.leads());
    assert!(matches!(first.lost().await, Lost::Taken(holder) if holder == "one"));
}

#[tokio::test(start_paused = true)]
async fn a_release_closes_the_fence_first_and_is_followed_at_once() {
    let (_server, mut first, second) = leader_and_follower().await;
    seconds(1).await;
    // The release takes a while to arrive: meanwhile nothing is written any more.
    first.line.all(Trip { there: 700, back: 100, end: End::Answered });
    first.terminate();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!first.leads());
    let took = until(&[&first, &second], || second.leads()).await;
    assert!((1..=3).contains(&took.as_secs()), "{took:?}");
    assert!(first.task.await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_meets_an_edit_is_made_again() {
    let (server, mut first, second) = leader_and_follower().await;
    seconds(1).await;
    first.line.all(Trip { there: 100, back: 100, end: End::Answered });
    first.terminate();
    // Between its reading and its writing.
    tokio::time::sleep(Duration::from_millis(250)).await;
    server.edit(|lease| lease["metadata"]["labels"]["x"] = json!("y"));
    let took = until(&[&first, &second], || second.leads()).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_does_not_arrive_leaves_the_lease_to_run_out() {
    let (_server, mut first, second) = leader_and_follower().await;
    seconds(1).await;
    first.line.all(NEVER);
    first.terminate();
    let took = until(&[&first, &second], || second.leads()).await;
    assert!((13..=17).contains(&took.as_secs()), "{took:?}");
    assert!(first.task.is_finished(), "it does not wait for that");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_is_made_again_by_its_holder() {
    let (server, first, second) = leader_and_follower().await;
    for _ in 0..10 {
        seconds(3).await;
        server.delete();
        seconds(2).await;
        assert!(first.leads() && !second.leads());
        assert_eq!(server.spec()["holderIdentity"], "one");
    }
}

/// The holder cannot reach the API server, and does not notice the deletion.
#[tokio::test(start_paused = true)]
async fn a_follower_that_has_seen_a_holder_waits_for_it_though_the_lease_is_gone() {
    let (server, first, second) = leader_and_follower().await;
    seconds(3).await;
    first.line.all(NEVER);
    server.delete();
    seconds(1).await;
    // A replica with a shorter duration than this one waits as long.
    assert_eq!(server.spec(), json!({"leaseDurationSeconds": 15}));
    let took = until(&[&first, &second], || second.leads()).await;
    assert!((13..=16).contains(&took.as_secs()), "{took:?}");
}

/// It must not take a lease for the first one that there ever was.
#[tokio::test(start_paused = true)]
async fn a_process_that_starts_in_the_moment_of_a_deletion_leaves_the_lease_to_its_holder() {
    let server = Server::default();
    let first = leader(&server, "one").await;
    for milliseconds in [0, 300, 600, 900, 1_200, 1_500] {
        seconds(3).await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        server.delete();
        let second = Replica::start(&server, "two");
        let begun = Instant::now();
        until(&[&first, &second], || begun.elapsed() > Duration::from_secs(30)).await;
        assert!(first.leads() && !second.leads(), "{milliseconds} ms");
        second.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_nonsense_is_free_when_it_has_not_changed_for_the_duration() {
    for spec in [
        json!({"holderIdentity": "x", "leaseDurationSeconds": -5}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": 0}),
        json!({"holderIdentity": "x"}),
        json!({"holderIdentity": "", "leaseDurationSeconds": 15}),
        json!({"holderIdentity": "", "leaseDurationSeconds": -1}),
        json!({"leaseTransitions": -7}),
        json!({}),
        json!({"holderIdentity": "x", "renewTime": "2999-01-01T00:00:00.000000Z"}),
    ] {
        let server = Server::default();
        server.create(&spec);
        let (one, two) = (Replica::start(&server, "one"), Replica::start(&server, "two"));
        let took = until(&[&one, &two], || one.leads() || two.leads()).await;
        assert!((14..=17).contains(&took.as_secs()), "{spec}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_repairs_a_record_of_nonsense() {
    let (server, first, second) = leader_and_follower().await;
    for fields in [
        json!({"holderIdentity": "", "renewTime": null, "acquireTime": null}),
        json!({"holderIdentity": null}),
        json!({"acquireTime": null, "renewTime": null}),
        json!({"leaseDurationSeconds": -1}),
        json!({"leaseDurationSeconds": i32::MAX, "leaseTransitions": i32::MAX}),
    ] {
        server.edit_spec(&fields);
        seconds(3).await;
        assert!(first.leads() && !second.leads(), "{fields}");
        let spec = server.spec();
        assert_eq!(
            (&spec["holderIdentity"], &spec["leaseDurationSeconds"]),
            (&json!("one"), &json!(15))
        );
        assert!(spec["acquireTime"].is_string() && spec["renewTime"].is_string(), "{spec}");
    }
}

/// 68 years: nobody could lead until then.
#[tokio::test(start_paused = true)]
async fn an_absurd_duration_is_believed_for_an_hour() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "x", "leaseDurationSeconds": i32::MAX}));
    let replica = Replica::start(&server, "one");
    seconds(3_590).await;
    assert!(!replica.leads());
    seconds(20).await;
    assert!(replica.leads());
}

/// Another release of the operator may have been started with another duration.
#[tokio::test(start_paused = true)]
async fn the_longer_one_of_two_durations_counts() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "x", "leaseDurationSeconds": 60}));
    let replica = Replica::start(&server, "one");
    let took = until(&[&replica], || replica.leads()).await;
    assert!((59..=62).contains(&took.as_secs()), "{took:?}");
}
