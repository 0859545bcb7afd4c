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
    use super::super::file::{Releasing, Share};
    use super::*;
    use lab::streams::{Interval, Report};

    const NOW: Millis = 100_000;
    const AT: Times = Times { acted: NOW - 1000, now: NOW };

    /// `count` workers, all streams given in turn and run until a moment ago.
    fn world(count: usize) -> (File, Workers, Ledger) {
        let name = |number: usize| format!("swarm-worker-{number}");
        let (mut file, mut ledger) = (File { epoch: 3, ..File::default() }, Ledger::default());
        let worker = Worker {
            uid: "u".to_owned(),
            node: "node-1".to_owned(),
            ready: true,
            leaving: false,
            restarts: 0,
        };
        let workers = (0..count).map(|number| (name(number), worker.clone())).collect();
        for number in 0..if count == 0 { 0 } else { STREAMS } {
            let (owner, stream) = (name(number % count), format!("s{number}"));
            file.shares
                .entry(owner.clone())
                .or_insert_with(Share::default)
                .jobs
                .push(stream.clone());
            let intervals = vec![Interval { stream, epoch: 3, from: 1000, to: NOW - 300 }];
            ledger.enter(&Report { worker: owner, pod: "u".to_owned(), intervals });
        }
        (file, workers, ledger)
    }

    fn says(file: &File, workers: &Workers, wanted: usize, ledger: &Ledger) -> String {
        missing(file, workers, wanted, ledger, AT).unwrap_or_default()
    }

    #[test]
    fn all_streams_on_their_workers_is_settled() {
        for count in [0, 1, 2, 12, 27] {
            let (file, workers, ledger) = world(count);
            assert_eq!(says(&file, &workers, count, &ledger), "", "{count}");
        }
        let (file, mut workers, ledger) = world(27);
        workers.insert("swarm-worker-27".to_owned(), workers["swarm-worker-0"].clone());
        assert_eq!(says(&file, &workers, 28, &ledger), "", "one more worker than streams");
    }

    #[test]
    fn what_is_missing_is_reported() {
        let (file, workers, ledger) = world(3);
        assert!(says(&file, &workers, 2, &ledger).contains("3 of 2 workers ready"));
        assert!(says(&file, &workers, 0, &ledger).contains("3 of 0"));

        let mut unready = workers.clone();
        unready.get_mut("swarm-worker-1").unwrap().ready = false;
        assert!(says(&file, &unready, 3, &ledger).contains("2 of 3 workers ready"));

        let mut releasing = file.clone();
        let stream = "s0".to_owned();
        releasing.releasing.push(Releasing { stream, worker: "swarm-worker-0".to_owned() });
        assert!(says(&releasing, &workers, 3, &ledger).contains("1 streams to be stopped"));

        let mut fewer = file.clone();
        fewer.shares.get_mut("swarm-worker-2").unwrap().jobs.pop();
        assert!(says(&fewer, &workers, 3, &ledger).contains("26 streams given"));

        let mut uneven = file.clone();
        let moved = uneven.shares.get_mut("swarm-worker-2").unwrap().jobs.pop().unwrap();
        uneven.shares.get_mut("swarm-worker-1").unwrap().jobs.push(moved);
        assert!(says(&uneven, &workers, 3, &ledger).contains("not even"));

        let mut another = workers.clone();
        another.get_mut("swarm-worker-0").unwrap().uid = "v".to_owned();
        assert!(says(&file, &another, 3, &ledger).contains("not on the swarm-worker-0 of now"));

        let after = |times| missing(&file, &workers, 3, &ledger, times).unwrap();
        assert!(after(Times { now: NOW + 5000, ..AT }).contains("nothing from"));
        // Reported a moment ago, by a process that was killed since.
        assert!(after(Times { acted: NOW - 100, ..AT }).contains("since then"));
        assert!(says(&file, &workers, 3, &Ledger::default()).contains("never ran"));

        let (_, _, mut begun) = world(3);
        let mut report = |stream: &str, from, to| {
            let stream = stream.to_owned();
            let intervals = vec![Interval { stream, epoch: 3, from, to }];
            let (worker, pod) = ("swarm-worker-0".to_owned(), "u".to_owned());
            begun.enter(&Report { worker, pod, intervals });
        };
        report("s0", NOW - 200, NOW - 50);
        assert!(says(&file, &workers, 3, &begun).contains("began just now"));
        let (empty, nobody, _) = world(0);
        assert!(says(&empty, &nobody, 0, &ledger).contains("27 streams run until just now"));
    }

    #[test]
    fn other_pods_and_other_containers_of_the_same_name_are_restarts() {
        let (_, before, _) = world(3);
        let mut after = before.clone();
        assert!(restarted(&before, &after).is_empty());
        after.get_mut("swarm-worker-0").unwrap().uid = "v".to_owned();
        after.get_mut("swarm-worker-1").unwrap().restarts = 1;
        after.remove("swarm-worker-2");
        after.insert("swarm-worker-3".to_owned(), before["swarm-worker-0"].clone());
        assert_eq!(restarted(&before, &after), ["swarm-worker-0", "swarm-worker-1"]);
    }
}
