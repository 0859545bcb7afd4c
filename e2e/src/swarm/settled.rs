//! Checks that every stream runs where the file says, by the reports of the workers. No IO.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::file::File;
use lab::streams::{Ledger, Millis};

/// Streams of the original's sample.
pub(super) const STREAMS: usize = 27;
/// Workers report every 200 ms: one without a report for this long does not run the stream.
const FRESH: Millis = 2000;

/// A pod, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worker {
    pub uid: String,
    pub node: String,
    pub ready: bool,
    pub leaving: bool,
    /// Number of restarts of its containers.
    pub restarts: i32,
}

/// Pods by name.
pub(super) type Workers = BTreeMap<String, Worker>;

pub(super) fn worker(pod: &Pod) -> (String, Worker) {
    let status = pod.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let worker = Worker {
        uid: pod.uid().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        ready: conditions.any(|c| c.type_ == "Ready" && c.status == "True"),
        leaving: pod.metadata.deletion_timestamp.is_some(),
        restarts: containers.into_iter().flatten().map(|container| container.restart_count).sum(),
    };
    (pod.name_any(), worker)
}

/// Returns the workers that exist before and after, but with other pods or containers.
pub(super) fn restarted<'a>(before: &'a Workers, after: &Workers) -> Vec<&'a str> {
    let is_other = |(name, old): &(&'a String, &'a Worker)| {
        let new = after.get(name.as_str());
        new.is_some_and(|new| new.uid != old.uid || new.restarts != old.restarts)
    };
    before.iter().filter(is_other).map(|(name, _)| name.as_str()).collect()
}

/// Two moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The time of the change to recover from: runs reported only until then may have ended.
    pub acted: Millis,
    pub now: Millis,
}

/// Returns what is still missing until every stream runs on exactly the worker that the file names,
/// with this many workers.
pub(super) fn missing(
    file: &File,
    workers: &Workers,
    wanted: usize,
    ledger: &Ledger,
    times: Times,
) -> Option<String> {
    let Times { acted, now } = times;
    let there = workers.values().filter(|worker| worker.ready && !worker.leaving).count();
    if workers.len() != wanted || there != wanted {
        return Some(format!("{there} of {wanted} workers ready, {} pods", workers.len()));
    }
    if !file.releasing.is_empty() {
        return Some(format!("{} streams to be stopped", file.releasing.len()));
    }
    let owners = file.owners();
    let sharing = file.shares.values().filter(|share| !share.jobs.is_empty()).count();
    let (streams, sharers) = if wanted == 0 { (0, 0) } else { (STREAMS, wanted.min(STREAMS)) };
    if owners.len() != streams || sharing != sharers {
        return Some(format!("{} streams given to {sharing} workers", owners.len()));
    }
    if !file.is_even() {
        return Some(format!("shares are not even: {:?}", file.sizes()));
    }
    if wanted == 0 {
        let runs = ledger
            .streams()
            .filter(|stream| ledger.latest(stream).is_some_and(|run| run.time.to + FRESH > now));
        let still = runs.count();
        return (still > 0).then(|| format!("{still} streams run until just now"));
    }
    let wrong = |(stream, owner): (&str, &str)| {
        let Some(run) = ledger.latest(stream) else { return Some(format!("{stream} never ran")) };
        if run.time.to + FRESH <= now {
            let silent = now - run.time.to;
            return Some(format!("{stream}: nothing from {} for {silent} ms", run.worker));
        }
        if run.time.to <= acted {
            return Some(format!("{stream}: nothing from {} since then", run.worker));
        }
        let pod = workers.get(owner).map(|worker| &worker.uid);
        (run.worker != owner || Some(&run.pod) != pod)
            .then(|| format!("{stream} runs on {}, not on the {owner} of now", run.worker))
    };
    if let Some(text) = owners.into_iter().find_map(wrong) {
        return Some(text);
    }
    // Otherwise a part of the last gap would be counted with the next step.
    let runs = || ledger.streams().filter_map(|stream| ledger.latest(stream));
    let begun = runs().map(|run| run.time.from).max();
    let known = runs().map(|run| run.time.to).min();
    (begun >= known).then(|| "a stream began just now".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pods_and_other_containers_of_the_same_name_are_restarts() {
        let worker = Worker {
            uid: "u".to_owned(),
            node: "node-1".to_owned(),
            ready: true,
            leaving: false,
            restarts: 0,
        };
        let name = |number: usize| format!("swarm-worker-{number}");
        let before: Workers = (0..3).map(|number| (name(number), worker.clone())).collect();
        let mut after = before.clone();
        assert!(restarted(&before, &after).is_empty());
        after.get_mut("swarm-worker-0").unwrap().uid = "v".to_owned();
        after.get_mut("swarm-worker-1").unwrap().restarts = 1;
        after.remove("swarm-worker-2");
        after.insert("swarm-worker-3".to_owned(), worker);
        assert_eq!(restarted(&before, &after), ["swarm-worker-0", "swarm-worker-1"]);
    }
}
