use std::collections::BTreeMap;

use super::*;

mod coming;
mod facts;
mod properties;
mod refreshing;
mod rules;

fn n(name: &str) -> Name {
    name.into()
}

/// Parses shares with their versions: `"w-0@3: a b"`.
fn shares(text: &[&str]) -> BTreeMap<Name, Share> {
    let share = |line: &&str| {
        let (head, streams) = line.split_once(':').unwrap();
        let (worker, version) = head.split_once('@').unwrap();
        let streams = streams.split_whitespace().map(n).collect();
        (n(worker), Share { streams, version: version.parse().unwrap() })
    };
    text.iter().map(share).collect()
}

/// Builds a file; releasing streams are written as `"a<w-0@4"`.
fn file(epoch: Epoch, lists: &[&str], releasing: &[&str]) -> Published {
    let release = |text: &&str| {
        let (stream, rest) = text.split_once('<').unwrap();
        let (worker, since) = rest.split_once('@').unwrap();
        ((n(stream), n(worker)), since.parse().unwrap())
    };
    let releasing = releasing.iter().map(release).collect();
    Published { epoch, shares: shares(lists), releasing, ..Published::default() }
}

/// Parses a target: `"a>w-0 b>-"`.
fn target(text: &str) -> Vec<(Name, Option<Name>)> {
    let place = |text: &str| {
        let (stream, worker) = text.split_once('>').unwrap();
        (n(stream), Some(n(worker)).filter(|worker| &**worker != "-"))
    };
    text.split_whitespace().map(place).collect()
}

fn pod(loaded: Epoch) -> Worker {
    let pod = Pod {
        uid: n("uid"),
        ready: true,
        terminating: false,
        stopped: false,
        loaded: Some(loaded),
        heir: None,
        born: None,
        prepared: None,
    };
    Worker { wanted: true, pod: Some(pod), confirmed: Epoch::MAX, successor: None }
}

/// A worker without a pod, confirmed by the API server itself.
fn absent() -> Worker {
    Worker { pod: None, ..pod(0) }
}

impl Worker {
    fn unwanted(self) -> Self {
        Self { wanted: false, ..self }
    }
    fn unconfirmed(self, confirmed: Epoch) -> Self {
        Self { confirmed, ..self }
    }
    fn successor(self, least: Epoch) -> Self {
        Self { successor: Some(least), ..self }
    }
    fn but(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(self.pod.as_mut().unwrap());
        self
    }
    fn unready(self) -> Self {
        self.but(|pod| pod.ready = false)
    }
    fn silent(self) -> Self {
        self.but(|pod| pod.loaded = None)
    }
    fn terminating(self) -> Self {
        self.but(|pod| pod.terminating = true)
    }
    fn stopped(self) -> Self {
        self.but(|pod| pod.stopped = true).unready()
    }
    fn prepared(self, streams: &str) -> Self {
        self.but(|pod| pod.prepared = Some(streams.split_whitespace().map(n).collect()))
    }
    fn born(self, epoch: Epoch) -> Self {
        self.but(|pod| pod.born = Some(epoch))
    }
}

fn workers<const N: usize>(workers: [(&str, Worker); N]) -> BTreeMap<Name, Worker> {
    workers.into_iter().map(|(name, worker)| (n(name), worker)).collect()
}

const RULES: Rules = Rules {
    exclusive: true,
    strategy: Strategy::DeletePod,
    max_unavailable: 1,
    gather: false,
    await_targets: false,
    announce: false,
};

/// Returns the file to publish; without one, the published file.
fn next(
    published: &Published,
    to: &str,
    workers: &BTreeMap<Name, Worker>,
    rules: &Rules,
) -> Published {
    step(published, &target(to), workers, 0, rules).publish.unwrap_or_else(|| published.clone())
}
