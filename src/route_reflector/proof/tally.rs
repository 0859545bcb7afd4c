//! Many layouts, on all processors, and a table of the results.
use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    faults::{Fault, build},
    layout::{Layout, ZONES},
};

/// The results for some layouts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub layouts: usize,
    pub admissible: usize,
    pub refused: usize,
    pub faults: usize,
    pub refused_faults: usize,
    pub steps: usize,
    /// Reasons without names and numbers: how many times, and the first that had it.
    pub failures: BTreeMap<String, (usize, String)>,
    /// The sentences of refusals: how many times.
    pub sentences: BTreeMap<String, usize>,
    /// By kind of fault: how many, the most steps, the most interruptions of other nodes.
    pub kinds: BTreeMap<&'static str, (usize, usize, usize)>,
}

/// The same sentence of other nodes.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut number = false;
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            plain.push(letter);
        } else if !number {
            plain.push('#');
        }
        number = letter.is_ascii_digit();
    }
    plain
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.layouts += other.layouts;
        self.admissible += other.admissible;
        self.refused += other.refused;
        self.faults += other.faults;
        self.refused_faults += other.refused_faults;
        self.steps += other.steps;
        for (reason, (times, first)) in other.failures {
            self.failures.entry(reason).or_insert((0, first)).0 += times;
        }
        for (sentence, times) in other.sentences {
            *self.sentences.entry(sentence).or_default() += times;
        }
        for (kind, (faults, steps, needless)) in other.kinds {
            let known = self.kinds.entry(kind).or_default();
            *known = (known.0 + faults, known.1.max(steps), known.2.max(needless));
        }
    }

    fn fail(&mut self, kind: &str, reason: &str, at: &str) {
        let key = format!("[{kind}] {}", plain(reason));
        self.failures.entry(key).or_insert_with(|| (0, format!("{at}: {reason}"))).0 += 1;
    }

    /// Plays everything that can happen to a layout; only what `keeps`.
    pub fn of(layout: &Layout, keeps: &(dyn Fn(usize) -> bool + Sync)) -> Self {
        let mut tally = Self { layouts: 1, ..Self::default() };
        let (play, way) = match build(layout) {
            Ok(Ok(built)) => built,
            Ok(Err(sentence)) => {
                tally.refused = 1;
                tally.sentences.insert(plain(&sentence), 1);
                return tally;
            }
            Err(failures) => {
                let at = layout.to_string();
                for reason in &failures {
                    tally.fail("from the mesh", reason, &at);
                }
                return tally;
            }
        };
        tally.admissible = 1;
        tally.steps = way.steps;
        tally.kinds.insert("from the mesh", (1, way.steps, 0));
        let mut lengths = BTreeMap::new();
        let faults = Fault::all(layout, &play).into_iter().enumerate();
        for (_, fault) in faults.filter(|(number, _)| keeps(*number)) {
            let length = match &fault {
                Fault::Change(to, Some(_)) => *lengths.entry(to.as_str()).or_insert_with(|| {
                    Fault::Change(*to, None).play(layout, play.clone(), 0).steps
                }),
                _ => 0,
            };
            let outcome = fault.play(layout, play.clone(), length);
            tally.faults += 1;
            tally.steps += outcome.steps;
            if let Some(sentence) = outcome.refused {
                tally.refused_faults += 1;
                *tally.sentences.entry(plain(&sentence)).or_default() += 1;
            }
            let known = tally.kinds.entry(fault.word()).or_default();
            *known = (known.0 + 1, known.1.max(outcome.steps), known.2.max(outcome.needless));
            // The last steps are enough to see where it stood.
            let last = outcome.words.iter().rev().take(3).rev().cloned().collect::<Vec<_>>();
            let at = format!("{layout}, {fault}, step {} ({})", outcome.steps, last.join("; "));
            outcome.failures.iter().for_each(|reason| tally.fail(fault.word(), reason, &at));
        }
        tally
    }

    pub fn failed(&self) -> usize {
        self.failures.values().map(|(times, _)| times).sum()
    }
}

/// Plays layouts on all processors; the tally of each topology and number of zones, by their order.
pub fn play(
    layouts: &[Layout],
    keeps: &(dyn Fn(usize) -> bool + Sync),
) -> BTreeMap<(String, usize), Tally> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(BTreeMap::<(String, usize), Tally>::new());
    let work = || {
        while let Some(layout) = layouts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tally = Tally::of(layout, keeps);
            let ids = layout.ids.map_or(String::new(), |ids| format!(", ids per {ids:?}"));
            let key = (format!("{}{ids}", layout.topology.as_str()), layout.zones);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(key).or_default().add(tally);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

pub fn sum(tallies: &BTreeMap<(String, usize), Tally>) -> Tally {
    let mut sum = Tally::default();
    for tally in tallies.values() {
        sum.add(tally.clone());
    }
    sum
}

/// For people.
pub fn table(tallies: &BTreeMap<(String, usize), Tally>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:<22}{:>6}{:>9}{:>12}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "topology",
        "zones",
        "layouts",
        "admissible",
        "refused",
        "faults",
        "refused",
        "steps",
        "failed"
    );
    let mut row = |name: &str, zones: &str, tally: &Tally| {
        let _ = writeln!(
            text,
            "{name:<22}{zones:>6}{:>9}{:>12}{:>9}{:>9}{:>9}{:>9}{:>9}",
            tally.layouts,
            tally.admissible,
            tally.refused,
            tally.faults,
            tally.refused_faults,
            tally.steps,
            tally.failed()
        );
    };
    for ((name, zones), tally) in tallies {
        row(name, &zones.to_string(), tally);
    }
    let sum = sum(tallies);
    row("all", &format!("1-{ZONES}"), &sum);
    let _ = writeln!(
        text,
        "\n{:<22}{:>9}{:>12}{:>24}",
        "", "played", "most steps", "others interrupted"
    );
    for (kind, (faults, steps, needless)) in &sum.kinds {
        let _ = writeln!(text, "{kind:<22}{faults:>9}{steps:>12}{needless:>24}");
    }
    let _ = writeln!(text, "\nrefused, with a size or topology that works:");
    for (sentence, times) in &sum.sentences {
        let _ = writeln!(text, "{times:>7}  {sentence}");
    }
    let _ = writeln!(text, "\nfailures:");
    for (reason, (times, first)) in &sum.failures {
        let _ = writeln!(text, "{times:>7}  {reason}\n         first: {first}");
    }
    text
}
