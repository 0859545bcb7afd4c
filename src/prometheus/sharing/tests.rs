//! Sharing of requests between callers.
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const PATIENT: Duration = Duration::from_mins(1);

type Counted = Shared<&'static str, usize>;

/// Returns a request that takes this long, and answers with the number of requests so far.
fn slow(requests: &Arc<AtomicUsize>, takes: Duration) -> impl Future<Output = usize> + use<> {
    let requests = Arc::clone(requests);
    async move {
        let count = requests.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(takes).await;
        count
    }
}

#[tokio::test]
async fn a_hundred_askers_of_one_tick_send_one_request() {
    let shared = Arc::new(Counted::default());
    let requests = Arc::new(AtomicUsize::new(0));
    let tick = Instant::now();
    let askers = (0..100).map(|_| {
        let (shared, requests) = (Arc::clone(&shared), Arc::clone(&requests));
        tokio::spawn(async move {
            let ask = |()| slow(&requests, Duration::from_millis(1));
            shared.get(&"query", tick, PATIENT, || async {}, ask).await
        })
    });
    for answer in futures::future::join_all(askers).await {
        assert_eq!(answer.unwrap(), Ok(0));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // The next tick sends a new request; another query has its own answer.
    let next = Instant::now();
    let ask = |()| slow(&requests, Duration::ZERO);
    assert_eq!(shared.get(&"query", next, PATIENT, || async {}, ask).await, Ok(1));
    let ask = |()| slow(&requests, Duration::ZERO);
    assert_eq!(shared.get(&"other", next, PATIENT, || async {}, ask).await, Ok(2));
}

#[tokio::test]
async fn a_request_has_not_the_patience_of_its_first_asker() {
    let shared = Arc::new(Counted::default());
    let requests = Arc::new(AtomicUsize::new(0));
    let tick = Instant::now();
    let querier = |patience: u64| {
        let (shared, requests) = (Arc::clone(&shared), Arc::clone(&requests));
        async move {
            let ask = |()| slow(&requests, Duration::from_millis(300));
            shared.get(&"query", tick, Duration::from_millis(patience), || async {}, ask).await
        }
    };
    // The least patient caller is first.
    let answers = tokio::join!(querier(20), querier(60_000), querier(30));
    assert_eq!(answers, (Err(Late::Answer), Ok(0), Err(Late::Answer)));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_ends() {
    struct Ends(Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (shared, ended) = (Counted::default(), Arc::new(AtomicUsize::new(0)));
    let ask = |()| {
        let ends = Ends(Arc::clone(&ended));
        async move {
            let _ends = ends;
            std::future::pending().await
        }
    };
    let patience = Duration::from_millis(20);
    let answer = shared.get(&"query", Instant::now(), patience, || async {}, ask).await;
    assert_eq!(answer, Err(Late::Answer));
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    // And it does not block the next one.
    let again = shared.get(&"query", Instant::now(), patience, || async {}, |()| async { 7 }).await;
    assert_eq!(again, Ok(7));
}

#[tokio::test]
async fn who_has_no_seat_is_in_nobodys_way() {
    let shared = Arc::new(Counted::default());
    let tick = Instant::now();
    let starved = async {
        let never = || std::future::pending::<()>();
        shared.get(&"query", tick, Duration::from_millis(100), never, |()| async { 1 }).await
    };
    let permitted = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        shared.get(&"query", tick, PATIENT, || async {}, |()| async { 2 }).await
    };
    assert_eq!(tokio::join!(starved, permitted), (Err(Late::Permit), Ok(2)));
    // If another caller has sent the request in the meantime, a late permit is released unused.
    let late = || tokio::time::sleep(Duration::from_millis(50));
    let tick = Instant::now();
    let first = shared.get(&"other", tick, PATIENT, late, |()| async { 3 });
    let second = shared.get(&"other", tick, PATIENT, || async {}, |()| async { 4 });
    assert_eq!(tokio::join!(first, second), (Ok(4), Ok(4)));
}

#[tokio::test]
async fn answers_to_many_questions_are_not_kept() {
    let shared = Shared::<usize, Arc<usize>>::default();
    let tick = Instant::now();
    let mut kept = vec![];
    for key in 0..10 * MOST {
        let ask = |()| async move { Arc::new(key) };
        kept.push(shared.get(&key, tick, PATIENT, || async {}, ask).await.unwrap());
    }
    // One here, one there.
    let held = kept.iter().filter(|answer| Arc::strong_count(answer) > 1).count();
    assert_eq!(held, MOST);
    assert_eq!(Arc::strong_count(kept.last().unwrap()), 2, "the latest");
}

/// The queries of one tenant wait for their permits, and each of them removed the answer that the
/// objects of all others shared.
#[tokio::test]
async fn queries_that_wait_leave_room_for_the_answers_of_others() {
    let shared = Shared::<usize, usize>::default();
    let requests = Arc::new(AtomicUsize::new(0));
    let tick = Instant::now();
    let pending = |key: usize| {
        let never = || std::future::pending::<()>();
        let mut waiting = Box::pin({
            let shared = &shared;
            async move { shared.get(&key, tick, PATIENT, never, |()| async { 0 }).await }
        });
        assert_eq!((&mut waiting).now_or_never(), None);
        waiting
    };
    let mut waiting: Vec<_> = (1..MOST + 6).map(pending).collect();
    for _ in 0..2 {
        let ask = |()| slow(&requests, Duration::ZERO);
        assert_eq!(shared.get(&0, tick, PATIENT, || async {}, ask).await, Ok(0));
        waiting.push(pending(MOST + 10 + waiting.len()));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // Nor do those count that have given up.
    drop(waiting);
    (1..2 * MOST).for_each(|key| drop(pending(key)));
    let ask = |()| slow(&requests, Duration::ZERO);
    assert_eq!(shared.get(&0, tick, PATIENT, || async {}, ask).await, Ok(0));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}
