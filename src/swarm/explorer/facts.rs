//! The operator's input in a small world: pods and the file.
use std::{cell::RefCell, collections::HashMap, sync::Arc};

use serde_json::json;

use super::{
    plot::{Old, Plot},
    pod::{Pod, Reported, STREAMS, Set},
};
use crate::{
    placement::hash::{self, combine},
    swarm::{
        file,
        watches::{self, MapFacts, PodFacts},
        workers::immutable_name,
    },
};

pub(super) const MAP: &str = "w-config";

#[derive(Debug, Default)]
pub(super) struct File {
    pub facts: MapFacts,
    /// Its place among the `ConfigMap`s: 0 of the only one, or of the head; the parts follow.
    pub place: usize,
    pub epoch: u64,
    /// The list of each worker, by the number of its name.
    lists: Vec<(u8, Set)>,
    /// The same of the streams that will come.
    next: Vec<(u8, Set)>,
    /// True if someone other than the operator wrote it.
    pub foreign: bool,
    /// The fingerprints of the whole file, and of the part that workers read.
    pub hash: u64,
    pub lists_hash: u64,
}

impl File {
    /// The version of this number, as edited by a user.
    pub(super) fn new(
        version: u8,
        place: usize,
        facts: MapFacts,
        key: &str,
        foreign: bool,
    ) -> Arc<Self> {
        let facts = MapFacts { resource_version: version.to_string(), ..facts };
        let config = facts.data.get(key).map_or("", String::as_str);
        let parsed = file::parse(config, None).expect("a file").published;
        let set = |streams: &[Arc<str>]| {
            streams.iter().fold(0, |set, stream| set | 1 << self::place(stream))
        };
        let lists = parsed.shares.iter().map(|(worker, share)| (id(worker), set(&share.streams)));
        let lists: Vec<_> = lists.collect();
        let next = parsed.next.iter().map(|(worker, streams)| (id(worker), set(streams)));
        let next: Vec<_> = next.collect();
        let kind = combine(u64::try_from(place).expect("few"), foreign.into());
        let pairs = lists.iter().map(|list| (0, list)).chain(next.iter().map(|list| (1, list)));
        let lists_hash = pairs.fold(combine(parsed.epoch, kind), |all, (kind, list)| {
            combine(all, kind << 16 | u64::from(list.0) << 8 | u64::from(list.1))
        });
        let texts = facts.data.values().chain(&facts.content);
        let hash = texts
            .fold(combine(lists_hash, version.into()), |all, text| combine(all, hash::of(text)));
        Arc::new(Self { place, epoch: parsed.epoch, facts, lists, next, foreign, hash, lists_hash })
    }

    /// Returns the streams that will come to the worker of this name.
    pub(super) fn next(&self, id: u8) -> Set {
        let mut lists = self.next.iter();
        lists.find(|(listed, _)| *listed == id).map_or(0, |(_, list)| *list)
    }

    /// Reports whether any stream will come to a worker.
    pub(super) fn announces(&self) -> bool {
        !self.next.is_empty()
    }

    /// Returns the list of the worker of this name.
    pub(super) fn list(&self, id: u8) -> Set {
        let mut lists = self.lists.iter();
        lists.find(|(listed, _)| *listed == id).map_or(0, |(_, list)| *list)
    }

    /// All workers that it lists this stream for.
    pub(super) fn owners(&self, stream: usize) -> impl Iterator<Item = u8> {
        let owners = self.lists.iter().filter(move |(_, list)| list >> stream & 1 == 1);
        owners.map(|(id, _)| *id)
    }
}

/// Returns the number of a pod's name. Pods of a Deployment have a name each.
pub(super) fn id_of(plot: &Plot, slot: usize, serial: u8) -> Option<u8> {
    let slot = u8::try_from(slot).ok()?;
    if plot.deployment { (serial < 16).then_some((slot + 1) << 4 | serial) } else { Some(slot) }
}

pub(super) fn name(id: u8) -> Arc<str> {
    match id {
        0..16 => format!("w-{id}").into(),
        _ => format!("w-h-{}-{}", id >> 4, id & 15).into(),
    }
}

pub(super) fn id(name: &str) -> u8 {
    let number = |text: &str| text.parse::<u8>().expect("a number");
    match name.strip_prefix("w-h-").and_then(|rest| rest.split_once('-')) {
        Some((slot, serial)) => number(slot) << 4 | number(serial),
        None => number(name.strip_prefix("w-").expect("a worker")),
    }
}

pub(super) fn uid(pod: &Pod) -> String {
    format!("{}/{}", name(pod.id), pod.serial)
}

pub(super) fn place(stream: &str) -> usize {
    STREAMS.iter().position(|known| *known == stream).expect("a stream")
}

pub(super) fn streams(set: Set) -> Vec<String> {
    let listed = STREAMS.iter().enumerate().filter(|(s, _)| set >> s & 1 == 1);
    listed.map(|(_, stream)| (*stream).to_owned()).collect()
}

/// A pod as the API server has it, read as the operator reads it.
pub(super) fn facts(plot: &Plot, pod: &Pod) -> PodFacts {
    // Cached, because parsing the same pod again takes long.
    let mut facts = FACTS.with_borrow_mut(|all| {
        all.entry(pod.known().packed()).or_insert_with(|| watches::read_pod(object(pod))).clone()
    });
    let parts = plot.wishes[0].swarm.parts();
    if !parts.is_empty() {
        facts.mounts = parts.into_iter().map(Into::into).collect();
    }
    let ended = pod.terminating && pod.reported == Reported::Terminated;
    facts.stopped |= match plot.old {
        Some(Old::Stopped) => ended,
        Some(Old::Unready) => !facts.ready,
        Some(Old::Deleted) => pod.terminating,
        _ => false,
    };
    facts
}

thread_local! {
    static FACTS: RefCell<HashMap<u64, PodFacts>> = RefCell::default();
}

fn object(pod: &Pod) -> serde_json::Value {
    let state = match pod.reported {
        Reported::Nothing => json!({"waiting": {}}),
        Reported::Running => json!({"running": {}}),
        Reported::Terminated => json!({"terminated": {"exitCode": 1}}),
    };
    let ready = pod.reported == Reported::Running && !pod.terminating && !pod.cut;
    let phase = match pod.reported {
        _ if pod.ended => "Failed",
        Reported::Nothing => "Pending",
        Reported::Running | Reported::Terminated => "Running",
    };
    let mut container = json!({"name": "worker", "state": state});
    container["restartCount"] = i32::from(pod.restarted).into();
    let deployment = pod.id >= 16;
    let (kind, controller) = if deployment { ("ReplicaSet", "w-h") } else { ("StatefulSet", "w") };
    let mounted = match pod.mounts {
        0 => MAP.into(),
        epoch => immutable_name(MAP, epoch.into()),
    };
    let mut object = json!({
        "metadata": {
            "name": *name(pod.id), "uid": uid(pod),
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": kind, "name": controller, "uid": "w", "controller": true,
            }],
            "annotations": {watches::NUDGE: pod.nudged.to_string()},
        },
        "spec": {
            "containers": [{"name": "worker"}],
            "volumes": [{"name": "shares", "configMap": {"name": mounted}}],
        },
        "status": {"phase": phase},
    });
    if deployment {
        object["metadata"]["labels"] = json!({"pod-template-hash": "h"});
    }
    if pod.terminating {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if pod.scheduled {
        object["spec"]["nodeName"] = json!("n");
        object["status"]["podIP"] = json!("10.0.0.1");
        object["status"]["containerStatuses"] = json!([container]);
        let ready = if ready { "True" } else { "False" };
        object["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
    }
    object
}
