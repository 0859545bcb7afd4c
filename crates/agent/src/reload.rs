//! The sidecar of an application that reads its share of a Swarm by itself but cannot report which
//! version it runs: the sidecar reloads the application when the share changes, and reports the
//! version.
use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use self::application::Application;
use super::{
    file::Found,
    tasks::Signals,
    worker::{
        metrics::{Looked, Metrics, Role},
        place::{Place, Taken},
        share::{Newest, Share},
        status::Status,
    },
};

pub mod application;
mod processes;

/// Wait after the first failed reload: half a second, doubled after each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// The longest wait: a recovered application is reloaded within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// The settings of the sidecar at startup.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file, the same as the application's, and the port of the reports.
    pub place: Place,
    /// The way to reload the application.
    pub method: application::Method,
}

/// Reloads the application until it receives the signal to stop.
///
/// # Errors
/// When the port is taken, or any of its tasks ends.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let Taken { status, metrics, mut found, mut tasks, .. } =
        config.place.take(Role::Reload).await?;
    tracing::info!(method = %config.method, "reload");

    let application = Application::new(config.method)?;
    let mut follower = Follower::new(application, status, metrics);
    loop {
        follower.begin();
        tokio::select! {
            () = signals.stop() => break,
            Some(found) = found.recv() => follower.look(found),
            () = follower.goes_on() => {}
            error = tasks.ended() => return Err(error),
        }
    }
    // The application stops by itself: there is nothing to write, and nothing to revert.
    tracing::info!("stopping");
    Ok(())
}

/// Makes the application run the newest file.
struct Follower {
    application: Application,
    status: Status,
    metrics: Metrics,
    newest: Newest,
    /// The version that is reported; `None` before the first.
    loaded: Option<u64>,
    /// The list that the application certainly runs: unknown before the first reload, because the
    /// application may have read an older file, during a reload, and after a failed one, which the
    /// application may have applied anyway.
    runs: Option<Arc<Share>>,
    step: Step,
    /// Failed reloads in a row.
    failures: u32,
}

/// The current activity.
enum Step {
    Nothing,
    /// A reload that applies this share.
    Reload(Arc<Share>, BoxFuture<'static, anyhow::Result<()>>),
    /// The wait for the next.
    Wait(Instant),
}

impl Follower {
    fn new(application: Application, status: Status, metrics: Metrics) -> Self {
        Self {
            application,
            status,
            metrics,
            newest: Newest::default(),
            loaded: None,
            runs: None,
            step: Step::Nothing,
            failures: 0,
        }
    }

    fn look(&mut self, found: Found<Share>) {
        let looked = match found {
            Found::Changed(share) => self.newest.offer(share),
            Found::Unchanged => Looked::Unchanged,
            Found::Error => Looked::Error,
        };
        self.metrics.looked(looked);
        if let Some(share) = self.newest.get() {
            self.metrics.file(share.version);
        }
    }

    /// Begins the reload for the newest file, unless one is already running.
    fn begin(&mut self) {
        let Some(share) = self.newest.get().filter(|_| matches!(self.step, Step::Nothing)) else {
            return;
        };
        if self.loaded == Some(share.version) {
            return;
        }
        // A list that has changed since counts as different even if it is the same again: the
        // application may have read the one in between.
        let same =
            |runs: &Arc<Share>| runs.same_streams(&share) && Some(share.epoch) <= self.loaded;
        if self.runs.as_ref().is_some_and(same) {
            tracing::info!(version = share.version, "the same streams: no reload");
            self.reached(share);
        } else {
            self.runs = None;
            self.step = Step::Reload(share, self.application.reload());
        }
    }

    /// Waits for the end of the current activity.
    async fn goes_on(&mut self) {
        let reloaded = match &mut self.step {
            Step::Nothing => std::future::pending().await,
            Step::Wait(until) => {
                sleep_until(*until).await;
                None
            }
            Step::Reload(_, reload) => Some(reload.await),
        };
        let step = std::mem::replace(&mut self.step, Step::Nothing);
        let (Step::Reload(share, _), Some(reloaded)) = (step, reloaded) else { return };
        self.metrics.reloaded(reloaded.is_ok());
        match reloaded {
            Ok(()) => {
                self.failures = 0;
                tracing::info!(version = share.version, "reloaded");
                let newest = self.newest.get().is_none_or(|newest| newest.version == share.version);
                self.reached(share);
                if !newest {
                    // It may have read either file.
                    self.runs = None;
                }
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = backoff(self.failures);
                let error = format!("{error:#}");
                tracing::warn!(version = share.version, error, ?wait, "not reloaded");
                self.step = Step::Wait(Instant::now() + wait);
            }
        }
    }

    fn reached(&mut self, share: Arc<Share>) {
        self.loaded = Some(share.version);
        self.status.show(share.streams.clone(), share.version);
        self.runs = Some(share);
    }
}

fn backoff(failures: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::worker::status::Signer;

    /// An application that is reloaded by URL, and its sidecar.
    async fn sidecar() -> (tokio::net::TcpListener, Follower) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let method = application::Method::Url { url, timeout: Duration::from_secs(90) };
        let metrics = Metrics::new(Role::Reload);
        let status = Status::new("w".into(), Signer::default(), metrics.clone());
        (listener, Follower::new(Application::new(method).unwrap(), status, metrics))
    }

    fn share(version: u64, epoch: u64, streams: &[&str]) -> Found<Share> {
        let streams = streams.iter().map(|stream| Arc::from(*stream)).collect();
        Found::Changed(Share { version, epoch, streams })
    }

    /// One reload, and the files found while it runs.
    async fn reload(
        application: &tokio::net::TcpListener,
        sidecar: &mut Follower,
        meanwhile: Vec<Found<Share>>,
    ) {
        sidecar.begin();
        assert!(matches!(sidecar.step, Step::Reload(..)));
        let answer = async {
            let (mut stream, _) = application.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            // The next reload is another connection.
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let mut step = std::mem::replace(&mut sidecar.step, Step::Nothing);
        let Step::Reload(_, under_way) = &mut step else { unreachable!("it reloads") };
        let (result, ()) = tokio::join!(under_way, answer);
        // The application may have read any of them.
        for found in meanwhile {
            sidecar.look(found);
        }
        let Step::Reload(share, _) = step else { unreachable!("it reloads") };
        sidecar.step = Step::Reload(share, Box::pin(async { result }));
        sidecar.goes_on().await;
    }

    /// The application has read version 9 while it was reloaded for 8, and 10 has the list of 8
    /// again.
    #[tokio::test]
    async fn a_list_that_came_back_during_a_reload_is_loaded_again() {
        let (application, mut sidecar) = sidecar().await;
        sidecar.look(share(8, 8, &["a"]));
        reload(&application, &mut sidecar, vec![share(9, 9, &["b"]), share(10, 10, &["a"])]).await;
        assert_eq!(sidecar.loaded, Some(8));
        reload(&application, &mut sidecar, vec![]).await;
        assert_eq!(sidecar.loaded, Some(10));
        // The original's controller writes no version beside a list.
        sidecar.look(share(11, 0, &["b"]));
        reload(&application, &mut sidecar, vec![share(12, 0, &["c"]), share(13, 0, &["b"])]).await;
        assert_eq!(sidecar.loaded, Some(11));
        reload(&application, &mut sidecar, vec![]).await;
        assert_eq!(sidecar.loaded, Some(13));
    }

    /// The application has read version 9, which came and went between two looks at the file.
    #[tokio::test]
    async fn a_list_that_was_another_in_between_is_loaded_again() {
        let (application, mut sidecar) = sidecar().await;
        sidecar.look(share(8, 8, &["a"]));
        reload(&application, &mut sidecar, vec![]).await;
        sidecar.look(share(10, 10, &["a"]));
        reload(&application, &mut sidecar, vec![]).await;
        // A list that has not changed since is still applied, whatever happened to others.
        sidecar.look(share(12, 10, &["a"]));
        sidecar.begin();
        assert_eq!((sidecar.loaded, matches!(sidecar.step, Step::Nothing)), (Some(12), true));
    }

    #[test]
    fn a_reload_that_fails_is_waited_for_longer_each_time() {
        let waits = [1, 2, 3, 5, 6, u32::MAX].map(backoff);
        assert_eq!(waits, [500, 1000, 2000, 8000, 10_000, 10_000].map(Duration::from_millis));
    }
}
