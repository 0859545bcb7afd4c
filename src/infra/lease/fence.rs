//! The time until which this process may write.
use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;

/// The longest wait before the end is read again: a timer cannot wait for a century.
const LOOK: Duration = Duration::from_mins(1);

/// The time until which this process may write. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    /// Returns a fence that is never closed: for commands that run alone.
    #[must_use]
    pub fn open() -> Self {
        // A century: larger values are not safe to add to the monotonic clock.
        let fence = Self::default();
        fence.set(Instant::now().checked_add(Duration::from_hours(100 * 365 * 24)));
        fence
    }

    /// Returns a fence that closes then.
    #[cfg(test)]
    pub(crate) fn until(end: Instant) -> Self {
        let fence = Self::default();
        fence.set(Some(end));
        fence
    }

    /// Reports whether this process may write now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end().is_some_and(|end| Instant::now() < end)
    }

    /// Carries out a request while the fence is open; `None` if it closed before the answer.
    ///
    /// The fence is checked each time that the request gets on, immediately before: a request that
    /// still waits for its connection when the lease ends, or in a process that was stopped
    /// meanwhile, does not leave.
    pub(crate) async fn guard<F: Future>(&self, request: F) -> Option<F::Output> {
        let mut request = pin!(request);
        loop {
            let now = Instant::now();
            let end = self.end().filter(|end| now < *end)?;
            let answer = poll_fn(|cx| {
                if self.is_open() { request.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }
            });
            // After the time, a renewal may have moved the end.
            if let Ok(answer) = tokio::time::timeout_at(end.min(now + LOOK), answer).await {
                return answer;
            }
        }
    }

    pub(super) fn end(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, end: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn until(seconds: u64) -> Fence {
        Fence::until(Instant::now() + Duration::from_secs(seconds))
    }

    /// A request that has its connection after this time, and its answer a second later.
    async fn request(seconds: u64, left: &AtomicBool) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        left.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_its_connection_when_the_lease_ends_does_not_leave() {
        let (fence, left) = (until(3), AtomicBool::new(false));
        assert_eq!(fence.guard(request(5, &left)).await, None);
        assert!(!left.load(Ordering::Relaxed));
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_stopped_sends_nothing_when_it_wakes() {
        let (fence, left) = (until(3), AtomicBool::new(false));
        let mut call = pin!(fence.guard(request(2, &left)));
        assert!(futures::poll!(&mut call).is_pending());
        // Nothing of it runs meanwhile; then all of its timers are over at once.
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(call.await, None);
        assert!(!left.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_on_while_the_lease_is_renewed() {
        let (fence, left) = (until(3), AtomicBool::new(false));
        let renew = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            fence.set(Some(Instant::now() + Duration::from_secs(10)));
        };
        let (answer, ()) = tokio::join!(fence.guard(request(5, &left)), renew);
        assert_eq!(answer, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_of_a_command_that_runs_alone_never_closes() {
        let (fence, left) = (Fence::open(), AtomicBool::new(false));
        assert_eq!(fence.guard(request(1_000_000, &left)).await, Some(()));
        let decades = Duration::from_hours(50 * 365 * 24);
        assert!(fence.end().is_some_and(|end| end > Instant::now() + decades));
    }
}
