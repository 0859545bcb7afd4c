//! Plays a reference pass undisturbed, then with a crash at each of its writes, and compares.
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    lives::Lives,
    points::{Crash, Point, Write},
    state::{differences, forget_shared, shared},
};
use crate::bench::{Bench, run};

/// The longest wait for a part of a pass: only failing tests wait this long.
const PATIENCE: Duration = Duration::from_mins(2);

/// The time without a write, except to the lease, after which a part of a pass is over: an event or
/// a status follows its decision sooner, and a judgment follows the last one within a second.
const QUIET: Duration = Duration::from_millis(1200);

/// Attempts to reach a point: the number of reports about one and the same pass depends on the
/// time.
const ATTEMPTS: usize = 3;

/// Writes of every kind of which a run may have fewer than the undisturbed one, with the reason.
/// This excludes the first of their form.
const SOMETIMES: &[(&str, &str)] = &[
    ("patch events.", "an event is repeated if its reason recurs before the process is killed"),
    (
        "create events.",
        "the number of events depends on what is reported before the process is killed",
    ),
    (
        "apply ",
        "a status is written again if another pass sees a change: its number depends on the time",
    ),
];

/// A reference pass of one kind.
pub trait Pass: Sized {
    const KIND: &'static str;
    /// The number of crashes that the tests play by default, beside one with a stale view: they
    /// take about a minute.
    const SAMPLE: usize;
    /// Further writes of which a run may have fewer, as [`SOMETIMES`].
    const SOMETIMES: &'static [(&'static str, &'static str)] = &[];

    fn parts() -> usize;
    /// Makes everything that exists before the operator starts.
    async fn set_up(bench: Bench) -> Self;
    fn bench(&self) -> &Bench;
    /// Begins a part: the change to which the operator reacts.
    async fn begin(&self, part: usize);
    /// Reports whether a part has reached its end.
    async fn is_over(&self, part: usize) -> bool;
    /// Returns the objects that the operator owns and what it wrote to others, without what differs
    /// from run to run.
    async fn state(&self) -> Value;
    /// Asserts what must hold at each moment of the run.
    fn judge(&self) {}
    /// Returns how much more often a write may be made than the crash explains: where the number
    /// depends on when others answer.
    fn spare(_: &Write) -> usize {
        0
    }
}

struct Outcome {
    /// The executed writes of all lives.
    writes: Vec<Write>,
    /// The state after each part.
    states: Vec<Value>,
    crashed: bool,
}

/// Reports whether the tests play every crash, and not a sample.
pub fn soaks() -> bool {
    std::env::var("SOAK").is_ok_and(|value| value == "1")
}

/// Plays a pass with a crash at each of its writes, or at a sample of them; `CRASH` selects those
/// whose description contains it.
pub fn every<P: Pass>() {
    let began = Instant::now();
    let reference = one::<P>(None);
    let points = Point::all(&reference.writes);
    for point in &points {
        eprintln!("{}: writes {} {}", P::KIND, point.number + 1, point.write);
    }
    let (mut fresh, mut stale) = if soaks() {
        // Two undisturbed runs end in the same state: what differs between them would hide a fault.
        compare::<P>("a second time", &reference, &one::<P>(None));
        (Crash::all(&points), Crash::stale(&points, points.len()))
    } else {
        (Crash::sample(&points, P::SAMPLE), Crash::stale(&points, 1))
    };
    let wanted = std::env::var("CRASH").unwrap_or_default();
    for crashes in [&mut fresh, &mut stale] {
        crashes.retain(|crash| crash.to_string().contains(&wanted));
    }
    let all = Crash::stale(&points, points.len()).len();
    let fresh = play_all::<P>(&reference, &fresh);
    let stale = play_all::<P>(&reference, &stale);
    let (kind, count, took) = (P::KIND, points.len(), began.elapsed().as_secs());
    let sample = if soaks() && wanted.is_empty() { "" } else { "; a part of them" };
    eprintln!(
        "{kind}: {} of 3W = {} crashes at W = {count} writes reached, and {} of {all} with a stale \
         view, in {took} s{sample}",
        of(&fresh),
        3 * count,
        of(&stale)
    );
    let missed: Vec<_> = fresh.missed.into_iter().chain(stale.missed).collect();
    for crash in &missed {
        let reason = reason::<P>(crash).unwrap_or("without a reason");
        eprintln!("{kind}: not reached: {crash}: {reason}");
    }
    let unexplained: Vec<_> = missed.iter().filter(|crash| reason::<P>(crash).is_none()).collect();
    assert!(!soaks() || unexplained.is_empty(), "{kind}: not reached: {unexplained:#?}");
}

struct Crashes {
    reached: usize,
    missed: Vec<Crash>,
}

/// `87`, or `85 (2 not reached)`.
fn of(Crashes { reached, missed }: &Crashes) -> String {
    match missed.len() {
        0 => reached.to_string(),
        missed => format!("{reached} ({missed} not reached)"),
    }
}

/// Returns the reason for which no run need come to a point.
fn reason<P: Pass>(crash: &Crash) -> Option<&'static str> {
    let write = crash.point.write.to_string();
    let named = SOMETIMES.iter().chain(P::SOMETIMES);
    let mut named = named.filter(|(form, _)| write.starts_with(form)).map(|(_, reason)| *reason);
    (!crash.is_certain()).then(|| named.next()).flatten()
}

/// Plays crashes, and returns those that were reached and those that were not.
fn play_all<P: Pass>(reference: &Outcome, crashes: &[Crash]) -> Crashes {
    let (reached, missed): (Vec<_>, Vec<_>) =
        crashes.iter().cloned().partition(|crash| attempt::<P>(reference, crash));
    Crashes { reached: reached.len(), missed }
}

/// Plays one crash; returns whether the run came to its point.
fn attempt<P: Pass>(reference: &Outcome, crash: &Crash) -> bool {
    for _ in 0..ATTEMPTS {
        eprintln!("{}: {crash}", P::KIND);
        let outcome = one::<P>(Some(crash));
        let what = crash.to_string();
        compare::<P>(&what, reference, &outcome);
        if outcome.crashed {
            assert_economy::<P>(crash, reference, &outcome);
            return true;
        }
    }
    let certain = crash.is_certain() && P::spare(&crash.point.write) == 0;
    assert!(!certain, "{}: no run came to this: {crash}", P::KIND);
    false
}

/// Plays one run on a fresh bench.
fn one<P: Pass>(crash: Option<&Crash>) -> Outcome {
    let mut outcome = None;
    let slot = &mut outcome;
    run(move |bench| async move { *slot = Some(play::<P>(bench, crash).await) });
    outcome.expect("an outcome")
}

async fn play<P: Pass>(bench: Bench, crash: Option<&Crash>) -> Outcome {
    forget_shared(&bench).await;
    let pass = P::set_up(bench).await;
    let mut lives = Lives::begin(pass.bench(), crash).await;
    let mut states = vec![];
    for part in 0..P::parts() {
        pass.begin(part).await;
        until_rest(&pass, part, &mut lives).await;
        states.push(serde_json::json!([pass.state().await, shared(pass.bench()).await]));
    }
    pass.judge();
    let crashed = lives.crashed;
    Outcome { writes: lives.end(), states, crashed }
}

/// Waits until a part has reached its end and nothing more is written.
async fn until_rest<P: Pass>(pass: &P, part: usize, lives: &mut Lives<'_>) {
    let end = Instant::now() + PATIENCE;
    loop {
        let quiet = lives.look(pass.bench()).await;
        let over = pass.is_over(part).await;
        if over && quiet >= QUIET {
            return;
        }
        if Instant::now() > end {
            let (state, writes) = (pass.state().await, lives.last_writes().join("\n"));
            panic!(
                "part {part} is {}\nlast writes:\n{writes}\nstate: {state:#}",
                if over { "over, but the operator does not rest" } else { "not over" }
            );
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asserts that each part ended as in an undisturbed run.
fn compare<P: Pass>(what: &str, reference: &Outcome, outcome: &Outcome) {
    for (part, (expected, found)) in reference.states.iter().zip(&outcome.states).enumerate() {
        let all = differences(expected, found);
        assert!(all.is_empty(), "{}, {what}, part {part}:\n{}", P::KIND, all.join("\n"));
    }
}

/// Asserts that nothing was written more often than the crash explains.
fn assert_economy<P: Pass>(crash: &Crash, reference: &Outcome, outcome: &Outcome) {
    let expected = counts(&reference.writes);
    let mut wasted = vec![];
    for (write, count) in counts(&outcome.writes) {
        let often = expected.get(write).copied().unwrap_or_default();
        let Some(most) = write.most(often) else { continue };
        // What a stale view lacks is written once more: refused because of the old version, and
        // then made.
        let again = if crash.stale { 2 } else { 0 };
        if count > most + again + P::spare(write) {
            wasted.push(format!("{count} times {write}, and {often} times without the crash"));
        }
    }
    assert!(wasted.is_empty(), "{}, {crash}:\n{}", P::KIND, wasted.join("\n"));
}

fn counts(writes: &[Write]) -> BTreeMap<&Write, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts
}
