//! One node: its BIRD, and the exporter beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::{birdc, network};
use crate::packages::{self, BIRD, EXPORTER};
use crate::process::{CommandLine, Lifetime, Process};

/// Port of the exporter: its default.
pub(super) const EXPORTER_PORT: u16 = 9324;
/// A BIRD opens its control socket within milliseconds, and says goodbye to its neighbors as fast.
const LIMIT: Duration = Duration::from_secs(5);

/// A node of the ground.
#[derive(Debug)]
pub struct Machine {
    /// Its name, which is that of its Node.
    pub name: String,
    pub(super) number: u8,
    pub(super) namespace: String,
    dir: PathBuf,
    /// The configuration written last; empty before the first.
    text: Mutex<String>,
    bird: Mutex<Option<Process>>,
    exporter: Mutex<Option<Process>>,
}

impl Machine {
    pub(super) fn new(id: &str, dir: &Path, name: &str, number: u8) -> Self {
        Self {
            name: name.to_owned(),
            number,
            namespace: network::namespace(id, number),
            dir: dir.to_owned(),
            text: Mutex::default(),
            bird: Mutex::default(),
            exporter: Mutex::default(),
        }
    }

    /// Returns the address of the node.
    #[must_use]
    pub fn address(&self) -> String {
        network::address(self.number)
    }

    /// The network of its pods.
    #[must_use]
    pub fn pods(&self) -> String {
        network::pods(self.number)
    }

    fn file(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.name))
    }

    /// The log of its BIRDs, all of them.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log").join(format!("{}.log", self.name))
    }

    /// Writes the configuration if it is another one; a BIRD that runs reads it. Returns whether it
    /// was another one.
    ///
    /// # Errors
    ///
    /// If BIRD refuses it; it then continues with the previous one.
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

    /// Configures it; with the first configuration BIRD is started.
    pub(super) fn boot(&self, text: &str) -> Result<()> {
        let first = lock(&self.text).is_empty();
        self.configure(text)?;
        if !first {
            return Ok(());
        }
        self.start(false)?;
        // The next configuration may come before it has a socket to receive it.
        self.started()
    }

    /// Starts BIRD; `recover` is for one that has crashed, and is what Calico does.
    ///
    /// # Errors
    ///
    /// If it does not come up; the error shows the end of its log.
    pub fn start(&self, recover: bool) -> Result<()> {
        let mut bird = lock(&self.bird);
        let socket = self.file("ctl");
        let _ = fs::remove_file(&socket);
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
        let process = Process::start(&self.name, command, &self.dir, Lifetime::Starter)?;
        *bird = Some(process);
        Ok(())
    }

    /// Waits until BIRD answers.
    pub(super) fn started(&self) -> Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.ask("show status") {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => {
                    if let Some(bird) = lock(&self.bird).as_ref() {
                        bird.check()?;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Kills BIRD with SIGKILL: its neighbors get no message, and its routes stay in the kernel.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill(&self) -> Result<()> {
        lock(&self.bird).take().map_or(Ok(()), |bird| bird.kill())
    }

    /// Stops BIRD gracefully: it informs its neighbors, which drop its routes.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub fn stop(&self) -> Result<()> {
        let Some(bird) = lock(&self.bird).take() else { return Ok(()) };
        bird.signal(Signal::SIGTERM)?;
        let end = Instant::now() + LIMIT;
        while bird.check().is_ok() {
            ensure!(Instant::now() < end, "the BIRD of {} does not end", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        bird.kill()
    }

    /// Returns whether BIRD runs.
    pub fn runs(&self) -> bool {
        lock(&self.bird).as_ref().is_some_and(|bird| bird.check().is_ok())
    }

    /// Gives BIRD a command, as `birdc` does.
    ///
    /// # Errors
    ///
    /// If it does not answer, or with an error.
    pub fn ask(&self, command: &str) -> Result<Vec<String>> {
        birdc::ask(&self.file("ctl"), command).with_context(|| self.name.clone())
    }

    /// Returns the names of the sessions that are established; none if BIRD does not run.
    #[must_use]
    pub fn established(&self) -> BTreeSet<String> {
        self.ask("show protocols").map(|answer| birdc::established(&answer)).unwrap_or_default()
    }

    /// Returns how many paths the table holds; none if BIRD does not run.
    #[must_use]
    pub fn paths(&self) -> Option<usize> {
        birdc::paths(&self.ask("show route count").ok()?)
    }

    /// Returns the processor time that BIRD has used; none if it does not run.
    #[must_use]
    pub fn spent(&self) -> Option<Duration> {
        let pid = lock(&self.bird).as_ref()?.pid()?;
        // BIRD has one thread. The first number is its nanoseconds on a processor.
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
    }

    /// Starts the exporter.
    pub(super) fn export(&self) -> Result<()> {
        let arguments = [
            "-bird.v2".to_owned(),
            "-bird.socket".to_owned(),
            self.file("ctl").to_string_lossy().into_owned(),
            "-web.listen-address".to_owned(),
            format!("{}:{EXPORTER_PORT}", self.address()),
        ];
        let program = packages::find(EXPORTER).with_context(|| format!("no {EXPORTER}"))?;
        let command = CommandLine::new(program, arguments).inside(Some(&self.namespace));
        let name = format!("exporter-{}", self.name);
        *lock(&self.exporter) = Some(Process::start(&name, command, &self.dir, Lifetime::Starter)?);
        Ok(())
    }

    /// Kills everything that runs on it.
    pub(super) fn end(&self) -> Result<()> {
        let exporter = lock(&self.exporter).take();
        exporter.map_or(Ok(()), |exporter| exporter.kill())?;
        self.kill()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
