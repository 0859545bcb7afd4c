//! The outputs: status, conditions, events.
use std::{sync::Arc, time::Instant};

use super::{
    memory::Memory,
    settings::Settings,
    snapshot::{Snapshot, Worker},
};
use crate::{
    api::{
        Mode, Swarm, SwarmStatus,
        swarm::{Summary, UnassignedStream, WorkerStatus},
    },
    controller::{Notice, Verdict, count, verdict},
    prometheus::QueryError,
};

/// Maximum number of workers and streams in the status, to keep it readable and small.
const LISTED: usize = 100;

/// Time between two writes of figures that always move.
const REFRESH: std::time::Duration = std::time::Duration::from_mins(10);

/// The figures. Weights are up to ten minutes old: they move with every measurement, and each text is
/// a write.
pub(super) fn status(
    settings: &Settings,
    snapshot: &Snapshot,
    memory: &Memory,
    now: Instant,
) -> (Instant, SwarmStatus) {
    let weighs = settings.weights.is_some() || settings.streams.iter().any(|s| s.weight != 1);
    let worker = |worker: &Worker| WorkerStatus {
        name: worker.name.to_string(),
        streams: count(worker.jobs.len()),
        weight: weighs.then(|| significant(worker.weight)),
        wanted: count(worker.wanted),
        loaded: worker.loaded.map(count),
    };
    let listed = snapshot.unassigned.iter().take(LISTED);
    let counts = snapshot.counts;
    let mut status = SwarmStatus {
        observed_generation: None,
        epoch: count(snapshot.epoch),
        summary: Summary {
            streams: count(settings.streams.len()),
            owned: count(counts.owned),
            releasing: count(counts.releasing),
            free: count(counts.free),
            unassigned: count(counts.unassigned),
            workers: count(snapshot.workers.len()),
            ready: count(snapshot.workers.iter().filter(|worker| worker.ready).count()),
            unsigned: count(snapshot.workers.iter().filter(|worker| !worker.signs).count()),
        },
        moving: count(counts.releasing + counts.free),
        workers: snapshot.workers.iter().take(LISTED).map(worker).collect(),
        unassigned: listed
            .map(|(id, reason)| UnassignedStream { id: id.to_string(), reason: (*reason).into() })
            .collect(),
        conditions: vec![],
    };
    if let Some((at, old)) = &memory.status {
        let mut same = status.clone();
        for (worker, old) in same.workers.iter_mut().zip(&old.workers) {
            worker.weight.clone_from(&old.weight);
        }
        if same == *old && now.saturating_duration_since(*at) < REFRESH {
            status = same;
            return (*at, status);
        }
    }
    (now, status)
}

/// Three significant digits: more would change the text at every measurement.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    #[expect(clippy::cast_possible_truncation, reason = "an exponent is below 400")]
    let digits = (2 - value.abs().log10().floor() as i32).clamp(-300, 300);
    let scale = 10_f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    format!("{rounded}")
}

/// The further inputs of the conditions.
pub(super) struct Facts<'a> {
    /// The endpoint's last answer failed.
    pub measuring: Option<&'a QueryError>,
    /// `fitnessRef` names a `TrafficWatch` that is not there.
    pub no_fitness: bool,
    /// The template mounts no such `ConfigMap`.
    pub not_mounted: Option<String>,
    /// Workers that were waited for too long: name, version, why.
    pub stuck: &'a [(Arc<str>, u64, String)],
    /// A worker runs streams other than those of its list, though it reports having read it.
    pub disobedient: Option<String>,
    /// It is not known what workers have read.
    pub barrier: bool,
    /// What their next worker lacks, for which streams wait.
    pub awaiting: Option<&'static str>,
    /// Streams that have not run for too long, or that run on an unknown worker: their number, the
    /// worker that blocks them, and the remedy.
    pub orphaned: Option<String>,
    /// Streams in the lists of workers of which nothing has shown for too long that they run: the
    /// reason, how many, and why.
    pub stranded: Option<(&'static str, String)>,
    /// Workers that have answered before, and have not for too long.
    pub unresponsive: Option<String>,
    /// Streams in no list, because it is unknown what workers run.
    pub undecided: Option<String>,
}

/// `Ready`, `Converged` and, where something is measured, `MetricsAvailable`.
pub(super) fn conditions(
    swarm: &Swarm,
    settings: &Settings,
    snapshot: &Snapshot,
    facts: &Facts<'_>,
) -> Vec<Verdict> {
    let converged = converged(snapshot, facts);
    let streams = settings.streams.len();
    let ready = match ready(swarm, streams, snapshot, facts) {
        // Nothing runs yet, for the reason that Converged has.
        placed if placed.reason == "Placed" && snapshot.counts.owned == 0 => {
            let why = &converged.message;
            let text = format!("none of {streams} streams is in a worker's list yet: {why}");
            verdict("Ready", Some(false), converged.reason, text)
        }
        ready => ready,
    };
    let mut all = vec![ready, converged];
    if settings.weights.is_some() || swarm.spec.fitness_ref.is_some() {
        all.push(metrics(swarm, facts));
    }
    all
}

fn ready(swarm: &Swarm, streams: usize, snapshot: &Snapshot, facts: &Facts<'_>) -> Verdict {
    let paused = "spec.paused: nothing is decided or written";
    if let Some((reason, mut text)) = not_run(snapshot, facts) {
        if swarm.spec.paused {
            text = format!("{text}; {paused}");
        }
        return verdict("Ready", Some(false), reason, text);
    }
    if swarm.spec.paused {
        return verdict("Ready", Some(true), "Paused", paused);
    }
    if let Some(text) = &facts.not_mounted {
        // Workers may read the file in another way, and prove it by their acknowledgements.
        let mut lists = snapshot.workers.iter().filter(|worker| !worker.jobs.is_empty());
        let reads = lists.any(|worker| !worker.is_behind());
        let text = if reads {
            format!("every stream has a worker; but {text}")
        } else {
            format!("no worker has acknowledged its list: {text}")
        };
        return verdict("Ready", Some(reads), "NotMounted", text);
    }
    if swarm.spec.mode == Mode::Observe {
        let text = "spec.mode Observe: these decisions are not written";
        return verdict("Ready", Some(true), "Observing", text);
    }
    let owned = snapshot.counts.owned;
    let text = if owned >= streams {
        "every stream has a worker".into()
    } else {
        format!(
            "{owned} of {streams} streams are in a worker's list, the others on their way to one"
        )
    };
    verdict("Ready", Some(true), "Placed", text)
}

/// Returns why streams do not run, as far as that is known.
fn not_run(snapshot: &Snapshot, facts: &Facts<'_>) -> Option<(&'static str, String)> {
    if let Some((_, reason)) = snapshot.unassigned.first() {
        let text = format!(
            "{} streams have no worker, e.g. for {reason}: see status.unassigned",
            snapshot.unassigned.len()
        );
        return Some(("Unassigned", text));
    }
    let orphaned = facts.orphaned.clone().map(|text| ("RefreshTimeout", text));
    let undecided = || facts.undecided.clone().map(|text| ("HistoryUnknown", text));
    orphaned.or_else(|| facts.stranded.clone()).or_else(undecided)
}

fn converged(snapshot: &Snapshot, facts: &Facts<'_>) -> Verdict {
    if !snapshot.duplicates.is_empty() {
        let text = format!("two workers report that they run {:?}", snapshot.duplicates[0]);
        return verdict("Converged", Some(false), "DuplicateOwner", text);
    }
    if let Some((worker, epoch, why)) = facts.stuck.first() {
        let more = and_more(facts.stuck.len() - 1);
        let text = format!(
            "worker {worker}{more} has not acknowledged version {epoch} within \
             spec.refresh.timeout; nothing is taken from it: {why}"
        );
        return verdict("Converged", Some(false), "RefreshTimeout", text);
    }
    if let Some(text) = &facts.disobedient {
        return verdict("Converged", Some(false), "OtherStreams", text.clone());
    }
    if let Some((reason, text)) = &facts.stranded {
        return verdict("Converged", Some(false), reason, text.clone());
    }
    if let Some(text) = &facts.undecided {
        return verdict("Converged", Some(false), "HistoryUnknown", text.clone());
    }
    if facts.barrier {
        let text = "it is unknown what workers have read: all of them must acknowledge a new \
                    file before any stream moves";
        return verdict("Converged", Some(false), "HistoryUnknown", text);
    }
    if !snapshot.releasing.is_empty() || snapshot.counts.free > 0 {
        let text = "streams are moving to another worker";
        return verdict("Converged", Some(false), "Moving", text);
    }
    if let Some(text) = facts.awaiting {
        return verdict("Converged", Some(false), "AwaitingWorkers", text);
    }
    if snapshot.workers.iter().any(Worker::is_behind) {
        let text = "workers have not acknowledged their list yet";
        return verdict("Converged", Some(false), "Refreshing", text);
    }
    if let Some(text) = &facts.unresponsive {
        return verdict("Converged", None, "NoAnswer", text.clone());
    }
    verdict("Converged", Some(true), "Converged", "every worker runs exactly its list")
}

fn metrics(swarm: &Swarm, facts: &Facts<'_>) -> Verdict {
    if let Some(error) = facts.measuring {
        let text = format!("spec.weights: {error}; streams keep their last weights");
        return verdict("MetricsAvailable", Some(false), error.class.reason(), text);
    }
    if facts.no_fitness {
        let name = swarm.spec.fitness_ref.as_ref().map_or("", |watch| watch.name.as_str());
        let text = format!(
            "spec.fitnessRef: there is no TrafficWatch {name} in this namespace; no node counts as unfit"
        );
        return verdict("MetricsAvailable", Some(false), "FitnessNotFound", text);
    }
    let text = "every requested measurement is available";
    verdict("MetricsAvailable", Some(true), "Available", text)
}

/// What follows the name of the first of several workers.
pub(super) fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" (and {more} more)") }
}

/// One event.
pub(super) fn notice(warning: bool, reason: &'static str, note: String) -> Notice {
    Notice { warning, reason, note, node: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let text: Vec<_> =
            [0.0, 1.0, 12.345, 1234.5, 0.001_234, 3e9].into_iter().map(significant).collect();
        assert_eq!(text, ["0", "1", "12.3", "1230", "0.00123", "3000000000"]);
    }
}
