//! The search through all states.
use std::{
    collections::{BTreeSet, HashSet, VecDeque, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
};

use super::model::{File, Move, STREAMS, Set, State, WORKERS, World, has};

/// Number of fair rounds after which everything has settled: a few for the file, and as many for a
/// restart of each worker.
const ROUNDS: usize = 60;

/// The results of the search.
pub(super) struct Found {
    pub states: usize,
    pub moves: usize,
    /// The operator's actions in all of them.
    pub done: BTreeSet<&'static str>,
    pub violation: Option<Violation>,
}

/// A forbidden state, and the events that led to it.
pub(super) struct Violation {
    pub what: String,
    pub after: Vec<Move>,
    pub state: State,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, after, state } = self;
        write!(f, "{what}, after {after:?}, in {state:?}")
    }
}

/// Visits every state that can come after this one, the nearest first, up to the first violation.
pub(super) fn search(world: &World<'_>, beginning: State) -> Found {
    let mut search = Search { world, calm: HashSet::new() };
    let mut known = HashSet::new();
    // The origin of each state: the previous state, and the event.
    let mut reached: Vec<(usize, Option<Move>)> = Vec::new();
    let mut queue = VecDeque::new();
    let mut moves = 0;
    let mut violation = None;
    queue.push_back((beginning, 0));
    reached.push((0, None));
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
        for &happens in &world.moves {
            let Some(next) = world.after(&state, happens) else { continue };
            moves += 1;
            if known.insert(fingerprint(&next)) {
                queue.push_back((next, reached.len()));
                reached.push((index, Some(happens)));
            }
        }
    }
    let done = world.operator.done.borrow().clone();
    Found { states: reached.len(), moves, done, violation }
}

/// Two states in a billion billion collide: among a million, one chance in thirty million.
fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    let State { file, history, wish, pods, born, cache, template, observed, write, evict, .. } =
        state;
    history.as_flattened().hash(&mut hasher);
    let State { highest, changes, faults, crashes, .. } = state;
    [*highest, *wish, *born, *template, *observed, *evict, *changes, *faults, *crashes]
        .hash(&mut hasher);
    for file in [Some(file), write.as_ref()] {
        let Some(File { epoch, entries, lists, versions, releasing, barrier }) = file else {
            continue;
        };
        [*epoch, *entries, *barrier].hash(&mut hasher);
        [*lists, *versions].as_flattened().hash(&mut hasher);
        releasing.as_flattened().hash(&mut hasher);
    }
    (write.is_some(), pods, cache).hash(&mut hasher);
    hasher.finish()
}

struct Search<'a> {
    world: &'a World<'a>,
    /// States from which everything ends well.
    calm: HashSet<u64>,
}

impl Search<'_> {
    fn wrong(&mut self, state: &State) -> Option<String> {
        let wrong = self.overlap(state).or_else(|| self.unbooked(state));
        wrong.or_else(|| if self.world.plot.only_i8 { None } else { self.ends_badly(state) })
    }

    /// Reports a running stream that the file does not list.
    fn unbooked(&self, state: &State) -> Option<String> {
        if self.world.plot.unbooked {
            return None;
        }
        (0..WORKERS).find_map(|w| {
            let run = state.pods[w].map_or(0, |pod| pod.run);
            let booked = |s| has(state.file.lists[w], s) || state.file.releasing[w][s] > 0;
            let unbooked = (0..STREAMS).find(|s| has(run, *s) && !booked(*s))?;
            Some(format!("book: w-{w} runs {unbooked}, and the file does not list them"))
        })
    }

    fn ends_badly(&mut self, state: &State) -> Option<String> {
        let mut now = State { changes: 0, faults: 0, crashes: 0, ..*state };
        let mut passed = Vec::new();
        for _ in 0..ROUNDS {
            let fingerprint = fingerprint(&now);
            if self.calm.contains(&fingerprint) {
                self.calm.extend(passed);
                return None;
            }
            passed.push(fingerprint);
            let before = now;
            self.world.fair_round(&mut now);
            if let Some(what) = self.overlap(&now) {
                return Some(what);
            }
            if now == before {
                self.calm.extend(passed);
                return self.unfulfilled(&now);
            }
        }
        Some("I9: it does not come to rest".into())
    }

    /// Returns the unfulfilled wish at the end, if any.
    fn unfulfilled(&self, end: &State) -> Option<String> {
        let (replicas, to) = self.world.wish(end);
        let runs = |w: usize, s| end.pods[w].is_some_and(|pod| has(pod.run, s));
        for (s, place) in to.chars().enumerate() {
            let at = place.to_digit(10).and_then(|w| usize::try_from(w).ok());
            let wanted = |w: &usize| {
                let live = end.pods[*w].is_some_and(|pod| !pod.terminating && !pod.stopped);
                if self.world.plot.deployment { live } else { *w < replicas }
            };
            let by: Vec<_> = (0..WORKERS).filter(|w| runs(*w, s)).collect();
            let right = match at {
                Some(w) if wanted(&w) => by == [w],
                // The stream is on a worker that must not have it: a wanted worker may keep it.
                Some(_) => by.len() <= 1 && by.iter().all(wanted),
                None => by.is_empty(),
            };
            if !right {
                return Some(format!("I9: in the end {s} is run by {by:?} and not by {at:?}"));
            }
        }
        if end.write.is_some() {
            return Some("I9: in the end it still writes".into());
        }
        let releasing = end.file.releasing.as_flattened().iter().any(|since| *since > 0);
        (releasing || end.file.barrier > 0).then(|| "I9: in the end something is releasing".into())
    }

    /// Reports a stream that two pods run, or that is in two lists.
    fn overlap(&self, state: &State) -> Option<String> {
        let runs = state.pods.map(|pod| pod.map_or(0, |pod| pod.run));
        if !disjoint(runs) && !self.world.plot.immediate {
            return Some("I8: two pods run the same stream".into());
        }
        (!disjoint(state.file.lists)).then(|| "I2: one file lists a stream twice".into())
    }
}

fn disjoint(sets: [Set; WORKERS]) -> bool {
    let mut all = 0;
    sets.into_iter().all(|set| {
        let free = all & set == 0;
        all |= set;
        free
    })
}
