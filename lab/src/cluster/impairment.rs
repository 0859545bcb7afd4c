//! Slow and lossy links of single nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;

use super::addresses::{PODS, pod_cidr};
use super::{Cluster, network};
use crate::impair::{self, Counts};
use crate::process::{CommandLine, Lifetime, Process};
use crate::wait::until;

/// The deadline of the setup: a veth pair and three rules take a few hundred milliseconds on a busy
/// machine.
const IN_PLACE: Duration = Duration::from_secs(20);
/// Longer than any client waits for a packet: a longer delay would measure nothing new, and only
/// hold up more packets.
const MOST_DELAY: Duration = Duration::from_secs(5);

/// The treatment of packets between a node's pods and those of other nodes.
///
/// Pods on the same node do not notice, nor does the node itself: kubelet, API server and
/// `node_exporter` (host network).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Delay added to each round trip; half of it in each direction.
    pub delay: Duration,
    /// The share of packets that are lost in each direction, 0 to 1.
    pub loss: f64,
    /// The longest packet that is not lost, in bytes with its IP header.
    pub longest: Option<usize>,
}

impl Impairment {
    /// Describes how packets are impaired.
    pub const fn mechanism() -> &'static str {
        "pod packets held and dropped in user space (policy routing through a veth pair; no netem needed)"
    }

    fn check(self) -> Result<()> {
        ensure!((0.0..=1.0).contains(&self.loss), "a share is lost, 0 to 1, not {}", self.loss);
        ensure!(self.delay <= MOST_DELAY, "packets are held for at most {MOST_DELAY:?}");
        Ok(())
    }
}

/// An impairment in effect; dropping it ends it, and so does its process' end.
#[derive(Debug)]
pub struct Impaired {
    network: String,
    delay: Duration,
    report: PathBuf,
    process: Option<Process>,
}

impl Impaired {
    /// Returns the results for the packets so far.
    pub fn counts(&self) -> Result<Counts> {
        if let Some(process) = &self.process {
            process.check()?;
        }
        impair::read_report(&self.report).context("the impairment has written no counts")
    }

    /// Ends the impairment and returns the results for the packets. Ending it loses no packet.
    pub async fn lift(mut self) -> Result<Counts> {
        let counts = self.counts();
        impair::divert_no_more(&self.network)?;
        tokio::time::sleep(self.delay).await;
        self.end()?;
        counts
    }

    fn end(&mut self) -> Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        // The cluster may have been taken down before.
        let removed = match network::open(&self.network) {
            Ok(_) => impair::remove(&self.network),
            Err(_) => Ok(()),
        };
        process.kill()?;
        let _ = std::fs::remove_file(&self.report);
        removed
    }
}

impl Drop for Impaired {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            crate::progress(&format!("an impairment could not be taken away: {error:#}"));
        }
    }
}

impl Cluster {
    /// Makes a node's link slow and lossy for its pods, until the returned value is dropped or
    /// `limit` is over.
    pub async fn impair(
        &self,
        node: &str,
        impairment: Impairment,
        limit: Duration,
    ) -> Result<Impaired> {
        let number = self.number_of(node)?;
        let line = Line {
            network: network::node(&self.id(), number),
            pods: PODS.to_owned(),
            own: pod_cidr(number),
        };
        start(&self.dir.join("lab"), &self.dir, &format!("impair-{node}"), &line, impairment, limit)
            .await
            .with_context(|| format!("impairing the link of {node}"))
    }
}

/// The packets of one network namespace to impair.
#[derive(Debug)]
struct Line {
    network: String,
    pods: String,
    own: String,
}

async fn start(
    lab: &Path,
    dir: &Path,
    name: &str,
    line: &Line,
    impairment: Impairment,
    limit: Duration,
) -> Result<Impaired> {
    impairment.check()?;
    let report = dir.join(format!("{name}.json"));
    ensure!(!report.exists(), "it is impaired already ({} exists)", report.display());
    let arguments = [
        "impair-line".to_owned(),
        format!("--network={}", line.network),
        format!("--pods={}", line.pods),
        format!("--own={}", line.own),
        format!("--hold-us={}", impairment.delay.as_micros() / 2),
        format!("--loss={}", impairment.loss),
        format!("--limit-ms={}", limit.as_millis()),
        format!("--report={}", report.display()),
    ];
    let longest = impairment.longest.map(|longest| format!("--longest={longest}"));
    let arguments = arguments.into_iter().chain(longest);
    // It ends with this process whatever happens; the packets then go their ordinary way.
    let process = Process::start(name, CommandLine::new(lab, arguments), dir, Lifetime::Starter)?;
    let impaired = Impaired {
        network: line.network.clone(),
        delay: impairment.delay,
        report: report.clone(),
        process: Some(process),
    };
    until("the impairment in place", IN_PLACE, || async {
        match impaired.counts() {
            Ok(_) => Ok(None),
            Err(error) if impaired.is_running() => Ok(Some(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    })
    .await?;
    Ok(impaired)
}

impl Impaired {
    fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.check().is_ok())
    }
}

/// Reads a share in percent, as `20%`.
pub fn parse_share(text: &str) -> Result<f64> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .with_context(|| format!("{text:?} is no share: write percent as 20%"))
}

/// Reads a delay, as `50ms` or `1s`.
pub fn parse_delay(text: &str) -> Result<Duration> {
    let read = text.parse::<SignedDuration>().ok().and_then(|delay| delay.try_into().ok());
    read.with_context(|| format!("{text:?} is no delay: write milliseconds as 50ms"))
}
