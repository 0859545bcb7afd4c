//! Waiting with a deadline, never by a fixed sleep.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Time between two checks of a condition: short compared with the awaited events (processes
/// starting), cheap on two cores.
const PERIOD: Duration = Duration::from_millis(50);

/// The result of one check of a condition.
pub enum Look<T> {
    /// It holds.
    Done(T),
    /// Not yet, and why: shown if the deadline passes.
    NotYet(String),
}

/// Polls until the condition holds.
pub async fn until<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Look<T>>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let found = match look().await? {
            Look::Done(value) => return Ok(value),
            Look::NotYet(found) => found,
        };
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s; last seen: {found}", limit.as_secs());
        }
        sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_deadline_names_what_was_seen_last() {
        let result: Result<()> = until("node-1 Ready", Duration::ZERO, || async {
            Ok(Look::NotYet("no such node".to_owned()))
        })
        .await;
        assert_eq!(
            result.unwrap_err().to_string(),
            "node-1 Ready: not within 0 s; last seen: no such node"
        );
    }
}
