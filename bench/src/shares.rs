//! Measures the publication of the lists of 100,000 streams on 1,000 workers in several
//! `ConfigMap`s: the number and size of writes when one stream moves and when a worker is lost, and
//! the processor time of a pass.
//!
//! Build with `--release`: without it the times are some twenty times worse.
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use traffic_operator::{
    placement::assignment::{Item, Rules, Standing, Worker, assign},
    swarm::{
        file::{
            self,
            parts::{self, Change, Head},
        },
        handover::{self, Name, Pod, Published, Step, Strategy},
    },
};

const STREAMS: usize = 100_000;
const WORKERS: usize = 1000;

/// Maximum number of bytes in one `ConfigMap`: the API server's limit.
const LARGEST: usize = 1 << 20;

/// The limit of a pass: it runs four times a second while streams move, and must not block other
/// work noticeably.
const LIMIT: Duration = Duration::from_secs(2);

pub fn run() -> anyhow::Result<()> {
    let ids: Vec<Name> = (0..STREAMS).map(|i| format!("stream:{i}").into()).collect();
    let names: Vec<Name> = (0..WORKERS).map(|i| format!("swarm-worker-{i}").into()).collect();
    let mut bench = Bench { ids, names, files: 0, published: Published::default(), there: vec![] };
    let empty = memory()?;
    let first = bench.target(&[]);
    let all = bench.workers(0, &[]);
    let begun = bench.step(&first, &all);
    let next = begun.publish.context("a first file")?;
    let files = parts::needed(&next, LARGEST, 1).context("it fits into no number of files")?;
    println!("{STREAMS} streams on {WORKERS} workers: {} bytes, {files} files", bytes(&next, 1));
    bench.files = files;
    println!("{:>24} {:>8} {:>6} {:>10} {:>10}", "", "version", "writes", "bytes", "time");
    bench.write("first file", next, Duration::ZERO, files as usize + 1)?;

    // One stream moves: its worker releases it, and the next file gives it to the other.
    let mut target = first.clone();
    let from = target[0].1.clone().context("an owner")?;
    let to = bench.names.iter().find(|name| **name != from).context("another")?.clone();
    target[0].1 = Some(to);
    bench.turn("a stream is taken", &target, &[], 2)?;
    bench.turn("a stream is given", &target, &[], 3)?;

    // One worker is lost: its streams move to the others, most of which are in other parts.
    let lost = bench.names[WORKERS / 2].clone();
    let target = bench.target(std::slice::from_ref(&lost));
    bench.turn("a worker is lost", &target, std::slice::from_ref(&lost), files as usize + 1)?;
    bench.turn(
        "its streams are given",
        &target,
        std::slice::from_ref(&lost),
        files as usize + 1,
    )?;
    bench.read()?;
    println!("resident: {} KiB more than at the start", memory()? - empty);
    Ok(())
}

struct Bench {
    ids: Vec<Name>,
    names: Vec<Name>,
    files: u32,
    published: Published,
    there: Vec<Option<Arc<Published>>>,
}

type Target = Vec<(Name, Option<Name>)>;

impl Bench {
    /// Returns the target of every stream, without these workers.
    fn target(&self, lost: &[Name]) -> Target {
        let names: Vec<_> = self.names.iter().filter(|name| !lost.contains(name)).collect();
        let owners: BTreeMap<_, _> = self.published.owners().collect();
        let index: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(i, name)| (&***name, i)).collect();
        let previous: Vec<_> = self
            .ids
            .iter()
            .map(|id| owners.get(id).and_then(|owner| index.get(&***owner).copied()))
            .collect();
        let items: Vec<_> =
            self.ids.iter().map(|id| Item { id, weight: 1, pin: None, dedicated: false }).collect();
        let workers: Vec<_> =
            names.iter().map(|id| Worker { id, standing: Standing::Full }).collect();
        let assignment = assign(&items, &workers, &previous, &Rules::default());
        let owner = |place: &Option<usize>| place.map(|place| names[place].clone());
        self.ids.iter().cloned().zip(assignment.owners.iter().map(owner)).collect()
    }

    /// Returns the workers that have acknowledged this version; those that are lost have no pod.
    fn workers(&self, loaded: u64, lost: &[Name]) -> BTreeMap<Name, handover::Worker> {
        let pod = |name: &Name| Pod {
            uid: name.clone(),
            ready: true,
            terminating: false,
            stopped: false,
            loaded: Some(loaded),
            heir: None,
            born: None,
            prepared: None,
        };
        let worker = |name: &Name| {
            let there = !lost.contains(name);
            let pod = there.then(|| pod(name));
            let worker =
                handover::Worker { wanted: there, pod, confirmed: loaded, successor: None };
            (name.clone(), worker)
        };
        self.names.iter().map(worker).collect()
    }

    fn step(&self, target: &Target, workers: &BTreeMap<Name, handover::Worker>) -> Step {
        let rules = handover::Rules {
            exclusive: true,
            strategy: Strategy::HotReload,
            max_unavailable: 1,
            gather: false,
            await_targets: false,
            announce: false,
        };
        handover::step(&self.published, target, workers, 0, &rules)
    }

    /// Runs one pass: decides and writes.
    fn turn(
        &mut self,
        what: &str,
        target: &Target,
        lost: &[Name],
        most: usize,
    ) -> anyhow::Result<()> {
        let workers = self.workers(self.published.epoch, lost);
        let start = Instant::now();
        // The target is computed in each pass.
        std::hint::black_box(self.target(lost));
        let step = self.step(target, &workers);
        let next = step.publish.context("another file")?;
        let decided = start.elapsed();
        self.write(what, next, decided, most)
    }

    fn write(
        &mut self,
        what: &str,
        next: Published,
        decided: Duration,
        most: usize,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let Change { head, parts } = parts::change(&next, &self.there, self.files);
        let mut bytes = head.render().len();
        let writes = 1 + parts.len();
        self.there.resize(self.files as usize, None);
        for (i, part) in parts {
            let file::Files { config, state } = parts::render(&part, i, self.files);
            let size = config.len() + state.len();
            ensure!(size <= LARGEST, "part {i} has {size} bytes");
            bytes += size;
            self.there[i as usize] = Some(Arc::new(part));
        }
        let time = decided + start.elapsed();
        println!("{what:>24} {:>8} {writes:>6} {bytes:>10} {:>7} ms", head.epoch, time.as_millis());
        ensure!(writes <= most, "{writes} writes, and at most {most} are needed");
        ensure!(cfg!(debug_assertions) || time < LIMIT, "a pass takes {time:?}");
        self.published = next;
        Ok(())
    }

    /// Reads the files as a new process does.
    fn read(&self) -> anyhow::Result<()> {
        let parts = self.there.iter().flatten();
        let texts: Vec<_> =
            parts.zip(0..).map(|(part, i)| parts::render(part, i, self.files)).collect();
        let start = Instant::now();
        let mut read = Vec::with_capacity(texts.len());
        for file::Files { config, state } in &texts {
            read.push(file::parse(config, Some(state))?.published);
        }
        let time = start.elapsed();
        let Published { epoch, barrier, .. } = self.published;
        let head = Head { epoch, barrier, parts: read.iter().map(|part| part.epoch).collect() };
        ensure!(parts::unite(&head, &read) == self.published, "it reads what it wrote");
        println!(
            "{:>24} {:>8} {:>6} {:>10} {:>7} ms",
            "read after a start",
            "",
            "",
            "",
            time.as_millis()
        );
        Ok(())
    }
}

fn bytes(published: &Published, parts: u32) -> usize {
    let divided = parts::divide(published, parts).into_iter().zip(0..);
    divided.map(|(part, i)| parts::render(&part, i, parts).config.len()).sum()
}

/// Returns the resident memory, in KiB.
fn memory() -> anyhow::Result<f64> {
    lab::process::kib(&std::fs::read_to_string("/proc/self/status")?, "VmRSS:")
}
