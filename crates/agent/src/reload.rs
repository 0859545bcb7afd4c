//! The sidecar of an application that reads its share of a Swarm by itself but cannot report which
//! version it runs: the sidecar reloads the application when the share changes, and reports the
//! version.
use std::{fmt, fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use futures::future::BoxFuture;
use http::Uri;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Signals,
    file::Found,
    worker::{
        metrics::{Looked, Metrics, Role},
        share::{Newest, Share},
        status::{Place, Status, Taken},
    },
};
use crate::client::Client;

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
    pub method: Method,
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
        self.status.show(share.streams.clone(), None, share.version);
        self.runs = Some(share);
    }
}

fn backoff(failures: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(LONGEST_BACKOFF)
}

/// A way to reload an application.
#[derive(Clone, Debug)]
pub enum Method {
    /// By a POST; a 2xx status confirms that it runs the file.
    Url {
        /// The URL of the request.
        url: Uri,
        /// The time that the answer may take.
        timeout: Duration,
    },
    /// By a signal, which has no answer.
    Signal {
        /// The signal to send.
        signal: Signal,
        /// The processes of that name.
        process: String,
        /// The time that the application needs to apply the file.
        settle: Duration,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, .. } => write!(to, "POST {url}"),
            Self::Signal { signal, process, .. } => write!(to, "{signal} to {process}"),
        }
    }
}

/// The application beside us.
enum Application {
    Url { client: Box<Client>, url: Uri, timeout: Duration },
    Signal { signal: Signal, process: String, settle: Duration },
}

impl Application {
    fn new(method: Method) -> anyhow::Result<Self> {
        Ok(match method {
            Method::Url { url, timeout } => {
                Self::Url { client: Box::new(Client::plain()?), url, timeout }
            }
            Method::Signal { signal, process, settle } => Self::Signal { signal, process, settle },
        })
    }

    /// Makes the application read the file again; ends when the file is applied.
    fn reload(&self) -> BoxFuture<'static, anyhow::Result<()>> {
        match self {
            Self::Url { client, url, timeout } => {
                let (client, url, timeout) = (client.clone(), url.clone(), *timeout);
                Box::pin(async move { client.post(&url, None, Vec::new(), timeout).await })
            }
            Self::Signal { signal, process, settle } => {
                Box::pin(tell(*signal, process.clone(), *settle))
            }
        }
    }
}

async fn tell(signal: Signal, name: String, settle: Duration) -> anyhow::Result<()> {
    let signaled = {
        let name = name.clone();
        blocking(move || {
            let found = named(&name);
            ensure!(!found.is_empty(), "no process {name} (shareProcessNamespace?)");
            for Process { id, .. } in &found {
                kill(*id, signal).with_context(|| {
                    format!(
                        "{signal} to {name}, process {id} (the same runAsUser, or KILL, is needed)"
                    )
                })?;
            }
            Ok(found)
        })
        .await?
    };
    let ids: Vec<_> = signaled.iter().map(|process| process.id.as_raw()).collect();
    tracing::info!(
        %signal, process = name, ?ids, ?settle,
        "signaled; nobody answers a signal: taken as followed after that time"
    );
    sleep(settle).await;
    // The signal ends an application that was not ready for it.
    blocking(move || match signaled.iter().find(|process| !is_there(process)) {
        Some(gone) => bail!("{name}, process {}, ended", gone.id),
        None => Ok(()),
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("reading /proc")?
}

/// Number of bytes that the kernel keeps of a process's name.
const KEPT: usize = 15;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: Pid,
    parent: i32,
    /// Start time in ticks since the system started: ids are reused.
    started: u64,
}

/// Returns the processes with a name, except this one and those whose parents have the name too: a
/// server passes the signal to its own children.
fn named(name: &str) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = ids
        .filter(|id| *id != std::process::id().cast_signed())
        .filter_map(|id| process(id).filter(|_| has_name(id, name)))
        .collect();
    let all = found.clone();
    found.retain(|process| !all.iter().any(|other| other.id.as_raw() == process.parent));
    found
}

/// Reports whether that very process still runs.
fn is_there(of: &Process) -> bool {
    process(of.id.as_raw()).is_some_and(|now| now.started == of.started)
}

fn process(id: i32) -> Option<Process> {
    let stat = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?;
    parse(id, &stat)
}

/// Parses the state of a process; `None` for one that has ended and is only waiting to be reaped.
fn parse(id: i32, stat: &str) -> Option<Process> {
    // The name is in parentheses and may contain parentheses itself.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    // The 22nd field; the state is the third.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { id: Pid::from_raw(id), parent, started })
}

fn has_name(id: i32, name: &str) -> bool {
    let read = |file| fs::read(Path::new("/proc").join(id.to_string()).join(file));
    let command = read("comm").unwrap_or_default();
    let arguments = read("cmdline").unwrap_or_default();
    is_name(name.as_bytes(), &command, &arguments)
}

/// Reports whether the process's own name or the file it was started as is that. A script has its
/// name, cut off, and the interpreter's file: then the script is among the arguments.
fn is_name(name: &[u8], command: &[u8], arguments: &[u8]) -> bool {
    fn file(path: &[u8]) -> &[u8] {
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
    let command = command.trim_ascii_end();
    let mut arguments = arguments.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    let cut = name.get(..KEPT).is_some_and(|cut| cut == command);
    [command, program, file(program)].contains(&name) || cut && arguments.any(|it| file(it) == name)
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
        let method = Method::Url { url, timeout: Duration::from_secs(90) };
        let metrics = Metrics::new(Role::Reload);
        let (grants, _) = tokio::sync::mpsc::channel(1);
        let status = Status::new("w".into(), Signer::default(), metrics.clone(), grants);
        (listener, Follower::new(Application::new(method).unwrap(), status, metrics))
    }

    fn share(version: u64, epoch: u64, streams: &[&str]) -> Found<Share> {
        let streams = streams.iter().map(|stream| Arc::from(*stream)).collect();
        Found::Changed(Share { version, epoch, streams, next: vec![] })
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

    #[test]
    fn the_name_is_that_of_the_process_or_of_its_file() {
        for (name, command, arguments, expected) in [
            ("app", "app\n", "/bin/other\0--flag\0", true),
            ("app", "other\n", "/bin/app\0--flag\0", true),
            ("app", "other\n", "app\0", true),
            ("/bin/app", "app\n", "/bin/app\0", true),
            (
                "an-application-of-long-name",
                "an-application-\n",
                { "/an-application-of-long-name\0" },
                true,
            ),
            ("nginx", "nginx\n", "nginx: master process nginx -g daemon off;\0", true),
            ("app", "python3\n", "/usr/bin/python3\0/srv/app\0", false),
            ("app", "application\n", "application\0", false),
            ("app", "", "", false),
            (
                "script-of-long-name.sh",
                "script-of-long-\n",
                { "/bin/sh\0/srv/script-of-long-name.sh\0" },
                true,
            ),
            (
                "script-of-long-name.py",
                "script-of-long-\n",
                { "/bin/sh\0/srv/script-of-long-name.sh\0" },
                false,
            ),
        ] {
            let is = is_name(name.as_bytes(), command.as_bytes(), arguments.as_bytes());
            assert_eq!(is, expected, "{name} {command} {arguments}");
        }
    }

    #[test]
    fn a_line_of_stat() {
        let rest = "7 12 12 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 8674 1 2";
        let expected = Process { id: Pid::from_raw(12), parent: 7, started: 8674 };
        assert_eq!(parse(12, &format!("12 (a) b) S {rest}")), Some(expected));
        assert_eq!(parse(12, &format!("12 (app) Z {rest}")), None);
        assert_eq!(parse(12, "12 (app) S 7"), None);
        assert_eq!(parse(12, ""), None);
    }

    #[test]
    fn this_process_is_there_but_not_found() {
        let id = std::process::id().cast_signed();
        let own = process(id).unwrap();
        assert!(is_there(&own));
        assert!(!is_there(&Process { started: own.started + 1, ..own }));
        assert!(named("no-process-has-this-name").is_empty());
    }
}
