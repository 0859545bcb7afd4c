//! The known runs of streams, by worker. No IO.

use std::collections::BTreeMap;

use super::coverage::{Millis, Stretch, coverage};
use super::report::Report;

/// One pod running one stream without a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The pod's name.
    pub worker: String,
    /// The pod's UID.
    pub pod: String,
    /// The interval in which it ran.
    pub time: Stretch,
    /// The fencing token at its beginning.
    pub first_epoch: u64,
    /// The fencing token at its end.
    pub last_epoch: u64,
}

/// Time in which a stream was run by more than one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub stream: String,
    /// The interval of the overlap.
    pub time: Stretch,
    /// The names of the pods that ran it then.
    pub workers: Vec<String>,
}

/// Time in which nobody ran a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub stream: String,
    /// The interval of the gap.
    pub time: Stretch,
}

/// A run whose fencing token says that it is older than the run before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regression {
    pub stream: String,
    pub before: Run,
    pub after: Run,
}

/// All runs of all streams that have been reported.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// In order of their beginning; runs of one pod neither touch nor overlap.
    streams: BTreeMap<String, Vec<Run>>,
    reports: usize,
}

impl Ledger {
    /// Enters a report. Earlier reports may be repeated.
    pub fn enter(&mut self, report: &Report) {
        self.reports += 1;
        for interval in &report.intervals {
            let time = Stretch::new(interval.from, interval.to);
            if time.is_empty() {
                continue;
            }
            let runs = self.streams.entry(interval.stream.clone()).or_default();
            let mut run = Run {
                worker: report.worker.clone(),
                pod: report.pod.clone(),
                time,
                first_epoch: interval.epoch,
                last_epoch: interval.epoch,
            };
            runs.retain(|known| {
                let joins = known.pod == run.pod
                    && known.time.from <= run.time.to
                    && run.time.from <= known.time.to;
                if joins {
                    run.join(known);
                }
                !joins
            });
            let place = runs.partition_point(|known| known.time.from <= run.time.from);
            runs.insert(place, run);
        }
    }

    /// Returns the number of entered reports.
    pub fn reports(&self) -> usize {
        self.reports
    }

    /// The streams that have ever been run.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.keys().map(String::as_str)
    }

    /// The runs of a stream, in order of their beginning.
    pub fn runs(&self, stream: &str) -> &[Run] {
        self.streams.get(stream).map_or(&[], Vec::as_slice)
    }

    /// The run of a stream that reaches farthest.
    pub fn latest(&self, stream: &str) -> Option<&Run> {
        self.runs(stream).iter().max_by_key(|run| run.time.to)
    }

    /// The time up to which something is known.
    pub fn end(&self) -> Millis {
        self.streams.values().flatten().map(|run| run.time.to).max().unwrap_or(0)
    }

    /// Returns the times, within a period, in which more than one pod ran a stream.
    pub fn overlaps(&self, within: Stretch) -> Vec<Overlap> {
        let mut found = Vec::new();
        for (stream, runs) in &self.streams {
            let twice = coverage(runs.iter().map(|run| run.time)).twice;
            for time in twice.into_iter().map(|time| time.within(within)) {
                if !time.is_empty() {
                    let then = runs.iter().filter(|run| !run.time.within(time).is_empty());
                    let workers = then.map(|run| run.worker.clone()).collect();
                    found.push(Overlap { stream: stream.clone(), time, workers });
                }
            }
        }
        found
    }

    /// Returns the times, within a period, in which nobody ran a stream after its first run: up to
    /// the end of the period, which must not lie beyond the last report.
    pub fn gaps(&self, within: Stretch) -> Vec<Gap> {
        let mut found = Vec::new();
        for (stream, runs) in &self.streams {
            let last = self.latest(stream).map_or(within.to, |run| run.time.to);
            let never = coverage(runs.iter().map(|run| run.time)).never;
            for time in never.into_iter().chain([Stretch::new(last, within.to)]) {
                let time = time.within(within);
                if !time.is_empty() {
                    found.push(Gap { stream: stream.clone(), time });
                }
            }
        }
        found
    }

    /// For each stream that had a gap within a time: the milliseconds of all its gaps.
    pub fn gap_times(&self, within: Stretch) -> BTreeMap<String, Millis> {
        let mut times = BTreeMap::new();
        for gap in self.gaps(within) {
            *times.entry(gap.stream).or_default() += gap.time.millis();
        }
        times
    }

    /// Runs that carry an older fencing token than the run before; that of another worker must
    /// carry a newer one.
    pub fn regressions(&self) -> Vec<Regression> {
        let mut found = Vec::new();
        for (stream, runs) in &self.streams {
            for pair in runs.windows(2) {
                let (before, after) = (&pair[0], &pair[1]);
                let newer = if before.worker == after.worker {
                    after.first_epoch >= before.last_epoch
                } else {
                    after.first_epoch > before.last_epoch
                };
                if !newer {
                    let (before, after) = (before.clone(), after.clone());
                    found.push(Regression { stream: stream.clone(), before, after });
                }
            }
        }
        found
    }
}

impl Run {
    /// Merges it with the known part of the same run.
    fn join(&mut self, known: &Self) {
        self.time.from = self.time.from.min(known.time.from);
        self.time.to = self.time.to.max(known.time.to);
        self.first_epoch = self.first_epoch.min(known.first_epoch);
        self.last_epoch = self.last_epoch.max(known.last_epoch);
    }
}

#[cfg(test)]
mod tests;
