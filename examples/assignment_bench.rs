//! Measures the distribution of 100,000 streams over 1,000 workers, and counts the moves when a
//! worker is added or removed.
//!
//! `make bench`. Build with `--release`: without it the figures are some twenty times worse.
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::ensure;
use traffic_operator::placement::assignment::{
    Assignment, Item, Policy, Rules, Standing, Worker, assign,
};

/// Streams and workers whose times are measured: Kafka's own test of its sticky assignor has
/// numbers within a factor of ten of these.
const STREAMS: usize = 100_000;
const WORKERS: usize = 1000;

/// The limit of each call: a user who scales a workload waits for it.
const LIMIT: Duration = Duration::from_secs(1);

/// Streams and workers whose moves are counted.
const MOVES: [(usize, usize); 2] = [(1000, 10), (1000, 50)];

const POLICIES: [Policy; 3] = [Policy::Sticky, Policy::Stateless, Policy::Contiguous];

/// Number of trials, each with new ids: the moves of one trial are random, except with Sticky.
const TRIALS: usize = 20;

fn main() -> anyhow::Result<()> {
    times()?;
    println!();
    moves();
    Ok(())
}

/// The ids of streams and workers.
struct Ids {
    streams: Vec<String>,
    workers: Vec<String>,
}

impl Ids {
    fn new(trial: usize, streams: usize, workers: usize) -> Self {
        Self {
            streams: (0..streams).map(|i| format!("stream:{trial}-{i}")).collect(),
            workers: (0..workers).map(|i| format!("swarm-{trial}-{i}")).collect(),
        }
    }

    /// Assigns the first `streams` streams to the first `workers` workers. A weight is one of nine.
    fn run(
        &self,
        (streams, workers): (usize, usize),
        weighted: bool,
        previous: &[Option<usize>],
        policy: Policy,
    ) -> (Assignment, Duration) {
        let weight = |i: usize| if weighted { 1 + (i as u64 * 7) % 9 } else { 1 };
        let item = |(i, id)| Item { id, weight: weight(i), pin: None, dedicated: false };
        let ids = self.streams[..streams].iter().map(String::as_str);
        let items: Vec<_> = ids.enumerate().map(item).collect();
        let worker = |id| Worker { id, standing: Standing::Full };
        let workers: Vec<_> =
            self.workers[..workers].iter().map(String::as_str).map(worker).collect();
        let rules = Rules { policy, ..Rules::default() };
        let start = Instant::now();
        let assignment = assign(&items, &workers, previous, &rules);
        (assignment, start.elapsed())
    }
}

/// Counts the streams with a different worker than before, and the remaining workers with different
/// streams.
fn moved(before: &Assignment, after: &Assignment, workers: usize) -> (usize, usize) {
    let mut touched = BTreeSet::new();
    let mut moves = 0;
    for place in 0..before.owners.len().max(after.owners.len()) {
        let of = |assignment: &Assignment| assignment.owners.get(place).copied().flatten();
        let (old, new) = (of(before), of(after));
        if old != new {
            moves += usize::from(old.is_some() && new.is_some());
            touched.extend([old, new].into_iter().flatten().filter(|&worker| worker < workers));
        }
    }
    (moves, touched.len())
}

fn times() -> anyhow::Result<()> {
    println!("{STREAMS} streams, {WORKERS} workers\n\nwhat | ms | moved\n--- | --- | ---");
    let ids = Ids::new(0, STREAMS + 1, WORKERS + 1);
    let all = (STREAMS, WORKERS);
    let rows = [
        ("nothing changed", all),
        ("a worker more", (STREAMS, WORKERS + 1)),
        ("a worker less", (STREAMS, WORKERS - 1)),
        ("a stream more", (STREAMS + 1, WORKERS)),
        ("half the workers gone", (STREAMS, WORKERS / 2)),
    ];
    for (weighted, policy) in
        POLICIES.map(|policy| (false, policy)).into_iter().chain([(true, Policy::Sticky)])
    {
        let name = format!("{policy:?}{}", if weighted { " by weight" } else { "" });
        let row = |what: &str, time: Duration, moved: usize| {
            println!("{name}: {what} | {:.0} | {moved}", time.as_secs_f64() * 1000.0);
            ensure!(time < LIMIT, "{name}: {what} took {time:?}");
            anyhow::Ok(())
        };
        let (first, time) = ids.run(all, weighted, &[], policy);
        row("from nothing", time, 0)?;
        for (what, size) in rows {
            let (next, time) = ids.run(size, weighted, &first.owners, policy);
            row(what, time, moved(&first, &next, size.1).0)?;
        }
    }
    Ok(())
}

/// Prints the means of all trials.
fn moves() {
    println!(
        "streams, workers, policy | moved by a worker more | by a worker less | by a stream more: moved / workers touched | by a stream less"
    );
    println!("--- | --- | --- | --- | ---");
    for (streams, workers) in MOVES {
        for policy in POLICIES {
            let mut sums = [[0; 2]; 4];
            for trial in 0..TRIALS {
                let ids = Ids::new(trial, streams + 1, workers + 1);
                let sizes = [
                    (streams, workers + 1),
                    (streams, workers - 1),
                    (streams + 1, workers),
                    (streams - 1, workers),
                ];
                let (first, _) = ids.run((streams, workers), false, &[], policy);
                for (sum, size) in sums.iter_mut().zip(sizes) {
                    let (next, _) = ids.run(size, false, &first.owners, policy);
                    let (moves, touched) = moved(&first, &next, size.1);
                    sum[0] += moves;
                    sum[1] += touched;
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "counts of some thousands")]
            let mean = |sum: usize| sum as f64 / TRIALS as f64;
            let [up, down, more, less] = sums.map(|sum| sum.map(mean));
            println!(
                "{streams}, {workers}, {policy:?} | {:.0} | {:.0} | {:.1} / {:.1} | {:.1} / {:.1}",
                up[0], down[0], more[0], more[1], less[0], less[1]
            );
        }
    }
}
