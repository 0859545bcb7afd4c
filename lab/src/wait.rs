//! Waiting with a deadline, never by a fixed sleep; and what tasks share.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::cluster::Sample;

/// Time between two checks of a condition: short compared with the awaited events (processes
/// starting), cheap on two cores.
const PERIOD: Duration = Duration::from_millis(50);

/// Polls until nothing is missing any more; what is gets shown if the deadline passes.
pub async fn until<F>(what: &str, limit: Duration, mut missing: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<Option<String>>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let Some(found) = missing().await? else { return Ok(()) };
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s; last seen: {found}", limit.as_secs());
        }
        sleep(PERIOD).await;
    }
}

/// Waits until something listens at an address, as long as `runs` finds nothing wrong.
pub(crate) async fn listening(
    what: &str,
    limit: Duration,
    address: &str,
    runs: impl Fn() -> Result<()>,
) -> Result<()> {
    until(&format!("{what} listening"), limit, || async {
        runs()?;
        Ok(TcpStream::connect(address).await.err().map(|error| error.to_string()))
    })
    .await
}

/// Waits until a query has as many samples as wanted.
pub(crate) async fn samples(
    what: &str,
    limit: Duration,
    wanted: usize,
    query: impl AsyncFn() -> Result<Vec<Sample>>,
) -> Result<()> {
    until(what, limit, || async {
        Ok(match query().await {
            Ok(samples) => {
                (samples.len() != wanted).then(|| format!("{} of {wanted}", samples.len()))
            }
            Err(error) => Some(format!("{error:#}")),
        })
    })
    .await
}

/// Locks plain values: a panic elsewhere leaves nothing half done in them.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that ends when it is dropped.
#[derive(Debug)]
pub struct Task(JoinHandle<()>);

impl Task {
    pub fn spawn<T>(task: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(async { drop(task.await) }))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
