//! One BIRD: as in Calico, a node has one for each address family that it speaks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::birdc;
use crate::packages::{self, BIRD};
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::lock;

/// A BIRD opens its control socket within milliseconds, and says goodbye to its neighbors as fast.
const LIMIT: Duration = Duration::from_secs(5);

/// A daemon and its files.
#[derive(Debug)]
pub(super) struct Bird {
    /// Names its files and its log.
    name: String,
    namespace: String,
    dir: PathBuf,
    /// The configuration written last; empty before the first.
    text: Mutex<String>,
    process: Mutex<Option<Process>>,
}

impl Bird {
    pub fn new(name: String, namespace: &str, dir: &Path) -> Self {
        let (namespace, dir) = (namespace.to_owned(), dir.to_owned());
        Self { name, namespace, dir, text: Mutex::default(), process: Mutex::default() }
    }

    fn file(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.name))
    }

    /// The socket that it takes commands on.
    pub fn socket(&self) -> PathBuf {
        self.file("ctl")
    }

    /// The log of all processes that have run here.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log").join(format!("{}.log", self.name))
    }

    /// Writes the configuration if it is another one; a process that runs reads it. Returns
    /// whether it was another one.
    pub fn configure(&self, text: &str) -> Result<bool> {
        let mut written = lock(&self.text);
        if *written == text {
            return Ok(false);
        }
        let path = self.file("conf");
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        text.clone_into(&mut written);
        if self.runs() {
            self.ask("configure")?;
        }
        Ok(true)
    }

    pub fn is_configured(&self) -> bool {
        !lock(&self.text).is_empty()
    }

    /// Starts it; `recover` is for one that has crashed, and is what Calico does.
    pub fn start(&self, recover: bool) -> Result<()> {
        let mut process = lock(&self.process);
        let _ = fs::remove_file(self.socket());
        let path = |end| self.file(end).to_string_lossy().into_owned();
        let mut arguments =
            vec!["-f".to_owned(), "-c".to_owned(), path("conf"), "-s".to_owned(), path("ctl")];
        if recover {
            arguments.push("-R".to_owned());
        }
        let program = packages::find(BIRD).context("no bird")?;
        // The time in its log must be read again.
        let command =
            CommandLine::new(program, arguments).env("TZ", "UTC").inside(Some(&self.namespace));
        *process = Some(Process::start(&self.name, command, &self.dir, Lifetime::Starter)?);
        Ok(())
    }

    /// Waits until it answers.
    pub fn started(&self) -> Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.ask("show status") {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => {
                    if let Some(process) = lock(&self.process).as_ref() {
                        process.check()?;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Kills it with SIGKILL: its neighbors get no message, and its routes stay in the kernel.
    pub fn kill(&self) -> Result<()> {
        lock(&self.process).take().map_or(Ok(()), |process| process.kill())
    }

    /// Stops it gracefully: it informs its neighbors, which drop its routes.
    pub fn stop(&self) -> Result<()> {
        let Some(process) = lock(&self.process).take() else { return Ok(()) };
        process.signal(Signal::SIGTERM)?;
        let end = Instant::now() + LIMIT;
        while process.check().is_ok() {
            ensure!(Instant::now() < end, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        process.kill()
    }

    pub fn runs(&self) -> bool {
        lock(&self.process).as_ref().is_some_and(|process| process.check().is_ok())
    }

    /// Gives it a command, as `birdc` does.
    pub fn ask(&self, command: &str) -> Result<Vec<String>> {
        birdc::ask(&self.socket(), command).with_context(|| self.name.clone())
    }

    /// Returns the names of the sessions that are established; none if it does not run.
    pub fn established(&self) -> BTreeSet<String> {
        self.ask("show protocols").map(|answer| birdc::established(&answer)).unwrap_or_default()
    }

    /// Returns how many paths its table holds; none if it does not run.
    pub fn paths(&self) -> Option<usize> {
        birdc::paths(&self.ask("show route count").ok()?)
    }

    /// Returns the processor time that it has used; none if it does not run.
    pub fn spent(&self) -> Option<Duration> {
        let pid = lock(&self.process).as_ref()?.pid()?;
        // It has one thread. The first number is its nanoseconds on a processor.
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
    }
}
