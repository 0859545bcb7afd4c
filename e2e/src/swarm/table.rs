//! The cost of each step, as a table. No IO.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::Timestamp;

use lab::streams::{Ledger, Millis, Stretch};

/// The original's results in the same steps, measured with its published manifests and 27 streams.
pub(super) const ORIGINAL: [Original; 2] = [
    Original { step: "2 -> 3", overlap: 10.0, streams_twice: 9, gap: 12.6, restarted: 2 },
    Original { step: "3 -> 2", overlap: 2.7, streams_twice: 5, gap: 21.0, restarted: 2 },
];

/// One step of the original.
pub(super) struct Original {
    pub step: &'static str,
    /// Seconds in which streams ran on two workers.
    pub overlap: f64,
    pub streams_twice: usize,
    /// Seconds for which a stream ran nowhere.
    pub gap: f64,
    /// Pods that were there before and after, and were restarted.
    pub restarted: usize,
}

/// One step of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub strategy: &'static str,
    pub step: String,
    pub workers: usize,
    /// The time at which it began, for the audit log.
    pub since: Timestamp,
    /// The interval in which reports are judged.
    pub time: Stretch,
    /// The workers whose share has changed.
    pub changed: BTreeSet<String>,
    /// Workers that died or were deleted by the demo: the operator must find out again what they
    /// have read.
    pub excused: BTreeSet<String>,
    pub ran: Ran,
    /// Streams that moved between workers that stay.
    pub moved: usize,
    pub epoch: u64,
    /// Pods that were there before and after, and were replaced or restarted.
    pub restarted: usize,
    pub millis: Millis,
}

impl Row {
    /// The step in one line.
    pub fn line(&self) -> String {
        let time = |millis| format!("{:.1} s", seconds(millis));
        let gaps = match (&self.ran.gaps, self.ran.worst(), self.ran.median()) {
            (Some(gaps), Some(worst), Some(median)) => {
                let (count, median, worst) = (gaps.len(), time(median), time(worst));
                format!("{count} streams had a gap: median {median}, longest {worst}")
            }
            _ => "no gap".to_owned(),
        };
        format!(
            "{}: {} overlaps, {gaps}; {} moved, {} pods restarted, epoch {}, in {}",
            self.step,
            self.ran.overlaps,
            self.moved,
            self.restarted,
            self.epoch,
            time(self.millis)
        )
    }
}

/// The workers' reports about the time of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub overlaps: usize,
    pub overlap: Millis,
    /// The duration for which no worker ran a stream, for each stream with a gap, sorted. `None` if
    /// no worker should run any.
    pub gaps: Option<Vec<Millis>>,
}

impl Ran {
    pub fn of(ledger: &Ledger, time: Stretch, workers: usize) -> Self {
        let overlaps = ledger.overlaps(time);
        let mut gaps: Vec<Millis> = ledger.gap_times(time).into_values().collect();
        gaps.sort_unstable();
        Self {
            overlaps: overlaps.len(),
            overlap: overlaps.iter().map(|overlap| overlap.time.millis()).sum(),
            gaps: (workers > 0).then_some(gaps),
        }
    }

    pub fn worst(&self) -> Option<Millis> {
        self.gaps.as_ref()?.last().copied()
    }

    pub fn median(&self) -> Option<Millis> {
        let gaps = self.gaps.as_ref()?;
        gaps.get(gaps.len() / 2).copied()
    }
}

/// The gaps, sorted, of the streams that moved only for balance between workers that follow their file:
/// their next workers prepare them.
pub(super) fn prepared(rows: &[Row]) -> Vec<Millis> {
    let moves = |row: &&Row| row.strategy == "HotReload" && row.excused.is_empty() && row.moved > 0;
    let rows = rows.iter().filter(moves).filter(|row| !row.step.contains(','));
    let mut gaps: Vec<_> = rows.flat_map(|row| row.ran.gaps.iter().flatten().copied()).collect();
    gaps.sort_unstable();
    gaps
}

#[allow(clippy::cast_precision_loss, reason = "minutes")]
fn seconds(millis: Millis) -> f64 {
    millis as f64 / 1000.0
}

const HEAD: [&str; 9] =
    ["workers", "overlaps", "gaps", "median", "worst", "moved", "restarted", "epoch", "took"];

/// Renders the steps, under a line for each strategy.
pub(super) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.step.chars().count()).max().unwrap_or(0).max(10);
    let mut text = format!("  {:width$}", "step");
    for word in HEAD {
        let _ = write!(text, "  {word:>9}");
    }
    text.push('\n');
    let mut strategy = "";
    for row in rows {
        if row.strategy != strategy {
            strategy = row.strategy;
            let _ = writeln!(text, "  {strategy}");
        }
        let time = |millis: Option<Millis>| {
            millis.map_or("-".to_owned(), |millis| format!("{:.1} s", seconds(millis)))
        };
        let overlaps = match row.ran.overlaps {
            0 => "0".to_owned(),
            count => format!("{count}: {:.1} s", seconds(row.ran.overlap)),
        };
        let gaps = row.ran.gaps.as_ref().map_or("-".to_owned(), |gaps| gaps.len().to_string());
        let cells = [
            row.workers.to_string(),
            overlaps,
            gaps,
            time(row.ran.median()),
            time(row.ran.worst()),
            row.moved.to_string(),
            row.restarted.to_string(),
            row.epoch.to_string(),
            time(Some(row.millis)),
        ];
        let _ = write!(text, "  {:width$}", row.step);
        for cell in cells {
            let _ = write!(text, "  {cell:>9}");
        }
        text.push('\n');
    }
    text.push_str(
        "  gaps: streams that no worker ran for a time; moved: between workers that stay; restarted: workers that stay\n",
    );
    text
}

/// Renders for each stream how often and for how long nobody ran it, where there was anybody to.
pub(super) fn gaps_of_streams(ledger: &Ledger, rows: &[Row]) -> String {
    #[derive(Default)]
    struct Gaps {
        count: usize,
        longest: Millis,
        together: Millis,
    }
    let mut streams: BTreeMap<String, Gaps> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.workers > 0) {
        for gap in ledger.gaps(row.time) {
            let gaps = streams.entry(gap.stream).or_default();
            gaps.count += 1;
            gaps.longest = gaps.longest.max(gap.time.millis());
            gaps.together += gap.time.millis();
        }
    }
    let all: Millis = rows.iter().filter(|row| row.workers > 0).map(|row| row.time.millis()).sum();
    let width = streams.keys().map(|stream| stream.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "  {:width$}{:>8}{:>10}{:>10}  of {:.0} s\n",
        "stream",
        "gaps",
        "longest",
        "together",
        seconds(all)
    );
    for (stream, gaps) in streams {
        let (longest, together) = (seconds(gaps.longest), seconds(gaps.together));
        let _ =
            writeln!(text, "  {stream:width$}{:>8}{longest:>8.1} s{together:>8.1} s", gaps.count);
    }
    text
}

/// Renders the original's results in a step beside those of this demo.
pub(super) fn beside_the_original(rows: &[Row]) -> String {
    let mut text =
        format!("  {:32}{:>12}{:>14}{:>12}\n", "", "streams twice", "longest gap", "restarted");
    let mut line = |name: String, overlap: (usize, f64), gap: Option<f64>, restarted: usize| {
        let twice = if overlap.0 == 0 {
            "none".to_owned()
        } else {
            format!("{}: {:.1} s", overlap.0, overlap.1)
        };
        let gap = gap.map_or("none".to_owned(), |gap| format!("{gap:.1} s"));
        let _ = writeln!(text, "  {name:32}{twice:>12}{gap:>14}{restarted:>12}");
    };
    for original in ORIGINAL {
        let step = original.step;
        let twice = (original.streams_twice, original.overlap);
        line(format!("{step}  the original"), twice, Some(original.gap), original.restarted);
        for row in rows.iter().filter(|row| row.step == step) {
            let twice = (row.ran.overlaps, seconds(row.ran.overlap));
            let gap = row.ran.worst().map(seconds);
            line(format!("{step}  here, {}", row.strategy), twice, gap, row.restarted);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::streams::{Interval, Report};

    fn row(step: &str, gaps: Option<Vec<Millis>>) -> Row {
        Row {
            strategy: "HotReload",
            step: step.to_owned(),
            workers: 3,
            since: Timestamp::UNIX_EPOCH,
            time: Stretch::new(0, 4000),
            changed: BTreeSet::new(),
            excused: BTreeSet::new(),
            ran: Ran { overlaps: 0, overlap: 0, gaps },
            moved: 9,
            epoch: 12,
            restarted: 0,
            millis: 4321,
        }
    }

    #[test]
    fn only_streams_that_are_prepared_count_as_such() {
        let mut others =
            [row("2 -> 3", Some(vec![9])), row("2 -> 3, a node cut off", Some(vec![9]))];
        others[0].strategy = "DeletePod";
        let mut fewer = row("3 -> 2", Some(vec![9]));
        fewer.moved = 0;
        let rows = [row("2 -> 3", Some(vec![5, 7])), row("3 -> 12", Some(vec![6])), fewer];
        assert_eq!(prepared(&[&rows[..], &others].concat()), [5, 6, 7]);
    }

    #[test]
    fn a_step_is_judged_by_its_own_time() {
        let mut ledger = Ledger::default();
        let mut report = |worker: &str, from, to, epoch| {
            let (worker, pod) = (worker.to_owned(), worker.to_owned());
            let intervals = vec![Interval { stream: "s".to_owned(), epoch, from, to }];
            ledger.enter(&Report { worker, pod, intervals });
        };
        report("w0", 0, 1000, 1);
        report("w1", 1600, 3000, 3);
        report("w0", 2900, 4000, 5);
        let first = Ran::of(&ledger, Stretch::new(0, 2000), 2);
        assert_eq!((first.overlaps, first.worst(), first.median()), (0, Some(600), Some(600)));
        let second = Ran::of(&ledger, Stretch::new(2000, 4000), 2);
        assert_eq!((second.overlaps, second.overlap, second.worst()), (1, 100, None));
        assert_eq!(Ran::of(&ledger, Stretch::new(0, 2000), 0).worst(), None);
    }
}
