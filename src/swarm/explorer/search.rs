//! The search through all states.
use std::{
    collections::{HashSet, VecDeque},
    fmt,
};

use super::{
    moves::{Explorer, Move},
    world::{STREAMS, WORKERS, World},
};
use crate::api::Mode;

/// In so many fair rounds everything has come to rest: each needs a few for the file, and as many for a
/// restart of each worker.
pub(super) const ROUNDS: usize = 60;

/// What the search has found.
pub(super) struct Found {
    pub states: usize,
    pub moves: usize,
    /// States that end with Ready=False and a stream that nobody runs.
    pub complained: usize,
    pub violation: Option<Violation>,
}

/// What should never be, and how it came to be.
pub(super) struct Violation {
    pub what: String,
    pub after: Vec<Move>,
    pub world: World,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, after, world } = self;
        write!(f, "{what}, after {after:?}, with pods {:?}", world.pods)?;
        let map = world.map.as_ref();
        map.map_or(Ok(()), |map| write!(f, " and the file {:?}", map.data))
    }
}

/// Visits every state that can come after this one, the nearest first, up to the first violation or to
/// `most` states.
pub(super) fn search(explorer: &Explorer<'_>, beginning: World, most: usize) -> Found {
    let mut search = Search { explorer, calm: HashSet::new(), complained: 0 };
    let mut known = HashSet::new();
    // How each state was reached: from which one, and by what.
    let mut reached: Vec<(usize, Option<Move>)> = vec![(0, None)];
    let mut queue = VecDeque::from([(beginning, 0)]);
    let (mut moves, mut violation) = (0, None);
    while let Some((world, index)) = queue.pop_front() {
        if let Some(what) = search.wrong(&world) {
            let mut after = Vec::new();
            let mut at = index;
            while let (from, Some(happened)) = reached[at] {
                after.push(happened);
                at = from;
            }
            after.reverse();
            violation = Some(Violation { what, after, world });
            break;
        }
        for &happens in &explorer.moves {
            let Some(next) = explorer.after(&world, happens) else { continue };
            moves += 1;
            if reached.len() < most && known.insert(next.fingerprint()) {
                queue.push_back((next, reached.len()));
                reached.push((index, Some(happens)));
            }
        }
    }
    Found { states: reached.len(), moves, complained: search.complained, violation }
}

struct Search<'a> {
    explorer: &'a Explorer<'a>,
    /// States from which everything ends well.
    calm: HashSet<u64>,
    complained: usize,
}

impl Search<'_> {
    fn wrong(&mut self, world: &World) -> Option<String> {
        overlap(world).or_else(|| self.ends_badly(world))
    }

    fn ends_badly(&mut self, world: &World) -> Option<String> {
        let mut now = World { changes: 0, faults: 0, crashes: 0, ..world.clone() };
        let mut passed = Vec::new();
        for _ in 0..ROUNDS {
            let before = (now.fingerprint(), now.writes);
            if self.calm.contains(&before.0) {
                self.calm.extend(passed);
                return None;
            }
            passed.push(before.0);
            self.explorer.fair_round(&mut now);
            if let Some(what) = overlap(&now) {
                return Some(what);
            }
            if (now.fingerprint(), now.writes) == before {
                self.calm.extend(passed);
                return self.unfulfilled(&now);
            }
        }
        Some("rest: it goes on writing, or waits for ever in turns".into())
    }

    /// Whether the end is not what was wanted.
    fn unfulfilled(&mut self, end: &World) -> Option<String> {
        let wish = &self.explorer.plot.wishes[end.wish];
        if wish.swarm.spec.mode != Mode::Enforce {
            return None;
        }
        for id in wish.swarm.spec.jobs.iter().flatten() {
            let s = STREAMS.iter().position(|stream| stream == id)?;
            let runs = |w: &usize| end.pods[*w].is_some_and(|pod| pod.run >> s & 1 == 1);
            let by: Vec<_> = (0..WORKERS).filter(runs).collect();
            if !(by.len() == 1 && by.iter().all(|w| *w < wish.replicas)) {
                if end.complained {
                    self.complained += 1;
                    return None;
                }
                return Some(format!("owned: in the end {id} is run by {by:?}, and Ready=True"));
            }
        }
        None
    }
}

/// Two pods run a stream, and it is not the doing of somebody else's file.
fn overlap(world: &World) -> Option<String> {
    world.twice.then(|| "one owner: a second pod starts a stream".into())
}
