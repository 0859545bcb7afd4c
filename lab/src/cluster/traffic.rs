//! Traffic from a node to the outside of the cluster, at an even rate, and the node's own count of
//! it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::addresses::{GATEWAY, SINK_PORT};
use super::network;

/// Bytes handed to the kernel at once: a tick's worth of gigabits.
const CHUNK: usize = 1024 * 1024;
/// The time whose bytes are sent at once: even enough for rates over seconds. A thousand wake-ups a
/// second would cost half a processor, and a hundred cost a tenth. Without a rest a sender takes a
/// whole processor, and its packets are so small that headers add a third.
const TICK: Duration = Duration::from_millis(10);
/// A sender that was kept waiting longer than this does not make up for it: a burst would be a
/// different load.
const MOST_LAG: Duration = Duration::from_millis(200);

/// Traffic that is being sent; dropping it ends it.
#[derive(Debug)]
pub struct Traffic {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Traffic {
    /// Sends from inside a network namespace to the cluster's sink, which is outside of all nodes.
    pub(super) fn start(namespace: &str, bits_per_second: u64, duration: Duration) -> Result<Self> {
        let stream = network::inside(namespace, || TcpStream::connect((GATEWAY, SINK_PORT)))?;
        let stream = stream.context("connecting to the cluster's sink")?;
        let (bytes, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (sent, ended) = (Arc::clone(&bytes), Arc::clone(&stop));
        let send = move || send(stream, bits_per_second, duration, &sent, &ended);
        let thread = std::thread::spawn(send);
        Ok(Self { bytes, stop, thread: Some(thread) })
    }

    /// Returns the bytes sent so far (payload: on the wire headers come on top, up to 6 %).
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until all is sent and returns the bytes.
    pub async fn wait(mut self) -> Result<u64> {
        if let Some(thread) = self.thread.take() {
            tokio::task::spawn_blocking(move || thread.join())
                .await?
                .map_err(|_| anyhow!("the sender panicked"))??;
        }
        Ok(self.bytes())
    }

    /// Stops sending and returns the bytes sent.
    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait().await
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn send(
    mut stream: TcpStream,
    rate: u64,
    duration: Duration,
    bytes: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    // A vanished receiver must not hold the sender beyond its time.
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let chunk = vec![0; CHUNK];
    let started = Instant::now();
    let mut pace = Pace::new(rate);
    while started.elapsed() < duration && !stop.load(Ordering::Relaxed) {
        let due = pace.due(started.elapsed());
        if due < pace.tick() {
            std::thread::sleep(TICK);
            continue;
        }
        let length = due.min(CHUNK);
        stream.write_all(&chunk[..length]).context("sending test traffic")?;
        pace.sent(length);
        bytes.fetch_add(length as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// The bytes that are due, by time.
struct Pace {
    bytes_per_second: f64,
    /// Bytes sent or given up.
    done: f64,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rates are far below 2^52, and never negative"
)]
impl Pace {
    fn new(bits_per_second: u64) -> Self {
        Self { bytes_per_second: bits_per_second as f64 / 8.0, done: 0.0 }
    }

    /// Returns the bytes of a tick, at least one.
    fn tick(&self) -> usize {
        ((TICK.as_secs_f64() * self.bytes_per_second) as usize).max(1)
    }

    fn due(&mut self, elapsed: Duration) -> usize {
        let wanted = elapsed.as_secs_f64() * self.bytes_per_second;
        let most = MOST_LAG.as_secs_f64() * self.bytes_per_second;
        self.done = self.done.max(wanted - most);
        (wanted - self.done).max(0.0) as usize
    }

    fn sent(&mut self, bytes: usize) {
        self.done += bytes as f64;
    }
}

/// The counters of a node's `eth0` since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    pub tx_bytes: u64,
    pub rx_bytes: u64,
}

/// Reads the counters of `eth0` in a network namespace.
pub(super) fn counters(namespace: &str) -> Result<Counters> {
    // /proc/net is that of the process's first thread; this is the thread's own.
    let table = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let table = network::inside(namespace, table)??;
    parse_counters(&table, "eth0").with_context(|| format!("no eth0 in {namespace}:\n{table}"))
}

/// Finds a device in the kernel's table: 8 columns of what it received, then 8 of what it sent.
fn parse_counters(table: &str, device: &str) -> Option<Counters> {
    let line =
        table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    let mut columns = line.split_whitespace().map(str::parse);
    Some(Counters { rx_bytes: columns.next()?.ok()?, tx_bytes: columns.nth(7)?.ok()? })
}

/// Reads a rate in bits per second: `400M`, `1G`, `2.5G`, `64k`, `1000`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive and small enough"
)]
pub fn parse_rate(text: &str) -> Result<u64> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'M')) => (&text[..end], 1e6),
        Some((end, 'G')) => (&text[..end], 1e9),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|number| number * factor);
    match rate {
        Some(rate) if (1.0..1e12).contains(&rate) => Ok(rate as u64),
        _ => Err(anyhow!("{text:?} is no rate: write bits per second as 400M, 1G or 2.5G")),
    }
}
