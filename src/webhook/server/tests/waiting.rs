//! Pods that are as new as their namespace.
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::watch;

use super::*;

/// Knows the namespace from a certain moment on.
struct Learns(watch::Receiver<bool>);

impl Injector for Learns {
    fn decide(&self, _: (&str, &str), _: &PodObject, _: bool) -> Decision {
        if *self.0.borrow() {
            Decision::Skip(SkipReason::OptedOut)
        } else {
            Decision::NotYet("the namespace is not selected")
        }
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        let mut known = self.0.clone();
        known.mark_unchanged();
        async move { known.changed().await.unwrap() }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_of_a_namespace_are_waited_for_and_not_for_long() {
    let known = watch::Sender::new(false);
    let running = serve(Arc::new(Learns(known.subscribe())), |_| {}).await;
    let bundle = running.state.bundle();
    let mut sender = connect(running.address, &bundle, &running.clock).await.unwrap();
    // Regardless of other events meanwhile, the wait ends, and the pod is admitted.
    let begun = Instant::now();
    let news = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            known.send_replace(false);
        }
    };
    tokio::select! {
        answer = admit(&mut sender) => answer.unwrap(),
        () = news => {}
    }
    let took = begun.elapsed();
    assert!(took >= PATIENCE && took < 30 * PATIENCE, "{took:?}");
    assert_eq!(*running.counts.0.lock().unwrap(), ["error"]);
    let later = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        known.send_replace(true);
    };
    let (answer, ()) = futures::future::join(admit(&mut sender), later).await;
    answer.unwrap();
    assert_eq!(*running.counts.0.lock().unwrap(), ["error", "skipped"]);
}
