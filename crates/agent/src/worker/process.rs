//! One process for each stream: restarted when it ends by itself, and terminated, with everything
//! that it started, when the stream is stopped.
use std::{
    collections::BTreeSet,
    fs,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::{Pid, getpgid},
};
use tokio::{
    process::{Child, ChildStdin, Command},
    sync::oneshot,
    time::{Instant, sleep, timeout_at},
};

use super::{Metrics, metrics::Failure};

/// Wait before a process is restarted: a fifth of a second, doubled each time that it ends soon.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);

/// The longest wait: after a repair, the process runs within this time.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// A process that ran for this long did start: the next wait is the first one again.
const STEADY: Duration = Duration::from_secs(10);

/// Time between two checks whether the last process of a group is gone: there is no notification.
const LOOK: Duration = Duration::from_millis(10);

/// Time after SIGKILL at which a process is reported as still running: then only the kernel can
/// hold it.
const OVERDUE: Duration = Duration::from_secs(2);

/// Runs a process for every stream; clones share it.
#[derive(Clone)]
pub(super) struct Processes(Arc<Inner>);

struct Inner {
    /// The program and its arguments.
    command: Vec<String>,
    worker: Arc<str>,
    stop_timeout: Duration,
    /// Processes wait for a line before they work.
    waits: bool,
    metrics: Metrics,
    /// The ids of the processes that tokio waits for: nothing else may wait for them.
    ours: Mutex<BTreeSet<i32>>,
}

/// One stream's process, or the wait for the next one.
pub(super) struct Process {
    all: Processes,
    stream: Arc<str>,
    /// The fencing token; `None` while it only loads.
    epoch: Option<u64>,
    child: Option<Running>,
    /// Failures in a row.
    failures: u32,
}

struct Running {
    child: Child,
    /// Its standard input, until it has read its token: a wait for a child would close that.
    input: Option<ChildStdin>,
    /// The id of the process and of its group, which it leads.
    id: Pid,
    since: Instant,
}

impl Processes {
    pub(super) fn new(
        command: Vec<String>,
        worker: Arc<str>,
        stop_timeout: Duration,
        waits: bool,
        metrics: Metrics,
    ) -> Self {
        // Orphans of a process are reparented to us and not to the first process of this host, even
        // if we are not the first process: otherwise they could not be distinguished.
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            tracing::warn!(%error, "orphans of streams will not come to this process");
        }
        let ours = Mutex::default();
        Self(Arc::new(Inner { command, worker, stop_timeout, waits, metrics, ours }))
    }

    /// Starts the process of a stream; if that fails, it is retried.
    pub(super) fn start(&self, stream: Arc<str>, epoch: Option<u64>) -> Process {
        let mut process = Process { all: self.clone(), stream, epoch, child: None, failures: 0 };
        process.start();
        process
    }

    /// Reaps orphans that ended: otherwise, a stream that leaves orphans behind would fill the
    /// process table.
    pub(super) fn reap(&self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // Our own processes are waited for where they were started; those behind them in the queue
        // wait until then.
        while let Ok(WaitStatus::Exited(id, _) | WaitStatus::Signaled(id, ..)) =
            waitid(Id::All, flags)
        {
            if self.ours().contains(&id.as_raw()) || waitpid(id, None).is_err() {
                return;
            }
        }
    }

    fn ours(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.0.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command for one stream.
    fn command(&self, stream: &str, epoch: Option<u64>) -> anyhow::Result<Command> {
        let (program, arguments) = self.0.command.split_first().context("no command")?;
        anyhow::ensure!(
            !becomes_an_option(arguments, stream),
            "its name would be read as an option of {program}: write -- before {{}}, or read $STREAM"
        );
        let mut command = Command::new(program);
        command
            .args(arguments.iter().map(|argument| argument.replace("{}", stream)))
            .env("STREAM", stream)
            .env("SWARM_WORKER", self.0.worker.as_ref())
            .envs(epoch.map(|epoch| ("SWARM_EPOCH", epoch.to_string())))
            .stdin(if self.0.waits { Stdio::piped() } else { Stdio::null() })
            // Its own group, so that its children end with it.
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Reports whether a program could read the name of a stream as an option: the author of the list
/// must not control the command line.
fn becomes_an_option(arguments: &[String], stream: &str) -> bool {
    let options = arguments.iter().take_while(|argument| *argument != "--");
    stream.starts_with('-') && options.into_iter().any(|argument| argument.starts_with("{}"))
}

impl Process {
    fn start(&mut self) {
        match self.spawn() {
            Ok(running) => {
                let what = if self.epoch.is_some() { "runs" } else { "loads" };
                tracing::info!(stream = %self.stream, epoch = self.epoch, pid = %running.id, "{what}");
                self.all.0.metrics.started();
                self.child = Some(running);
                self.go();
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.all.0.metrics.failed(Failure::Start);
                let stream = &self.stream;
                let wait = backoff(self.failures);
                tracing::warn!(%stream, %error, ?wait, "could not be started");
            }
        }
    }

    fn spawn(&self) -> anyhow::Result<Running> {
        let mut child = self.all.command(&self.stream, self.epoch)?.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = Pid::from_raw(id.ok_or_else(|| anyhow::anyhow!("it has no id"))?);
        self.all.ours().insert(id.as_raw());
        let input = child.stdin.take();
        Ok(Running { child, input, id, since: Instant::now() })
    }

    /// Lets the process work, if the stream is this worker's: a line that has room in an empty pipe.
    fn go(&mut self) {
        let Some((epoch, running)) = self.epoch.zip(self.child.as_mut()) else { return };
        let Some(pipe) = running.input.take() else { return };
        let written = pipe.into_owned_fd().and_then(|pipe| {
            std::io::Write::write_all(&mut fs::File::from(pipe), format!("{epoch}\n").as_bytes())
        });
        if let Err(error) = written {
            tracing::warn!(stream = %self.stream, %error, "does not read its fencing token");
        }
    }

    /// Keeps the process running until it is stopped; `go` lets one that only loads work. When this
    /// returns, none of its processes is left.
    pub(super) async fn run(
        mut self,
        mut stop: oneshot::Receiver<()>,
        mut go: oneshot::Receiver<u64>,
    ) {
        loop {
            if let Some(running) = &mut self.child {
                let ended = tokio::select! {
                    biased;
                    // The end of the worker ends its streams too.
                    _ = &mut stop => None,
                    Ok(epoch) = &mut go, if self.epoch.is_none() => {
                        self.epoch = Some(epoch);
                        self.go();
                        continue;
                    }
                    status = running.child.wait() => Some(status),
                };
                let stopped = ended.is_none();
                if let Some(running) = self.child.take() {
                    if let Some(status) = ended {
                        self.ended(&running, status);
                    }
                    self.clear(running, stopped).await;
                }
                if stopped {
                    return;
                }
            } else {
                tokio::select! {
                    biased;
                    _ = &mut stop => return,
                    Ok(epoch) = &mut go, if self.epoch.is_none() => self.epoch = Some(epoch),
                    () = sleep(backoff(self.failures)) => self.start(),
                }
            }
        }
    }

    /// Handles a process that ended by itself.
    fn ended(&mut self, running: &Running, status: std::io::Result<ExitStatus>) {
        let ran = running.since.elapsed();
        self.failures = if ran < STEADY { self.failures.saturating_add(1) } else { 1 };
        self.all.0.metrics.failed(Failure::Exit);
        let status = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let stream = &self.stream;
        let wait = backoff(self.failures);
        tracing::warn!(%stream, pid = %running.id, %status, ?ran, ?wait, "ended by itself");
    }

    /// Ends a process, if it still exists, and everything that it started in its group. However
    /// long that takes, the stream counts as running until then.
    async fn clear(&self, mut running: Running, stopped: bool) {
        let stream = &self.stream;
        let Running { id, .. } = running;
        let began = Instant::now();
        let until = began + self.all.0.stop_timeout;
        // The group's id cannot be reused while one of its processes exists. If none does (its
        // first one just ended by itself), all other ids would have to be used up first.
        send(id, Signal::SIGTERM);
        let mut killed = false;
        if timeout_at(until, running.child.wait()).await.is_err() {
            killed = true;
            self.kill(id);
            let overdue = Instant::now() + OVERDUE;
            if timeout_at(overdue, running.child.wait()).await.is_err() {
                tracing::error!(%stream, pid = %id, "killed, and still there");
                // An error means that it is no longer our child.
                let _ = running.child.wait().await;
            }
        }
        self.all.ours().remove(&id.as_raw());
        self.all.0.metrics.gone();
        // Its children, and their children.
        let (mut asked, mut doomed) = (BTreeSet::new(), BTreeSet::new());
        let mut clear = false;
        loop {
            let group = is_there(id);
            self.all.reap();
            let mut strays = of(stream, &self.all.ours());
            strays.retain(|stray| getpgid(Some(*stray)) != Ok(id));
            if !group && strays.is_empty() {
                // The kernel's list may omit a child while others end: only a result seen twice is
                // reliable.
                if clear {
                    break;
                }
                clear = true;
                sleep(LOOK).await;
                continue;
            }
            clear = false;
            let late = Instant::now() >= until;
            if late && group && !killed {
                killed = true;
                self.kill(id);
            }
            for stray in strays {
                if late && doomed.insert(stray) {
                    tracing::warn!(%stream, pid = %stray, "left its group and does not end: killed");
                    self.all.0.metrics.killed();
                    tell(stray, kill(stray, Signal::SIGKILL));
                } else if !late && asked.insert(stray) {
                    tell(stray, kill(stray, Signal::SIGTERM));
                }
            }
            sleep(LOOK).await;
        }
        if stopped {
            tracing::info!(%stream, pid = %id, took = ?began.elapsed(), "stopped");
        }
    }

    fn kill(&self, id: Pid) {
        tracing::warn!(stream = %self.stream, pid = %id, "does not end by SIGTERM: killed");
        self.all.0.metrics.killed();
        send(id, Signal::SIGKILL);
    }
}

fn send(group: Pid, signal: Signal) {
    tell(group, killpg(group, signal));
}

/// Sends a signal; a process that is gone needs none.
fn tell(to: Pid, sent: nix::Result<()>) {
    match sent {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(pid = %to, %error, "not signaled"),
    }
}

/// Reports whether a group has processes left after its first one was reaped.
fn is_there(group: Pid) -> bool {
    // Terminated orphans stay in the group until they are reaped.
    while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
        waitpid(Pid::from_raw(-group.as_raw()), Some(WaitPidFlag::WNOHANG))
    {}
    killpg(group, None) != Err(Errno::ESRCH)
}

fn backoff(failures: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(LONGEST_BACKOFF)
}

/// The reparented orphans with the variable of this stream in their environment. A process that has
/// removed the variable belongs to no stream, and neither does any process on a kernel that does
/// not list our children.
fn of(stream: &str, ours: &BTreeSet<i32>) -> Vec<Pid> {
    let variable = format!("STREAM={stream}");
    let mut children = children();
    children.retain(|child| !ours.contains(child));
    children.retain(|child| {
        // Not readable: it is gone, or belongs to another user, so that we could not end it.
        let environment = fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    });
    children.into_iter().map(Pid::from_raw).collect()
}

fn children() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| parse(&text)).collect()
}

fn parse(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_stream_is_never_an_option_of_the_command() {
        let option = |command: &[&str], stream: &str| {
            let arguments: Vec<_> = command.iter().map(|&text| text.to_owned()).collect();
            becomes_an_option(&arguments, stream)
        };
        assert!(option(&["{}"], "-i"));
        assert!(option(&["-v", "{}.ts"], "--output=/etc"));
        // After -- and inside an argument it is not an option, and other names stay unchanged.
        assert!(!option(&["-v", "--", "{}"], "-i"));
        assert!(!option(&["--stream={}"], "-i"));
        assert!(!option(&["{}"], "camera-1"));
        assert!(!option(&[], "-i"));
    }

    #[test]
    fn a_process_that_ends_is_waited_for_longer_each_time() {
        let waits: Vec<_> = [0, 1, 2, 3, 6, 7, 8, u32::MAX].map(backoff).into();
        let expected = [200, 200, 400, 800, 6400, 10_000, 10_000, 10_000];
        assert_eq!(waits, expected.map(Duration::from_millis));
    }

    #[test]
    fn children_are_listed_with_spaces() {
        assert_eq!(parse("12 345 "), [12, 345]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn only_orphans_with_the_variable_are_of_the_stream() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env("STREAM", "of-this-test")
            .spawn()
            .unwrap();
        let id = i32::try_from(child.id()).unwrap();
        // The kernel's list may omit one while other children start and end.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while of("of-this-test", &BTreeSet::new()) != [Pid::from_raw(id)] {
            assert!(std::time::Instant::now() < deadline, "the child is not listed");
            std::thread::yield_now();
        }
        assert!(of("of-this-test", &BTreeSet::from([id])).is_empty());
        assert!(of("of-this", &BTreeSet::new()).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
