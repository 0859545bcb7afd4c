//! Watches every node's kernel table and sends probes between all of them, in a thread of its own.

mod netlink;
mod probe;
mod record;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::family::Family;
use super::machine::Machine;
use crate::wait::lock;
use netlink::Table;
use probe::{GRACE, Prober};
use record::Record;
pub use record::{Gap, Seen};

/// Time between two comparisons of whole tables with the changes that the kernel reported.
const COMPARE: Duration = Duration::from_millis(100);
/// Time between two probes of each pair.
const PROBE: Duration = Duration::from_millis(50);
/// Time between two checks while waiting for routes.
const LOOK: Duration = Duration::from_millis(10);

/// The watch. Dropping it ends the thread.
#[derive(Debug)]
pub struct Watch {
    record: Arc<Mutex<Record>>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Result<()>>>,
}

enum Order {
    Add { node: Watched, done: Sender<Result<()>> },
    Remove { number: u8, done: Sender<Result<()>> },
}

struct Watched {
    number: u8,
    name: String,
    namespace: String,
    families: Vec<Family>,
}

impl Watch {
    /// Begins to watch some nodes.
    pub fn start(machines: &[Arc<Machine>]) -> Result<Self> {
        let record = Arc::<Mutex<Record>>::default();
        let (orders, incoming) = mpsc::channel();
        let kept = Arc::clone(&record);
        let thread = std::thread::spawn(move || Thread::default().run(&incoming, &kept));
        let watch = Self { record, orders: Some(orders), thread: Some(thread) };
        machines.iter().try_for_each(|machine| watch.add(machine))?;
        Ok(watch)
    }

    /// Watches a new node: from now on all others should have its route, and it theirs.
    pub fn add(&self, machine: &Machine) -> Result<()> {
        let node = Watched {
            number: machine.number,
            name: machine.name.clone(),
            namespace: machine.namespace.clone(),
            families: machine.families.clone(),
        };
        self.order(|done| Order::Add { node, done })
    }

    /// Watches a node no more: nobody owes it anything.
    pub fn remove(&self, machine: &Machine) -> Result<()> {
        let number = machine.number;
        self.order(|done| Order::Remove { number, done })
    }

    fn order(&self, order: impl FnOnce(Sender<Result<()>>) -> Order) -> Result<()> {
        let (done, answer) = mpsc::channel();
        let orders = self.orders.as_ref().context("the watch has ended")?;
        orders.send(order(done)).ok().context("the watch has ended")?;
        answer.recv().context("the watch has ended")?
    }

    /// The pairs that have no route now, in one family that both speak: who, whose.
    pub fn missing(&self) -> Vec<(String, String)> {
        lock(&self.record).missing()
    }

    /// Waits until at most this many routes are missing; returns the time that it took.
    pub async fn complete(&self, at_most: usize, limit: Duration) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let missing = self.missing();
            if missing.len() <= at_most {
                return Ok(began.elapsed());
            }
            if began.elapsed() > limit {
                bail!("{} routes missing after {limit:?}: {:?} …", missing.len(), &missing[..1]);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns the observations of a period; waits until the fate of every probe is known.
    pub async fn seen(&self, since: Instant, until: Instant) -> Result<Seen> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            bail!("the watch of the routes has ended");
        }
        let known = until + GRACE + 2 * PROBE;
        tokio::time::sleep_until(known.into()).await;
        Ok(lock(&self.record).seen(since, until))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            crate::progress(&format!("watching routes: {error:#}"));
        }
    }
}

#[derive(Default)]
struct Thread {
    tables: BTreeMap<(Family, u8), Table>,
    prober: Prober,
}

impl Thread {
    fn run(mut self, orders: &Receiver<Order>, record: &Mutex<Record>) -> Result<()> {
        let (mut compare, mut probe) = (Instant::now(), Instant::now());
        loop {
            let ready = self.wait(compare.min(probe))?;
            let now = Instant::now();
            {
                let record = &mut *lock(record);
                for (family, number) in ready {
                    if let Some(table) = self.tables.get_mut(&(family, number)) {
                        table.read(|table| record.table(family, number, &table.networks(), now))?;
                    }
                    self.prober.receive(family, number);
                }
                self.prober.settle(now, record);
            }
            if now >= compare {
                self.tables.values_mut().try_for_each(Table::ask)?;
                compare = (compare + COMPARE).max(now);
            }
            if now >= probe {
                self.prober.send(now)?;
                probe = (probe + PROBE).max(now);
            }
            loop {
                match orders.try_recv() {
                    Ok(order) => self.obey(order, record),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
        }
    }

    /// Waits until something arrives, or until then. Returns the families and nodes at which
    /// something has arrived.
    fn wait(&self, until: Instant) -> Result<Vec<(Family, u8)>> {
        let mut numbers = Vec::new();
        let mut sockets = Vec::new();
        for (&(family, number), table) in &self.tables {
            let probes = self.prober.socket(family, number).map(AsFd::as_fd);
            for socket in [Some(table.as_fd()), probes].into_iter().flatten() {
                numbers.push((family, number));
                sockets.push(PollFd::new(socket, PollFlags::POLLIN));
            }
        }
        // The kernel counts whole milliseconds; rounded down, the last one would be spent asking.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut sockets, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for news"),
        }
        let ready = numbers.into_iter().zip(&sockets);
        let mut ready: Vec<(Family, u8)> =
            ready.filter(|(_, socket)| socket.any() == Some(true)).map(|(n, _)| n).collect();
        ready.dedup();
        Ok(ready)
    }

    fn obey(&mut self, order: Order, record: &Mutex<Record>) {
        // The receiver may be gone by now.
        match order {
            Order::Add { node, done } => {
                let added = self.add(&node);
                if added.is_ok() {
                    for &family in &node.families {
                        // What the tables of others hold already is not told again.
                        let has = |(from, origin): (u8, u8)| {
                            let table = self.tables.get(&(family, from));
                            table.is_some_and(|table| table.networks().contains(&origin))
                        };
                        lock(record).join(family, node.number, &node.name, Instant::now(), has);
                    }
                }
                let _ = done.send(added);
            }
            Order::Remove { number, done } => {
                self.tables.retain(|(_, of), _| *of != number);
                self.prober.remove(number);
                lock(record).leave(number, Instant::now());
                let _ = done.send(Ok(()));
            }
        }
    }

    fn add(&mut self, node: &Watched) -> Result<()> {
        for &family in &node.families {
            self.prober.add(family, node.number, &node.namespace)?;
            self.tables.insert((family, node.number), Table::open(&node.namespace, family)?);
        }
        Ok(())
    }
}
