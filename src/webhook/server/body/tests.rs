//! The memory of bodies, and the time for which they hold it.
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{StreamExt, stream};
use hyper::body::{Frame, SizeHint};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::*;

/// Well before the deadline, and long enough for an immediate result.
const SOON: Duration = Duration::from_secs(1);
const _: () =
    assert!(SOON.as_millis() < DEADLINE.as_millis() && SOON.as_millis() > 2 * PROGRESS.as_millis());

/// Announces the largest body, sends this many bytes at once and then nothing more.
struct Stalls(usize);

impl HttpBody for Stalls {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match std::mem::take(&mut self.0) {
            0 => Poll::Pending,
            length => Poll::Ready(Some(Ok(Frame::data(vec![b' '; length].into())))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(LIMIT as u64)
    }
}

/// Sends pieces, each `pause` after the previous one.
fn trickle(pieces: usize, length: usize, pause: Duration) -> Body {
    let pieces = stream::iter(0..pieces).then(move |_| async move {
        sleep(pause).await;
        Ok::<_, Infallible>(Bytes::from(vec![b' '; length]))
    });
    Body::from_stream(pieces)
}

fn sources() -> [IpAddr; 2] {
    ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap())
}

/// Starts bodies of one source that stall; each holds as much as it can get.
async fn stalled(bodies: &Bodies, source: IpAddr, count: usize, length: usize) -> JoinSet<Refused> {
    let mut all = JoinSet::new();
    for _ in 0..count {
        let bodies = bodies.clone();
        all.spawn(async move {
            let read = bodies.read(Body::new(Stalls(length)), source).await;
            read.err().expect("it never ends")
        });
    }
    // One thread, on which at least one of them progresses each time.
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
    all
}

async fn is_read_soon(bodies: &Bodies, source: IpAddr, length: usize) {
    let body = Body::from(vec![b' '; length]);
    let read = timeout(SOON, bodies.read(body, source)).await.expect("it does not wait");
    assert_eq!(read.unwrap().bytes.len(), length);
}

#[tokio::test]
async fn what_is_announced_and_not_sent_holds_nothing() {
    let (bodies, [source, _]) = (Bodies::default(), sources());
    let mut all = stalled(&bodies, source, REQUESTS.1 - 1, 0).await;
    is_read_soon(&bodies, source, 1 << 20).await;
    while let Some(refused) = all.join_next().await {
        assert_eq!(refused.unwrap(), Refused::TooSlow);
    }
}

#[tokio::test]
async fn a_source_holds_its_part_of_the_memory_and_no_more() {
    let (bodies, [source, other]) = (Bodies::default(), sources());
    // Twice the total.
    let count = 2 * SMALL_IN_ALL * STEP / SMALL;
    assert!(count <= REQUESTS.1);
    let _all = stalled(&bodies, source, count, SMALL - 1).await;
    is_read_soon(&bodies, other, SMALL).await;
    is_read_soon(&bodies, other, 1 << 20).await;
}

#[tokio::test]
async fn a_source_has_its_number_of_requests_under_way_and_no_more() {
    let (bodies, [source, other]) = (Bodies::default(), sources());
    let _all = stalled(&bodies, source, REQUESTS.1, 0).await;
    let refused = bodies.read(Body::empty(), source).await.err();
    assert_eq!(refused, Some(Refused::TooMany));
    is_read_soon(&bodies, other, SMALL).await;
}

#[tokio::test]
async fn a_large_body_keeps_a_rate_or_ends() {
    let (bodies, [source, _]) = (Bodies::default(), sources());
    let stalls = bodies.read(Body::new(Stalls(SMALL)), source);
    let refused = timeout(SOON, stalls).await.expect("long before the deadline").err();
    assert_eq!(refused, Some(Refused::TooSlow));
    // A body that arrives steadily is read, and a small one may pause for longer.
    let steady = trickle(8, SMALL, PROGRESS / 10);
    assert!(bodies.read(steady, source).await.is_ok());
    let small = trickle(2, SMALL / 4, PROGRESS + PROGRESS / 2);
    assert!(bodies.read(small, source).await.is_ok());
}

#[tokio::test]
async fn a_body_that_trickles_ends_in_time() {
    let (bodies, [source, _]) = (Bodies::default(), sources());
    let endless = trickle(usize::MAX, 1, Duration::from_millis(20));
    let refused = timeout(4 * DEADLINE, bodies.read(endless, source)).await.expect("it ends").err();
    assert_eq!(refused, Some(Refused::TooSlow));
}
