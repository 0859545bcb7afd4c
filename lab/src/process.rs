//! Processes of the lab: started under a mark, logged to a file, ended by pid and never by name.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::lock;

/// The environment variable that tells the lab's processes from all others; its value is the run's
/// directory.
pub const MARK: &str = "LAB_MARK";

/// Lines of a log shown in an error: enough for a Go panic's head, short enough for a terminal.
const TAIL_LINES: usize = 15;

/// The command to run.
#[derive(Debug, Clone)]
pub struct CommandLine {
    program: PathBuf,
    pub(crate) arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The network namespace to run in, by its name below `/run/netns`; none = the caller's.
    network: Option<String>,
}

impl CommandLine {
    /// A program with arguments, in the caller's network namespace.
    pub fn new<S: Into<String>>(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            network: None,
        }
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_string_lossy().into_owned()));
        self
    }

    /// Moves the program into a network namespace.
    pub fn inside(mut self, network: Option<&str>) -> Self {
        self.network = network.map(str::to_owned);
        self
    }

    /// The words to execute: `setpriv` and `nsenter` replace themselves by what follows them, so
    /// the pid stays.
    fn words(&self, lifetime: Lifetime) -> Vec<String> {
        let mut words = Vec::new();
        if lifetime == Lifetime::Starter {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        }
        if let Some(network) = &self.network {
            let network = format!("--net=/run/netns/{network}");
            words.extend(["nsenter", &network, "--"].map(str::to_owned));
        }
        words.push(self.program.to_string_lossy().into_owned());
        words.extend(self.arguments.iter().cloned());
        words
    }
}

/// The lifetime of a process that nobody ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The kernel kills it when the process that started it dies, even by SIGKILL.
    Starter,
    /// Until it is ended by its pid: for `lab up`, which returns.
    Detached,
}

/// One process of a run.
#[derive(Debug)]
pub struct Process {
    /// Its name among the processes of its run.
    pub name: String,
    pub log: PathBuf,
    command: CommandLine,
    mark: PathBuf,
    lifetime: Lifetime,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Starts a process of the run in directory `mark`, logging to `log/<name>.log` below it.
    pub fn start(
        name: &str,
        command: CommandLine,
        mark: &Path,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let logs = mark.join("log");
        fs::create_dir_all(&logs)?;
        let process = Self {
            name: name.to_owned(),
            log: logs.join(format!("{name}.log")),
            command,
            mark: mark.to_owned(),
            lifetime,
            child: Mutex::new(None),
        };
        process.spawn()?;
        Ok(process)
    }

    /// Starts it again after [`Process::kill`], with the same command line.
    pub fn spawn(&self) -> Result<()> {
        let mut slot = self.slot();
        if let Some(child) = slot.as_mut()
            && child.try_wait()?.is_none()
        {
            bail!("{} runs already", self.name);
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let words = self.command.words(self.lifetime);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .envs(self.command.environment.iter().map(|(name, value)| (name, value)))
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: Ctrl-C on the terminal reaches the starter alone, which then ends
            // it in order.
            .process_group(0);
        let child =
            spawn(command).with_context(|| format!("starting {} ({})", self.name, words[0]))?;
        fs::write(self.pid_file(), child.id().to_string())?;
        *slot = Some(child);
        Ok(())
    }

    /// Returns the pid of the process started last.
    pub fn pid(&self) -> Option<u32> {
        self.slot().as_ref().map(Child::id)
    }

    /// Fails, with the end of the log, if the process has ended.
    pub fn check(&self) -> Result<()> {
        let ended: Option<ExitStatus> = match self.slot().as_mut() {
            Some(child) => child.try_wait()?,
            None => None,
        };
        match ended {
            Some(status) => Err(anyhow!("{} ended with {status}{}", self.name, tail(&self.log))),
            None => Ok(()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name))?;
        kill(pid_of(pid), signal).with_context(|| format!("sending {signal} to {}", self.name))
    }

    /// Kills the process and waits until it is gone; fine if it is gone already.
    pub fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.slot().take() {
            child.kill().with_context(|| format!("killing {}", self.name))?;
            child.wait().with_context(|| format!("waiting for {}", self.name))?;
            // From now on another process may have the pid.
            let _ = fs::remove_file(self.pid_file());
        }
        Ok(())
    }

    fn pid_file(&self) -> PathBuf {
        self.mark.join(format!("{}.pid", self.name))
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        lock(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Starter {
            let _ = self.kill();
        }
    }
}

/// Spawns from a thread that lives as long as the process.
///
/// The kernel's "parent died" signal is sent when the *thread* that forked ends; test threads and a
/// runtime's blocking threads end long before their process does.
pub fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in incoming {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the spawning thread is gone");
    spawner.send((command, reply)).map_err(|_| io::Error::other("the spawning thread is gone"))?;
    answer.recv().map_err(gone)?
}

/// Kills a process that an earlier run recorded, only if it carries the run's mark; waits until it
/// is gone.
///
/// Returns whether there was one.
pub fn kill_recorded(pid: u32, mark: &Path) -> Result<bool> {
    if !is_marked(pid, mark) {
        return Ok(false);
    }
    kill(pid_of(pid), Signal::SIGKILL).with_context(|| format!("killing pid {pid}"))?;
    // A process in an uninterruptible system call (an unmount, say) dies when that call ends.
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_alive(pid) {
        if Instant::now() > deadline {
            bail!("pid {pid} does not die");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

/// Returns whether a process runs and carries the mark of the run in directory `mark`.
pub fn is_marked(pid: u32, mark: &Path) -> bool {
    let wanted = format!("{MARK}={}", mark.display());
    is_alive(pid)
        && fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
            environment.split(|&b| b == 0).any(|entry| entry == wanted.as_bytes())
        })
}

/// Returns whether a process runs; one that has ended and only waits for its parent does not.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        // The name is in parentheses and may hold anything; the state follows the last one.
        .and_then(|stat| {
            stat.rsplit_once(')')
                .map(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
        })
        .unwrap_or(false)
}

fn pid_of(pid: u32) -> Pid {
    // Pids are below 2^22 on Linux.
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

/// Returns the processor time of a process so far, in milliseconds (the kernel counts in steps of
/// ten).
pub fn cpu(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut ticks = || -> Result<f64> {
        Ok(fields.next().context("too few fields in /proc/PID/stat")?.parse()?)
    };
    Ok((ticks()? + ticks()?) * 10.0)
}

/// Reads a figure of `/proc/PID/status`, in KiB.
pub fn kib(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let line = line.with_context(|| format!("no line {key}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Returns the last lines of a log, ready to be put behind an error message.
pub fn tail(log: &Path) -> String {
    // Go's longest log lines stay well below 2 kB.
    const BYTES: u64 = 2048 * TAIL_LINES as u64;
    let text = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }()
    .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return format!("; its log {} is empty", log.display());
    }
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("; the end of its log {}:\n    {}", log.display(), last.join("\n    "))
}

/// Runs a short command to its end and returns what it printed.
pub fn output(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "`{} {}` ended with {}: {}",
            program.display(),
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Quotes a word for a POSIX shell.
pub fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_processes_are_killed() {
        let dir = std::env::temp_dir().join(format!("lab-process-{}", crate::workspace::unique()));
        let process =
            Process::start("sleep", CommandLine::new("sleep", ["60"]), &dir, Lifetime::Starter)
                .unwrap();
        let pid = process.pid().unwrap();
        assert!(!kill_recorded(pid, Path::new("/elsewhere")).unwrap());
        // While setpriv becomes sleep its environment cannot be read for a moment.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !kill_recorded(pid, &dir).unwrap() {
            assert!(Instant::now() < deadline, "the process carries no mark");
            std::thread::yield_now();
        }
        assert!(process.check().unwrap_err().to_string().contains("sleep ended with signal: 9"));
        drop(process);
        fs::remove_dir_all(&dir).unwrap();
    }
}
