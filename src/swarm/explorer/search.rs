//! The properties that must hold in every state.
use std::{collections::HashSet, fmt};

use super::{
    breadth_first::{self, Explored, Violation},
    facts::place,
    moves::{Explorer, Move},
    pod::{Pod, has},
    world::World,
};
use crate::api::Mode;

/// The fair rounds after which everything has settled: each needs a few for the file, and as many
/// for a restart of each worker.
pub(super) const ROUNDS: usize = 60;

pub(super) type Found = breadth_first::Found<World, Move>;

impl fmt::Debug for Violation<World, Move> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, after, state: world } = self;
        write!(f, "{what}, after {after:?}, with pods {:?}", world.pods)?;
        let map = world.map.as_ref();
        map.map_or(Ok(()), |map| write!(f, " and the file {:?}", map.facts.data))
    }
}

/// Visits every state that can follow this one, or `most` of them. Also returns the number of those
/// that end with Ready=False.
pub(super) fn search(explorer: &Explorer<'_>, beginning: World, most: usize) -> (Found, usize) {
    let mut search = Search { explorer, calm: HashSet::new(), complained: 0 };
    let found = breadth_first::search(&mut search, beginning, most);
    (found, search.complained)
}

struct Search<'a> {
    explorer: &'a Explorer<'a>,
    /// States from which everything ends well.
    calm: HashSet<u64>,
    complained: usize,
}

impl Explored for Search<'_> {
    type State = World;
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        self.explorer.moves.clone()
    }

    fn after(&self, world: &World, happens: Move) -> Option<World> {
        self.explorer.after(world, happens)
    }

    fn fingerprint(world: &World) -> u64 {
        world.fingerprint()
    }

    fn wrong(&mut self, world: &World) -> Option<String> {
        overlap(world).or_else(|| self.ends_badly(world))
    }
}

impl Search<'_> {
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
        let unowned = unowned.pop().map(|(_, what)| what);
        match (&end.complaint, unowned) {
            (None, None) => None,
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
        let mut owners = end.map.iter().flat_map(|file| file.owners(stream));
        owners.any(|id| has(plot.pending | plot.absent, id.into()))
    }
}

/// Two pods run a stream, and no edited file is the cause.
fn overlap(world: &World) -> Option<String> {
    world.twice.then(|| "one owner: a second pod starts a stream".into())
}
