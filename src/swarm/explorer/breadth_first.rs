//! The search through all states of a small world: one for every explorer of Swarms.
use std::collections::{HashSet, VecDeque};

/// A small world.
pub(in crate::swarm) trait Explored {
    type State;
    type Move: Copy;

    /// Everything that can happen.
    fn moves(&self) -> Vec<Self::Move>;

    /// The state after it; `None` where it cannot happen.
    fn after(&self, state: &Self::State, happens: Self::Move) -> Option<Self::State>;

    fn fingerprint(state: &Self::State) -> u64;

    /// Returns the error in a state, or in its consequences.
    fn wrong(&mut self, state: &Self::State) -> Option<String>;
}

/// The results of a search.
pub(in crate::swarm) struct Found<S, M> {
    pub states: usize,
    /// True if these are all states.
    pub all: bool,
    pub moves: usize,
    pub violation: Option<Violation<S, M>>,
}

/// A forbidden state, and the events that led to it.
pub(in crate::swarm) struct Violation<S, M> {
    pub what: String,
    pub after: Vec<M>,
    pub state: S,
}

/// Visits every state that can follow this one, the nearest first, up to the first violation or to
/// `most` states.
pub(in crate::swarm) fn search<E: Explored>(
    explored: &mut E,
    beginning: E::State,
    most: usize,
) -> Found<E::State, E::Move> {
    let possible = explored.moves();
    let mut known = HashSet::from([E::fingerprint(&beginning)]);
    // The origin of each state: the previous state, and the event.
    let mut reached: Vec<(usize, Option<E::Move>)> = vec![(0, None)];
    let mut queue = VecDeque::from([(beginning, 0)]);
    let (mut moves, mut all, mut violation) = (0, true, None);
    while let Some((state, index)) = queue.pop_front() {
        if let Some(what) = explored.wrong(&state) {
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
        for &happens in &possible {
            let Some(next) = explored.after(&state, happens) else { continue };
            moves += 1;
            if !known.insert(E::fingerprint(&next)) {
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
    Found { states: reached.len(), all, moves, violation }
}
