//! An API server that answers, but refuses.
use super::*;

/// A candidate that has not seen anything yet.
fn follower(server: &Server, line: &Line) -> Candidate {
    candidate(server, line, "two", &Fence::default())
}

/// An API server in trouble is asked once for each renewal. It may have carried out the write, so
/// the next renewal reads the Lease first.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_reads_nothing_before_the_next_one() {
    let server = Server::default();
    let replica = leader(&server, "one").await;
    server.verbs();
    server.refuse(500);
    let first = async {
        loop {
            let verbs = server.verbs();
            if !verbs.is_empty() {
                return verbs;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(first.await, [Method::PUT]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.verbs(), [] as [Method; 0], "it waits for the next renewal");
    server.refuse(None);
    seconds(3).await;
    assert_eq!(server.verbs()[..2], [Method::GET, Method::PUT]);
    assert!(replica.leads());
}

/// Otherwise a process that ends would ask a broken API server as often as it can.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_is_not_tried_again() {
    let server = Server::default();
    let mut replica = leader(&server, "one").await;
    server.refuse(403);
    server.verbs();
    replica.terminate();
    replica.task.await.unwrap();
    assert_eq!(server.verbs(), [Method::GET]);
}

/// A follower that was slower than another has seen the API server: it is no error.
#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_too_late_is_no_failure() {
    let server = Server::default();
    server.create(&json!({"holderIdentity": "", "leaseDurationSeconds": 1}));
    let line = Line::new();
    line.all(Trip { there: 100, back: 100, end: End::Answered });
    let mut follower = follower(&server, &line);
    let edit = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        server.edit_spec(&json!({"holderIdentity": "one"}));
    };
    let (attempt, ()) = tokio::join!(follower.attempt(), edit);
    let attempt = attempt.unwrap();
    assert!(matches!(attempt, Attempt::HeldBy(by) if by.starts_with("another replica")));
}

/// A follower that creates the Lease without a holder may find that another has done so, which is
/// no failure; any other refusal is one.
#[tokio::test(start_paused = true)]
async fn only_a_lease_that_exists_already_is_no_failure_where_there_was_none() {
    let slow = Trip { there: 100, back: 100, end: End::Answered };
    for (refusal, fails) in [(None, false), (Some(500), true), (Some(403), true)] {
        let server = Server::default();
        server.create(&json!({"holderIdentity": "one", "leaseDurationSeconds": 15}));
        let line = Line::new();
        let mut follower = follower(&server, &line);
        assert!(matches!(follower.attempt().await.unwrap(), Attempt::HeldBy(_)));
        server.delete();
        line.all(slow);
        let others = async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            server.create(&json!({"holderIdentity": "", "leaseDurationSeconds": 15}));
            server.refuse(refusal);
        };
        let (attempt, ()) = tokio::join!(follower.attempt(), others);
        assert_eq!(attempt.is_err(), fails, "{refusal:?}: {attempt:?}");
    }
}
