//! The leader: renewals, and the ends of a claim.
use super::*;

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_request_every_sixth_of_the_lease() {
    let server = Server::default();
    let replica = leader(&server, "one").await;
    server.verbs();
    seconds(15).await;
    let verbs = server.verbs();
    assert!(verbs.iter().all(|verb| verb == Method::PUT), "{verbs:?}");
    assert!((5..=7).contains(&verbs.len()), "{}", verbs.len());
    assert!(replica.leads());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_two_thirds_of_the_lease() {
    let server = Server::default();
    let replica = leader(&server, "one").await;
    replica.line.all(NEVER);
    let took = until(&[&replica], || !replica.leads()).await;
    // The last renewal was up to a period ago.
    assert!((Duration::from_millis(7_400)..=Duration::from_secs(10)).contains(&took), "{took:?}");
    let began = Instant::now();
    assert!(matches!(replica.lost().await, Lost::Expired));
    assert!(began.elapsed() < Duration::from_millis(50), "the process ends at once");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_may_be_late_and_an_answer_may_be_lost() {
    for trip in [NEVER, LOST, Trip { there: 4_000, back: 5_000, end: End::Answered }] {
        let server = Server::default();
        let replica = leader(&server, "one").await;
        for _ in 0..5 {
            replica.line.next([trip]);
            seconds(20).await;
            assert!(replica.leads(), "{trip:?}");
        }
        assert!(!replica.task.is_finished());
    }
}

#[tokio::test(start_paused = true)]
async fn while_each_request_takes_four_seconds_there_is_a_leader() {
    for (there, back) in [(2_000, 2_000), (3_900, 100), (100, 3_900), (0, 4_900)] {
        let server = Server::default();
        let slow = Trip { there, back, end: End::Answered };
        let (one, two) = (Replica::start(&server, "one"), Replica::start(&server, "two"));
        one.line.all(slow);
        two.line.all(slow);
        let took = until(&[&one, &two], || one.leads() || two.leads()).await;
        assert!(took < Duration::from_secs(25), "{took:?}");
        let (first, second) = if one.leads() { (one, two) } else { (two, one) };
        for _ in 0..300 {
            seconds(1).await;
            assert!(first.leads() && !second.leads(), "{slow:?}");
        }
        first.kill();
        let took = until(&[&second], || second.leads()).await;
        assert!(took < Duration::from_secs(45), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_each_request_takes_more_than_a_third_of_the_lease_nobody_leads() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    let replica = Replica::start(&server, "one");
    replica.line.all(Trip { there: 2_600, back: 2_600, end: End::Answered });
    for _ in 0..600 {
        seconds(1).await;
        assert!(!replica.leads());
    }
    replica.line.all(QUICK);
    until(&[&replica], || replica.leads()).await;
}

/// An annotation, a label, another controller that adopts it: each is a new version.
#[tokio::test(start_paused = true)]
async fn an_edit_of_a_stranger_between_two_renewals_ends_nothing() {
    let (server, replica, follower) = leader_and_follower().await;
    for round in 0..200 {
        tokio::time::sleep(Duration::from_millis(370)).await;
        server.edit(|lease| lease["metadata"]["annotations"]["example.com/x"] = json!("y"));
        assert!(replica.leads() && !follower.leads(), "round {round}");
    }
    let lease = server.0.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["example.com/x"], "y", "it stays");
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}

/// With slow answers, the edit falls between reading and writing.
#[tokio::test(start_paused = true)]
async fn an_edit_between_reading_and_writing_ends_nothing_before_the_claim_ends() {
    let server = Server::default();
    let replica = leader(&server, "one").await;
    replica.line.all(Trip { there: 400, back: 400, end: End::Answered });
    for _ in 0..20 {
        server.edit(|lease| lease["metadata"]["labels"]["x"] = json!("y"));
        tokio::time::sleep(Duration::from_millis(2_900)).await;
        assert!(replica.leads());
    }
    // Without a pause, no renewal succeeds; it ends with its claim, and not before.
    let (began, mut led) = (Instant::now(), Duration::ZERO);
    while !replica.task.is_finished() {
        server.edit(|lease| lease["metadata"]["labels"]["x"] = json!("z"));
        tokio::time::sleep(Duration::from_millis(100)).await;
        led = if replica.leads() { began.elapsed() } else { led };
    }
    assert!((3..10).contains(&led.as_secs()), "{led:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_to_another_is_lost_at_the_next_renewal() {
    let (server, replica, second) = leader_and_follower().await;
    seconds(1).await;
    server.edit_spec(&json!({"holderIdentity": "nobody"}));
    let took = until(&[&replica, &second], || !replica.leads()).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(matches!(replica.lost().await, Lost::Taken(holder) if holder == "nobody"));
    let took = until(&[&second], || second.leads()).await;
    assert!((13..=17).contains(&took.as_secs()), "{took:?}");
}

/// An edit by hand, to choose the leader: it must not begin before the old one has noticed.
#[tokio::test(start_paused = true)]
async fn a_follower_that_is_named_by_an_edit_waits_for_the_leader() {
    let (server, replica, second) = leader_and_follower().await;
    seconds(1).await;
    replica.line.all(NEVER);
    server.edit_spec(&json!({"holderIdentity": "two"}));
    until(&[&replica, &second], || second.leads()).await;
    assert!(matches!(replica.lost().await, Lost::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_for_longer_than_its_lease_never_writes_again() {
    // Before a renewal, and while it is on its way there and back.
    let slow = Trip { there: 1_000, back: 1_000, end: End::Answered };
    let phases =
        (0..9).flat_map(|phase| [(QUICK, 3_000 + 200 * phase), (slow, 5_000 + 250 * phase)]);
    for (trip, milliseconds) in phases {
        let server = Server::default();
        let replica = leader(&server, "one").await;
        replica.line.all(trip);
        let second = Replica::start(&server, "two");
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        replica.signal.stop();
        let took = until(&[&replica, &second], || second.leads()).await;
        assert!(took < Duration::from_secs(20), "{took:?}");
        seconds(60).await;
        assert!(!replica.leads(), "its fence needs no task to close");
        replica.signal.go_on();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(!replica.leads() && second.leads());
        }
        assert!(matches!(replica.lost().await, Lost::Expired));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_for_less_than_its_claim_goes_on() {
    let server = Server::default();
    let replica = leader(&server, "one").await;
    for _ in 0..10 {
        replica.signal.stop();
        seconds(7).await;
        assert!(replica.leads());
        replica.signal.go_on();
        seconds(3).await;
        assert!(replica.leads());
    }
}

/// Only the time for which a record does not change counts, and that by our own clock.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_changes_nothing() {
    for time in ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let (server, replica, second) = leader_and_follower().await;
        for _ in 0..10 {
            seconds(5).await;
            server.edit_spec(&json!({"renewTime": time}));
            assert!(replica.leads() && !second.leads());
        }
        replica.kill();
        server.edit_spec(&json!({"renewTime": time}));
        let took = until(&[&second], || second.leads()).await;
        assert!((14..=17).contains(&took.as_secs()), "{took:?}");
    }
}
