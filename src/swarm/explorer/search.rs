//! The search through all states of a small world, and the properties that must hold in each.
use std::{
    collections::{HashSet, VecDeque},
    fmt,
};

use super::{
    facts::place,
    moves::{Explorer, Move},
    pod::{Pod, has},
    world::World,
};
use crate::api::Mode;

/// The fair rounds after which everything has settled: each needs a few for the file, and as many
/// for a restart of each worker.
pub(super) const ROUNDS: usize = 60;

/// The results of a search.
pub(super) struct Found {
    pub states: usize,
    /// True if these are all states.
    pub all: bool,
    pub moves: usize,
    /// The number of states that end with Ready=False.
    pub complained: usize,
    pub violation: Option<Violation>,
}

/// A forbidden state, and the events that led to it.
pub(super) struct Violation {
    pub what: String,
    after: Vec<Move>,
    state: World,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, after, state: world } = self;
        write!(f, "{what}, after {after:?}, with pods {:?}", world.pods)?;
        let mut maps = world.maps.iter().flatten();
        maps.try_for_each(|map| write!(f, " and the file {:?}", map.facts.data))
    }
}

/// Visits every state that can follow this one, the nearest first, up to the first violation or to
/// `most` states.
pub(super) fn search(explorer: &Explorer<'_>, beginning: World, most: usize) -> Found {
    let mut search = Search { explorer, calm: HashSet::new(), complained: 0 };
    let mut known = HashSet::from([beginning.fingerprint()]);
    // The origin of each state: the previous state, and the event.
    let mut reached: Vec<(usize, Option<Move>)> = vec![(0, None)];
    let mut queue = VecDeque::from([(beginning, 0)]);
    let (mut moves, mut all, mut violation) = (0, true, None);
    while let Some((state, index)) = queue.pop_front() {
        if let Some(what) = search.wrong(&state) {
            let mut after = Vec::new();
            let mut at = index;
            while let (from, Some(happened)) = reached[at] {
                after.push(happened);
                at = from;
            }
            after.reverse();
            violation = Some(Violation { what, after, state });
            break;
        }
        for &happens in &explorer.moves {
            let Some(next) = explorer.after(&state, happens) else { continue };
            moves += 1;
            if !known.insert(next.fingerprint()) {
                continue;
            }
            if reached.len() == most {
                all = false;
                continue;
            }
            queue.push_back((next, reached.len()));
            reached.push((index, Some(happens)));
        }
    }
    Found { states: reached.len(), all, moves, complained: search.complained, violation }
}

struct Search<'a> {
    explorer: &'a Explorer<'a>,
    /// States from which everything ends well.
    calm: HashSet<u64>,
    complained: usize,
}

impl Search<'_> {
    /// Returns the error in a state, or in its consequences.
    fn wrong(&mut self, world: &World) -> Option<String> {
        // One that hangs goes on, or dies.
        let dead = world.deposed.is_some().then(|| World { deposed: None, ..world.clone() });
        let next = world.decided.as_ref().and_then(|decided| decided.next.clone());
        let wrong = overlap(world).or(next);
        wrong.or_else(|| self.ends_badly(world)).or_else(|| self.ends_badly(&dead?))
    }

    fn ends_badly(&mut self, world: &World) -> Option<String> {
        let mut now = World { changes: 0, faults: 0, crashes: 0, ..world.clone() };
        let mut passed = Vec::new();
        let mut fingerprint = now.fingerprint();
        for _ in 0..ROUNDS {
            if self.calm.contains(&fingerprint) {
                self.calm.extend(passed);
                return None;
            }
            passed.push(fingerprint);
            let (before, writes) = (fingerprint, now.writes);
            self.explorer.fair_round(&mut now);
            if let Some(what) = overlap(&now) {
                return Some(what);
            }
            fingerprint = now.fingerprint();
            if (fingerprint, now.writes) == (before, writes) {
                self.calm.extend(passed);
                return self.unfulfilled(&now);
            }
        }
        Some("rest: it goes on writing, or waits for ever in turns".into())
    }

    /// Returns the unfulfilled wish at the end, if any.
    fn unfulfilled(&mut self, end: &World) -> Option<String> {
        let plot = self.explorer.plot;
        let wish = &plot.wishes[end.wish];
        if wish.swarm.spec.mode != Mode::Enforce {
            return None;
        }
        let mut unowned = Vec::new();
        for id in wish.swarm.spec.jobs.iter().flatten() {
            let s = place(id);
            let runs = |pod: &&Pod| has(pod.run, s);
            let by: Vec<_> = end.pods.iter().flatten().filter(runs).collect();
            let wanted = |pod: &Pod| {
                if plot.deployment { pod.stays() } else { usize::from(pod.id) < wish.replicas }
            };
            if !matches!(by[..], [pod] if wanted(pod)) {
                let by: Vec<_> = by.iter().map(|pod| super::facts::name(pod.id)).collect();
                unowned.push((s, format!("in the end {id} is run by {by:?}")));
            }
        }
        let with_the_lost = unowned.iter().all(|(stream, _)| self.is_with_a_lost(end, *stream));
        let with_the_lost = with_the_lost && !unowned.is_empty();
        let announced = end.maps.iter().flatten().any(|file| file.announces());
        let announced = announced.then(|| "next: a stream that will come for ever".to_owned());
        let unowned = unowned.pop().map(|(_, what)| what);
        match (&end.complaint, unowned) {
            (None, None) => announced,
            (None, Some(what)) => Some(format!("owned: {what}, and Ready=True")),
            (Some(text), _) if with_the_lost && text.contains("w-") => {
                self.complained += 1;
                None
            }
            (Some(text), _) if plot.may_wait => {
                self.complained += 1;
                let helps = text.contains("w-") && text.contains("delete");
                (!helps).then(|| format!("text: whom to help, and how? {text}"))
            }
            (Some(text), what) => {
                let what = what.unwrap_or_else(|| "for nothing".into());
                Some(format!("owned: {what}, and Ready=False: {text}"))
            }
        }
    }

    /// Reports whether a stream is in the list of a worker that cannot have a pod on a node.
    fn is_with_a_lost(&self, end: &World, stream: usize) -> bool {
        let plot = self.explorer.plot;
        let mut owners = end.maps.iter().flatten().flat_map(|file| file.owners(stream));
        owners.any(|id| has(plot.pending | plot.absent, id.into()))
    }
}

/// Two pods run a stream, and no edited file is the cause.
fn overlap(world: &World) -> Option<String> {
    world.twice.then(|| "one owner: a second pod starts a stream".into())
}
