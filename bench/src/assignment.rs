//! Measures the distribution of 100,000 streams over 1,000 workers.
//!
//! Build with `--release`: without it the figures are some twenty times worse.
use std::time::{Duration, Instant};

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

const POLICIES: [Policy; 3] = [Policy::Sticky, Policy::Stateless, Policy::Contiguous];

pub fn run() -> anyhow::Result<()> {
    println!("{STREAMS} streams, {WORKERS} workers\n\nwhat | ms | moved\n--- | --- | ---");
    let names = |name: &str, count: usize| (0..=count).map(|i| format!("{name}{i}")).collect();
    let ids = [names("stream:", STREAMS), names("swarm-", WORKERS)];
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
        let (first, time) = assigned(&ids, all, weighted, &[], policy);
        row("from nothing", time, 0)?;
        for (what, size) in rows {
            let (next, time) = assigned(&ids, size, weighted, &first.owners, policy);
            row(what, time, moved(&first, &next))?;
        }
    }
    Ok(())
}

/// Assigns the first streams to the first workers. A weight is one of nine.
fn assigned(
    ids: &[Vec<String>; 2],
    (streams, workers): (usize, usize),
    weighted: bool,
    previous: &[Option<usize>],
    policy: Policy,
) -> (Assignment, Duration) {
    let weight = |i: usize| if weighted { 1 + (i as u64 * 7) % 9 } else { 1 };
    let items: Vec<_> = ids[0][..streams]
        .iter()
        .map(String::as_str)
        .enumerate()
        .map(|(i, id)| Item { id, weight: weight(i), pin: None, dedicated: false })
        .collect();
    let worker = |id| Worker { id, standing: Standing::Full };
    let workers: Vec<_> = ids[1][..workers].iter().map(String::as_str).map(worker).collect();
    let rules = Rules { policy, ..Rules::default() };
    let start = Instant::now();
    let assignment = assign(&items, &workers, previous, &rules);
    (assignment, start.elapsed())
}

/// Counts the streams that had another worker before.
fn moved(before: &Assignment, after: &Assignment) -> usize {
    let pairs = before.owners.iter().zip(&after.owners);
    pairs.filter(|(old, new)| old.is_some() && new.is_some() && old != new).count()
}
