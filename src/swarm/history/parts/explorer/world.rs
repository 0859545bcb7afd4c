//! The world, and what can happen in it.
use std::sync::{Arc, LazyLock};

use kube::core::ObjectMeta;
use serde_json::Value;

use crate::{
    placement::part,
    swarm::{
        file::{self, STATE_KEY},
        live::{file_object, part_object},
        memory::Memory,
        plan::{Desired, Part, Publish},
        watches::{MapFacts, PodFacts},
    },
};

mod plot;
mod view;

pub(super) use plot::{Move, Plot, Weak, moves};

pub(super) const WORKERS: usize = 2;
const STREAMS: [&str; 2] = ["a", "b"];
/// The head and three parts: with this name of the workload the lists of both workers are in
/// different ones, and one part has none.
const PARTS: usize = 3;
const MAPS: usize = 1 + PARTS;
const WORKLOAD: &str = "s";
const KEY: &str = "config.yml";

/// A set of streams, a bit for each.
pub(super) type Set = u8;

/// One version of one part, as workers read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    part: usize,
    epoch: u64,
    lists: [Set; WORKERS],
    foreign: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    serial: u8,
    /// The version that its process has read; 0: none.
    pub read: usize,
    pub run: Set,
    pub nudged: u64,
}

/// A write of the operator's, as it was decided.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    map: usize,
    facts: MapFacts,
    on: Option<String>,
}

impl Write {
    pub(super) fn head(plot: &Plot, publish: &Publish) -> Self {
        let object = file_object(&plot.wishes[0].1, publish);
        Self { map: 0, facts: map_facts(&object), on: publish.on.clone() }
    }

    pub(super) fn part(plot: &Plot, part: &Part) -> Self {
        let map = part.name.rsplit('-').next().and_then(|i| i.parse::<usize>().ok());
        let object = part_object(&plot.wishes[0].1, part);
        Self { map: 1 + map.expect("a part"), facts: map_facts(&object), on: part.on.clone() }
    }
}

fn map_facts(object: &Value) -> MapFacts {
    let metadata: ObjectMeta =
        serde_json::from_value(object["metadata"].clone()).expect("metadata");
    let data = serde_json::from_value(object["data"].clone()).expect("data");
    MapFacts::new(&metadata, Arc::new(data))
}

#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub desired: Desired,
    pub reported: (i64, u64),
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) maps: [Option<Arc<MapFacts>>; MAPS],
    /// Counts all writes to them: their versions.
    pub(super) versions: u64,
    /// All versions of parts that ever existed, by any writer.
    pub(super) reads: Arc<Vec<Read>>,
    pub(super) reported: (i64, u64),
    pub(super) wish: usize,
    pub(super) pods: [Option<Pod>; WORKERS],
    pub(super) serials: [u8; WORKERS],
    pub(super) memory: Memory,
    pub(super) decided: Option<Arc<Decided>>,
    /// The writes that a hanging operator has yet to make, in this order.
    pub(super) late: Vec<Write>,
    pub(super) passes: u32,
    pub(super) twice: bool,
    pub(super) writes: u32,
    pub(super) changes: u8,
    pub(super) faults: u8,
    pub(super) crashes: u8,
}

fn name(w: usize) -> String {
    format!("{WORKLOAD}-{w}")
}

pub(super) fn worker(name: &str) -> usize {
    (0..WORKERS).find(|w| self::name(*w) == name).expect("a worker")
}

static OF: LazyLock<[usize; WORKERS]> =
    LazyLock::new(|| std::array::from_fn(|w| part::of(&name(w), 3) as usize));

pub(super) fn facts(w: usize, pod: &Pod) -> PodFacts {
    PodFacts {
        name: name(w).into(),
        uid: format!("{}/{}", name(w), pod.serial).into(),
        node: Some("n".into()),
        ip: Some([10, 0, 0, 1].into()),
        ready: true,
        started: true,
        nudged: Some(pod.nudged),
        ..PodFacts::default()
    }
}

impl World {
    pub(super) fn beginning(plot: &Plot) -> Self {
        Self {
            maps: [const { None }; MAPS],
            versions: 0,
            reads: Arc::new(vec![Read { part: 9, epoch: 0, lists: [0; WORKERS], foreign: false }]),
            reported: (0, 0),
            wish: 0,
            pods: [None; WORKERS],
            serials: [0; WORKERS],
            memory: Memory::default(),
            decided: None,
            late: vec![],
            passes: 0,
            twice: false,
            writes: 0,
            changes: plot.changes,
            faults: plot.faults,
            crashes: plot.crashes,
        }
    }

    /// Returns the list of a version for a worker.
    pub(super) fn list(&self, read: usize, w: usize) -> Set {
        self.reads[read].lists[w]
    }

    pub(super) fn epoch(&self, read: usize) -> Option<u64> {
        Some(self.reads[read].epoch).filter(|epoch| *epoch > 0)
    }

    pub(super) fn streams(set: Set) -> Vec<String> {
        let listed = STREAMS.iter().enumerate().filter(|(s, _)| set >> s & 1 == 1);
        listed.map(|(_, stream)| (*stream).to_owned()).collect()
    }

    /// Returns the next version of its part that a worker reads, if there is one.
    fn next(&self, w: usize, after: usize) -> Option<usize> {
        self.maps[1 + OF[w]].as_ref()?;
        (after + 1..self.reads.len()).find(|i| self.reads[*i].part == OF[w])
    }

    /// Replaces a `ConfigMap`.
    fn put(&mut self, map: usize, facts: MapFacts, foreign: bool) {
        self.versions += 1;
        if let Some(part) = map.checked_sub(1) {
            let config = facts.data.get(KEY).map_or("", String::as_str);
            let parsed = file::parse(config, None).expect("a part").published;
            let lists = std::array::from_fn(|w| {
                let share = parsed.shares.get(&*name(w));
                let listed = share.into_iter().flat_map(|share| &share.streams);
                let place = |s: &Arc<str>| STREAMS.iter().position(|known| **known == **s);
                listed.fold(0, |set, stream| set | 1 << place(stream).expect("a stream"))
            });
            Arc::make_mut(&mut self.reads).push(Read { part, epoch: parsed.epoch, lists, foreign });
        }
        let version = self.versions.to_string();
        self.maps[map] = Some(Arc::new(MapFacts { resource_version: version, ..facts }));
    }

    /// The API server accepts a write, over the very version that it is based on.
    pub(super) fn take(&mut self, write: &Write) -> bool {
        let there = self.maps[write.map].as_ref().map(|map| &map.resource_version);
        let same = there == write.on.as_ref();
        if same {
            self.put(write.map, write.facts.clone(), false);
        }
        same
    }

    pub(super) fn happen(&mut self, plot: &Plot, happens: Move) -> Option<()> {
        let replicas = plot.wishes[self.wish].0;
        match happens {
            Move::Look => self.look(plot)?,
            Move::Finish(left) => self.finish(plot, left)?,
            Move::Arrive => {
                let write = (!self.late.is_empty()).then(|| self.late.remove(0))?;
                if !self.take(&write) {
                    self.late.clear();
                }
            }
            Move::Wish(wish) => {
                (wish != self.wish).then_some(())?;
                self.changes = self.changes.checked_sub(1)?;
                self.wish = wish;
            }
            Move::Deliver(w) => {
                let read = self.next(w, self.pods[w]?.read)?;
                self.start(w, read);
            }
            Move::Go(w) => {
                (w >= replicas).then_some(())?;
                self.pods[w].take()?;
            }
            Move::Come(w) => {
                (self.pods[w].is_none() && w < replicas).then_some(())?;
                // Its volume needs every part.
                self.maps[1..].iter().all(Option::is_some).then_some(())?;
                let newest = (0..self.reads.len()).rfind(|i| self.reads[*i].part == OF[w])?;
                let serial = self.serials[w];
                self.serials[w] += 1;
                self.pods[w] = Some(Pod { serial, read: 0, run: 0, nudged: 0 });
                self.start(w, newest);
            }
            Move::Edit(map) => {
                self.faults = self.faults.checked_sub(1)?;
                let mut facts = (**self.maps[map].as_ref()?).clone();
                let key = if map == 0 { STATE_KEY } else { KEY };
                Arc::make_mut(&mut facts.data).get_mut(key)?.push_str("# by hand\n");
                self.put(map, facts, true);
            }
            Move::Lose(map) => {
                self.faults = self.faults.checked_sub(1)?;
                self.maps[map].take()?;
            }
        }
        Some(())
    }

    /// A worker reads a version, and runs its streams in addition to the former ones.
    fn start(&mut self, w: usize, read: usize) {
        let list = self.list(read, w);
        let others = self.pods.iter().enumerate().filter(|(other, _)| *other != w);
        let others = others.fold(0, |set, (_, pod)| set | pod.map_or(0, |pod| pod.run));
        let foreign = self.reads[read].foreign;
        let Some(pod) = &mut self.pods[w] else { return };
        self.twice |= !foreign && list & !pod.run & others != 0;
        (pod.read, pod.run) = (read, pod.run | list);
    }

    /// Returns the contents of the `ConfigMap`s.
    pub(super) fn texts(&self) -> Vec<Option<&MapFacts>> {
        self.maps.iter().map(Option::as_deref).collect()
    }

    /// A stream that is not run by exactly one desired worker.
    pub(super) fn unowned(&self, plot: &Plot) -> Option<String> {
        let replicas = plot.wishes[self.wish].0;
        STREAMS.iter().enumerate().find_map(|(s, id)| {
            let runs = |w: &usize| self.pods[*w].is_some_and(|pod| pod.run >> s & 1 == 1);
            let by: Vec<_> = (0..WORKERS).filter(runs).collect();
            let fine = by.len() == 1 && by.iter().all(|w| *w < replicas);
            (!fine).then(|| format!("owned: in the end {id} is run by {by:?}"))
        })
    }
}
