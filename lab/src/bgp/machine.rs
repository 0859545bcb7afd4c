//! One node: its BIRDs, and the exporter beside them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};

use super::bird::Bird;
use super::family::Family;
use super::network;
use super::render::Texts;
use crate::packages::{self, EXPORTER};
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::lock;

/// Port of the exporter: its default.
pub(super) const EXPORTER_PORT: u16 = 9324;

/// A node of the ground.
#[derive(Debug)]
pub struct Machine {
    /// Its name, which is that of its Node.
    pub name: String,
    pub(super) number: u8,
    pub(super) namespace: String,
    /// The address families that it speaks.
    pub families: Vec<Family>,
    dir: PathBuf,
    birds: Vec<(Family, Bird)>,
    exporter: Mutex<Option<Process>>,
}

impl Machine {
    pub(super) fn new(id: &str, dir: &Path, name: &str, number: u8, families: &[Family]) -> Self {
        let namespace = network::namespace(id, number);
        let bird = |family: &Family| {
            let name = family.pick(name.to_owned(), format!("{name}-bird6"));
            (*family, Bird::new(name, &namespace, dir))
        };
        Self {
            name: name.to_owned(),
            number,
            families: families.to_vec(),
            dir: dir.to_owned(),
            birds: families.iter().map(bird).collect(),
            exporter: Mutex::default(),
            namespace,
        }
    }

    pub fn address(&self, family: Family) -> String {
        network::address(family, self.number)
    }

    pub fn pods(&self, family: Family) -> String {
        network::pods(family, self.number)
    }

    fn birds(&self) -> impl Iterator<Item = &Bird> {
        self.birds.iter().map(|(_, bird)| bird)
    }

    fn bird(&self, family: Family) -> Result<&Bird> {
        let found = self.birds.iter().find(|(of, _)| *of == family).map(|(_, bird)| bird);
        found.with_context(|| format!("{} does not speak {family:?}", self.name))
    }

    pub(super) fn logs(&self) -> Vec<PathBuf> {
        self.birds().map(Bird::log).collect()
    }

    /// Writes the configurations that are other ones; BIRDs that run read them. Returns whether
    /// there was another one.
    pub fn configure(&self, texts: &Texts) -> Result<bool> {
        let mut changed = false;
        for (family, bird) in &self.birds {
            changed |= bird.configure(texts.get(family).map_or("", String::as_str))?;
        }
        Ok(changed)
    }

    /// Configures it; a BIRD is started with its first configuration.
    pub(super) fn boot(&self, texts: &Texts) -> Result<()> {
        for (family, bird) in &self.birds {
            let Some(text) = texts.get(family) else { continue };
            let is_first = !bird.is_configured();
            bird.configure(text)?;
            if is_first {
                bird.start(false)?;
                // The next configuration may come before it has a socket to receive it.
                bird.started()?;
            }
        }
        Ok(())
    }

    /// Starts its BIRDs; `recover` is for those that have crashed, and is what Calico does.
    pub fn start(&self, recover: bool) -> Result<()> {
        self.birds().try_for_each(|bird| bird.start(recover))
    }

    pub fn start_one(&self, family: Family) -> Result<()> {
        self.bird(family)?.start(false)
    }

    /// Kills its BIRDs with SIGKILL: their neighbors get no message, and their routes stay in the
    /// kernel.
    pub fn kill(&self) -> Result<()> {
        self.birds().try_for_each(Bird::kill)
    }

    /// Stops its BIRDs gracefully: they inform their neighbors, which drop their routes.
    pub fn stop(&self) -> Result<()> {
        self.birds().try_for_each(Bird::stop)
    }

    /// Stops the BIRD of one family gracefully.
    pub fn stop_one(&self, family: Family) -> Result<()> {
        self.bird(family)?.stop()
    }

    pub fn runs(&self) -> bool {
        self.birds().all(Bird::runs)
    }

    /// Gives its BIRDs a command, as `birdc` does.
    pub fn ask(&self, command: &str) -> Result<()> {
        self.birds().try_for_each(|bird| bird.ask(command).map(drop))
    }

    /// Returns the names of the sessions that are established; none of a BIRD that does not run.
    pub fn established(&self) -> BTreeSet<String> {
        self.birds().flat_map(Bird::established).collect()
    }

    /// Returns how many paths its fullest table holds; none if no BIRD runs.
    pub fn paths(&self) -> Option<usize> {
        self.birds().filter_map(Bird::paths).max()
    }

    /// Returns the processor time that its BIRDs have used; none if none runs.
    pub fn spent(&self) -> Option<Duration> {
        self.birds().filter_map(Bird::spent).reduce(|one, other| one + other)
    }

    pub(super) fn export(&self) -> Result<()> {
        let mut arguments = vec![
            format!("-bird.ipv4={}", self.families.contains(&Family::V4)),
            format!("-bird.ipv6={}", self.families.contains(&Family::V6)),
            // Prometheus reaches every node by its IPv4 address.
            format!("-web.listen-address={}:{EXPORTER_PORT}", self.address(Family::V4)),
        ];
        for (family, bird) in &self.birds {
            let flag = if *family == Family::V4 { "socket" } else { "socket6" };
            arguments.push(format!("-bird.{flag}={}", bird.socket().display()));
        }
        let program = packages::find(EXPORTER).with_context(|| format!("no {EXPORTER}"))?;
        let command = CommandLine::new(program, arguments).inside(Some(&self.namespace));
        let name = format!("exporter-{}", self.name);
        let process = Process::start(&name, command, &self.dir, Lifetime::Starter)?;
        *lock(&self.exporter) = Some(process);
        Ok(())
    }

    /// Kills everything that runs on it.
    pub(super) fn end(&self) -> Result<()> {
        lock(&self.exporter).take().map_or(Ok(()), |exporter| exporter.kill())?;
        self.kill()
    }
}
