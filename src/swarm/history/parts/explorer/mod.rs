//! Explores every order of events around a divided file, with the product's own functions that
//! observe, confirm, decide and write.
//!
//! A small world: an API server with a head and three parts, a `StatefulSet` of two workers whose
//! lists are in different parts, workers that follow their part while they run, people who edit and
//! delete a `ConfigMap`, and the operator, which is killed before any of its writes. The remaining
//! writes may still arrive, one after the other, each over the version that it was decided on,
//! until one fails: an operator that hangs between any two writes, while another one continues. The
//! search visits every state that any order of these events leads to, and checks in each:
//!
//! - **one owner**: no worker starts a stream by a part that the operator wrote while another one
//!   runs it;
//! - **rest**: if from here on nothing more goes wrong, everything settles, and then nothing is
//!   written;
//! - **owned**: at rest every stream is run by one wanted worker.
use std::collections::HashSet;

mod cluster;
mod operator;
mod world;

use crate::swarm::explorer::{
    breadth_first::{self, Explored, Violation},
    most,
};
use world::{Move, Plot, Weak, World};

/// The fair rounds after which everything has settled.
const ROUNDS: usize = 40;

type Found = breadth_first::Found<World, Move>;

/// Visits every state that can follow the first settled one, the nearest first.
fn explore(plot: &Plot) -> Found {
    let mut settled = World::beginning(plot);
    for _ in 0..ROUNDS {
        fair_round(plot, &mut settled);
    }
    breadth_first::search(&mut Search { plot, calm: HashSet::new() }, settled, most())
}

struct Search<'a> {
    plot: &'a Plot,
    /// States from which everything ends well.
    calm: HashSet<u64>,
}

impl Explored for Search<'_> {
    type State = World;
    type Move = Move;

    fn moves(&self) -> Vec<Move> {
        world::moves(self.plot)
    }

    fn after(&self, world: &World, happens: Move) -> Option<World> {
        let mut next = world.clone();
        next.happen(self.plot, happens).map(|()| next)
    }

    fn fingerprint(world: &World) -> u64 {
        world.fingerprint()
    }

    fn wrong(&mut self, world: &World) -> Option<String> {
        overlap(world).or_else(|| ends_badly(self.plot, world, &mut self.calm))
    }
}

fn overlap(world: &World) -> Option<String> {
    world.twice.then(|| "one owner: a second worker starts a stream".into())
}

/// One round in which everything works that can, and nothing else happens.
fn fair_round(plot: &Plot, world: &mut World) {
    let mut moves = vec![Move::Finish(None)];
    for w in 0..world::WORKERS {
        moves.extend([Move::Go(w), Move::Come(w)]);
        moves.extend([Move::Deliver(w); 8]);
    }
    moves.extend([Move::Look, Move::Finish(None)]);
    for happens in moves {
        // Only a look may fail when it has changed something.
        let before = matches!(happens, Move::Look).then(|| world.clone());
        if let (None, Some(before)) = (world.happen(plot, happens), before) {
            *world = before;
        }
    }
}

fn ends_badly(plot: &Plot, world: &World, calm: &mut HashSet<u64>) -> Option<String> {
    let mut now = World { changes: 0, faults: 0, crashes: 0, late: vec![], ..world.clone() };
    let mut passed = Vec::new();
    for _ in 0..ROUNDS {
        let before = (now.fingerprint(), now.writes);
        if calm.contains(&before.0) {
            calm.extend(passed);
            return None;
        }
        passed.push(before.0);
        fair_round(plot, &mut now);
        if let Some(what) = overlap(&now) {
            return Some(what);
        }
        if (now.fingerprint(), now.writes) == before {
            let what = now.unowned(plot);
            if what.is_none() {
                calm.extend(passed);
            }
            return what;
        }
    }
    Some("rest: it goes on writing".into())
}

fn is_sound(plot: &Plot) {
    let found = explore(plot);
    println!("{} states", found.states);
    if let Some(Violation { what, after, state: world }) = found.violation {
        let (maps, pods) = (world.texts(), world.pods);
        panic!("{what}, after {after:?}, with {pods:?} and {maps:#?}");
    }
    assert!(found.states > 500, "{} states", found.states);
}

/// The way to an overlap, which there is because a rule is left out.
fn is_found(plot: &Plot) {
    let found = explore(plot);
    let Violation { what, after, .. } = found.violation.expect("an overlap");
    println!("{what} after {after:?}, {} states", found.states);
    assert!(what.starts_with("one owner"), "{what}, after {after:?}");
}

#[test]
fn an_operator_that_is_killed_or_hangs_between_any_two_writes() {
    is_sound(&Plot { crashes: 2, changes: 2, ..Plot::default() });
}

#[test]
fn parts_that_someone_edits_or_deletes() {
    is_sound(&Plot { faults: 2, ..Plot::default() });
    is_sound(&Plot { faults: 1, crashes: 1, ..Plot::default() });
}

/// A part that was decided and hangs arrives after another operator has assigned the stream to
/// another worker.
#[test]
fn without_the_head_first_a_late_part_gives_a_stream_twice() {
    let weak = Weak::HeadLast;
    is_found(&Plot { crashes: 1, changes: 2, weak, ..Plot::default() });
}

/// The same, with trust in parts that are older than the head states.
#[test]
fn without_the_fence_a_late_part_gives_a_stream_twice() {
    let weak = Weak::NoFence;
    is_found(&Plot { crashes: 1, changes: 2, weak, ..Plot::default() });
}
