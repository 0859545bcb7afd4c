//! A slow and lossy link, in user space: delays the packets between a node's pods and other nodes,
//! and loses some.
//!
//! Policy routing sends them out of the node through one end of a veth pair; the other end lies in
//! a network namespace of this process. There they are read, lost or held, completed (checksums),
//! and sent back to where they came from, and the node routes them on as if nothing had happened.
//! Unlike the kernel's netem it works on every kernel and leaves the node's own traffic alone
//! (kubelet, API server, `node_exporter`): the node stays Ready.
//!
//! When this process dies, its namespace and the veth pair die with it: packets then take their
//! ordinary route.

mod packet;
mod plumbing;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use serde::{Deserialize, Serialize};

use crate::workspace::{share, write_whole};

pub(crate) use plumbing::{divert_no_more, remove};

/// Packets that are held at once; a real device's queue has an end, too (netem: 1000 packets by
/// default).
const MOST_HELD: usize = 1000;
/// The longest frame: 14 bytes before a packet of 1500. Longer ones do not occur, as nothing is
/// merged on the way in.
const FRAME: usize = 2048;
/// Time between two writes of the counts: often enough for a live display.
const REPORT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Config {
    /// The node's network namespace.
    #[arg(long)]
    pub network: String,
    #[arg(long)]
    pub pods: String,
    /// The network of the node's own pods.
    #[arg(long)]
    pub own: String,
    /// The time for which each packet is held, in microseconds; a round trip is two packets.
    #[arg(long)]
    pub hold_us: u64,
    /// The share of packets that are lost, 0 to 1.
    #[arg(long)]
    pub loss: f64,
    /// Longer packets are lost, in bytes with the IP header.
    #[arg(long)]
    pub longest: Option<usize>,
    /// Milliseconds after which it ends by itself.
    #[arg(long)]
    pub limit_ms: u64,
    /// File of the counts; when it appears, the packets take this path.
    #[arg(long)]
    pub report: PathBuf,
}

/// The results for the packets so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Held, and sent on.
    pub held: u64,
    pub lost: u64,
    /// Lost because too many were held, or the kernel would not take them back.
    pub failed: u64,
}

#[derive(Default)]
struct Counters {
    held: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    fn read(&self) -> Counts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts { held: value(&self.held), lost: value(&self.lost), failed: value(&self.failed) }
    }
}

/// A frame and the time at which it is forwarded.
type Held = (Instant, Vec<u8>);

/// Impairs until its time is over or it is killed.
///
/// Must be called before the process has a second thread: the calling one moves into a network
/// namespace of its own.
pub fn run(config: &Config) -> Result<()> {
    let end = Instant::now() + Duration::from_millis(config.limit_ms);
    plumbing::leave()?;
    plumbing::connect(&config.network)?;
    let link = Arc::new(open(plumbing::HERE)?);
    let counters = Arc::new(Counters::default());
    let (sender, receiver) = sync_channel::<Held>(MOST_HELD);
    let hold = Duration::from_micros(config.hold_us);
    let reading = {
        let (link, counters, loss) = (link.clone(), counters.clone(), config.loss);
        let longest = config.longest.map_or(FRAME, |longest| longest + packet::LINK);
        std::thread::spawn(move || read(&link, &sender, &counters, hold, (loss, longest)))
    };
    let sending = {
        let (link, counters) = (link, counters.clone());
        std::thread::spawn(move || pass_on(&link, &receiver, &counters))
    };
    plumbing::divert(config)?;
    while Instant::now() < end {
        write_report(&config.report, counters.read())?;
        if reading.is_finished() {
            match reading.join() {
                Ok(result) => result.context("reading packets")?,
                Err(_) => bail!("the reader panicked"),
            }
            bail!("the reader ended");
        }
        if sending.is_finished() {
            bail!("the sender ended");
        }
        std::thread::sleep(REPORT.min(end.saturating_duration_since(Instant::now())));
    }
    divert_no_more(&config.network)?;
    // What is held still arrives.
    std::thread::sleep(hold);
    write_report(&config.report, counters.read())
}

/// Reads the counts that a running impairment has written; none before it is in place.
pub(crate) fn read_report(path: &Path) -> Option<Counts> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn write_report(path: &Path, counts: Counts) -> Result<()> {
    write_whole(path, &serde_json::to_vec(&counts)?)
}

/// Opens a device for whole frames that carry IPv4.
fn open(device: &str) -> Result<OwnedFd> {
    let opened =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthIp)
            .context("opening a packet socket")?;
    // The kernel's own description of the device is what a packet socket is bound to.
    let address = nix::ifaddrs::getifaddrs()?
        .filter(|interface| interface.interface_name == device)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .with_context(|| format!("no device {device}"))?;
    bind(opened.as_raw_fd(), &address).with_context(|| format!("binding to {device}"))?;
    Ok(opened)
}

/// Reads frames: loses some, hands the others on with the time they are due.
fn read(
    link: &OwnedFd,
    sender: &SyncSender<Held>,
    counters: &Counters,
    hold: Duration,
    (loss, longest): (f64, usize),
) -> Result<()> {
    let mut buffer = [0; FRAME];
    loop {
        let length = match recv(link.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => length,
            // ENETDOWN comes once, when the other end of the pair goes up or down.
            Err(Errno::EINTR | Errno::ENETDOWN) => continue,
            Err(error) => return Err(error.into()),
        };
        let due = Instant::now() + hold;
        if length > longest || share() < loss {
            counters.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let mut frame = buffer[..length].to_vec();
        packet::complete(&mut frame);
        match sender.try_send((due, frame)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => return Ok(()),
        }
    }
}

/// Sends each frame back when it is due; all are held equally long, so the first read is the first
/// due.
fn pass_on(link: &OwnedFd, receiver: &Receiver<Held>, counters: &Counters) {
    for (due, frame) in receiver {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match send(link.as_raw_fd(), &frame, MsgFlags::empty()) {
            Ok(_) => counters.held.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                if counters.failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("lab: a frame of {} bytes was not taken back: {error}", frame.len());
                }
                0
            }
        };
    }
}
